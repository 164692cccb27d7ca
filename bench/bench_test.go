package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Benchmark has the rows of the command as ordinary benchmarks.
func Benchmark(b *testing.B) {
	withManyKeys(b, 1_000_000)
	eachRow(b, func(b *testing.B, _ table, r row) {
		w := r.start()
		b.Cleanup(w.close)
		b.ReportAllocs()
		b.ResetTimer()
		if err := w.do(b.N); err != nil {
			b.Fatal(err)
		}
	})
}

func eachRow[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, f func(T, table, row)) {
	for _, tab := range tables() {
		t.Run(tab.name, func(t T) {
			if err := tab.lacks(); err != nil {
				leaveOut(t, err)
			}
			for _, r := range tab.rows {
				t.Run(r.name, func(t T) { f(t, tab, r) })
			}
		})
	}
}

func TestEveryRowDoesWhatItSays(t *testing.T) {
	eachRow(t, func(t *testing.T, _ table, r row) {
		w := r.start()
		t.Cleanup(w.close)
		if err := w.verified(20); err != nil {
			t.Error(err)
		}
	})
}

func TestAllocations(t *testing.T) {
	for _, test := range []struct {
		table, rows string
		most        float64 // beyond the row that they are set against
	}{
		{"no-retry", "^retryafter", 0},
		{"503-200", "^retryafter$", 6},
		{"503-wait-200", "^retryafter", 6},
		{"put", "^retryafter", 0},
		{"parse-seconds", "retryafter$", 0},
		{"parse-dates", "retryafter$", 0},
		{"parse-other", "(0200`, retryafter|FromHeader)$", 0},
		{"bucket", "Bucket", 0},
		{"keyed-1", "^Keyed, For[(]", 0},
		{"keyed-1000", "^Keyed, For[(]", 0},
		{"keyed-many", "^Keyed, For[(]", 0},
		{"keyed-refusing", "^Keyed, For[(]", 0},
	} {
		rows := regexp.MustCompile(test.rows)
		found := false
		for _, tab := range tables() {
			if tab.name != test.table {
				continue
			}
			var base float64
			for _, r := range tab.rows {
				switch ours := rows.MatchString(r.name); {
				case r.base:
					base = allocations(t, r)
				case ours:
					found = true
					if got := allocations(t, r); got-base > test.most {
						t.Errorf("%s/%s: %v allocations, %v beyond the row that it is set against; want at most %v beyond",
							tab.name, r.name, got, got-base, test.most)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s has no row %v", test.table, rows)
		}
	}
}

func allocations(t *testing.T, r row) float64 {
	t.Helper()
	w := r.start()
	defer w.close()
	return testing.AllocsPerRun(100, func() {
		if err := w.do(1); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReport(t *testing.T) {
	var out strings.Builder
	if err := report(&out, 2, time.Microsecond, "^parse-seconds/.* 120 .*retryafter"); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{"GOMAXPROCS=", "## parse-seconds\n", "\n| ` 120 `, strconv.Atoi | 1 |", "\n| ` 120 `, retryafter | "} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
	for what, most := range map[string]int{"\n## ": 1, "\n| `": 2} {
		if n := strings.Count(got, what); n != most {
			t.Errorf("the report has %q %d times, want %d:\n%s", what, n, most, got)
		}
	}
	if strings.Contains(got, "Held") || strings.Contains(got, "Missed") {
		t.Errorf("an aim is judged by some of its rows:\n%s", got)
	}
	out.Reset()
	if err := report(&out, 1, time.Microsecond, "^parse-seconds/"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "no allocation. Held.") && !strings.Contains(out.String(), "no allocation. Missed") {
		t.Errorf("the aim is not judged:\n%s", &out)
	}
	for _, bad := range []string{"(", "x("} {
		if err := report(&out, 1, time.Second, bad); err == nil {
			t.Errorf("-run %q is accepted", bad)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		v    []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 9, 2}, 3},
	} {
		if got := median(test.v); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.v, got, test.want)
		}
	}
}

// The page's figures are those of one day and machine. Its rows must be all, and
// what stands above them, the judgement of aims too, what is printed of them.
func TestThePageOfSpeedHasEveryRowAndSaysWhatItsFiguresSay(t *testing.T) {
	withManyKeys(t, 1_000_000)
	page, err := os.ReadFile(filepath.Join("..", "docs", "speed.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	for _, table := range tables() {
		text, ok := sections[table.name]
		if !ok {
			t.Errorf("no table %s", table.name)
			continue
		}
		about, shown, _ := strings.Cut(text, "\n\n| | ")
		var want strings.Builder
		printAbout(&want, table, "| | "+shown)
		if got := "\n## " + table.name + "\n" + text; got != want.String() {
			wanted, _, _ := strings.Cut(want.String(), "\n\n| | ")
			t.Errorf("above the figures of %s stands\n%s\nwant\n%s", table.name, about, wanted)
		}
		for _, r := range table.rows {
			if !strings.Contains(text, "| "+r.name+" |") {
				t.Errorf("%s has no row %q", table.name, r.name)
			}
		}
		delete(sections, table.name)
	}
	for name := range sections {
		t.Errorf("%s is measured no longer", name)
	}
}
