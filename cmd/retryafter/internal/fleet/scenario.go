// Package fleet is a model of many clients of one server, in virtual time. The
// clients decide by the library's own Policy.Decide; see [Rule] for what else of
// it they use, and for the rules that they are set beside.
//
// Each client makes one call. An attempt is answered in the instant in which it
// arrives, a refusal costs the server nothing, and all clocks agree. So a real
// server fares worse than this one.
package fleet

import (
	"fmt"
	"time"

	"github.com/retryafter-go/retryafter"
)

// Window is the length of time that arrivals are counted by.
const Window = 100 * time.Millisecond

// Bounds of what a Scenario may ask for: with more, a run might not fit in
// memory.
const (
	Most          = 10_000_000 // of clients, tokens
	MostProcesses = 1_000_000
	MostAttempts  = 20
	Longest       = time.Hour       // of each span of time
	LongestRun    = 240 * time.Hour // until the last call is settled
)

// A Scenario is what all rules are put through. Times count from its start.
type Scenario struct {
	Clients   int
	Over      time.Duration // calls begin at random instants in [0, Over); 0: all at once
	Processes int           // the clients are spread over so many; each has its own Gate, RetryBudget and Bucket
	Attempts  int           // Policy.MaxAttempts, for all rules

	Closes, Opens time.Duration // in [Closes, Opens) the server refuses everything

	// Capacity and Rate are the server's Bucket: what it serves at other times.
	// It refuses the rest.
	Capacity int64
	Rate     retryafter.Rate

	Status int // of a refusal

	// Delay is the Retry-After of every refusal. 0 means the time until the
	// server could serve one request, in whole seconds, rounded up.
	Delay  time.Duration
	NoHint bool // refusals have no Retry-After

	Seed uint64
}

// A FieldError is a setting of a Scenario that makes no sense.
type FieldError struct {
	Field   string
	Value   any
	Problem string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s %v %s", e.Field, e.Value, e.Problem) }

// Check returns a *FieldError where the scenario makes no sense.
func (s *Scenario) Check() error {
	for _, number := range []struct {
		field string
		value int64
		most  int64
	}{
		{"Clients", int64(s.Clients), Most},
		{"Processes", int64(s.Processes), MostProcesses},
		{"Attempts", int64(s.Attempts), MostAttempts},
		{"Capacity", s.Capacity, Most},
		{"Rate", s.Rate.Tokens, Most},
	} {
		if number.value < 1 || number.value > number.most {
			return &FieldError{number.field, number.value, fmt.Sprintf("must be from 1 to %d", number.most)}
		}
	}
	for _, span := range []struct {
		field string
		value time.Duration
		unit  time.Duration
	}{
		{"Over", s.Over, 1},
		{"Closes", s.Closes, Window},
		{"Opens", s.Opens - s.Closes, Window},
		{"Delay", s.Delay, time.Second},
	} {
		switch {
		case span.value < 0 || span.value > Longest:
			return &FieldError{span.field, span.value, fmt.Sprintf("must be from 0s to %v", Longest)}
		case span.value%span.unit != 0:
			return &FieldError{span.field, span.value, fmt.Sprintf("must be a multiple of %v", span.unit)}
		}
	}
	return nil
}

// answer is what the server says to an attempt at t: 0 where it serves it, else
// how long it would take until it could.
func (r *run) answer(t time.Duration) time.Duration {
	if t >= r.Closes && t < r.Opens {
		return r.Opens - t
	}
	wait, err := r.server.TakeN(epoch.Add(t), 1)
	if err != nil {
		panic(err) // Check has seen the settings, and 1 is never too much
	}
	return wait
}

// hint is the Retry-After of a refusal, where the server could serve one after
// wait. 0 means none.
func (s *Scenario) hint(wait time.Duration) time.Duration {
	switch {
	case s.NoHint:
		return 0
	case s.Delay > 0:
		return s.Delay
	}
	return (wait + time.Second - 1).Truncate(time.Second)
}

// share is the part of the server's Bucket that one process may use.
func (s *Scenario) share() *retryafter.Bucket {
	n := int64(s.Processes)
	return &retryafter.Bucket{
		Capacity: max(s.Capacity/n, 1),
		Rate:     retryafter.Rate{Tokens: s.Rate.Tokens, Per: s.Rate.Per * time.Duration(n)},
	}
}
