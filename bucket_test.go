package retryafter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/fixtures"
	"github.com/retryafter-go/retryafter/internal/model"
)

var epoch = time.Date(2026, 9, 8, 12, 0, 0, 0, time.UTC)

// The shape of golang.org/x/time/rate.
var _ interface {
	Limiter
	Allow() bool
	AllowN(time.Time, int) bool
	Wait(context.Context) error
} = (*Bucket)(nil)

func TestHistoriesAreAnsweredExactly(t *testing.T) {
	origins := map[string]time.Time{"monotonic": time.Now(), "wall clock": epoch, "zero time": {}}
	for name, origin := range origins {
		for _, h := range fixtures.BucketHistories() {
			t.Run(h.Name+" from "+name, func(t *testing.T) {
				b := &Bucket{Capacity: h.Capacity, Rate: Rate{Tokens: h.Tokens, Per: h.Per}, StartEmpty: h.StartEmpty}
				for i, e := range h.Events {
					n, at := int(e.Cost), origin.Add(e.At)
					if int64(n) != e.Cost {
						if e.Take {
							return // a 32-bit int can't ask this, and what follows builds on it
						}
						continue
					}
					wait, err := b.DelayN(at, n)
					if _, never := errors.AsType[*CostError](err); never != e.Never || !never && err != nil {
						t.Fatalf("event %d, %v: %+v: error %v", i, e.At, e, err)
					}
					if wait != e.Wait {
						t.Errorf("event %d: %+v: wait %d", i, e, wait)
					}
					if e.Take && b.AllowN(at, n) != e.Fits {
						t.Errorf("event %d: %+v: AllowN is wrong", i, e)
					}
				}
			})
		}
	}
}

func TestModelAgreesWithHistories(t *testing.T) {
	for _, h := range fixtures.BucketHistories() {
		m := model.NewBucket(h.Capacity, h.Tokens, h.Per, h.StartEmpty, int64(h.Events[0].At))
		for i, e := range h.Events {
			if e.Never || e.Cost == 0 {
				continue
			}
			if wait := saturate(m.Wait(int64(e.At), e.Cost)); wait != e.Wait {
				t.Errorf("%s, event %d: %+v: wait %d", h.Name, i, e, wait)
			}
			if e.Take && m.Take(int64(e.At), e.Cost) != e.Fits {
				t.Errorf("%s, event %d: %+v: Take is wrong", h.Name, i, e)
			}
		}
	}
}

func saturate(ns *big.Int) time.Duration {
	if !ns.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(ns.Int64())
}

