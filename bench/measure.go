package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A table is a set of rows that are worth comparing: they do the same work, and
// a pass measures them one right after the other.
type table struct {
	name  string // as -run and go test -bench see it
	about string
	unit  unit
	aim   aim
	procs int   // GOMAXPROCS for it; 0 leaves it as it is
	most  int   // passes at most; 0: as many as are asked for
	keys  []int // what its rows keep is measured, when filled with so many keys, and no time; nil: the time of their work
	rows  []row
	needs func() error // why the table can't be had; nil: it always can
}

// lacks is why t can't be had, or nil.
func (t table) lacks() error {
	if t.needs == nil {
		return nil
	}
	return t.needs()
}

// A unit is what a table's times are printed in.
type unit struct {
	name   string
	ns     float64
	digits int
}

var (
	nanoseconds  = unit{"ns", 1, 1}
	microseconds = unit{"µs", 1000, 1}

	// thousands of times a second: what is shown is how often, not how long.
	thousands = unit{name: "thousand a second", digits: 1}
)

// A row is one way to do the work of its table.
type row struct {
	name  string
	base  bool // the rows below are set against it, up to the next such row
	note  string
	start func() work
	fill  func(keys int, own func(string) string) work // start, of another size and with other key strings; of tables with keys
}

// A work is a row that is ready to run.
type work struct {
	// do does the work n times and reports what did not go as the row says. The
	// loop is inside, so that a work of a few nanoseconds is not measured
	// through a call that costs as much.
	do func(n int) error

	// check reports whether n times of work left the traces that they should,
	// as twice n attempts at a stub. It may be nil.
	check func(n int) error

	// stop ends what start began. It may be nil.
	stop func()
}

func (w work) close() {
	if w.stop != nil {
		w.stop()
	}
}

// verified does the work n times and checks that it did what its row says.
func (w work) verified(n int) error {
	if err := w.do(n); err != nil {
		return err
	}
	if w.check != nil {
		return w.check(n)
	}
	return nil
}

// A sample is what one time of work cost in one pass.
type sample struct {
	ns, bytes, allocs float64
}

// A result is a row with its samples, one a pass.
type result struct {
	row
	n       int // times of work in a pass
	samples []sample
}

// measure runs t's rows in passes: all of them once, then all of them again.
// What slows the machine for a while thus slows every row, and a ratio between
// two rows of one pass stays what it was.
func measure(t table, passes int, pass time.Duration) ([]result, error) {
	defer runtime.GOMAXPROCS(t.setProcs())
	if t.most > 0 {
		passes = min(passes, t.most)
	}
	results := make([]result, len(t.rows))
	works := make([]work, len(t.rows))
	for i, r := range t.rows {
		works[i] = r.start()
		defer works[i].close()
		if err := works[i].verified(2); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", t.name, r.name, err)
		}
		n, err := calibrate(works[i], pass)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", t.name, r.name, err)
		}
		results[i] = result{row: r, n: n}
	}
	for p := range passes {
		for k := range works {
			i := (k + p) % len(works) // no row always follows the same other
			s, err := one(works[i], results[i].n)
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", t.name, results[i].name, err)
			}
			results[i].samples = append(results[i].samples, s)
		}
	}
	return results, nil
}

// setProcs gives t the GOMAXPROCS that it asks for, and returns the one before.
func (t table) setProcs() int { return runtime.GOMAXPROCS(t.procs) }

// calibrate finds how often w can be done in a pass. It warms w up, too.
func calibrate(w work, pass time.Duration) (int, error) {
	for n := 1; ; {
		began := time.Now()
		if err := w.do(n); err != nil {
			return 0, err
		}
		took := max(time.Since(began), 1)
		if took >= pass/4 || n >= 1<<30 {
			return max(1, int(float64(n)*float64(pass)/float64(took))), nil
		}
		n = max(n+1, min(100*n, int(float64(n)*0.5*float64(pass)/float64(took))))
	}
}

func one(w work, n int) (sample, error) {
	var before, after runtime.MemStats
	runtime.GC() // of what the row before left
	runtime.ReadMemStats(&before)
	began := time.Now()
	err := w.do(n)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	each := 1 / float64(n)
	return sample{
		ns:     float64(took) * each,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) * each,
		allocs: float64(after.Mallocs-before.Mallocs) * each,
	}, err
}

// parallel spreads the work of do over GOMAXPROCS goroutines.
func parallel(do func(n int) error) func(n int) error {
	return func(n int) error {
		procs := runtime.GOMAXPROCS(0)
		errs := make([]error, procs)
		var wg sync.WaitGroup
		for g := range procs {
			share := n / procs
			if g < n%procs {
				share++
			}
			wg.Go(func() { errs[g] = do(share) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func (r result) values(of func(sample) float64) []float64 {
	v := make([]float64, len(r.samples))
	for i, s := range r.samples {
		v[i] = of(s)
	}
	return v
}

func byTime(s sample) float64   { return s.ns }
func byBytes(s sample) float64  { return s.bytes }
func byAllocs(s sample) float64 { return s.allocs }

// against combines r with other, pass by pass, and gives the median.
func (r result) against(other result, how func(a, b float64) float64) float64 {
	v := make([]float64, len(r.samples))
	for i := range v {
		v[i] = how(r.samples[i].ns, other.samples[i].ns)
	}
	return median(v)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}
