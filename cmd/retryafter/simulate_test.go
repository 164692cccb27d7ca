package main

import (
	"bytes"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// size FILE WIDTH HEIGHT wants a PNG of that many pixels.
func size(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: size FILE WIDTH HEIGHT")
	}
	is, err := png.DecodeConfig(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	if got := []string{strconv.Itoa(is.Width), strconv.Itoa(is.Height)}; got[0] != args[1] || got[1] != args[2] {
		ts.Fatalf("%s has %s pixels, want %s", args[0], got, args[1:])
	}
}

// What the documents show of simulate is what it prints, and what it draws.
func TestDocumentsShowWhatSimulatePrints(t *testing.T) {
	const root = "../.."
	shown := regexp.MustCompile("(?ms)^\\$ go run ./cmd/retryafter (simulate [^\n]*)\n(.*?)^```$")
	for file, least := range map[string]int{"docs/simulations.md": 4, "cmd/retryafter/README.md": 1} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		blocks := shown.FindAllStringSubmatch(string(text), -1)
		if len(blocks) < least {
			t.Errorf("%s shows %d runs, want at least %d", file, len(blocks), least)
		}
		for _, block := range blocks {
			args := strings.Fields(block[1])
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "docs"), 0o777); err != nil {
				t.Fatal(err)
			}
			command := exec.Command("retryafter", args...)
			command.Dir = dir
			got, err := command.Output()
			if err != nil {
				t.Errorf("%s: %s: %v", file, block[1], err)
			}
			if string(got) != block[2] {
				t.Errorf("%s: %s prints\n%swant\n%s", file, block[1], got, block[2])
			}
			for i, arg := range args {
				if arg == "--plot" {
					sameFiles(t, filepath.Join(dir, args[i+1]), filepath.Join(root, args[i+1]))
				}
			}
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