// replay asks a bucket and the exact model the same questions, and fails where
// an answer differs or an advised wait is not the least that fits. Three bytes
// of the script make one question.
func replay(t testing.TB, capacity, tokens, per int64, empty bool, script []byte) {
	b := &Bucket{Capacity: capacity, Rate: Rate{Tokens: tokens, Per: time.Duration(per)}, StartEmpty: empty}
	if !countable(capacity, tokens, per) {
		_, err := b.DelayN(epoch, 1)
		if _, ok := errors.AsType[*ConfigError](err); !ok || b.AllowN(epoch, 1) || b.AllowN(epoch, 0) {
			t.Fatalf("%d, %v: error %v; want a ConfigError and nothing admitted", capacity, b.Rate, err)
		}
		return
	}
	m := model.NewBucket(capacity, tokens, time.Duration(per), empty, 0)
	b.DelayN(epoch, 0)
	var now int64
	for step := 0; len(script) >= 3; step, script = step+1, script[3:] {
		how, x, y := script[0], int64(script[1]), uint(script[2])
		cost := [...]int64{1, capacity/255*x + capacity%255*x/255, capacity - x, x}[how&3]
		n := int(cost)
		if int64(n) != cost {
			continue
		}
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("capacity %d, rate %v, empty %v, question %d: cost %d at %d: %s",
				capacity, b.Rate, empty, step, cost, now, fmt.Sprintf(format, args...))
		}
		if cost < 0 || cost > capacity {
			wait, err := b.DelayN(epoch.Add(time.Duration(now)), n)
			if _, ok := errors.AsType[*CostError](err); !ok || wait != 0 || b.AllowN(epoch.Add(time.Duration(now)), n) {
				fail("wait %d, error %v", wait, err)
			}
			continue
		}
		fits := func(at int64) bool { return cost == 0 || m.Wait(at, cost).Sign() == 0 }
		delay := func(at int64) time.Duration {
			wait, err := b.DelayN(epoch.Add(time.Duration(at)), n)
			if err != nil || (wait == 0) != fits(at) {
				fail("at %d: wait %d, error %v; fits: %v", at, wait, err, fits(at))
			}
			return wait
		}
		const reach = 9e18 // within the clock of the bucket on either side
		move := func(by time.Duration) {
			if to := now + int64(by); by >= 0 && to >= now && to < reach || by < 0 && to < now && to > -reach {
				now = to
			}
		}
		wait := delay(now)
		if cost > 0 && wait != saturate(m.Wait(now, cost)) {
			fail("wait %d; want %v", wait, m.Wait(now, cost))
		}
		if end := now + int64(wait); wait > 0 && wait < math.MaxInt64 && end > now && end < reach {
			if left := delay(end - 1); left != 1 {
				fail("a nanosecond before the wait of %d is over it is %d", wait, left)
			}
			if left := delay(end); left != 0 {
				fail("after the wait of %d it is %d", wait, left)
			}
		}
		switch how >> 2 & 7 {
		case 0, 1:
			move(wait)
		case 2:
			move(wait - 1)
		case 3:
			move(time.Duration(x << (y % 56)))
		case 4:
			move(-time.Duration(x << (y % 56)))
		case 5:
			move(1)
		case 6: // far ahead and back: a look and a refusal leave no trace
			if at := epoch.Add(time.Duration(reach)); !b.AllowN(at, 0) || b.AllowN(at, -1) {
				fail("a look was refused or a negative cost admitted")
			}
		}
		if how&0x20 == 0 {
			if got, want := b.AllowN(epoch.Add(time.Duration(now)), n), cost == 0 || m.Take(now, cost); got != want {
				fail("admitted: %v, want %v", got, want)
			}
		}
	}
}

// countable is the precondition of Bucket, in other words.
func countable(capacity, tokens, per int64) bool {
	if capacity <= 0 || tokens <= 0 || per <= 0 {
		return false
	}
	token := big.NewRat(per, tokens).Num()
	size := new(big.Int).Mul(token, big.NewInt(capacity))
	return size.Cmp(new(big.Int).Lsh(big.NewInt(1), 62)) <= 0
}

func TestEveryDecisionEqualsTheModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	size := func() int64 { return 1 + rng.Int64()>>rng.IntN(63) }
	histories := 500
	if testing.Short() {
		histories = 100
	}
	valid := 0
	for i := range histories {
		capacity, tokens, per := size(), size(), size()
		switch i % 4 {
		case 0: // ordinary
			capacity, tokens, per = 1+rng.Int64N(1000), 1+rng.Int64N(1e6), int64(time.Second)
		case 1: // at the bound, and just over it
			token := big.NewRat(per, tokens).Num().Int64()
			capacity = max(1, 1<<62/token+int64(i/4%2))
		case 2: // large coprime numbers
			tokens, per = 1<<31-1-2*rng.Int64N(1000), 1<<31-2*rng.Int64N(1000)
			capacity = 1 + rng.Int64N(1<<30)
		}
		if countable(capacity, tokens, per) {
			valid++
		}
		script := make([]byte, 3*100)
		for j := range script {
			script[j] = byte(rng.Uint32())
		}
		replay(t, capacity, tokens, per, i%3 == 0, script)
	}
	if valid < histories/2 {
		t.Errorf("only %d of %d histories had a bucket", valid, histories)
	}
}

func FuzzBucket(f *testing.F) {
	f.Fuzz(func(t *testing.T, capacity, tokens, per int64, empty bool, script []byte) {
		replay(t, capacity, tokens, per, empty, script[:min(len(script), 3*200)])
	})
}

func TestAdmittedCostStaysWithinTheEnvelope(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		b := &Bucket{Capacity: 1 + rng.Int64N(20), Rate: Rate{Tokens: 1 + rng.Int64N(50), Per: time.Duration(1 + rng.Int64N(1e4))}}
		type take struct{ at, cost int64 }
		var taken []take
		for now := int64(0); len(taken) < 100; now += rng.Int64N(2 * int64(b.Rate.Per)) {
			cost := 1 + rng.Int64N(b.Capacity)
			if b.AllowN(epoch.Add(time.Duration(now)), int(cost)) {
				taken = append(taken, take{now, cost})
			}
		}
		for i := range taken {
			sum := int64(0)
			for _, k := range taken[i:] {
				sum += k.cost
				if per := int64(b.Rate.Per); sum*per > b.Capacity*per+b.Rate.Tokens*(k.at-taken[i].at) {
					t.Fatalf("capacity %d, rate %v: %d admitted from %d to %d", b.Capacity, b.Rate, sum, taken[i].at, k.at)
				}
			}
		}
	}
}

