package retryaftertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

// TestLimiter checks that a Limiter keeps to what [retryafter.Limiter] says, as
// [retryafter.Bucket] does: work is admitted within capacity + rate·t, what is
// refused or given up costs nothing and brings nothing in, and what can't be is
// refused at once. Where it has TakeN and DelayN, or AllowN and TokensAt, it is
// checked once more by these, as a Transport asks.
//
// Each check calls newLimiter for a Limiter of its own, with so many tokens in
// it and room for no more. It waits for a few seconds in all. Times are only
// checked not to be too early, so a store on a network may be slow.
func TestLimiter(t *testing.T, newLimiter func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter) {
	testLimiter(t, newLimiter)
	if takes(newLimiter(t, 1, retryafter.Every(time.Hour))) == nil {
		return
	}
	t.Run("as a Transport asks", func(t *testing.T) {
		testLimiter(t, func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return asked{newLimiter(t, capacity, rate)}
		})
	})
}

// takes is how l gives the tokens that it has, without a wait, or nil.
func takes(l retryafter.Limiter) func(time.Time, int) (time.Duration, error) {
	switch l := l.(type) {
	case ofRequest:
		if takes(l.forRequest(context.Background())) == nil {
			return nil
		}
		return func(time.Time, int) (time.Duration, error) { return 1, nil } // asked asks the one for the request
	case interface {
		TakeN(time.Time, int) (time.Duration, error)
		DelayN(time.Time, int) (time.Duration, error)
	}:
		return l.TakeN
	case interface {
		AllowN(time.Time, int) bool
		TokensAt(time.Time) float64
	}:
		return func(now time.Time, n int) (time.Duration, error) {
			if l.AllowN(now, n) {
				return 0, nil
			}
			return 1, nil
		}
	}
	return nil
}

// asked asks a Limiter as a Transport does: first for what it has.
type asked struct{ retryafter.Limiter }

func (a asked) WaitN(ctx context.Context, n int) error {
	l := a.Limiter
	if of, ok := l.(ofRequest); ok {
		l = of.forRequest(ctx)
	}
	if n != 0 && ctx.Err() == nil {
		if d, err := takes(l)(time.Now(), n); err != nil || d == 0 {
			return err
		}
	}
	return l.WaitN(ctx, n)
}

