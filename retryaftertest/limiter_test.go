package retryaftertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

func TestOurLimitersConform(t *testing.T) {
	for name, open := range map[string]func(int64, retryafter.Rate) retryafter.Limiter{
		"Bucket": func(capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return &retryafter.Bucket{Capacity: capacity, Rate: rate}
		},
		"Keyed": func(capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return &retryafter.Keyed{Capacity: capacity, Rate: rate}
		},
		"a key of Keyed": func(capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return (&retryafter.Keyed{Capacity: capacity, Rate: rate}).For("key")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			retryaftertest.TestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
				return open(capacity, rate)
			})
		})
	}
}

func TestOurRequestLimiterConforms(t *testing.T) {
	for _, most := range []int{0, 16} {
		t.Run(fmt.Sprintf("MaxKeys %d", most), func(t *testing.T) {
			t.Parallel()
			retryaftertest.TestRequestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
				return &retryafter.Keyed{Capacity: capacity, Rate: rate, MaxKeys: most}
			})
		})
	}
}

// broken limiters, each in its own way.
type broken struct {
	*retryafter.Bucket
	wait func(b *retryafter.Bucket, ctx context.Context, n int) error
}

func (b broken) WaitN(ctx context.Context, n int) error { return b.wait(b.Bucket, ctx, n) }

func TestBrokenLimitersDoNotConform(t *testing.T) {
	for name, wait := range map[string]func(*retryafter.Bucket, context.Context, int) error{
		"admits all": func(*retryafter.Bucket, context.Context, int) error { return nil },
		"charges what it refuses": func(b *retryafter.Bucket, ctx context.Context, n int) error {
			err := b.WaitN(ctx, n)
			if err != nil {
				b.AllowN(time.Now(), 1)
			}
			return err
		},
		"charges one for all": func(b *retryafter.Bucket, ctx context.Context, n int) error { return b.WaitN(ctx, min(n, 1)) },
		"refuses all":         func(*retryafter.Bucket, context.Context, int) error { return errors.New("no") },
		"ignores the context": func(b *retryafter.Bucket, _ context.Context, n int) error {
			if b.AllowN(time.Now(), n) {
				return nil
			}
			return errors.New("no")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if conforms(func(capacity int64, rate retryafter.Rate) retryafter.Limiter {
				return broken{&retryafter.Bucket{Capacity: capacity, Rate: rate}, wait}
			}) {
				t.Error("passes")
			}
		})
	}
	if !conforms(func(capacity int64, rate retryafter.Rate) retryafter.Limiter {
		return &retryafter.Bucket{Capacity: capacity, Rate: rate}
	}) {
		t.Error("a Bucket does not pass")
	}
}

// What waits as it should may still give too much to who asks what there is.
func TestLimitersThatGiveTooMuchWithoutAWaitDoNotConform(t *testing.T) {
	for name, open := range map[string]func(*retryafter.Bucket) retryafter.Limiter{
		"by TakeN":  func(b *retryafter.Bucket) retryafter.Limiter { return gift{b} },
		"by AllowN": func(b *retryafter.Bucket) retryafter.Limiter { return giftOf{b} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if conforms(func(capacity int64, rate retryafter.Rate) retryafter.Limiter {
				return open(&retryafter.Bucket{Capacity: capacity, Rate: rate})
			}) {
				t.Error("passes")
			}
		})
	}
	t.Run("by TakeN, for a request", func(t *testing.T) {
		t.Parallel()
		if passes(func(t *testing.T) {
			retryaftertest.TestRequestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
				return giftOfRequest{&retryafter.Keyed{Capacity: capacity, Rate: rate}}
			})
		}) {
			t.Error("passes")
		}
	})
}

type gift struct{ *retryafter.Bucket }

func (gift) TakeN(time.Time, int) (time.Duration, error)  { return 0, nil }
func (gift) DelayN(time.Time, int) (time.Duration, error) { return 0, nil }

type giftOfRequest struct{ *retryafter.Keyed }

func (g giftOfRequest) ForRequest(req *http.Request) retryafter.Limiter {
	return giftOfKey{g.Keyed.ForRequest(req)}
}

type giftOfKey struct{ retryafter.Limiter }

func (giftOfKey) TakeN(time.Time, int) (time.Duration, error)  { return 0, nil }
func (giftOfKey) DelayN(time.Time, int) (time.Duration, error) { return 0, nil }

type giftOf struct{ b *retryafter.Bucket }

func (g giftOf) WaitN(ctx context.Context, n int) error { return g.b.WaitN(ctx, n) }
func (giftOf) AllowN(time.Time, int) bool               { return true }
func (giftOf) TokensAt(time.Time) float64               { return 1 }

// coarse is a limiter like many: a number that grows with time. It is right but
// for what spoils it.
type coarse struct {
	rate     retryafter.Rate
	capacity float64
	piles    bool                                     // up beyond the capacity
	spoil    func(have, n float64, err error) float64 // what there is after n were not given for err, or for 0

	mu   sync.Mutex
	have float64
	last time.Time
}