func TestFourBucketsAreNotOne(t *testing.T) {
	admitted := func(b *Bucket) (n int) {
		for range 4 {
			if b.AllowN(epoch, 1) {
				n++
			}
		}
		return n
	}
	each, one := 0, 0
	shared := &Bucket{Capacity: 3, Rate: PerSecond(2)}
	for range 4 {
		each += admitted(&Bucket{Capacity: 3, Rate: PerSecond(2)})
		one += admitted(shared)
	}
	if each != 12 || one != 3 {
		t.Errorf("four buckets admitted %d and one %d; want 12 and 3", each, one)
	}
}

func TestAlternatingTimesMintNothing(t *testing.T) {
	b := &Bucket{Capacity: 10, Rate: PerSecond(10)}
	if !b.AllowN(epoch, 10) {
		t.Fatal("not full")
	}
	admitted := 10
	for i := range 10_000 {
		if b.AllowN(epoch.Add(time.Duration(i%2)*time.Second), 1) {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("admitted %d, want 20", admitted)
	}
}

func TestNegativeCostsMintNothing(t *testing.T) {
	b := &Bucket{Capacity: 1, Rate: PerSecond(1)}
	admitted := 0
	for range 1000 {
		if b.AllowN(epoch, 1) {
			admitted++
		}
		if b.AllowN(epoch, -1) {
			t.Fatal("a negative cost was admitted")
		}
	}
	if admitted != 1 {
		t.Errorf("admitted %d, want 1", admitted)
	}
}

func TestOddRatesDoNotDrift(t *testing.T) {
	b := &Bucket{Capacity: 10, Rate: PerSecond(1e6 + 7)}
	at := epoch
	if !b.AllowN(at, 10) {
		t.Fatal("not full")
	}
	for k := int64(1); k <= 100_000; k++ {
		wait, err := b.DelayN(at, 1)
		if err != nil || wait <= 0 || b.AllowN(at.Add(wait-1), 1) || !b.AllowN(at.Add(wait), 1) {
			t.Fatalf("token %d: wait %v (%v) is not the least", k, wait, err)
		}
		at = at.Add(wait)
		if want := (k*1e9 + 1e6 + 6) / (1e6 + 7); int64(at.Sub(epoch)) != want {
			t.Fatalf("token %d came after %v; want %dns", k, at.Sub(epoch), want)
		}
	}
}

func TestSenselessSettingsAdmitNothing(t *testing.T) {
	for _, tt := range []struct {
		bucket *Bucket
		want   ConfigError
	}{
		{&Bucket{}, ConfigError{"Bucket.Capacity", "0", "must be positive"}},
		{&Bucket{Capacity: -3, Rate: PerSecond(1)}, ConfigError{"Bucket.Capacity", "-3", "must be positive"}},
		{&Bucket{Capacity: 1}, ConfigError{"Bucket.Rate.Tokens", "0", "must be positive"}},
		{&Bucket{Capacity: 1, Rate: PerSecond(-2)}, ConfigError{"Bucket.Rate.Tokens", "-2", "must be positive"}},
		{&Bucket{Capacity: 1, Rate: Every(0)}, ConfigError{"Bucket.Rate.Per", "0s", "must be positive"}},
		{&Bucket{Capacity: 1, Rate: Rate{1, -time.Second}}, ConfigError{"Bucket.Rate.Per", "-1s", "must be positive"}},
		{&Bucket{Capacity: 3e6, Rate: Every(time.Hour)}, ConfigError{"Bucket.Capacity", "3000000", "must be at most 1281023 at a rate of 1/1h0m0s"}},
		{&Bucket{Capacity: 1<<62 + 1, Rate: Every(1)}, ConfigError{"Bucket.Capacity", "4611686018427387905", "must be at most 4611686018427387904 at a rate of 1/1ns"}},
		{&Bucket{Capacity: 1, Rate: Every(math.MaxInt64)}, ConfigError{"Bucket.Capacity", "1", "must be at most 0 at a rate of 1/2562047h47m16.854775807s"}},
	} {
		check := func(call string, err error) {
			t.Helper()
			if got, ok := errors.AsType[*ConfigError](err); !ok || *got != tt.want {
				t.Errorf("%s: %v; want %v", call, err, &tt.want)
			}
		}
		for _, n := range []int{-1, 0, 1, math.MaxInt} {
			_, err := tt.bucket.DelayN(epoch, n)
			check("DelayN", err)
			check("WaitN", tt.bucket.WaitN(t.Context(), n))
			check("Deny", Deny(tt.bucket).WaitN(t.Context(), n))
		}
		for range 1000 {
			if tt.bucket.Allow() || tt.bucket.AllowN(epoch, 0) {
				t.Fatalf("%v admitted", &tt.want)
			}
		}
	}
}

func TestImpossibleCostsFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 10, Rate: PerSecond(1)}
		start := time.Now()
		for _, n := range []int{11, math.MaxInt, -1, math.MinInt} {
			_, err := b.DelayN(time.Now(), n)
			for _, err := range []error{err, b.WaitN(t.Context(), n), Deny(b).WaitN(t.Context(), n)} {
				if ce, ok := errors.AsType[*CostError](err); !ok || *ce != (CostError{int64(n), 10}) || !strings.Contains(err.Error(), fmt.Sprint(n)) {
					t.Errorf("cost %d: %v", n, err)
				}
			}
		}
		if time.Since(start) != 0 || !b.AllowN(time.Now(), 10) {
			t.Error("it took time or tokens")
		}
	})
}

