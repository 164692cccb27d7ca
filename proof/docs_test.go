package proof_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// imported are the packages that a block may use without an import clause, by
// the name that it has for them. Packages of the standard library are known by
// their last element.
var imported = map[string]string{
	"retryafter":        "github.com/retryafter-go/retryafter",
	"retryaftertest":    "github.com/retryafter-go/retryafter/retryaftertest",
	"throttle":          "github.com/retryafter-go/retryafter/throttle",
	"hints":             "github.com/retryafter-go/retryafter/hints",
	"hashicorpretry":    "github.com/retryafter-go/retryafter/hashicorpretry",
	"redisbucket":       "github.com/retryafter-go/retryafter/redisbucket",
	"goredisclient":     "github.com/retryafter-go/retryafter/redisbucket/goredisclient",
	"rueidisclient":     "github.com/retryafter-go/retryafter/redisbucket/rueidisclient",
	"otelretryafter":    "github.com/retryafter-go/retryafter/otelretryafter",
	"backoff":           "github.com/cenkalti/backoff/v4",
	"retryablehttp":     "github.com/hashicorp/go-retryablehttp",
	"redis":             "github.com/redis/go-redis/v9",
	"rate":              "golang.org/x/time/rate",
	"oauth2":            "golang.org/x/oauth2",
	"otelhttp":          "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp",
	"context":           "context",
	"errors":            "errors",
	"fmt":               "fmt",
	"http":              "net/http",
	"httptest":          "net/http/httptest",
	"httputil":          "net/http/httputil",
	"httptrace":         "net/http/httptrace",
	"io":                "io",
	"log":               "log",
	"slog":              "log/slog",
	"os":                "os",
	"rand":              "math/rand/v2",
	"strings":           "strings",
	"bytes":             "bytes",
	"synctest":          "testing/synctest",
	"testing":           "testing",
	"time":              "time",
	"url":               "net/url",
	"tls":               "crypto/tls",
	"json":              "encoding/json",
	"strconv":           "strconv",
	"sync":              "sync",
	"errgroup":          "golang.org/x/sync/errgroup",
	"clientcredentials": "golang.org/x/oauth2/clientcredentials",
}

// assumed are what a block may use that doesn't declare it.
var assumed = map[string]string{
	"ctx":       "context.Context",
	"client":    "*http.Client",
	"transport": "*retryafter.Transport",
	"req":       "*http.Request",
	"resp":      "*http.Response",
	"body":      "io.Reader",
	"handler":   "http.Handler",
	"mux":       "*http.ServeMux",
	"logger":    "*slog.Logger",
	"addr":      "string",
	"name":      "string",
	"url":       "string",
	"tenant":    "string",
	"shared":    "redisbucket.Client",
	"accountOf": "func(*http.Request) (retryafter.Key, error)",
	"err":       "error",
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

func TestEveryBlockOfGoInTheDocumentsCompiles(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]string{}
	var packages []string
	temp := t.TempDir()
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		rel, _ := filepath.Rel(root, page)
		if rel == filepath.Join("docs", "clients.md") {
			continue // its blocks are code of module clients, word for word, which its tests check
		}
		for _, at := range goBlock.FindAllSubmatchIndex(text, -1) {
			line := 1 + bytes.Count(text[:at[2]], []byte("\n"))
			source, err := complete(string(text[at[2]:at[3]]), filepath.Base(rel), line)
			if err != nil {
				t.Errorf("%s:%d: %v", rel, line, err)
				continue
			}
			dir := fmt.Sprintf("block%d", len(packages))
			held := filepath.Join(temp, dir+".go")
			if err := os.WriteFile(held, source, 0o644); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(root, "proof", "documents", dir, "block.go")] = held
			packages = append(packages, "./documents/"+dir)
		}
	}
	if len(packages) < 3 {
		t.Fatalf("%d blocks of Go in all documents", len(packages))
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(overlayFile, list, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"build", "-o", os.DevNull, "-overlay", overlayFile}, packages...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// pages are the Markdown files below root.
func pages(t *testing.T, root string) (all []string) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// complete makes a file of block, which is one already, or declarations, or
// statements.
func complete(block, page string, line int) ([]byte, error) {
	place := fmt.Sprintf("//line %s:%d\n", page, line)
	if regexp.MustCompile(`(?m)^package \w+`).MatchString(block) {
		return []byte(place + block), nil
	}
	const head = "package block\n"
	if file, err := parser.ParseFile(token.NewFileSet(), "", head+block, 0); err == nil {
		if len(file.Imports) > 0 {
			return []byte(head + place + block), nil
		}
		return format.Source([]byte(head + imports(file) + place + block))
	}
	wrapped := "func _() {\n" + place + block + "\n}\n"
	file, err := parser.ParseFile(token.NewFileSet(), "", head+wrapped, 0)
	if err != nil {
		return nil, err
	}
	body := file.Decls[0].(*ast.FuncDecl).Body
	declared, all := names(body)
	var before, after strings.Builder
	for name, typ := range assumed {
		if slices.Contains(all, name) {
			fmt.Fprintf(&before, "var %s %s\n_ = %s\n", name, typ, name)
		}
	}
	for _, name := range declared {
		fmt.Fprintf(&after, "_ = %s\n", name)
	}
	text := "func _() error {\n" + before.String() + "{\n" + place + block + "\n" + after.String() + "}\nreturn nil\n}\n"
	file, err = parser.ParseFile(token.NewFileSet(), "", head+text, 0)
	if err != nil {
		return nil, err
	}
	return []byte(head + imports(file) + text), nil
}

// names lists what the statements of body declare at their own level, and every
// identifier in it.
func names(body *ast.BlockStmt) (declared, all []string) {
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				for _, e := range s.Lhs {
					if id, ok := e.(*ast.Ident); ok && id.Name != "_" && !slices.Contains(declared, id.Name) {
						declared = append(declared, id.Name)
					}
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, id := range v.Names {
						declared = append(declared, id.Name)
					}
				}
			}
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			all = append(all, id.Name)
		}
		return true
	})
	return declared, all
}

// imports is the import clause for what file selects from.
func imports(file *ast.File) string {
	var paths []string
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && imported[id.Name] != "" {
				if id.Name == "url" && !ast.IsExported(sel.Sel.Name) {
					return true
				}
				if path := imported[id.Name]; !slices.Contains(paths, path) {
					paths = append(paths, path)
				}
			}
		}
		return true
	})
	slices.Sort(paths)
	var b strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&b, "import %q\n", path)
	}
	return b.String()
}

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile("(?m)^#+ (.*)$")
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
)

func TestTheLinksBetweenDocumentsLeadSomewhere(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	anchors := func(page string) (all []string) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range heading.FindAllSubmatch(fenced.ReplaceAll(text, nil), -1) {
			all = append(all, slug(string(h[1])))
		}
		return all
	}
	links := 0
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(code.ReplaceAll(text, nil), -1) {
			path, anchor, _ := strings.Cut(string(m[1]), "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(target), anchor) {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
	if links < 20 {
		t.Errorf("%d links", links)
	}
}

// slug is the anchor that a heading gets where Markdown is shown.
func slug(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
