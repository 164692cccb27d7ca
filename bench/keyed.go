package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"
)

// A quota is the budget that each key has: at most capacity tokens, and a new
// one every so often.
type quota struct {
	capacity int
	every    time.Duration
}

// What admits is far from empty, and far from filling up between two calls of
// a key, or so at least where there are few; what refuses holds one token.
var (
	admits  = quota{plenty, time.Second / perSecond}
	refuses = quota{1, 24 * time.Hour}
)

// A keyedLimiter keeps a budget a key.
type keyedLimiter struct {
	// asker makes what one goroutine asks whether a token of key was there.
	asker func() func(key string) bool

	// keys is how many are remembered, where that can be seen. It may be nil.
	keys func() int

	stop func() // may be nil
}

// A keyedPeer is a way to make one. forgets is which keys it forgets, and what
// that does to their budgets.
type keyedPeer struct {
	name, forgets string
	start         func(q quota, keys int) keyedLimiter
}

// same is an asker for all goroutines.
func same(ask func(key string) bool) func() func(string) bool {
	return func() func(string) bool { return ask }
}

func keyedPeers() []keyedPeer {
	return []keyedPeer{
		{"map of x/time/rate", "never", mapOfRate},
		{"Keyed, For(key).Allow", "above MaxKeys, the fullest; unknown keys start with its debt", func(q quota, keys int) keyedLimiter {
			k := ourKeyed(q, keys)
			return keyedLimiter{
				asker: same(func(key string) bool { return k.For(retryafter.Key(key)).Allow() }),
				keys:  func() int { return keysOf(k) },
			}
		}},
		{"Keyed, ForRequest(req).WaitN", "", func(q quota, keys int) keyedLimiter {
			k := ourKeyed(q, keys)
			k.Key = func(req *http.Request) retryafter.Key { return retryafter.Key(req.URL.Host) }
			// What can't be had before the deadline is refused at once.
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			return keyedLimiter{
				asker: func() func(string) bool {
					req := (&http.Request{URL: new(url.URL)}).WithContext(ctx)
					return func(key string) bool {
						req.URL.Host = key
						return k.ForRequest(req).WaitN(ctx, 1) == nil
					}
				},
				keys: func() int { return keysOf(k) },
				stop: cancel,
			}
		}},
		{"throttled, map", "never", func(q quota, _ int) keyedLimiter { return gcra(q, 0) }},
		{"throttled, LRU", "above maxKeys, the least recently used; it starts full again, so that forgetting mints", gcra},
		{"go-limiter", "12 h (SweepMinTTL) after the interval of its last admission began, full or not; mints where that is no full interval", func(q quota, _ int) keyedLimiter {
			// Its tokens come all at once when an interval ends, and not as many
			// as they should be; here none ends.
			store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.capacity), Interval: 24 * time.Hour})
			if err != nil {
				panic(err)
			}
			ctx := context.Background()
			return keyedLimiter{
				asker: same(func(key string) bool {
					_, _, _, ok, err := store.Take(ctx, key)
					return ok && err == nil
				}),
				stop: func() { store.Close(ctx) },
			}
		}},
	}
}

// mapOfRate is what is written by hand most often.
func mapOfRate(q quota, _ int) keyedLimiter {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	return keyedLimiter{
		asker: same(func(key string) bool {
			mu.Lock()
			l, ok := limiters[key]
			if !ok {
				l = rate.NewLimiter(rate.Every(q.every), q.capacity)
				limiters[key] = l
			}
			mu.Unlock()
			return l.Allow()
		}),
		keys: func() int { return len(limiters) },
	}
}

// ourKeyed has room to spare: keys are spread over parts, each with its share of
// MaxKeys.
func ourKeyed(q quota, keys int) *retryafter.Keyed {
	return &retryafter.Keyed{
		Capacity: int64(q.capacity),
		Rate:     retryafter.Every(q.every),
		MaxKeys:  max(1<<16, keys+keys/4),
	}
}

