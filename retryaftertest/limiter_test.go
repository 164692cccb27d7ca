package retryaftertest_test

import (
	"context"
	"errors"
	"net/http"
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
			retryaftertest.TestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
				return open(capacity, rate)
			})
		})
	}
}

func TestOurRequestLimiterConforms(t *testing.T) {
	retryaftertest.TestRequestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
		return &retryafter.Keyed{Capacity: capacity, Rate: rate}
	})
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
	for _, each := range []bool{false, true} {
		if passes(func(t *testing.T) {
			retryaftertest.TestRequestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
				return oneBudget{&retryafter.Bucket{Capacity: capacity, Rate: rate}, each}
			})
		}) {
			t.Errorf("passes where each request has its own: %v", each)
		}
	}
}
