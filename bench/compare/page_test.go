package compare

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

var update = flag.Bool("update", false, "write docs/comparison.md anew")

const page = "../../docs/comparison.md"

func TestComparison(t *testing.T) {
	got, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	is, was := lines(got), lines(want)
	for i := range max(len(is), len(was)) {
		switch {
		case i >= len(was):
			t.Errorf("line %d is missing on the page: %s", i+1, is[i])
		case i >= len(is):
			t.Errorf("line %d is too much on the page: %s", i+1, was[i])
		case is[i] != was[i]:
			t.Errorf("line %d of the page is\n%s\nand is now\n%s", i+1, was[i], is[i])
		}
	}
}

// lines are those of a page that must be the same with every release of Go.
func lines(page []byte) []string {
	return strings.Split(strings.ReplaceAll(string(page), goLine(page), ""), "\n")
}

func goLine(page []byte) string {
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, goPrefix) {
			return line
		}
	}
	return ""
}

const goPrefix = "Go: "

// render goes through all checks, and writes down what it found.
func render(t *testing.T) ([]byte, error) {
	all := contenders()
	versions, err := versions()
	if err != nil {
		return nil, err
	}
	var w bytes.Buffer
	fmt.Fprintf(&w, `# Who does what

retryafter and other retrying clients for Go, put through one table of checks. This page is written by

    cd bench && go test ./compare -update

and the same test without `+"`-update`"+` fails when it is no longer so. Everything runs on a virtual clock, against a server in
memory, and each client is set up as its documentation says. Where a client has an option for what it gets wrong by itself, the
option is set, unless that makes it get something else wrong.

✓ is right, ✗ is wrong, with what was seen; n/a is what the client can't be right or wrong about. The notes say what a client's
documentation says of it, and what the option is.

%s%s

| client | version | set up with |
|---|---|---|
`, goPrefix, runtime.Version())
	for _, c := range all {
		fmt.Fprintf(&w, "| [%s](https://pkg.go.dev/%s) | %s | %s |\n", c.Name, c.Module, versions[c.Module], c.SetUp)
	}
	var notes footnotes
	for _, s := range sections() {
		fmt.Fprintf(&w, "\n## %s\n", s.title)
		if s.about != "" {
			fmt.Fprintf(&w, "\n%s\n", s.about)
		}
		head, rule := "\n| |", "|---|"
		for _, c := range all {
			head, rule = head+" "+c.Name+" |", rule+"---|"
		}
		fmt.Fprintf(&w, "%s\n%s\n", head, rule)
		for _, check := range s.checks {
			fmt.Fprintf(&w, "| %s |", check.what)
			for i, c := range all {
				v, note := c.judge(t, check), c.notes[check.id]
				if v.none {
					v.saw, note = "", v.saw
				}
				if i == 0 && !v.right {
					t.Errorf("%s is wrong: %s: %v", c.Name, check.what, v)
				}
				fmt.Fprintf(&w, " %v%s |", v, notes.mark(note))
			}
			fmt.Fprintln(&w)
		}
	}
	notes.print(&w)
	return w.Bytes(), nil
}

// judge is what check finds out about c.
func (c contender) judge(t *testing.T, check check) verdict {
	reason := c.lacks[check.id]
	if reason == "" && check.read {
		reason = c.reads
	}
	if reason != "" {
		return verdict{none: true, saw: reason}
	}
	return c.verdict(t, check.do)
}

// footnotes are numbered as they are first wanted; the same text is the same
// note.
type footnotes []string

func (f *footnotes) mark(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
	for i, have := range *f {
		if have == text {
			return fmt.Sprintf("[^%d]", i+1)
		}
	}
	*f = append(*f, text)
	return fmt.Sprintf("[^%d]", len(*f))
}

func (f footnotes) print(w *bytes.Buffer) {
	fmt.Fprintln(w)
	for i, text := range f {
		fmt.Fprintf(w, "[^%d]: %s\n", i+1, text)
	}
}

// versions are those of the modules that go.mod requires.
func versions() (map[string]string, error) {
	const name = "../go.mod"
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(name, b, nil)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, r := range f.Require {
		all[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range f.Replace {
		all[r.Old.Path] = "as checked out"
	}
	return all, nil
}