// keysOf is -1 where k had too little room for every key to have its own bucket.
func keysOf(k *retryafter.Keyed) int {
	stats := k.Stats()
	if stats.Evicted+stats.StartedBelow > 0 {
		return -1
	}
	return stats.Keys
}

// gcra is throttled with its memory store, of a bounded number of keys or, with
// 0, of any.
func gcra(q quota, keys int) keyedLimiter {
	store, err := memstore.NewCtx(keys)
	if err != nil {
		panic(err)
	}
	l, ctx := gcraOn(store, q), context.Background()
	return keyedLimiter{asker: same(func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	})}
}

func gcraOn(store throttled.GCRAStoreCtx, q quota) *throttled.GCRARateLimiterCtx {
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(1, q.every), MaxBurst: q.capacity - 1})
	if err != nil {
		panic(err)
	}
	l.SetMaxCASAttemptsLimit(1 << 30) // else it fails now and then where two take at once
	return l
}

// manyKeys is how many the tables of many keys have. The tests make do with
// fewer.
var manyKeys = 1_000_000

// tenants are n keys, always the same strings.
func tenants(n int) []string {
	tenantsMu.Lock()
	defer tenantsMu.Unlock()
	for len(allTenants) < n {
		allTenants = append(allTenants, fmt.Sprintf("tenant-%06d", len(allTenants)))
	}
	return allTenants[:n:n]
}

var (
	tenantsMu  sync.Mutex
	allTenants []string
)

// step is from one key that is asked for to the next: far, so that neither is
// near the other in memory, and a prime, so that all get their turn.
const step = 611_953

// keyedWork is the work of asking for a token of one key after the other, where
// each has had a token before. Where keys hold a single one, that is refused.
func keyedWork(p keyedPeer, q quota, keys int, spread func(func(int) error) func(int) error, own func(string) string) work {
	names := tenants(keys)
	l := p.start(q, keys)
	ask := l.asker()
	var failed error
	for _, name := range names {
		if !ask(own(name)) {
			failed = errRefused
		}
	}
	var turn atomic.Int64
	return work{
		do: spread(func(n int) error {
			ask := l.asker()
			at := int(turn.Add(int64(n)*step+step/2) % int64(keys))
			admitted := 0
			for range n {
				if at += step % keys; at >= keys {
					at -= keys
				}
				if ask(names[at]) {
					admitted++
				}
			}
			switch {
			case failed != nil:
				return failed
			case q != refuses && admitted < n:
				return errRefused
			case q == refuses && admitted > 0:
				return errAdmitted
			}
			return nil
		}),
		check: func(int) error {
			if l.keys != nil && l.keys() != keys {
				return fmt.Errorf("%d keys are remembered, want %d", l.keys(), keys)
			}
			return nil
		},
		stop: func() {
			if l.stop != nil {
				l.stop()
			}
			runtime.KeepAlive(l)
		},
	}
}

func keyedRows(q quota, keys int, spread func(func(int) error) func(int) error) []row {
	var rows []row
	for _, p := range keyedPeers() {
		fill := func(keys int, own func(string) string) work { return keyedWork(p, q, keys, spread, own) }
		rows = append(rows, row{
			name: p.name, base: len(rows) == 0, note: p.forgets, fill: fill,
			start: func() work { return fill(keys, onceMade) },
		})
	}
	return rows
}

