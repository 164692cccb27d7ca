package retryaftertest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

// TestLimiter checks that a Limiter keeps to what [retryafter.Limiter] says, as
// [retryafter.Bucket] does: work is admitted within capacity + rate·t and not
// kept from it, what is refused or given up costs nothing, and what can't be is
// refused at once.
//
// Each check calls newLimiter for a Limiter of its own, with so many tokens in
// it and room for no more. It waits for some tenths of a second. Times are only
// checked not to be too early, so a store on a network may be slow.
func TestLimiter(t *testing.T, newLimiter func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter) {
	const capacity = 5
	each := 20 * time.Millisecond
	open := func(t *testing.T) retryafter.Limiter {
		return newLimiter(t, capacity, retryafter.Every(each))
	}
	ctx := context.Background()

	t.Run("a full limiter admits its capacity, then its rate", func(t *testing.T) {
		l, begin := open(t), time.Now()
		for n := range capacity + 5 {
			if err := l.WaitN(ctx, 1); err != nil {
				t.Fatal(err)
			}
			if at, earliest := time.Since(begin), time.Duration(n+1-capacity)*each; at < earliest {
				t.Fatalf("admitted number %d after %v, %v is the earliest", n+1, at, earliest)
			}
		}
	})

	t.Run("work is charged what it costs", func(t *testing.T) {
		l, begin := open(t), time.Now()
		for _, n := range []int{3, 2, 4} {
			if err := l.WaitN(ctx, n); err != nil {
				t.Fatal(err)
			}
		}
		if at := time.Since(begin); at < 4*each {
			t.Errorf("9 of %d admitted after %v", capacity, at)
		}
	})

	t.Run("a cost of 0 is always met and takes nothing", func(t *testing.T) {
		l := open(t)
		drain(t, l, capacity)
		for range 100 {
			if err := l.WaitN(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("more than the capacity is refused at once", func(t *testing.T) {
		l := newLimiter(t, capacity, retryafter.Every(time.Hour))
		begin := time.Now()
		if err := l.WaitN(ctx, capacity+1); err == nil {
			t.Error("admitted")
		}
		if time.Since(begin) > time.Minute {
			t.Errorf("refused after %v", time.Since(begin))
		}
		drain(t, l, capacity) // it has cost nothing
	})

	t.Run("what the deadline does not allow is refused at once and costs nothing", func(t *testing.T) {
		l := newLimiter(t, capacity, retryafter.Every(time.Hour))
		drain(t, l, capacity-1)
		begin := time.Now()
		for range 100 {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
			if err := l.WaitN(ctx, 2); err == nil {
				t.Fatal("admitted")
			}
			cancel()
		}
		if time.Since(begin) > time.Minute {
			t.Errorf("refused after %v", time.Since(begin))
		}
		drain(t, l, 1)
	})

	t.Run("a wait that is given up ends at once and costs nothing", func(t *testing.T) {
		l := newLimiter(t, capacity, retryafter.Every(time.Hour))
		drain(t, l, capacity-1)
		begin := time.Now()
		for range 20 {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			if err := l.WaitN(ctx, 2); !errors.Is(err, context.Canceled) {
				t.Fatalf("%v, want context.Canceled", err)
			}
		}
		if time.Since(begin) > time.Minute {
			t.Errorf("given up after %v", time.Since(begin))
		}
		drain(t, l, 1)
	})

	t.Run("who is gone is not admitted", func(t *testing.T) {
		l := open(t)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		if err := l.WaitN(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context.Canceled", err)
		}
	})

	t.Run("many at once get no more than one", func(t *testing.T) {
		l, begin := open(t), time.Now()
		var mu sync.Mutex
		admitted := 0
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 3 {
					if err := l.WaitN(ctx, 1); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if admitted++; time.Duration(admitted-capacity)*each > time.Since(begin) {
						t.Errorf("%d admitted after %v", admitted, time.Since(begin))
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
	})
}

// TestRequestLimiter is TestLimiter for the Limiter that one has for a request,
// and checks that each key of [retryafter.WithKey] has a budget of its own, as in
// [retryafter.Keyed].
func TestRequestLimiter(t *testing.T, newLimiter func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter) {
	TestLimiter(t, func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
		return ofRequest{newLimiter(t, capacity, rate), "key"}
	})

	t.Run("each key has a budget of its own", func(t *testing.T) {
		const capacity = 5
		l := newLimiter(t, capacity, retryafter.Every(time.Hour))
		for _, key := range []retryafter.Key{"", "a", "A", "\x00", retryafter.NewKey("a", "b"), retryafter.NewKey("ab")} {
			drain(t, ofRequest{l, key}, capacity)
			soon, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			if err := (ofRequest{l, key}).WaitN(soon, 1); err == nil {
				t.Errorf("%v has more than its capacity", key)
			}
			cancel()
		}
	})
}

// ofRequest asks for the Limiter of a request each time, as a Transport does.
type ofRequest struct {
	retryafter.RequestLimiter
	key retryafter.Key
}

func (o ofRequest) WaitN(ctx context.Context, n int) error {
	req, err := http.NewRequestWithContext(retryafter.WithKey(ctx, o.key), http.MethodGet, "http://example.com/", nil)
	if err != nil {
		return err
	}
	return o.ForRequest(req).WaitN(ctx, n)
}

// drain takes n tokens that are there.
func drain(t *testing.T, l retryafter.Limiter, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.WaitN(ctx, n); err != nil {
		t.Fatalf("%d tokens that should be there: %v", n, err)
	}
}
