package proof_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table's column of licences is for people to keep.
func TestTheDependenciesAreThoseThatTheDocumentNames(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	const root = "github.com/retryafter-go/retryafter"
	name := regexp.MustCompile("`([^`]+)`")
	told := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			told[m[1]] = strings.Split(strings.TrimSpace(cells[2]), ", ")
		}
	}
	for _, pkg := range []string{
		"retryafter", "hints", "retryaftertest", "throttle", "hashicorpretry",
		"redisbucket", "redisbucket/goredisclient", "redisbucket/rueidisclient", "otelretryafter",
	} {
		want, ok := told[pkg]
		if !ok {
			t.Errorf("the document has no row for %s", pkg)
			continue
		}
		path := root
		if pkg != "retryafter" {
			path += "/" + pkg
		}
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", path).Output()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var got []string
		for _, m := range strings.Fields(string(out)) {
			if !strings.HasPrefix(m, root) {
				got = append(got, m)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s links\n%q, the document says\n%q", pkg, got, want)
		}
	}
}