// keyed gives the tables of a budget a key.
func keyed() []table {
	serial := func(do func(int) error) func(int) error { return do }
	var all []table
	for _, size := range []struct {
		name, about string
		keys        int
	}{
		{"1", "one key", 1},
		{"1000", "a thousand keys, one after the other", 1000},
		{"many", grouped(manyKeys) + " keys, one after the other", manyKeys},
	} {
		t := table{
			name:  "keyed-" + size.name,
			procs: 1,
			about: "A token of " + size.about + ", that is there; from one goroutine.",
			unit:  nanoseconds,
			rows:  keyedRows(admits, size.keys, serial),
		}
		p := table{
			name:  t.name + "-parallel",
			about: "A token of " + size.about + ", that is there; GOMAXPROCS goroutines, and the time from one token to the next, whoever takes it.",
			unit:  nanoseconds,
			rows:  keyedRows(admits, size.keys, parallel),
		}
		if size.name == "many" {
			t.most, p.most = 9, 9 // the collector goes through all of them before each row
		}
		all = append(all, t, p)
	}
	return append(all, table{
		name:  "keyed-refusing",
		procs: 1,
		about: "A token of a thousand keys, one after the other, that is not there; from one goroutine.",
		unit:  nanoseconds,
		rows:  keyedRows(refuses, 1000, serial),
	}, keyedBytes())
}

// keyedBytes has a row for each way to keep budgets. What grows by doubling
// looks its best before, and its worst after, so there are several sizes, from
// one doubling to almost the next.
func keyedBytes() table {
	const most = 90
	t := table{name: "keyed-bytes", aim: aim{
		text:  fmt.Sprintf("Keyed at most %d B a key, and with key strings less than every peer that does not mint by forgetting", most),
		about: begins("Keyed"),
		met: func(l, _ line, all []line) bool {
			ours := l.figure("with key strings")
			return l.figure("kept, B a key") <= most && ours <= most && !slices.ContainsFunc(all, func(peer line) bool {
				mints := strings.Contains(peer["what it forgets"], "mint")
				return peer.name() != l.name() && !mints && peer.figure("with key strings") <= ours
			})
		},
	}}
	for i := range 4 {
		t.keys = append(t.keys, int(float64(manyKeys)*math.Exp2(float64(i-3)/4)))
	}
	t.about = fmt.Sprintf("What %s keys keep of the heap, each of which has had the only token of its day, and what was allocated on the way there: the mean of these sizes, and the range. "+
		"In the first columns the key strings are made once, before, and counted for nobody; in the next each is made for the call, as a server's are, and counted for whoever keeps it.", listed(t.keys))
	for _, r := range keyedRows(refuses, manyKeys, func(do func(int) error) func(int) error { return do }) {
		if r.note != "" { // else it is the row before, asked in another way
			t.rows = append(t.rows, r)
		}
	}
	return t
}

func onceMade(key string) string { return key }

// A holding is what a row keeps of the heap, at each size.
type holding struct {
	row
	held []held
}

// held is what was kept and allocated a key.
type held struct {
	kept          float64 // beside key strings
	fresh         float64 // key strings included
	bytes, allocs float64 // allocated for what is kept beside key strings
}

// hold fills r with so many keys.
func hold(r row, keys int) (h held, err error) {
	if h, err = filled(r, keys, strings.Clone); err != nil {
		return h, err
	}
	fresh := h.kept
	h, err = filled(r, keys, onceMade)
	h.fresh = fresh
	return h, err
}

func filled(r row, keys int, own func(string) string) (held, error) {
	tenants(keys)
	var before, after runtime.MemStats
	collect(&before)
	w := r.fill(keys, own)
	defer w.close()
	collect(&after)
	each := 1 / float64(keys)
	return held{
		kept:   float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) * each,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) * each,
		allocs: float64(after.Mallocs-before.Mallocs) * each,
	}, w.verified(1)
}

// collect reads the heap after all garbage is gone, what finalizers held
// included.
func collect(m *runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(m)
}

func holdings(t table) ([]holding, error) {
	var all []holding
	for _, r := range t.rows {
		h := holding{row: r}
		for _, keys := range t.keys {
			x, err := hold(r, keys)
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", t.name, r.name, err)
			}
			h.held = append(h.held, x)
		}
		all = append(all, h)
	}
	return all, nil
}
