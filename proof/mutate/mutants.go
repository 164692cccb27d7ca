package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/cover"
)

// A mutant is a package with one place of a file's text replaced.
type mutant struct {
	path         string
	source       []byte
	begin, end   int // in source
	text         string
	line, column int
}

// String says where the change is, and what becomes of what.
func (m mutant) String() string {
	short := func(text string) string {
		runes := []rune(strings.Join(strings.Fields(text), " "))
		if len(runes) > 60 {
			runes = append(runes[:60], '…')
		}
		return string(runes)
	}
	text := short(m.text)
	if text == "" {
		text = "nothing"
	}
	return fmt.Sprintf("%s:%d:%d: %s → %s", filepath.Base(m.path), m.line, m.column, short(string(m.source[m.begin:m.end])), text)
}

func (m mutant) apply() []byte {
	return slices.Concat(m.source[:m.begin], []byte(m.text), m.source[m.end:])
}

// reached reports whether the tests come to where m is. What is in no block, as
// a constant, is taken to be reached.
func (m mutant) reached(profiles []*cover.Profile) bool {
	in := false
	for _, p := range profiles {
		for _, b := range p.Blocks {
			after := m.line > b.StartLine || m.line == b.StartLine && m.column >= b.StartCol
			before := m.line < b.EndLine || m.line == b.EndLine && m.column <= b.EndCol
			if filepath.Base(p.FileName) == filepath.Base(m.path) && after && before {
				if in = true; b.Count > 0 {
					return true
				}
			}
		}
	}
	return !in
}

// mutants lists what can be broken in dir's files, in order.
func mutants(dir string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		b := breaker{path: path, source: source, file: fset.File(file.Pos()), decided: make(map[ast.Node]bool)}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
				ast.Inspect(d, b.node)
			}
		}
		slices.SortStableFunc(b.found, func(x, y mutant) int { return cmp.Or(x.begin-y.begin, x.end-y.end) })
		all = append(all, b.found...)
	}
	return all, nil
}

type breaker struct {
	path    string
	source  []byte
	file    *token.File
	found   []mutant
	results []string          // the zero values of what the function returns
	decided map[ast.Node]bool // conditions that were broken as wholes
}

func (b *breaker) add(from, to token.Pos, text string) {
	p := b.file.Position(from)
	m := mutant{b.path, b.source, b.file.Offset(from), b.file.Offset(to), text, p.Line, p.Column}
	b.found = append(b.found, m)
}

func (b *breaker) text(n ast.Node) string {
	return string(b.source[b.file.Offset(n.Pos()):b.file.Offset(n.End())])
}

var swapped = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*", "%": "*",
	"&": "|", "|": "&", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "++": "--", "--": "++",
	"max": "min", "min": "max", "true": "false", "false": "true", "Before": "After", "After": "Before",
}

// condition has e always hold and never, and each of its parts have no say.
// That covers its negation, and && for ||.
func (b *breaker) condition(e ast.Expr, always, never bool) {
	if always {
		b.add(e.Pos(), e.End(), "(true || "+b.text(e)+")")
	}
	if never {
		b.add(e.Pos(), e.End(), "(false && "+b.text(e)+")")
	}
	b.decided[ast.Unparen(e)] = true
	switch e := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			b.condition(e.X, e.Op == token.LAND, e.Op == token.LOR)
			b.condition(e.Y, e.Op == token.LAND, e.Op == token.LOR)
		}
	case *ast.UnaryExpr:
		b.decided[ast.Unparen(e.X)] = true
	}
}

func (b *breaker) list(stmts []ast.Stmt) {
	for _, s := range stmts {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.IncDecStmt, *ast.BranchStmt:
		default:
			continue
		}
		b.add(s.Pos(), s.End(), "")
	}
}

