package retryafter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoTwoListsOfPartsMakeOneKey(t *testing.T) {
	seen := map[Key][]string{}
	alphabet := []string{"", "a", "b", "ab", ":", "a:b", "\x00", "\x01a", "\x01", "=", ",", "a=b_c_d"}
	var try func(parts []string)
	try = func(parts []string) {
		key := NewKey(parts...)
		if other, ok := seen[key]; ok {
			t.Fatalf("%q and %q are both %q", other, parts, key)
		}
		seen[key] = append([]string(nil), parts...)
		if len(parts) < 4 {
			for _, p := range alphabet {
				try(append(parts, p))
			}
		}
	}
	try(nil)
	if again := []string{"a", "b"}; NewKey("a", "b") != NewKey(again...) {
		t.Error("equal lists make different keys")
	}
}

func FuzzNewKey(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		if (NewKey(a, b) == NewKey(c, d)) != (a == c && b == d) {
			t.Fatalf("%q %q, %q %q", a, b, c, d)
		}
		if NewKey(a) == NewKey(c, d) || NewKey(a, b) == NewKey(c) {
			t.Fatalf("lists of different lengths: %q %q %q %q", a, b, c, d)
		}
	})
}

func TestByHostFoldsWhatNamesTheSameServer(t *testing.T) {
	key := func(url string) Key { return ByHost(httptest.NewRequest("GET", url, nil)) }
	for _, same := range [][]string{
		{"http://example.com/", "http://EXAMPLE.com:80/other?q", "HTTP://user@example.com"},
		{"https://example.com", "https://example.com:443"},
		{"http://[::1]/", "http://[::1]:80/"},
	} {
		for _, url := range same[1:] {
			if key(url) != key(same[0]) {
				t.Errorf("%s and %s differ", url, same[0])
			}
		}
	}
	distinct := []string{"http://example.com", "https://example.com", "http://example.com:443", "http://example.org", "http://[::1]", "http://[::1]:8080"}
	for i, a := range distinct {
		for _, b := range distinct[:i] {
			if key(a) == key(b) {
				t.Errorf("%s and %s are one", a, b)
			}
		}
	}
	if ByHost(nil) != "" || ByHost(&http.Request{}) != "" {
		t.Error("no URL has a key")
	}
}

// shadow is charged with what was admitted; it must never go below zero.
type shadow map[Key]*Bucket

func (s shadow) charge(t *testing.T, k *Keyed, key Key, at time.Time, n int, slack int64) {
	t.Helper()
	b := s[key]
	if b == nil {
		b = &Bucket{Capacity: k.Capacity + slack, Rate: k.Rate}
		b.DelayN(k.base, 0) // begins when k did
		s[key] = b
	}
	if !b.AllowN(at, n) {
		t.Fatalf("%q got %d at %v beyond its capacity and rate", key, n, at.Sub(k.base))
	}
}

func TestForgettingAKeyGivesItNothing(t *testing.T) {
	for _, maxKeys := range []int{1, 2, 5, 64, 3000} {
		for seed := range uint64(6) {
			rnd := rand.New(rand.NewPCG(seed, uint64(maxKeys)))
			// Clocks of goroutines that were overtaken are up to so far behind.
			// An instant is then worth as much more.
			var behind time.Duration
			var slack int64
			if seed%2 == 1 {
				behind, slack = time.Second, 3
			}
			k := &Keyed{Capacity: 5, Rate: Rate{Tokens: 7, Per: 3 * time.Second}, MaxKeys: maxKeys}
			k.open()
			shadows := shadow{}
			at := k.base
			admitted := 0
			for range 6000 {
				at = at.Add(time.Duration(rnd.Int64N(int64(200 * time.Millisecond))))
				when := at
				if behind > 0 && rnd.IntN(10) == 0 {
					when = when.Add(-time.Duration(rnd.Int64N(int64(behind))))
				}
				key := NewKey(fmt.Sprint(rnd.IntN(3 + 4*maxKeys)))
				n := 1 + rnd.IntN(5)
				delay, err := k.For(key).DelayN(when, n)
				if err != nil {
					t.Fatal(err)
				}
				ok := k.For(key).AllowN(when, n)
				if ok != (delay == 0) {
					t.Fatalf("delay %v, then admitted: %v", delay, ok)
				}
				if ok {
					admitted++
					shadows.charge(t, k, key, at, n, slack)
				}
			}
			if stats := k.Stats(); stats.Keys > maxKeys || stats.MaxKeys != maxKeys {
				t.Errorf("%d keys remembered of %d, want at most %d", stats.Keys, stats.MaxKeys, maxKeys)
			}
			if admitted == 0 {
				t.Error("nothing was admitted")
			}
		}
	}
}

