package retryafter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestThePackageImportsTheStandardLibraryAndBackoffOnly(t *testing.T) {
	out := goTool(t, ".", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	want := []string{"github.com/cenkalti/backoff/v4", "github.com/retryafter-go/retryafter"}
	if diff := cmp.Diff(want, strings.Fields(out)); diff != "" {
		t.Errorf("beside the standard library (-want +got):\n%s", diff)
	}
}

func TestTheProgramsInTheReadmeBuild(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("no program in the README")
	}
	for _, block := range blocks {
		program := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(program, block[1], 0o644); err != nil {
			t.Fatal(err)
		}
		goTool(t, ".", "vet", program)
	}
}
