package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

func TestASoakKeepsItsPromises(t *testing.T) {
	s := soak{Time: 5 * time.Second, Rate: 600, Heap: 8, Seed: 1, Log: io.Discard}
	r, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); err != nil {
		t.Error(err)
	}
	// A soak in which nothing goes wrong proves nothing.
	for _, why := range []retryafter.Reason{
		retryafter.Final, retryafter.MethodNotIdempotent, retryafter.AttemptsUsed, retryafter.WaitTooLong,
		retryafter.DeadlineTooNear, retryafter.BudgetSpent, retryafter.Canceled,
	} {
		if r.Ends[end{why, true}]+r.Ends[end{why, false}] == 0 {
			t.Errorf("no call ended by %v", why)
		}
	}
	if r.Attempts <= r.Calls*9/10 || r.Waits == 0 || r.Waited == 0 || r.Attempt.TotalCount() == 0 || r.Bare.TotalCount() == 0 || len(r.Samples) < 3 {
		t.Errorf("%d calls, %d attempts, %d waits of %v, %d and %d of them measured, %d samples",
			r.Calls, r.Attempts, r.Waits, r.Waited, r.Attempt.TotalCount(), r.Bare.TotalCount(), len(r.Samples))
	}
	var b strings.Builder
	r.write(&b)
	for _, row := range []string{"| Final |", "| attempts | ", "| bare timers | ", "-seed 1.", "## What the process holds"} {
		if !strings.Contains(b.String(), row) {
			t.Errorf("nothing of %q in\n%s", row, &b)
		}
	}
}

func TestAVerdictNamesWhatMustNotHappen(t *testing.T) {
	good := func() *result {
		return &result{
			soak: soak{Heap: 1}, Calls: 1, Ends: map[end]int64{{retryafter.Final, true}: 1},
			Samples: []sample{{heap: 1 << 20, goroutines: 3}, {heap: 9 << 20, goroutines: 90}, {heap: 2 << 20, goroutines: 3}},
		}
	}
	if err := good().verdict(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*result){
		"early":               func(r *result) { r.Early = 1 },
		"the heap grew":       func(r *result) { r.Samples[2].heap++ },
		"goroutines are left": func(r *result) { r.Samples[2].goroutines++ },
		"0 ended":             func(r *result) { r.Ends = nil },
	} {
		r := good()
		spoil(r)
		if err := r.verdict(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSenselessFlagsAreRefused(t *testing.T) {
	for _, s := range []soak{{Rate: 1}, {Time: 1}, {Time: 1, Rate: 1, Heap: -1}} {
		if _, err := s.run(); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
}
