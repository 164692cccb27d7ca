package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var (
	fenced   = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")
	sample   = regexp.MustCompile(`(?ms)^\$ ([^\n]*)\n(.*?)(?:\z|^\$ )`)
	indented = regexp.MustCompile(`(?m)^    (go run \./cmd/retryafter [^\n]*)$`)
	same     = regexp.MustCompile(`^retryafter (explain .*--now|simulate) `) // what prints the same each time
)

// document reads one from below the root of the repository.
func document(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// samples gives the command lines that text shows, with what it says they print.
func samples(text string) (lines [][2]string) {
	for _, block := range fenced.FindAllStringSubmatch(text, -1) {
		rest := block[1]
		for {
			at := sample.FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			lines = append(lines, [2]string{rest[at[2]:at[3]], rest[at[4]:at[5]]})
			rest = rest[at[5]:]
		}
	}
	return lines
}

// shell runs a command line in a directory of its own.
func shell(t *testing.T, line string) (stdout, dir string) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to read a command line as it is shown")
	}
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "docs"), 0o777); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(sh, "-c", line)
	command.Dir = dir
	out, err := command.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || ended.ExitCode() != int(statusNo)) {
		t.Errorf("%s: %v: %s", line, err, ended.Stderr)
	}
	return string(out), dir
}

// What the documents show of explain and simulate is what they print, and what
// they draw.
func TestDocumentsShowWhatTheCommandPrints(t *testing.T) {
	for file, least := range map[string]int{"docs/simulations.md": 4, "cmd/retryafter/README.md": 2, "README.md": 2} {
		text, shown := document(t, file), 0
		lines := samples(text)
		for _, block := range indented.FindAllStringSubmatch(text, -1) {
			lines = append(lines, [2]string{block[1], ""}) // it says nothing of what is printed
		}
		for _, line := range lines {
			command := strings.Replace(line[0], "go run ./cmd/", "", 1)
			if !same.MatchString(command) {
				continue
			}
			shown++
			got, dir := shell(t, command)
			if got == "" || line[1] != "" && got != line[1] {
				t.Errorf("%s: %s prints\n%swant\n%s", file, command, got, line[1])
			}
			args := strings.Fields(command)
			for i, arg := range args {
				if arg == "--plot" {
					sameFiles(t, filepath.Join(dir, args[i+1]), filepath.Join(root, args[i+1]))
				}
			}
		}
		if shown < least {
			t.Errorf("%s shows %d runs, want at least %d", file, shown, least)
		}
	}
}

func sameFiles(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s is not what is drawn now", want)
	}
}

var (
	fieldCell = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	fieldName = regexp.MustCompile("`([a-z_0-9]+)`")
)

// The README has a table of the JSON of each command, with every field of it and
// no other.
func TestReadmeNamesEveryFieldOfTheJSON(t *testing.T) {
	readme := document(t, "cmd/retryafter/README.md")
	for command, types := range map[string][]any{
		"explain":  {explanation{}, hint{}, problem{}, decision{}},
		"demo":     {event{}, parts{}},
		"get":      {fetch{}, fetchCall{}, fetchAttempt{}, fetchWait{}, parts{}},
		"simulate": {comparison{}},
	} {
		_, section, _ := strings.Cut(readme, "\n### The JSON of "+command+"\n")
		_, section, _ = strings.Cut(section, "\n| field | ")
		section, _, _ = strings.Cut(section, "\n\n")
		told, fields := map[string]bool{}, map[string]bool{}
		for _, cell := range fieldCell.FindAllStringSubmatch(section, -1) {
			for _, name := range fieldName.FindAllStringSubmatch(cell[1], -1) {
				told[name[1]] = true
			}
		}
		for _, v := range types {
			for i := range reflect.TypeOf(v).NumField() {
				if name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ","); name != "" {
					fields[name] = true
				}
			}
		}
		for name := range fields {
			if !told[name] {
				t.Errorf("it doesn't name %s of %s", name, command)
			}
		}
		for name := range told {
			if !fields[name] {
				t.Errorf("it names %s, which is no field of %s", name, command)
			}
		}
	}
}