// A guest is a call of WaitN under way.
type guest struct {
	err  error
	took time.Duration
	done chan struct{}
}

// wait starts WaitN in a goroutine and returns once it waits or has returned.
func wait(ctx context.Context, l Limiter, n int) *guest {
	g := &guest{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(g.done)
		g.err = l.WaitN(ctx, n)
		g.took = time.Since(start)
	}()
	synctest.Wait()
	return g
}

func (g *guest) check(t *testing.T, what string, took time.Duration, is error) {
	t.Helper()
	if <-g.done; g.took != took || !errors.Is(g.err, is) {
		t.Errorf("%s: %v after %v; want %v after %v", what, g.err, g.took, is, took)
	}
}

func TestWaitersAreServedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 3, Rate: PerSecond(1)}
		wait(t.Context(), b, 3).check(t, "a full bucket", 0, nil)
		first := wait(t.Context(), b, 3)
		second := wait(t.Context(), b, 1)
		third := wait(t.Context(), b, 2)
		time.Sleep(2500 * time.Millisecond)
		if b.Allow() || b.AllowN(time.Now().Add(time.Hour), 1) {
			t.Error("overtook those who wait")
		}
		wait(t.Context(), b, 0).check(t, "a look", 0, nil)
		if d, err := b.DelayN(time.Now(), 0); !b.AllowN(time.Now(), 0) || d != 0 || err != nil {
			t.Error("a look had to wait")
		}
		if d, err := b.DelayN(time.Now(), 1); d != 4500*time.Millisecond || err != nil {
			t.Errorf("delay behind the queue: %v, %v; want 4.5s", d, err)
		}
		late := wait(t.Context(), b, 1)
		first.check(t, "first", 3*time.Second, nil)
		second.check(t, "second", 4*time.Second, nil)
		third.check(t, "third", 6*time.Second, nil)
		late.check(t, "late", 4500*time.Millisecond, nil)
		if b.Allow() {
			t.Error("a token was left over")
		}
	})
}

func TestConcurrentWaitersDoNotDelayEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 3, Rate: PerSecond(10)}
		var mu sync.Mutex
		var took []time.Duration
		var wg sync.WaitGroup
		start := time.Now()
		for range 103 {
			wg.Go(func() {
				if err := b.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(start))
			})
		}
		wg.Wait()
		slices.Sort(took)
		for i, d := range took {
			if want := time.Duration(max(0, i-2)) * time.Second / 10; d != want {
				t.Errorf("call %d took %v; want %v", i, d, want)
			}
		}
	})
}

func TestDeadlineTooNearIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1, Rate: PerSecond(3), StartEmpty: true}
		const each = 333333334 * time.Nanosecond
		within := func(d time.Duration) *guest {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return wait(ctx, b, 1)
		}
		refused := func(g *guest, delay time.Duration) {
			t.Helper()
			g.check(t, "deadline too near", 0, context.DeadlineExceeded)
			le, ok := errors.AsType[*LimitError](g.err)
			if !ok || le.Delay != delay || !le.Timeout() || !strings.Contains(le.Error(), delay.String()) {
				t.Errorf("%v; want a LimitError with a delay of %v", g.err, delay)
			}
		}
		refused(within(time.Nanosecond), each)
		refused(within(each), each) // equal is too late
		first := within(each + 1)
		refused(within(2*each), 2*each)
		second := within(2*each + 1)
		refused(within(3*each), 3*each) // each of them loses a fraction of a nanosecond
		first.check(t, "first", each, nil)
		second.check(t, "second", 2*each, nil)
		if wait, err := b.DelayN(time.Now(), 1); wait != each || err != nil {
			t.Errorf("delay %v, %v; refusals must cost nothing", wait, err)
		}
	})
}

func TestPassedDeadlineIsTooLateForWhatFits(t *testing.T) {
	b := &Bucket{Capacity: 1, Rate: PerMinute(1)}
	err := b.Wait(lapsed{t.Context()})
	if le, ok := errors.AsType[*LimitError](err); !ok || le.Delay != 0 || !le.Timeout() {
		t.Errorf("%v; want a LimitError", err)
	}
	if !b.Allow() {
		t.Error("it cost a token")
	}
}

// lapsed has a deadline in the past that its context did not notice yet.
type lapsed struct{ context.Context }

func (lapsed) Deadline() (time.Time, bool) { return time.Unix(0, 0), true }

func TestGiantWaitHoldsUpNobodyOnceRefusedOrCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1000, Rate: PerSecond(1)}
		b.AllowN(time.Now(), 999)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		wait(ctx, b, 1000).check(t, "giant with a deadline", 0, context.DeadlineExceeded)
		wait(ctx, b, 1).check(t, "small", 0, nil)

		giant, stop := context.WithCancel(t.Context())
		g := wait(giant, b, 1000)
		wait(ctx, b, 1).check(t, "small behind a giant", 0, context.DeadlineExceeded)
		stop()
		g.check(t, "giant", 0, context.Canceled)
		wait(ctx, b, 1).check(t, "small", time.Second, nil)
	})
}

func TestWhatWillNeverBeComesNoNearer(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("an int of 32 bits can't ask for so much")
	}
	synctest.Test(t, func(t *testing.T) {
		all := int64(1) << 62
		b := &Bucket{Capacity: all, Rate: Every(1), StartEmpty: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 3 {
			wait(ctx, b, int(all))
		}
		for range 2 {
			if d, err := b.DelayN(time.Now(), 1); d != math.MaxInt64 || err != nil {
				t.Errorf("%d, %v", d, err)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestDelaysBehindAQueueSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1, Rate: Every(1 << 62), StartEmpty: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i, want := range []time.Duration{1 << 62, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64} {
			if d, err := b.DelayN(time.Now(), 1); d != want || err != nil {
				t.Errorf("behind %d waiters: %d, %v; want %d", i, d, err, want)
			}
			wait(ctx, b, 1)
		}
	})
}

func TestCancelledHeadHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 10, Rate: PerSecond(1), StartEmpty: true}
		ctx, cancel := context.WithCancel(t.Context())
		head := wait(ctx, b, 10)
		middle := wait(ctx, b, 10)
		next := wait(t.Context(), b, 2)
		last := wait(t.Context(), b, 2)
		time.Sleep(3 * time.Second)
		cancel()
		head.check(t, "head", 3*time.Second, context.Canceled)
		middle.check(t, "middle", 3*time.Second, context.Canceled)
		next.check(t, "next", 3*time.Second, nil)
		if d, err := b.DelayN(time.Now(), 1); d != 2*time.Second || err != nil {
			t.Errorf("delay behind the last: %v, %v; want 2s", d, err)
		}
		last.check(t, "last", 4*time.Second, nil)
	})
}

func TestCancelledWaitsLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 2, Rate: PerSecond(1)}
		b.AllowN(time.Now(), 2)
		goroutines := runtime.NumGoroutine()
		var guests []*guest
		var cancels []context.CancelFunc
		for i := range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			guests, cancels = append(guests, wait(ctx, b, 1+i%2)), append(cancels, cancel)
		}
		const others = 100 // goroutines of the runtime and of other tests that come and go
		if n := runtime.NumGoroutine() - goroutines; n > 1000+others {
			t.Errorf("%d goroutines for 1000 that wait", n)
		}
		time.Sleep(time.Second - 1)
		rand.New(rand.NewPCG(5, 6)).Shuffle(len(cancels), func(i, j int) { cancels[i], cancels[j] = cancels[j], cancels[i] })
		for _, cancel := range cancels {
			cancel()
		}
		for _, g := range guests {
			g.check(t, "cancelled", time.Second-1, context.Canceled)
		}
		if d, err := b.DelayN(time.Now(), 2); d != time.Second+1 || err != nil {
			t.Errorf("delay %v, %v; want 1.000000001s", d, err)
		}
		time.Sleep(time.Nanosecond)
		if !b.Allow() || b.Allow() {
			t.Error("a second is one token")
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - goroutines; n > others {
			t.Errorf("%d goroutines left", n)
		}
	})
}

// Random arrivals and cancels: each is served when the model says, and what
// DelayN foretells is right for what can be known by then.
func TestQueueEqualsTheModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	type call struct {
		arrive, cancel int64 // even and odd, so that they never coincide
		cost           int64
	}
	const never = math.MaxInt64
	histories, ties := 100, 0
	if testing.Short() {
		histories = 30
	}
	for range histories {
		capacity, tokens, per := 1+rng.Int64N(5), 1+rng.Int64N(20), 1+rng.Int64N(30)
		calls := make([]call, 20)
		for i := range calls {
			arrive := 2 * rng.Int64N(60)
			calls[i] = call{arrive, arrive + 1 + 2*rng.Int64N(100), 1 + rng.Int64N(capacity)}
			if rng.IntN(2) == 0 {
				calls[i].cancel = never
			}
		}
		slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.arrive, b.arrive) })

		// served tells when the last of the calls is served, as known at an instant.
		tie := false
		served := func(calls []call, known int64) (at int64, ok bool) {
			m := model.NewBucket(capacity, tokens, time.Duration(per), false, 0)
			free := int64(0)
			for _, c := range calls {
				if c.cancel > known {
					c.cancel = never
				}
				head := max(free, c.arrive)
				at = head + m.Wait(head, c.cost).Int64()
				tie = tie || at == c.cancel || head == c.cancel
				if ok = at < c.cancel; !ok {
					at = c.cancel
				} else {
					m.Take(at, c.cost)
				}
				if ok || c.cancel > head {
					free = at
				}
			}
			return at, ok
		}

		synctest.Test(t, func(t *testing.T) {
			b := &Bucket{Capacity: capacity, Rate: Rate{tokens, time.Duration(per)}}
			start := time.Now()
			var guests []*guest
			for i, c := range calls {
				time.Sleep(time.Duration(c.arrive) - time.Since(start))
				synctest.Wait()
				at, _ := served(calls[:i+1], c.arrive)
				foretold, err := b.DelayN(time.Now(), int(c.cost))
				if int64(foretold) != at-c.arrive && !tie || err != nil {
					t.Fatalf("%d, %v, %v: call %d is told %d; want %d", capacity, b.Rate, calls, i, foretold, at-c.arrive)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel != never {
					time.AfterFunc(time.Duration(c.cancel-c.arrive), cancel)
				}
				guests = append(guests, wait(ctx, b, int(c.cost)))
			}
			for i, g := range guests {
				<-g.done
				at, ok := served(calls[:i+1], never)
				if !tie && (ok != (g.err == nil) || int64(g.took) != at-calls[i].arrive) {
					t.Errorf("%d, %v, %v: call %d: %v after %d; want %v after %d",
						capacity, b.Rate, calls, i, g.err, g.took, ok, at-calls[i].arrive)
				}
			}
		})
		if tie {
			ties++
		}
	}
	if ties > histories/2 {
		t.Errorf("%d of %d histories left open what comes first", ties, histories)
	}
}

func TestDoneContextIsRefusedWithoutCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		for name, done := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"cancel": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				return ctx, cancel
			},
			"cancel with a cause": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				return ctx, func() { cancel(mine) }
			},
			"cause around the error": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				return ctx, func() { cancel(fmt.Errorf("mine: %w", context.Canceled)) }
			},
			"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithTimeoutCause(ctx, time.Second, mine)
				return ctx, func() { time.Sleep(time.Second); cancel() }
			},
		} {
			b := &Bucket{Capacity: 1, Rate: Every(time.Hour)}
			check := func(when string, ctx context.Context, err error) {
				t.Helper()
				if err == nil || !errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx)) {
					t.Errorf("%s, %s: %v; want %v and %v", name, when, err, ctx.Err(), context.Cause(ctx))
				}
			}
			ctx, end := done(t.Context())
			end()
			for _, n := range []int{0, 1} {
				check("before", ctx, b.WaitN(ctx, n))
				check("before, denying", ctx, Deny(b).WaitN(ctx, n))
				check("before, denying another limiter", ctx, Deny(allowOnly(true)).WaitN(ctx, n))
			}
			if !b.Allow() {
				t.Errorf("%s: it cost a token", name)
			}
			if name == "deadline" {
				continue
			}
			ctx, end = done(t.Context())
			g := wait(ctx, b, 1)
			end()
			g.check(t, name, 0, context.Cause(ctx))
			check("while waiting", ctx, g.err)
		}
	})
}

// An errContext is asked whether it is done through a function of ours.
type errContext struct {
	context.Context
	err func() error
}

func (c errContext) Err() error { return c.err() }

func TestContextDoneByTheTimeOfItsTurnWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1, Rate: PerSecond(1), StartEmpty: true}
		start := time.Now()
		ctx := errContext{t.Context(), func() error {
			if time.Since(start) >= time.Second {
				return context.Canceled
			}
			return nil
		}}
		wait(ctx, b, 1).check(t, "wait", time.Second, context.Canceled)
		if !b.Allow() {
			t.Error("it cost a token")
		}
	})
}

func TestDelayBehindAWaiterThatWokeLateIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1, Rate: PerSecond(1), StartEmpty: true}
		start := time.Now()
		late := wait(errContext{t.Context(), func() error {
			if time.Since(start) == time.Second {
				time.Sleep(time.Second / 4) // whoever holds the token back loses what flows in meanwhile
			}
			return nil
		}}, b, 1)
		next := wait(t.Context(), b, 1)
		if d, err := b.DelayN(time.Now(), 1); d != 3*time.Second || err != nil {
			t.Errorf("delay: %v, %v; want 3s", d, err)
		}
		late.check(t, "late", 1250*time.Millisecond, nil)
		if d, err := b.DelayN(time.Now(), 1); d != 2*time.Second || err != nil {
			t.Errorf("delay: %v, %v; want 2s", d, err)
		}
		next.check(t, "next", 2250*time.Millisecond, nil)
	})
}

func TestWaitOutlastsInstantsFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1, Rate: PerSecond(1)}
		b.AllowN(time.Now().Add(time.Minute), 1)
		wait(t.Context(), b, 1).check(t, "wait", 61*time.Second, nil)
	})
}

func TestWallClockInstantsMixWithTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 1, Rate: PerSecond(1)}
		if !b.AllowN(time.Now().Add(-time.Minute).Round(0), 1) || !b.Allow() || b.AllowN(time.Now().Round(0), 1) {
			t.Error("a minute ago and now are a minute apart")
		}
		time.Sleep(time.Second)
		if !b.AllowN(time.Now().Round(0), 1) || b.Allow() {
			t.Error("a second is one token")
		}
	})
}