func testLimiter(t *testing.T, newLimiter func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter) {
	const capacity = 5
	each := 20 * time.Millisecond
	open := func(t *testing.T) retryafter.Limiter {
		return newLimiter(t, capacity, retryafter.Every(each))
	}
	slow := func(t *testing.T) retryafter.Limiter { // what is in it is all for now
		return newLimiter(t, capacity, retryafter.Every(time.Hour))
	}
	ctx := context.Background()

	for _, rate := range []retryafter.Rate{retryafter.Every(each), {Tokens: 3, Per: 70 * time.Millisecond}} {
		t.Run(fmt.Sprintf("a full limiter admits its capacity, then %d per %v", rate.Tokens, rate.Per), func(t *testing.T) {
			after := func(n int) time.Duration { return time.Duration(n) * rate.Per / time.Duration(rate.Tokens) }
			l := newLimiter(t, capacity, rate)
			for range 2 {
				const more = 2
				time.Sleep(after(capacity + more)) // there is no room for so many
				begin := time.Now()
				for n := range capacity + more {
					if err := l.WaitN(ctx, 1); err != nil {
						t.Fatal(err)
					}
					if at, earliest := time.Since(begin), after(n+1-capacity); at < earliest {
						t.Fatalf("admitted number %d after %v, %v is the earliest", n+1, at, earliest)
					}
				}
			}
		})
	}

	for _, rate := range []retryafter.Rate{retryafter.Every(time.Hour), {Tokens: 7, Per: 2 * time.Hour}} {
		t.Run(fmt.Sprintf("what %d per %v allows by the deadline is waited for, and no more", rate.Tokens, rate.Per), func(t *testing.T) {
			l := newLimiter(t, capacity, rate)
			drain(t, l, capacity)
			const n = 3
			need := n * rate.Per / time.Duration(rate.Tokens)
			refused(t, waitFor(l, n, need-time.Minute, patience))
			if err := waitFor(l, n, need+time.Minute, each); !errors.Is(err, context.Canceled) {
				t.Errorf("%d tokens, that need %v, within a minute more: %v, want context.Canceled after %v", n, need, err, each)
			}
		})
	}

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
		l := slow(t)
		drain(t, l, capacity-1)
		for left := 1; left >= 0; left-- {
			for range 100 {
				drain(t, l, 0)
			}
			drainAll(t, l, left)
		}
	})

	t.Run("more than the capacity is refused at once and costs nothing", func(t *testing.T) {
		l := slow(t)
		for left := capacity; left >= 0; left -= capacity {
			for range 20 {
				refused(t, waitFor(l, capacity+1, 1000*time.Hour, patience))
			}
			drainAll(t, l, left)
		}
	})

	t.Run("what the deadline does not allow is refused at once and costs nothing", func(t *testing.T) {
		l := slow(t)
		drain(t, l, capacity-1)
		for left := 1; left >= 0; left-- {
			for n := left + 1; n <= capacity; n++ {
				for range 20 {
					refused(t, soon(l, n))
				}
			}
			drainAll(t, l, left)
		}
	})

	t.Run("a wait that is given up ends at once and costs nothing", func(t *testing.T) {
		l := slow(t)
		drain(t, l, capacity-1)
		begin := time.Now()
		for left := 1; left >= 0; left-- {
			for n := left + 1; n <= capacity; n++ {
				for range 5 {
					if err := giveUp(l, n); !errors.Is(err, context.Canceled) {
						t.Fatalf("%v, want context.Canceled", err)
					}
				}
			}
			if time.Since(begin) > time.Minute {
				t.Errorf("given up after %v", time.Since(begin))
			}
			drainAll(t, l, left)
		}
	})

	t.Run("who is gone is not admitted", func(t *testing.T) {
		l := slow(t)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		for left := capacity; left >= 0; left -= capacity {
			for n := 1; n <= capacity; n++ {
				if err := l.WaitN(gone, n); !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want context.Canceled", err)
				}
			}
			drainAll(t, l, left)
		}
	})

	t.Run("many at once get no more than one", func(t *testing.T) {
		l, begin := open(t), time.Now()
		var mu sync.Mutex
		admitted := 0
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for i := range 6 {
					wait := l.WaitN
					if i%2 == 0 {
						wait = func(_ context.Context, n int) error { return giveUp(l, n) }
					}
					switch err := wait(ctx, 1); {
					case i%2 == 0 && errors.Is(err, context.Canceled):
						continue
					case err != nil:
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
// [retryafter.Keyed], and gets no more for being one of hundreds. What remembers
// few keys may refuse the others.
func TestRequestLimiter(t *testing.T, newLimiter func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter) {
	TestLimiter(t, func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
		return ofRequest{newLimiter(t, capacity, rate), "key"}
	})

	t.Run("each key has a budget of its own", func(t *testing.T) {
		const capacity = 5
		l := newLimiter(t, capacity, retryafter.Every(time.Hour))
		keys := []retryafter.Key{"", "a", "A", "\x00", retryafter.NewKey("a", "b"), retryafter.NewKey("ab")}
		for _, key := range keys {
			drainAll(t, ofRequest{l, key}, capacity)
		}
		for i := range 500 {
			key := retryafter.NewKey("one of many", strconv.Itoa(i))
			if soon(ofRequest{l, key}, capacity) == nil {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			drainAll(t, ofRequest{l, key}, 0)
		}
	})
}

// ofRequest asks for the Limiter of a request each time, as a Transport does.
type ofRequest struct {
	retryafter.RequestLimiter
	key retryafter.Key
}

func (o ofRequest) WaitN(ctx context.Context, n int) error { return o.forRequest(ctx).WaitN(ctx, n) }

func (o ofRequest) forRequest(ctx context.Context) retryafter.Limiter {
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "example.com", Path: "/"}}
	return o.ForRequest(req.WithContext(retryafter.WithKey(ctx, o.key)))
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

// drainAll takes n tokens that are there, and there must not be one more.
func drainAll(t *testing.T, l retryafter.Limiter, n int) {
	t.Helper()
	drain(t, l, n)
	if soon(l, 1) == nil {
		t.Fatalf("there were more than %d tokens", n)
	}
}

// refused wants an error that a wait did not have to be given up for.
func refused(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want an error at once", err)
	}
}

// soon asks for n tokens within ten minutes.
func soon(l retryafter.Limiter, n int) error { return waitFor(l, n, 10*time.Minute, patience) }

// giveUp waits for n tokens for a millisecond.
func giveUp(l retryafter.Limiter, n int) error {
	return waitFor(l, n, 1000*time.Hour, time.Millisecond)
}

// patience is how long what has to come at once may take.
const patience = 5 * time.Second

// waitFor asks for n tokens within a time, and gives up after another.
func waitFor(l retryafter.Limiter, n int, within, giveUp time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	defer time.AfterFunc(giveUp, cancel).Stop()
	return l.WaitN(ctx, n)
}
