package retryafter

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// A Gate shares among concurrent calls what one of them was told. A 429 or 503,
// or what When says, with a readable delay holds every call of the same key
// until the delay has passed, whether or not the call that was told so is
// repeated; each held call adds its own jitter, so that they don't leave
// together. A call that can't wait that long is refused at once. Calls that are
// on the wire are left alone, and so are other keys.
//
// A hold only moves forward. It ends by the time passing, or by Release: a
// server that names an absurd delay closes its Gate for as long. The zero Gate
// works. It may be used from many goroutines at once, and by several
// Transports; it must not be copied or changed after the first use.
type Gate struct {
	// Key is the key of a request. nil means ByHost.
	Key func(*http.Request) Key

	// When says whether what a response asks for is asked of every call with
	// its key. It is asked once for each response, and must not sleep. nil
	// means the statuses 429 and 503.
	When func(Attempt) bool

	// MaxKeys is how many holds are kept before ended ones are swept out. A
	// hold that lasts is kept beyond it. 0 or less means 65536.
	MaxKeys int

	// Shared is a memory that other machines have too. What it knows counts in
	// addition to what this Gate knows, and it is told what this Gate is told:
	// what a response asks for within a second, whether its caller stays or not.
	// nil means none.
	Shared Holds

	// Failed is called with each error of Shared; the Gate goes on with what it
	// knows by itself. nil ignores them.
	Failed func(error)

	mu    sync.Mutex
	holds map[Key]time.Time
	sweep int           // how many holds there may be before the next sweep
	moves map[Key]*move // of the keys that someone waits for
}

// A move ends the waits of those who wait for something else when their key is
// held.
type move struct {
	made    chan struct{} // closed when it is
	waiters int
}

// sharing is how long Shared may take to be told of a response.
const sharing = time.Second

// Holds is the memory of Gates on several machines. Times are given as
// durations from now, so that their clocks need not agree.
type Holds interface {
	// Hold holds key for d from now on, unless it is held for longer already.
	Hold(ctx context.Context, key Key, d time.Duration) error

	// Held tells how long key is held from now on; 0 where it isn't.
	Held(ctx context.Context, key Key) (time.Duration, error)
}

// concerns reports whether a's response is for more than the call that got it.
func (g *Gate) concerns(a *Attempt) bool {
	switch {
	case a.Err != nil:
		return false
	case g.When != nil:
		return g.When(*a)
	}
	return a.StatusCode == http.StatusTooManyRequests || a.StatusCode == http.StatusServiceUnavailable
}

// Hold holds key until an instant, unless it is held for longer already.
func (g *Gate) Hold(ctx context.Context, key Key, until time.Time) {
	now := time.Now()
	if !until.After(now) {
		return
	}
	g.move(key, until, now)
	if g.Shared != nil {
		g.report(g.Shared.Hold(ctx, key, until.Sub(now)))
	}
}

// told is Hold for what a response asks for that came at an instant before now.
// It returns how long the key is held, counted from then. Shared is asked before
// it is told: so what a call is told itself is not measured twice.
func (g *Gate) told(ctx context.Context, key Key, from time.Time, delay time.Duration) time.Duration {
	until := from.Add(delay)
	g.move(key, until, time.Now())
	held := g.held(ctx, key, from)
	if g.Shared != nil {
		if left := time.Until(until); left > 0 {
			// Others are to know of it also where this caller leaves.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharing)
			defer cancel()
			g.report(g.Shared.Hold(ctx, key, left))
		}
	}
	return held
}

// move holds key in this Gate.
func (g *Gate) move(key Key, until, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !until.After(g.holds[key]) || !until.After(now) {
		return
	}
	g.keep(key, until, now)
	if m := g.moves[key]; m != nil {
		close(m.made)
		delete(g.moves, key)
	}
}

func (g *Gate) until(key Key) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds[key]
}

func (g *Gate) keep(key Key, until, now time.Time) {
	most := g.MaxKeys
	if most <= 0 {
		most = defaultMaxKeys
	}
	if len(g.holds) >= max(most, g.sweep) {
		for k, t := range g.holds {
			if !t.After(now) {
				delete(g.holds, k)
			}
		}
		// As many again may come before it is worth another look.
		g.sweep = 2 * len(g.holds)
	}
	if g.holds == nil {
		g.holds = make(map[Key]time.Time)
	}
	g.holds[key] = until
}

// Held tells how long key is held from now on; 0 where it isn't.
func (g *Gate) Held(ctx context.Context, key Key) time.Duration {
	return g.held(ctx, key, time.Now())
}

// held is Held, counted from an instant before now. Shared may take its time, so
// it is asked first.
func (g *Gate) held(ctx context.Context, key Key, from time.Time) time.Duration {
	left := g.heldShared(ctx, key, from)
	if until := g.until(key); until.After(time.Now()) {
		left = max(left, until.Sub(from))
	}
	return left
}

func (g *Gate) heldShared(ctx context.Context, key Key, from time.Time) time.Duration {
	if g.Shared == nil {
		return 0
	}
	left, err := g.Shared.Held(ctx, key)
	g.report(err)
	if err != nil || left <= 0 {
		return 0
	}
	return add(left, time.Since(from))
}

// watch returns a context that ends with ctx, or when moved is closed: when this
// Gate holds key for longer than now.
func (g *Gate) watch(ctx context.Context, key Key) (_ context.Context, moved <-chan struct{}, _ context.CancelFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.moves[key]
	if m == nil {
		m = &move{made: make(chan struct{})}
		if g.moves == nil {
			g.moves = make(map[Key]*move)
		}
		g.moves[key] = m
	}
	m.waiters++
	ctx, cancel := cancelWith(ctx, m.made)
	return ctx, m.made, func() {
		cancel()
		g.mu.Lock()
		defer g.mu.Unlock()
		if m.waiters--; m.waiters == 0 && g.moves[key] == m {
			delete(g.moves, key)
		}
	}
}

// Release ends the hold of key in this Gate, not in Shared. Calls that wait for
// it already sleep on.
func (g *Gate) Release(key Key) {
	g.mu.Lock()
	delete(g.holds, key)
	g.mu.Unlock()
}

// Len is how many holds this Gate keeps, ended ones included.
func (g *Gate) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.holds)
}

func (g *Gate) report(err error) {
	if err != nil && g.Failed != nil {
		g.Failed(err)
	}
}
