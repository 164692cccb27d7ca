package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// printMachine says what the figures were taken on, and of what.
func printMachine(w io.Writer, passes int, pass time.Duration) {
	fmt.Fprint(w, "# Speed\n\nPrinted by `go run ./bench`, whose [README](../bench/README.md) tells how to read it. Compare ratios between machines, not times.\n\n")
	fmt.Fprintf(w, "%s, %s/%s, GOMAXPROCS=%d, %s; median of %d passes of %v a row.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), cpu(), passes, pass)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	var versions []string
	for _, m := range info.Deps {
		if !required(m.Path) {
			continue
		}
		version := m.Version
		if m.Replace != nil || version == "" {
			version = "as checked out"
		}
		versions = append(versions, "`"+m.Path+"` "+version)
	}
	fmt.Fprintf(w, "Modules: %s.\n\nA ratio, and what is beyond, is to the nearest row above that shows 1, pass by pass; both are medians, and so is the time.\n",
		strings.Join(versions, ", "))
}

//go:embed go.mod
var requirements []byte

// required reports whether this module itself uses the one at path, which the
// modules that it uses may do as well.
func required(path string) bool {
	f, err := modfile.ParseLax("go.mod", requirements, nil)
	return err == nil && slices.ContainsFunc(f.Require, func(r *modfile.Require) bool {
		return r.Mod.Path == path && !r.Indirect
	})
}

// cpu is the processor's name, where the system tells it.
func cpu() string {
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if key, value, _ := strings.Cut(s.Text(), ":"); strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown CPU"
}

// printAbout says what t is, and whether what it shows meets its aim.
func printAbout(w io.Writer, t table, shown string) {
	fmt.Fprintf(w, "\n## %s\n\n%s", t.name, t.about)
	if t.aim.text != "" {
		fmt.Fprintf(w, " Aim: %s.%s", t.aim.text, t.aim.verdict(lines(shown)))
	}
	if t.procs > 0 {
		fmt.Fprintf(w, " GOMAXPROCS=%d.", t.procs)
	}
	if t.most > 0 {
		fmt.Fprintf(w, " At most %d passes.", t.most)
	}
	fmt.Fprintf(w, "\n\n%s", shown)
}

func printHoldings(w io.Writer, all []holding) {
	fmt.Fprint(w, "| | ratio | kept, B a key | min..max | with key strings | min..max | allocated, B a key | allocations a key | what it forgets |\n|---|--:|--:|--:|--:|--:|--:|--:|---|\n")
	mean := func(h holding, of func(held) float64) float64 {
		sum := 0.0
		for _, x := range h.held {
			sum += of(x)
		}
		return sum / float64(len(h.held))
	}
	limits := func(h holding, of func(held) float64) string {
		var all []float64
		for _, x := range h.held {
			all = append(all, of(x))
		}
		return fmt.Sprintf("%.0f..%.0f", slices.Min(all), slices.Max(all))
	}
	kept := func(x held) float64 { return x.kept }
	fresh := func(x held) float64 { return x.fresh }
	for _, h := range all {
		fmt.Fprintf(w, "| %s | %.2f | %.1f | %s | %.1f | %s | %.0f | %s | %s |\n", h.name,
			mean(h, kept)/mean(all[0], kept), mean(h, kept), limits(h, kept), mean(h, fresh), limits(h, fresh),
			mean(h, func(x held) float64 { return x.bytes }), count(mean(h, func(x held) float64 { return x.allocs })), h.note)
	}
}

func printTimes(w io.Writer, u unit, results []result) {
	fmt.Fprintf(w, "| | ratio | beyond, %s | %s | min..max | B | allocations |\n|---|--:|--:|--:|--:|--:|--:|\n", u.name, u.name)
	base := results[0]
	for _, r := range results {
		ratio, beyond := "1", ""
		if r.base {
			base = r
		} else {
			ratio = fmt.Sprintf("%.2f", r.against(base, func(a, b float64) float64 { return a / b }))
			beyond = u.format(r.against(base, func(a, b float64) float64 { return a - b }))
		}
		times := r.values(byTime)
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s..%s | %.0f | %s |\n",
			r.name, ratio, beyond, u.format(median(times)), u.format(slices.Min(times)), u.format(slices.Max(times)),
			median(r.values(byBytes)), count(median(r.values(byAllocs))))
	}
}

// printThroughput shows how often the work was done, where printTimes shows how
// long it took: the ratio is the other way round.
func printThroughput(w io.Writer, results []result) {
	fmt.Fprintf(w, "| | ratio | %s | min..max | B | allocations |\n|---|--:|--:|--:|--:|--:|\n", thousands.name)
	base := results[0]
	for _, r := range results {
		ratio := "1"
		if r.base {
			base = r
		} else {
			ratio = fmt.Sprintf("%.2f", base.against(r, func(a, b float64) float64 { return a / b }))
		}
		often := r.values(func(s sample) float64 { return 1e6 / s.ns })
		fmt.Fprintf(w, "| %s | %s | %.1f | %.1f..%.1f | %.0f | %s |\n",
			r.name, ratio, median(often), slices.Min(often), slices.Max(often),
			median(r.values(byBytes)), count(median(r.values(byAllocs))))
	}
}

func (u unit) format(ns float64) string {
	s := fmt.Sprintf("%.*f", u.digits, ns/u.ns)
	if strings.Trim(s, "-0.") == "" {
		return "0"
	}
	return s
}

// count is a number of allocations. What the runtime itself allocates now and
// then adds a small fraction to it.
func count(x float64) string {
	if whole := float64(int(x + 0.5)); x-whole < 0.05 && whole-x < 0.05 {
		return fmt.Sprintf("%.0f", whole)
	}
	return fmt.Sprintf("%.1f", x)
}

// grouped is n with commas between thousands.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// listed is numbers as a sentence has them.
func listed(numbers []int) string {
	var b strings.Builder
	for i, n := range numbers {
		switch {
		case i > 0 && i == len(numbers)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(grouped(n))
	}
	return b.String()
}
