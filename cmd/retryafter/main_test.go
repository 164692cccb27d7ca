package main

import (
	"bufio"
	"errors"
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	// The scripts wait more than they work.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){
		"retryafter": main,
		// The demo with a client that breaks the promises.
		"hastydemo": func() {
			status, _ := errors.AsType[status]((&demoCommand{}).run(hasty))
			os.Exit(int(status))
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			s := httptest.NewServer(&scripted{paths: make(map[string]*record)})
			env.Defer(s.Close)
			env.Setenv("URL", s.URL)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"broken":     broken,
			"exits":      exits,
			"interrupts": interrupts,
			"size":       size,
			"told":       told,
		},
	})
}

// exits STATUS PROGRAM ARG... runs a program that must end with STATUS.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// interrupts [-term|-hup] STATUS PROGRAM ARG... runs a program, interrupts it once it
// has printed a line, and wants it to end at once with STATUS. What it printed
// is then in the file interrupted.
func interrupts(ts *testscript.TestScript, neg bool, args []string) {
	var sig os.Signal = os.Interrupt
	if len(args) > 0 && args[0] == "-term" {
		sig, args = syscall.SIGTERM, args[1:]
	} else if len(args) > 0 && args[0] == "-hup" {
		sig, args = syscall.SIGHUP, args[1:]
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupts [-term|-hup] STATUS PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	program := exec.Command(lookPath(ts.Getenv("PATH"), args[1]), args[2:]...)
	program.Dir = ts.Getenv("WORK")
	out, err := program.StdoutPipe()
	ts.Check(err)
	program.Stderr = program.Stdout
	ts.Check(program.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		ts.Fatalf("it printed nothing: %v", lines.Err())
	}
	printed := lines.Text() + "\n"
	began := time.Now()
	ts.Check(program.Process.Signal(sig))
	for lines.Scan() {
		printed += lines.Text() + "\n"
	}
	program.Wait()
	ts.Check(os.WriteFile(ts.MkAbs("interrupted"), []byte(printed), 0o666))
	if took := time.Since(began); took > 5*time.Second {
		ts.Fatalf("it went on for %v", took)
	}
	if got := program.ProcessState.ExitCode(); got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// broken STATUS PROGRAM ARG... runs a program whose standard output nobody reads,
// and wants it to end as a shell has it with STATUS.
func broken(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: broken STATUS PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	r, w, err := os.Pipe()
	ts.Check(err)
	r.Close()
	defer w.Close()
	program := exec.Command(lookPath(ts.Getenv("PATH"), args[1]), args[2:]...)
	program.Stdout = w
	if err := program.Run(); err != nil && program.ProcessState == nil {
		ts.Fatalf("%v", err)
	}
	got := program.ProcessState.ExitCode()
	if by, ok := program.ProcessState.Sys().(syscall.WaitStatus); ok && by.Signaled() {
		got = 128 + int(by.Signal())
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func lookPath(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); exists(file) {
			return file
		}
	}
	return ""
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func TestHelpFitsInEightyColumns(t *testing.T) {
	var paths [][]string
	model := parserOf(&command{}).Model
	err := kong.Visit(model, func(node kong.Visitable, next kong.Next) error {
		switch n := node.(type) {
		case *kong.Application:
			paths = append(paths, nil)
		case *kong.Node:
			paths = append(paths, strings.Fields(strings.TrimPrefix(n.FullPath(), model.Name)))
		}
		return next(nil)
	})
	if err != nil || len(paths) != 8 {
		t.Fatalf("%q, %v: want 8 commands", paths, err)
	}
	for _, path := range paths {
		var help strings.Builder
		parser := parserOf(&command{})
		parser.Stdout, parser.Exit = &help, func(int) {}
		parser.Parse(append(path, "--help"))
		if !strings.HasPrefix(help.String(), "Usage: "+strings.Join(append([]string{"retryafter"}, path...), " ")+" ") {
			t.Errorf("%q has no help: %q", path, &help)
		}
		for line := range strings.Lines(help.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("the help of %q has a line of %d columns:\n%s", path, n, line)
			}
		}
	}
}
