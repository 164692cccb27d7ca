package redisbucket

import (
	"context"
	"net/http"
	"time"

	"github.com/retryafter-go/retryafter"
)

// Keyed is one shared Bucket a key. Nothing is kept here of a key; Redis keeps
// one as long as its bucket is not full.
//
// Keyed is a [retryafter.RequestLimiter]: a Transport whose Limiter it is
// charges each request to its key. Where there is no request, the key is that
// of the context ([retryafter.WithKey]), and one bucket serves all that have
// none. It may be used from many goroutines at once; it must not be copied or
// have its fields changed after the first use.
type Keyed struct {
	Client Client

	// Key is the key of a request whose context has none. nil means
	// retryafter.ByHost.
	Key func(*http.Request) retryafter.Key

	// The other settings are for each bucket as they are for Bucket. FailLocal
	// keeps a retryafter.Keyed.

	Capacity int64
	Rate     retryafter.Rate
	Prefix   string
	Timeout  time.Duration
	CoolOff  time.Duration
	WhenAway Away
	Share    int64
	Events   func(Event)

	core core
}

var _ retryafter.RequestLimiter = (*Keyed)(nil)

func (k *Keyed) open() error {
	return k.core.open("redisbucket.Keyed", settings{k.Client, k.Prefix, k.Capacity, k.Rate,
		k.Timeout, k.CoolOff, k.WhenAway, k.Share, k.Events}, nil)
}

// For returns the bucket of key.
func (k *Keyed) For(key retryafter.Key) KeyedBucket { return KeyedBucket{k, key} }

// ForRequest returns the bucket that req is charged to, a [KeyedBucket].
func (k *Keyed) ForRequest(req *http.Request) retryafter.Limiter {
	return k.For(keyOf(req, k.Key))
}

// WaitN is KeyedBucket.WaitN for the key of ctx, or for the bucket of those
// without a key.
func (k *Keyed) WaitN(ctx context.Context, n int) error {
	return k.For(keyOf((&http.Request{}).WithContext(ctx), noKey)).WaitN(ctx, n)
}

func noKey(*http.Request) retryafter.Key { return "" }

// A KeyedBucket is the bucket of one key of a Keyed. It is a small value; it
// holds nothing, so it can be made anew for each use.
type KeyedBucket struct {
	keyed *Keyed
	key   retryafter.Key
}

// Take is [Bucket.Take].
func (b KeyedBucket) Take(ctx context.Context, n int) (time.Duration, error) {
	c := &b.keyed.core
	if err := b.keyed.open(); err != nil {
		return 0, err
	}
	return c.take(ctx, nameOf(c.prefix, b.key), b.key, n)
}

// Allow is [Bucket.Allow].
func (b KeyedBucket) Allow(ctx context.Context) bool {
	delay, err := b.Take(ctx, 1)
	return delay == 0 && err == nil
}

// Wait is WaitN for one token.
func (b KeyedBucket) Wait(ctx context.Context) error { return b.WaitN(ctx, 1) }

// WaitN is [Bucket.WaitN].
func (b KeyedBucket) WaitN(ctx context.Context, n int) error {
	c := &b.keyed.core
	if err := b.keyed.open(); err != nil {
		return err
	}
	return c.waitN(ctx, nameOf(c.prefix, b.key), b.key, n)
}