func TestADrainedKeyThatIsPushedOutStaysDrained(t *testing.T) {
	k := &Keyed{Capacity: 5, Rate: Every(time.Hour), MaxKeys: 3}
	now := time.Now()
	drain := func(key Key) (n int) {
		for k.For(key).AllowN(now, 1) {
			n++
		}
		return n
	}
	if n := drain("victim"); n != 5 {
		t.Fatalf("drained %d, want 5", n)
	}
	for i := range 100 {
		drain(NewKey(fmt.Sprint(i)))
	}
	if n := drain("victim"); n != 0 {
		t.Errorf("%d more after being pushed out, want 0", n)
	}
	if s := k.Stats(); s.Evicted == 0 || s.Keys != 3 {
		t.Errorf("%+v", s)
	}
	now = now.Add(5 * time.Hour)
	if n := drain("victim"); n != 5 {
		t.Errorf("%d after five hours, want 5", n)
	}
	if n := drain("stranger"); n != 5 {
		t.Errorf("a stranger begins with %d when all is paid, want 5", n)
	}
}

func TestWithRoomEnoughEveryKeyHasItsOwnBucket(t *testing.T) {
	k := &Keyed{Capacity: 3, Rate: PerSecond(2), MaxKeys: 5000}
	now := time.Now()
	for i := range 4000 {
		b := k.For(NewKey(fmt.Sprint(i)))
		for n, want := range []bool{true, true, true, false} {
			if b.AllowN(now, 1) != want {
				t.Fatalf("key %d, take %d: not %v", i, n+1, want)
			}
		}
		if d, err := b.DelayN(now, 1); d != 500*time.Millisecond || err != nil {
			t.Fatalf("key %d: %v, %v", i, d, err)
		}
	}
	if s := k.Stats(); s != (KeyedStats{Keys: 4000, MaxKeys: 5000}) {
		t.Errorf("%+v", s)
	}
}

func TestRefusedKeysTakeNoRoom(t *testing.T) {
	k := &Keyed{Capacity: 1, Rate: Every(time.Hour), MaxKeys: 1}
	now := time.Now()
	k.For("a").AllowN(now, 1)
	k.For("b").AllowN(now, 1) // and now all begin empty
	for i := range 100 {
		if k.For(NewKey(fmt.Sprint(i))).AllowN(now, 1) {
			t.Fatal("admitted")
		}
	}
	if s := k.Stats(); s.Keys != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSenselessKeyedSettingsAdmitNothing(t *testing.T) {
	for field, k := range map[string]*Keyed{
		"Keyed.Capacity":    {Rate: PerSecond(1)},
		"Keyed.Rate.Tokens": {Capacity: 1},
		"Keyed.MaxKeys":     {Capacity: 1, Rate: PerSecond(1), MaxKeys: -1},
	} {
		err := k.WaitN(context.Background(), 1)
		if c, ok := errors.AsType[*ConfigError](err); !ok || c.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := k.For("a").DelayN(time.Now(), 1); err == nil || k.For("a").Allow() || k.Stats() != (KeyedStats{}) {
			t.Errorf("%s admits", field)
		}
	}
	k := &Keyed{Capacity: 2, Rate: PerSecond(1)}
	for _, n := range []int{3, -1} {
		if _, ok := errors.AsType[*CostError](k.WaitN(context.Background(), n)); !ok || k.For("").AllowN(time.Now(), n) {
			t.Errorf("a cost of %d", n)
		}
	}
}

func TestThoseWhoWaitForAKeyAreServedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Keyed{Capacity: 2, Rate: PerSecond(1), MaxKeys: 2}
		begin := time.Now()
		var mu sync.Mutex
		served := map[string][]string{}
		var all sync.WaitGroup
		for i := range 6 {
			for _, key := range []string{"a", "b"} {
				all.Go(func() {
					if err := k.WaitN(WithKey(t.Context(), Key(key)), 1); err != nil {
						t.Error(err)
					}
					mu.Lock()
					served[key] = append(served[key], fmt.Sprint(i, "@", time.Since(begin)))
					mu.Unlock()
				})
				synctest.Wait()
			}
		}
		all.Wait()
		want := "[0@0s 1@0s 2@1s 3@2s 4@3s 5@4s]"
		for _, key := range []string{"a", "b"} {
			if got := fmt.Sprint(served[key]); got != want {
				t.Errorf("%s: %s, want %s", key, got, want)
			}
		}
		if len(k.shards[0].queues) != 0 {
			t.Errorf("%d queues are left", len(k.shards[0].queues))
		}
		// What was paid in the queue is remembered after it.
		if d, _ := k.For("a").DelayN(time.Now(), 2); d != 2*time.Second {
			t.Errorf("after the queue two tokens are %v away, want 2s", d)
		}
	})
}

func TestACancelledWaitForAKeyCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Keyed{Capacity: 1, Rate: PerMinute(1)}
		k.For("a").Allow()
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if err := k.For("a").WaitN(ctx, 1); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if limit, ok := errors.AsType[*LimitError](k.For("a").WaitN(ctx, 1)); !ok || limit.Delay != time.Minute-100*time.Millisecond {
			t.Errorf("%v", limit)
		}
		if d, _ := k.For("a").DelayN(time.Now(), 1); d != time.Minute-100*time.Millisecond {
			t.Errorf("%v", d)
		}
	})
}

func TestAKeyCostsAtMost90Bytes(t *testing.T) {
	if testing.Short() {
		t.Skip("a million keys take a second")
	}
	const keys = 1_000_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	k := &Keyed{Capacity: 100, Rate: PerSecond(1), MaxKeys: keys + keys/8}
	now := time.Now()
	for i := range keys {
		if !k.For(NewKey("tenant", fmt.Sprint(i))).AllowN(now, 1) {
			t.Fatal("refused")
		}
	}
	after := heap()
	if s := k.Stats(); s.Keys != keys || s.Evicted != 0 {
		t.Fatalf("%+v", s)
	}
	each := float64(after-before) / keys
	t.Logf("%.1f bytes a key", each)
	if each > 90 {
		t.Errorf("%.1f bytes a key, want at most 90", each)
	}
	runtime.KeepAlive(k)
}

func TestKeyedTakesDoNotAllocate(t *testing.T) {
	k := &Keyed{Capacity: 1 << 30, Rate: PerSecond(1)}
	b := k.For("a")
	now := time.Now()
	b.AllowN(now, 1)
	if n := testing.AllocsPerRun(100, func() {
		b.AllowN(now, 1)
		b.DelayN(now, 1)
		b.WaitN(context.Background(), 1)
		k.For("a").Allow()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeyedIsExactUnderConcurrency(t *testing.T) {
	k := &Keyed{Capacity: 50, Rate: PerSecond(1), MaxKeys: 8}
	var mu sync.Mutex
	admitted := map[Key]int{}
	begin := time.Now()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 2000 {
				key := NewKey(fmt.Sprint((i + g) % 5))
				if k.For(key).Allow() {
					mu.Lock()
					admitted[key]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	most := 50 + int(time.Since(begin).Seconds()) + 1
	for key, n := range admitted {
		if n < 50 || n > most {
			t.Errorf("%q: %d, want from 50 to %d", key, n, most)
		}
	}
}

func TestTakeNIsAllowNAndDelayNAtOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	rate := Rate{Tokens: 7, Per: 3 * time.Second}
	asked, taken := &Bucket{Capacity: 5, Rate: rate}, &Bucket{Capacity: 5, Rate: rate}
	keyed := &Keyed{Capacity: 5, Rate: rate, MaxKeys: 1}
	at := time.Now()
	for range 3000 {
		at = at.Add(time.Duration(rnd.Int64N(int64(time.Second))))
		n := rnd.IntN(8) - 1
		want, wantErr := asked.DelayN(at, n)
		if asked.AllowN(at, n) != (want == 0 && wantErr == nil) {
			t.Fatal("AllowN and DelayN disagree")
		}
		for name, got := range map[string]func(time.Time, int) (time.Duration, error){"Bucket": taken.TakeN, "Keyed": keyed.TakeN} {
			if d, err := got(at, n); d != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%s: %d at %v: %v, %v; want %v, %v", name, n, at, d, err, want, wantErr)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1, Rate: PerSecond(1)}
		b.Allow()
		ctx, cancel := context.WithCancel(t.Context())
		go b.Wait(ctx)
		synctest.Wait()
		if d, err := b.TakeN(time.Now(), 1); d != 2*time.Second || err != nil {
			t.Errorf("behind one who waits: %v, %v, want 2s", d, err)
		}
		cancel()
		synctest.Wait()
		if d, _ := b.TakeN(time.Now(), 1); d != time.Second {
			t.Errorf("when that one has left: %v, want 1s", d)
		}
	})
}
