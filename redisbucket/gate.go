package redisbucket

import (
	"context"
	"sync"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Gate is the memory that the Gates of several machines share:
//
//	gate := &retryafter.Gate{Shared: &redisbucket.Gate{Client: client}}
//
// The instant until which a key is held only moves forward, in the server's
// time, and the key goes from Redis when it is reached. Where Redis is away,
// Hold and Held fail, and each retryafter.Gate goes on with what it knows by
// itself; see its Failed.
//
// A Gate may be used from many goroutines at once; it must not be copied or
// have its fields changed after the first use.
type Gate struct {
	Client Client

	// Prefix begins the keys in Redis. It must not contain braces. "" means
	// "retryafter:gate:".
	Prefix string

	// Timeout and CoolOff are as for Bucket.
	Timeout, CoolOff time.Duration

	once   sync.Once
	err    error // a *retryafter.ConfigError
	link   *link
	prefix string
}

var _ retryafter.Holds = (*Gate)(nil)

// longest is the longest hold, of 142 years.
const longest = exact / 2 * time.Microsecond

func (g *Gate) open() error {
	g.once.Do(func() {
		if g.link, g.err = newLink("redisbucket.Gate", g.Client, g.Timeout, g.CoolOff); g.err == nil {
			g.prefix, g.err = prefixOf("redisbucket.Gate", g.Prefix, "retryafter:gate:")
		}
	})
	return g.err
}

// Hold holds key for d from now on, unless it is held for longer already. d is
// rounded up to a microsecond, and cut to 142 years.
func (g *Gate) Hold(ctx context.Context, key retryafter.Key, d time.Duration) error {
	if err := g.open(); err != nil || d <= 0 {
		return err
	}
	d = (min(d, longest) + time.Microsecond - 1) / time.Microsecond
	_, err := g.link.run(ctx, holdScript, nameOf(g.prefix, key), []string{decimal(int64(d))})
	return err
}

// Held tells how long key is held from now on; 0 where it isn't.
func (g *Gate) Held(ctx context.Context, key retryafter.Key) (time.Duration, error) {
	if err := g.open(); err != nil {
		return 0, err
	}
	left, err := g.link.run(ctx, heldScript, nameOf(g.prefix, key), nil)
	return microseconds(left), err
}
