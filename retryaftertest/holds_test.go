package retryaftertest_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

// memory is a Holds with hooks to break it by.
type memory struct {
	mu    sync.Mutex
	until map[retryafter.Key]time.Time
	most  int // keys at a time; 0 for any number
	key   func(retryafter.Key) retryafter.Key
	told  func(time.Duration) time.Duration
	keep  func(now, before, until time.Time) time.Time
	left  func(time.Duration) time.Duration
}

func newMemory() *memory {
	return &memory{
		until: map[retryafter.Key]time.Time{},
		key:   func(k retryafter.Key) retryafter.Key { return k },
		keep: func(_, before, until time.Time) time.Time {
			if before.After(until) {
				return before
			}
			return until
		},
		told: func(d time.Duration) time.Duration { return d },
		left: func(d time.Duration) time.Duration { return d },
	}
}

func (m *memory) Hold(_ context.Context, key retryafter.Key, d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if _, known := m.until[m.key(key)]; !known && m.most > 0 && len(m.until) >= m.most {
		for other := range m.until {
			delete(m.until, other)
			break
		}
	}
	m.until[m.key(key)] = m.keep(now, m.until[m.key(key)], now.Add(m.told(d)))
	return nil
}

func (m *memory) Held(_ context.Context, key retryafter.Key) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, m.left(time.Until(m.until[m.key(key)]))), nil
}

// asHolds shows a Gate's own memory.
type asHolds struct{ *retryafter.Gate }

func (g asHolds) Hold(ctx context.Context, key retryafter.Key, d time.Duration) error {
	g.Gate.Hold(ctx, key, time.Now().Add(d))
	return nil
}

func (g asHolds) Held(ctx context.Context, key retryafter.Key) (time.Duration, error) {
	return g.Gate.Held(ctx, key), nil
}

func TestHoldsConform(t *testing.T) {
	for name, open := range map[string]func() retryafter.Holds{
		"memory": func() retryafter.Holds { return newMemory() },
		"a Gate": func() retryafter.Holds { return asHolds{&retryafter.Gate{}} },
		"a Gate that shares": func() retryafter.Holds {
			return asHolds{&retryafter.Gate{Shared: newMemory()}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			retryaftertest.TestHolds(t, func(*testing.T) retryafter.Holds { return open() })
		})
	}
}

func TestBrokenHoldsDoNotConform(t *testing.T) {
	for name, spoil := range map[string]func(*memory){
		"one for all":    func(m *memory) { m.key = func(retryafter.Key) retryafter.Key { return "" } },
		"moves back":     func(m *memory) { m.keep = func(_, _, until time.Time) time.Time { return until } },
		"never moves":    func(m *memory) { m.keep = firstOnly },
		"never again":    func(m *memory) { m.keep = oneOnly },
		"cut to an hour": func(m *memory) { m.left = func(d time.Duration) time.Duration { return min(d, time.Hour) } },
		"a little short": func(m *memory) {
			m.left = func(d time.Duration) time.Duration { return d.Truncate(100 * time.Millisecond) }
		},
		"told in milliseconds":            toldIn(time.Millisecond),
		"told in hundredths":              toldIn(10 * time.Millisecond),
		"told in tenths of a millisecond": toldIn(100 * time.Microsecond),
		"told in hundredths, where short": func(m *memory) {
			m.told = func(d time.Duration) time.Duration {
				if d < time.Minute {
					d = d.Truncate(10 * time.Millisecond)
				}
				return d
			}
		},
		"read in milliseconds": func(m *memory) {
			m.left = func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }
		},
		"16 keys":                func(m *memory) { m.most = 16 },
		"256 keys":               func(m *memory) { m.most = 256 },
		"moves by half an hour":  movesBy(30 * time.Minute),
		"moves by a minute":      movesBy(time.Minute + 1),
		"moves by a second":      movesBy(time.Second + 1),
		"moves by a centisecond": movesBy(10 * time.Millisecond),
		"moves by what is longer": func(m *memory) {
			m.keep = func(now, before, until time.Time) time.Time {
				if until.Sub(now) < before.Sub(now)*11/10 {
					return before
				}
				return until
			}
		},
		"for ever": func(m *memory) { m.left = func(time.Duration) time.Duration { return math.MaxInt64 } },
		"a decade at most": func(m *memory) {
			m.left = func(d time.Duration) time.Duration { return min(d, 10*365*24*time.Hour) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			if holdsConform(func() retryafter.Holds {
				m := newMemory()
				spoil(m)
				return m
			}) {
				t.Error("passes")
			}
		})
	}
	if holdsConform(func() retryafter.Holds { return failing{} }) {
		t.Error("one that fails passes")
	}
	if !holdsConform(func() retryafter.Holds { return newMemory() }) {
		t.Error("one that is not broken does not pass")
	}
}

// toldIn cuts what a memory is told to whole units.
func toldIn(unit time.Duration) func(*memory) {
	return func(m *memory) {
		m.told = func(d time.Duration) time.Duration { return d.Truncate(unit) }
	}
}

// movesBy lets a memory move only by so much.
func movesBy(least time.Duration) func(*memory) {
	return func(m *memory) {
		m.keep = func(_, before, until time.Time) time.Time {
			if until.Before(before.Add(least)) {
				return before
			}
			return until
		}
	}
}

func firstOnly(now, before, until time.Time) time.Time {
	if before.After(now) || !until.After(now) {
		return before
	}
	return until
}

func oneOnly(now, before, until time.Time) time.Time {
	if !before.IsZero() && !before.After(now) {
		return before
	}
	if before.After(until) || !until.After(now) {
		return before
	}
	return until
}

type failing struct{}

func (failing) Hold(context.Context, retryafter.Key, time.Duration) error { return nil }
func (failing) Held(context.Context, retryafter.Key) (time.Duration, error) {
	return 0, errors.New("away")
}

func holdsConform(open func() retryafter.Holds) bool {
	return passes(func(t *testing.T) {
		retryaftertest.TestHolds(t, func(*testing.T) retryafter.Holds { return open() })
	})
}

// passes runs a test as a program of its own would, and tells the outcome.
func passes(test func(*testing.T)) bool {
	return testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "conforms", F: test}})
}
