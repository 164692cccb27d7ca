// Mutate breaks a package in one small way after the other, and says of each
// whether a test noticed:
//
//	go run ./proof/mutate [-match regexp] [-seed n] [-n number] [directory ...]
//
// The package and its tests are in the first directory; what survives these is
// tried on the tests of each further one. By default they are the current one,
// which is meant to be the root, and proof. Only code that the package's own
// tests reach is broken, in the order of the files; with -n a sample of it that
// depends on -seed alone.
//
// No file of the package is written: the go command reads the broken one by its
// flag -overlay. A broken loop may eat memory until its tests' time is up, so
// set a bound before (ulimit -v). The exit status is 1 where anything survived.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/cover"
)

func main() {
	match := flag.String("match", "", "make only mutants whose line matches this `regexp`, as ^policy\\.go or → nothing")
	seed := flag.Uint64("seed", 1, "which sample -n takes")
	n := flag.Int("n", 0, "make at `most` so many; 0: all")
	flag.Parse()
	dirs := flag.Args()
	if len(dirs) == 0 {
		dirs = []string{".", "proof"}
	}
	survived, err := run(os.Stdout, dirs, *match, *seed, *n)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	case survived > 0:
		os.Exit(1)
	}
}

func run(w io.Writer, dirs []string, match string, seed uint64, n int) (survived int, err error) {
	wanted, err := regexp.Compile(match)
	if err != nil {
		return 0, err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	suites := make([]suite, len(dirs))
	for i, dir := range dirs {
		s := &suites[i]
		if s.dir, err = filepath.Abs(dir); err != nil {
			return 0, err
		}
		s.tmp, s.bin = tmp, filepath.Join(tmp, fmt.Sprint("test", i))
		if err := s.measure(i == 0); err != nil {
			return 0, fmt.Errorf("%s: %w", dir, err)
		}
	}
	all, err := mutants(suites[0].dir)
	if err != nil {
		return 0, err
	}
	profiles, err := cover.ParseProfiles(filepath.Join(tmp, "cover"))
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !wanted.MatchString(m.String()) })
	found := len(all)
	all = slices.DeleteFunc(all, func(m mutant) bool { return !m.reached(profiles) })
	fmt.Fprintf(w, "%d mutants, %d of them where tests come\n", found, len(all))
	if n > 0 && n < len(all) {
		sample := rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:n]
		slices.Sort(sample)
		for i, k := range sample {
			all[i] = all[k]
		}
		all = all[:n]
		fmt.Fprintf(w, "of these %d, by seed %d\n", n, seed)
	}
	count := make(map[string]int)
	for _, m := range all {
		outcome, by, err := try(suites, m)
		if err != nil {
			return 0, err
		}
		count[outcome]++
		fmt.Fprintf(w, "%v: %s%s\n", m, outcome, by)
	}
	_, err = fmt.Fprintf(w, "%d %s, %d %s, %d %s\n", count[killed], killed, count[alive], alive, count[unbuilt], unbuilt)
	return count[alive], err
}

const (
	killed  = "killed"
	alive   = "SURVIVED"
	unbuilt = "not compiled"
)

// try builds and runs the tests with m in the place of its file.
func try(suites []suite, m mutant) (outcome, by string, err error) {
	changed, overlay := filepath.Join(suites[0].tmp, "changed.go"), filepath.Join(suites[0].tmp, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {m.path: changed}})
	if err == nil {
		err = os.WriteFile(overlay, replace, 0o600)
	}
	if err == nil {
		err = os.WriteFile(changed, m.apply(), 0o600)
	}
	if err != nil {
		return "", "", err
	}
	for _, s := range suites {
		if s.build("-overlay", overlay) != nil {
			return unbuilt, "", nil
		}
		for _, p := range s.parts {
			if out, err := s.run(p); err != nil {
				return killed, " by " + culprit(out), nil
			}
		}
	}
	return alive, "", nil
}

// A suite is the tests of one directory.
type suite struct {
	dir, tmp, bin string
	parts         []part // the quick tests, and the slow ones
}

// A part of the tests is what arg says, and may take so long.
type part struct {
	arg   string
	limit time.Duration
}

func (s *suite) build(args ...string) error {
	cmd := exec.Command("go", slices.Concat([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", s.bin}, args, []string{"."})...)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// run runs a part of the tests until the first that fails.
func (s *suite) run(p part) ([]byte, error) {
	// The tests end by themselves, unless they can't.
	ctx, cancel := context.WithTimeout(context.Background(), p.limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, "-test.v", "-test.failfast", "-test.timeout="+p.limit.String(), p.arg)
	cmd.Dir, cmd.WaitDelay = s.dir, time.Second
	return cmd.CombinedOutput()
}

var (
	failed  = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	ended   = regexp.MustCompile(`(?m)^--- \w+: (\S+) \((\S+)\)`)
	started = regexp.MustCompile(`(?m)^=== RUN +([^\s/]+)`)
)

// culprit is the test that ended a run, by its output.
func culprit(out []byte) string {
	name := "nothing that has a name"
	if m := failed.FindSubmatch(out); m != nil {
		name = string(m[1])
	} else if m := started.FindAllSubmatch(out, -1); m != nil {
		name = string(m[len(m)-1][1])
	}
	if bytes.Contains(out, []byte("panic: test timed out")) {
		name += ", which did not end"
	}
	return name
}

// measure runs the tests as they are, to know which are slow, how long they may
// take, and what those of the package itself reach.
func (s *suite) measure(own bool) error {
	arg, flags := "-test.run=.", []string(nil)
	if own {
		arg, flags = "-test.coverprofile="+filepath.Join(s.tmp, "cover"), []string{"-cover"}
	}
	if err := s.build(flags...); err != nil {
		return err
	}
	out, err := s.run(part{arg, 10 * time.Minute})
	if err != nil {
		return fmt.Errorf("%w: the tests fail as they are\n%s", err, out)
	}
	names := []string{"^$"}
	var quick, slow time.Duration
	for _, m := range ended.FindAllStringSubmatch(string(out), -1) {
		if took, _ := time.ParseDuration(m[2]); took < 200*time.Millisecond {
			quick += took
		} else {
			slow += took
			names = append(names, "^"+m[1]+"$")
		}
	}
	expr := strings.Join(names, "|")
	s.parts = []part{{"-test.skip=" + expr, 15*time.Second + 4*quick}, {"-test.run=" + expr, 15*time.Second + 4*slow}}
	return nil
}