// On the real clock, with instants that reach the bucket out of order: what was
// admitted wholly within any span of time stays within the envelope.
func TestConcurrentUseStaysWithinTheEnvelope(t *testing.T) {
	b := &Bucket{Capacity: 20, Rate: PerSecond(1000)}
	type take struct{ from, to, cost int64 }
	var mu sync.Mutex
	var taken []take
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 1 + i%3; ctx.Err() == nil; runtime.Gosched() {
				from, ok := time.Now(), false
				switch i % 4 {
				case 0:
					ok, n = b.Allow(), 1
				case 1:
					ok = b.AllowN(from, n)
				case 2:
					brief, end := context.WithCancel(ctx)
					time.AfterFunc(time.Millisecond, end)
					ok = b.WaitN(brief, n) == nil
					end()
				case 3:
					ok = b.WaitN(ctx, n) == nil
				}
				if ok {
					mu.Lock()
					taken = append(taken, take{int64(from.Sub(start)), int64(time.Since(start)), int64(n)})
					if len(taken) == 300 {
						cancel()
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(taken, func(a, b take) int { return cmp.Compare(a.to, b.to) })
	for _, first := range taken {
		sum := int64(0)
		for _, k := range taken {
			if k.from < first.from {
				continue
			}
			sum += k.cost
			if span := k.to - first.from; sum*1e9 > b.Capacity*1e9+1000*span {
				t.Fatalf("%d admitted in %v", sum, time.Duration(span))
			}
		}
	}
}

type allowOnly bool

func (a allowOnly) AllowN(time.Time, int) bool { return bool(a) }

func TestDenyRefusesWhereItWouldWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Capacity: 2, Rate: PerSecond(1)}
		l := Deny(b)
		wait(t.Context(), l, 2).check(t, "what fits", 0, nil)
		g := wait(t.Context(), l, 2)
		le, ok := errors.AsType[*LimitError](g.err)
		if !ok || g.took != 0 || *le != (LimitError{Delay: 2 * time.Second}) || le.Timeout() || errors.Is(le, context.DeadlineExceeded) {
			t.Errorf("%v after %v; want a LimitError of 2s", g.err, g.took)
		}
		d, err := l.(interface {
			DelayN(time.Time, int) (time.Duration, error)
		}).DelayN(time.Now(), 1)
		if d != time.Second || err != nil {
			t.Errorf("DelayN: %v, %v", d, err)
		}

		other := Deny(allowOnly(false))
		le, ok = errors.AsType[*LimitError](other.WaitN(t.Context(), 1))
		if !ok || *le != (LimitError{}) || le.Error() == "" {
			t.Errorf("%v; want an empty LimitError", le)
		}
		if _, ok := other.(interface {
			DelayN(time.Time, int) (time.Duration, error)
		}); ok {
			t.Error("a limiter that tells no delay tells one")
		}
		if err := Deny(allowOnly(true)).WaitN(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if _, ok := errors.AsType[*CostError](Deny(allowOnly(true)).WaitN(t.Context(), -1)); !ok {
			t.Error("a negative cost reached the limiter")
		}
	})
}

func TestRateIsPrintedAsGiven(t *testing.T) {
	for rate, want := range map[Rate]string{
		PerSecond(10): "10/1s", PerMinute(7): "7/1m0s", Every(250 * time.Millisecond): "1/250ms", {20, 2 * time.Second}: "20/2s",
	} {
		if rate.String() != want {
			t.Errorf("%q, want %q", rate, want)
		}
	}
}

func TestAdmissionDoesNotAllocate(t *testing.T) {
	b := &Bucket{Capacity: 1 << 30, Rate: PerSecond(1)}
	drained := &Bucket{Capacity: 1, Rate: Every(time.Hour)}
	drained.Allow()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	denier := Deny(b)
	for name, f := range map[string]func(){
		"Allow":          func() { b.Allow() },
		"Allow, refused": func() { drained.Allow() },
		"AllowN":         func() { b.AllowN(time.Now(), 2) },
		"AllowN, never":  func() { b.AllowN(time.Now(), -1) },
		"DelayN":         func() { drained.DelayN(time.Now(), 1) },
		"WaitN":          func() { b.WaitN(ctx, 1) },
		"Deny":           func() { denier.WaitN(ctx, 1) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkBucket(b *testing.B) {
	full := &Bucket{Capacity: 1 << 40, Rate: PerSecond(1e6)}
	drained := &Bucket{Capacity: 1, Rate: Every(time.Hour)}
	drained.Allow()
	var mu sync.Mutex
	var elapsed time.Duration
	base := time.Now()
	ctx := context.Background()
	for _, bb := range []struct {
		name string
		op   func()
	}{
		{"clock under a mutex", func() { mu.Lock(); elapsed = time.Since(base); mu.Unlock() }},
		{"Allow", func() { full.Allow() }},
		{"Allow refused", func() { drained.Allow() }},
		{"AllowN", func() { full.AllowN(base, 1) }},
		{"DelayN", func() { drained.DelayN(base, 1) }},
		{"WaitN", func() { full.WaitN(ctx, 1) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bb.op()
			}
		})
	}
	_ = elapsed
}