func (b *breaker) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return b.function(n.Type, n.Body)
	case *ast.FuncLit:
		return b.function(n.Type, n.Body)
	case *ast.BlockStmt:
		b.list(n.List)
	case *ast.IfStmt:
		b.condition(n.Cond, true, true)
	case *ast.ForStmt:
		if n.Cond != nil {
			b.condition(n.Cond, false, true)
		}
	case *ast.SwitchStmt:
		for _, s := range n.Body.List {
			c := s.(*ast.CaseClause)
			for i, e := range c.List {
				if n.Tag == nil {
					b.condition(e, true, len(c.List) > 1)
				} else if len(c.List) > 1 && i < len(c.List)-1 {
					b.add(e.Pos(), c.List[i+1].Pos(), "")
				} else if len(c.List) > 1 {
					b.add(c.List[i-1].End(), e.End(), "")
				}
			}
		}
	case *ast.CaseClause:
		b.add(n.Pos(), n.End(), "")
		b.list(n.Body)
	case *ast.CommClause:
		b.add(n.Pos(), n.End(), "")
		b.list(n.Body)
	case *ast.ReturnStmt:
		b.returned(n)
	case *ast.AssignStmt:
		b.swap(n.TokPos, n.Tok.String())
	case *ast.IncDecStmt:
		b.swap(n.TokPos, n.Tok.String())
	case *ast.BinaryExpr:
		switch logic := n.Op == token.LAND || n.Op == token.LOR; {
		case logic && !b.decided[n]: // a value: each of its parts has no say
			b.condition(n, false, false)
		case !logic && !(b.decided[n] && (n.Op == token.EQL || n.Op == token.NEQ)):
			b.swap(n.OpPos, n.Op.String())
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT && !b.decided[n] || n.Op == token.SUB {
			b.add(n.Pos(), n.X.Pos(), "")
		}
	case *ast.CallExpr: // the boundary of Before and After
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) == 1 && swapped[f.Sel.Name] != "" {
			b.add(n.Pos(), n.End(), "!"+b.text(f.X)+"."+swapped[f.Sel.Name]+"("+b.text(n.Args[0])+")")
		}
	case *ast.SelectorExpr: // whose name is another's max or After
		ast.Inspect(n.X, b.node)
		return false
	case *ast.Ident:
		b.swap(n.Pos(), n.Name)
	case *ast.BasicLit:
		b.number(n)
	}
	return true
}

func (b *breaker) function(t *ast.FuncType, body *ast.BlockStmt) bool {
	outer := b.results
	b.results = nil
	if t.Results != nil {
		for _, f := range t.Results.List {
			for range max(len(f.Names), 1) {
				b.results = append(b.results, "*new("+b.text(f.Type)+")")
			}
		}
	}
	ast.Inspect(body, b.node)
	b.results = outer
	return false
}

func (b *breaker) swap(at token.Pos, word string) {
	if other := swapped[word]; other != "" {
		b.add(at, at+token.Pos(len(word)), other)
	}
}

// number is one more, and one less.
func (b *breaker) number(n *ast.BasicLit) {
	v, ok := new(big.Int).SetString(n.Value, 0)
	if n.Kind != token.INT || !ok {
		return
	}
	b.add(n.Pos(), n.End(), new(big.Int).Add(v, big.NewInt(1)).String())
	if v.Sign() > 0 {
		b.add(n.Pos(), n.End(), new(big.Int).Sub(v, big.NewInt(1)).String())
	}
}

// returned has each result be the zero value of its type.
func (b *breaker) returned(r *ast.ReturnStmt) {
	if len(r.Results) == 1 && len(b.results) > 1 { // a call for them all
		b.add(r.Results[0].Pos(), r.End(), strings.Join(b.results, ", "))
		return
	}
	for i, e := range r.Results {
		switch text := b.text(e); {
		case text == "nil", text == "0", text == `""`, text == "false", text == "true", strings.HasSuffix(text, "{}"):
		default:
			b.add(e.Pos(), e.End(), b.results[i])
		}
	}
}