func (c *coarse) WaitN(ctx context.Context, n int) error {
	for {
		wait, err := c.take(ctx, float64(n))
		if wait == 0 || err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return c.denied(float64(n), ctx.Err())
		}
	}
}

func (c *coarse) take(ctx context.Context, n float64) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, c.denied(n, err)
	}
	if n > c.capacity {
		return 0, c.denied(n, errTooMuch)
	}
	if n == 0 {
		return 0, c.denied(0, nil)
	}
	c.mu.Lock()
	now := time.Now()
	c.have += float64(now.Sub(c.last)) * float64(c.rate.Tokens) / float64(c.rate.Per)
	if c.last = now; !c.piles {
		c.have = min(c.have, c.capacity)
	}
	if c.have >= n {
		c.have -= n
		c.mu.Unlock()
		return 0, nil
	}
	wait := time.Duration((n-c.have)*float64(c.rate.Per)/float64(c.rate.Tokens)) + 1
	c.mu.Unlock()
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return 0, c.denied(n, context.DeadlineExceeded)
	}
	return wait, nil
}

func (c *coarse) denied(n float64, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spoil != nil {
		c.have = c.spoil(c.have, n, err)
	}
	return err
}

var errTooMuch = errors.New("too much")

func TestLimitersThatBringInTokensDoNotConform(t *testing.T) {
	// mints gives back what was not taken, after such an error, but no more than
	// most are then there.
	mints := func(after error, most float64) func(*coarse) {
		return func(c *coarse) {
			c.spoil = func(have, n float64, err error) float64 {
				if errors.Is(err, after) {
					have = max(have, min(have+max(n, 1), most))
				}
				return have
			}
		}
	}
	for name, spoil := range map[string]func(*coarse){
		"piles up":                  func(c *coarse) { c.piles = true },
		"at the end of a wait":      mints(context.Canceled, 1.9),
		"at the end of each wait":   mints(context.Canceled, 5),
		"where time is short":       mints(context.DeadlineExceeded, 1.5),
		"where it is more than all": mints(errTooMuch, 10),
		"for nothing":               mints(nil, 5),
		"one at a time":             func(c *coarse) { c.rate.Tokens = 1 },
		"one too many": func(c *coarse) {
			if c.rate.Tokens > 1 {
				c.rate.Tokens++
			}
		},
		"a part of one, at the end": func(c *coarse) {
			c.spoil = func(have, n float64, err error) float64 { return have + 0.1 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if conforms(func(capacity int64, rate retryafter.Rate) retryafter.Limiter {
				c := &coarse{capacity: float64(capacity), rate: rate, have: float64(capacity), last: time.Now()}
				spoil(c)
				return c
			}) {
				t.Error("passes")
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		retryaftertest.TestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return &coarse{capacity: float64(capacity), rate: rate, have: float64(capacity), last: time.Now()}
		})
	})
}

func conforms(open func(int64, retryafter.Rate) retryafter.Limiter) bool {
	return passes(func(t *testing.T) {
		retryaftertest.TestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return open(capacity, rate)
		})
	})
}

// oneBudget is a RequestLimiter whose keys share a budget, or whose requests
// have one each.
type oneBudget struct {
	*retryafter.Bucket
	each bool
}

func (o oneBudget) ForRequest(*http.Request) retryafter.Limiter {
	if o.each {
		return &retryafter.Bucket{Capacity: o.Capacity, Rate: o.Rate}
	}
	return o.Bucket
}

func TestBrokenRequestLimitersDoNotConform(t *testing.T) {
	for name, open := range map[string]func(int64, retryafter.Rate) retryafter.RequestLimiter{
		"one for all": func(capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
			return oneBudget{&retryafter.Bucket{Capacity: capacity, Rate: rate}, false}
		},
		"one each request": func(capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
			return oneBudget{&retryafter.Bucket{Capacity: capacity, Rate: rate}, true}
		},
		"forgets all but 6": func(capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
			return &forgetful{most: 6, capacity: capacity, rate: rate}
		},
		"forgets all but 400": func(capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
			return &forgetful{most: 400, capacity: capacity, rate: rate}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if passes(func(t *testing.T) {
				retryaftertest.TestRequestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
					return open(capacity, rate)
				})
			}) {
				t.Error("passes")
			}
		})
	}
}

// forgetful is a RequestLimiter that forgets the key that was used first.
type forgetful struct {
	most     int
	capacity int64
	rate     retryafter.Rate

	keys    []retryafter.Key
	buckets map[retryafter.Key]*retryafter.Bucket
	mu      sync.Mutex
}

func (f *forgetful) WaitN(context.Context, int) error { return errors.New("without a request") }

func (f *forgetful) ForRequest(req *http.Request) retryafter.Limiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	key, _ := retryafter.ContextKey(req.Context())
	if f.buckets[key] == nil {
		if len(f.keys) == f.most {
			delete(f.buckets, f.keys[0])
			f.keys = f.keys[1:]
		}
		f.keys = append(f.keys, key)
		if f.buckets == nil {
			f.buckets = map[retryafter.Key]*retryafter.Bucket{}
		}
		f.buckets[key] = &retryafter.Bucket{Capacity: f.capacity, Rate: f.rate}
	}
	return f.buckets[key]
}
