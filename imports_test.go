package retryafter_test

import (
	"bytes"
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
	imports(t, ".", "github.com/cenkalti/backoff/v4", "github.com/retryafter-go/retryafter/internal/redact", "github.com/retryafter-go/retryafter")
}

func TestRetryaftertestImportsNoMoreThanThat(t *testing.T) {
	imports(t, "./retryaftertest",
		"github.com/cenkalti/backoff/v4", "github.com/retryafter-go/retryafter/internal/redact", "github.com/retryafter-go/retryafter",
		"github.com/retryafter-go/retryafter/retryaftertest")
}

// imports checks what a package is made of, beside the standard library.
func imports(t *testing.T, dir string, want ...string) {
	t.Helper()
	out := goTool(t, ".", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", dir)
	if diff := cmp.Diff(want, strings.Fields(out)); diff != "" {
		t.Errorf("beside the standard library (-want +got):\n%s", diff)
	}
}

func TestTheProgramsInTheReadmeBuildAndItsTestsPass(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(package .*?)```").FindAllSubmatch(readme, -1)
	programs := 0
	for _, block := range blocks {
		file, command := "main.go", "vet"
		if !bytes.HasPrefix(block[1], []byte("package main\n")) {
			file, command = "client_test.go", "test"
		} else {
			programs++
		}
		program := filepath.Join(t.TempDir(), file)
		if err := os.WriteFile(program, block[1], 0o644); err != nil {
			t.Fatal(err)
		}
		goTool(t, ".", command, program)
	}
	if tests := len(blocks) - programs; programs == 0 || tests == 0 {
		t.Errorf("%d programs and %d tests in the README", programs, tests)
	}
}
