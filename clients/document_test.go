package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheCodeInTheDocumentIsTheCodeThatIsTested(t *testing.T) {
	document, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	names, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(b)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) < 10 {
		t.Errorf("%d blocks of code", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(tests.String(), "\n"+block[1]) {
			t.Errorf("nowhere in the tests:\n%s", block[1])
		}
	}
}
