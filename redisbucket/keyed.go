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

	Capacity int64           // of each bucket, in tokens
	Rate     retryafter.Rate // of each bucket

	// Prefix tells the buckets apart from others in the same Redis, as for
	// Bucket: give each Keyed that is not meant to be one with others its own.
	Prefix string

	Timeout  time.Duration // of one question to Redis, as for Bucket
	CoolOff  time.Duration // as for Bucket
	WhenAway Away          // as for Bucket; FailLocal keeps a retryafter.Keyed
	Share    int64         // as for Bucket; FailLocal needs it
	Events   func(Event)   // as for Bucket

	core core
}

var _ retryafter.RequestLimiter = (*Keyed)(nil)

func (k *Keyed) open() error {
	return k.core.open("redisbucket.Keyed", settings{k.Client, k.Prefix, k.Capacity, k.Rate,
		k.Timeout, k.CoolOff, k.WhenAway, k.Share, k.Events}, nil)
}

// For returns the bucket of key.
func (k *Keyed) For(key retryafter.Key) KeyedBucket { return KeyedBucket{k, key} }

// ForRequest returns a Limiter of the bucket that req is charged to, for a
// Transport's use.
func (k *Keyed) ForRequest(req *http.Request) retryafter.Limiter {
	key := keyOf(req, k.Key)
	if k.open() != nil {
		return k.For(key) // each use says what is wrong
	}
	return &requestLimiter{core: &k.core, name: nameOf(k.core.prefix, key), key: key, ctx: req.Context()}
}

// Take is KeyedBucket.Take for key. It makes Keyed a Limiter of package
// throttle.
func (k *Keyed) Take(ctx context.Context, key retryafter.Key, n int) (time.Duration, error) {
	return k.For(key).Take(ctx, n)
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

// Delay is [Bucket.Delay].
func (b KeyedBucket) Delay(ctx context.Context, n int) (time.Duration, error) {
	c := &b.keyed.core
	if err := b.keyed.open(); err != nil {
		return 0, err
	}
	return c.delay(ctx, nameOf(c.prefix, b.key), b.key, n)
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
	return c.waitN(ctx, nameOf(c.prefix, b.key), b.key, n, 0)
}
