package redisbucket_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/fixtures"
	"github.com/retryafter-go/retryafter/internal/model"
	. "github.com/retryafter-go/retryafter/redisbucket"
)

// origin is far enough ahead for keys not to expire by the server's own clock,
// and for their instants in nanoseconds to fit an int64.
const origin int64 = 4e15

// expressible reports whether microseconds can tell the history, from its
// start up to where the next event is not one of them.
func expressible(e fixtures.BucketEvent) bool {
	return e.At%time.Microsecond == 0 && origin+int64(e.At/time.Microsecond) > 0 && e.At < 1<<62
}

func TestHistoriesAreAnsweredExactly(t *testing.T) {
	_, _, client := serve(t)
	histories, events := 0, 0
	for i, h := range fixtures.BucketHistories() {
		clock := &clocked{Client: client}
		b := &Bucket{
			Client: clock, Key: retryafter.NewKey(fmt.Sprint(i)), Timeout: patient,
			Capacity: h.Capacity, Rate: retryafter.Rate{Tokens: h.Tokens, Per: h.Per},
		}
		if _, err := b.Take(ctx, 0); err != nil {
			if _, ok := errors.AsType[*retryafter.ConfigError](err); !ok {
				t.Errorf("%s: %v", h.Name, err)
			}
			continue
		}
		done := 0
		if h.StartEmpty { // as if it had been emptied at the first event
			clock.now = origin + int64(h.Events[0].At/time.Microsecond)
			if d := take(t, b, int(h.Capacity)); d != 0 {
				t.Fatalf("%s: a new bucket is not full: %v", h.Name, d)
			}
		}
		for j, e := range h.Events {
			if !expressible(e) {
				if e.Take && e.Fits {
					break // what comes after depends on it
				}
				continue
			}
			if !e.Take && e.Fits && e.Cost > 0 {
				continue // a take is the only question that there is
			}
			clock.now = origin + int64(e.At/time.Microsecond)
			wait, err := b.Take(ctx, int(e.Cost))
			if _, never := errors.AsType[*retryafter.CostError](err); never != e.Never || !never && err != nil {
				t.Errorf("%s, event %d: %+v: error %v", h.Name, j, e, err)
			}
			if want := (e.Wait + time.Microsecond - 1) / time.Microsecond * time.Microsecond; !e.Never && wait != want {
				t.Errorf("%s, event %d: %+v: wait %v, want %v", h.Name, j, e, wait, want)
			}
			done++
		}
		if done > 0 {
			histories++
		}
		events += done
	}
	if histories < 15 || events < 90 {
		t.Errorf("only %d events of %d histories were asked", events, histories)
	}
}

// TestEveryDecisionEqualsTheModel asks the script and an exact model the same
// questions, at times that also stand still and go back. Every admission,
// every wait, every time to live must be right, and a denial must leave no
// trace.
func TestEveryDecisionEqualsTheModel(t *testing.T) {
	_, rdb, client := serve(t)
	r := rand.New(rand.NewPCG(1, 2))
	buckets, asked := 60, 120
	if testing.Short() {
		buckets = 10
	}
	admitted, denied := 0, 0
	for i := range buckets {
		clock := &clocked{Client: client, now: origin}
		b := &Bucket{Client: clock, Key: retryafter.NewKey("model", fmt.Sprint(i)), Timeout: patient}
		for {
			b.Capacity = 1 + int64(math.Exp(r.Float64()*math.Log(1e9)))
			b.Rate = retryafter.Rate{Tokens: 1 + int64(math.Exp(r.Float64()*math.Log(1e9))), Per: 1 + time.Duration(math.Exp(r.Float64()*math.Log(1e14)))}
			probe := &Bucket{Client: clock, Capacity: b.Capacity, Rate: b.Rate}
			if _, err := probe.Take(ctx, 0); err == nil {
				break
			}
		}
		m := model.NewBucket(b.Capacity, b.Rate.Tokens, b.Rate.Per, false, 0)
		name := NameOf("retryafter:bucket:", b.Key)
		full := new(big.Rat).SetInt64(b.Capacity)
		var before state
		known := false
		for step := range asked {
			at := clock.now * 1000
			cost := 1 + r.Int64N(b.Capacity)
			if r.IntN(2) == 0 {
				cost = 1 + r.Int64N(1+b.Capacity/50)
			}
			need := m.Wait(at, cost)
			want := new(big.Int).Add(need, big.NewInt(999))
			want.Div(want, big.NewInt(1000))
			got, err := b.Take(ctx, int(cost))
			if err != nil || got.Nanoseconds()%1000 != 0 || got.Microseconds() != want.Int64() {
				t.Fatalf("%d at %v, step %d: cost %d at %d: wait %v, error %v; want %v µs", b.Capacity, b.Rate, step, cost, at, got, err, want)
			}
			if fits := m.Take(at, cost); fits != (got == 0) {
				t.Fatalf("%d at %v, step %d: the model says %v", b.Capacity, b.Rate, step, fits)
			}
			if got == 0 {
				admitted++
				before, known = stateOf(t, rdb, name), true
				// The key must last until the bucket is full, and no longer than
				// the rounding takes.
				if m.Credit(before.expires*1e6).Cmp(full) != 0 {
					t.Fatalf("%d at %v, step %d: the key expires before the bucket is full", b.Capacity, b.Rate, step)
				}
				if m.Credit((before.expires-2)*1e6).Cmp(full) == 0 {
					t.Fatalf("%d at %v, step %d: the key expires long after the bucket is full", b.Capacity, b.Rate, step)
				}
			} else {
				denied++
				if known && stateOf(t, rdb, name) != before {
					t.Fatalf("%d at %v, step %d: a denial changed %v to %v", b.Capacity, b.Rate, step, before, stateOf(t, rdb, name))
				}
				// A microsecond less than told is too early, and so are looks on
				// the way; the next time round may be any.
				clock.now += got.Microseconds() - 1
				if d, err := b.Take(ctx, int(cost)); err != nil || d != time.Microsecond {
					t.Fatalf("%d at %v, step %d: a microsecond early: wait %v, error %v", b.Capacity, b.Rate, step, d, err)
				}
			}
			switch r.IntN(6) {
			case 0: // stands still
			case 1:
				clock.now -= r.Int64N(1 + got.Microseconds() + 1000)
			case 2:
				clock.now++
			case 3:
				clock.now += r.Int64N(1 + int64(float64(b.Capacity)/float64(b.Rate.Tokens)*float64(b.Rate.Per)/1000))
			default:
				clock.now += r.Int64N(2 + int64(float64(cost)/float64(b.Rate.Tokens)*float64(b.Rate.Per)/1000))
			}
			clock.now = min(max(clock.now, origin/2), origin*2)
		}
	}
	t.Logf("%d admitted, %d denied", admitted, denied)
	if admitted < 10*buckets || denied < 10*buckets {
		t.Errorf("%d admitted, %d denied: too few to tell", admitted, denied)
	}
}

// A server whose clock jumps to and fro, as behind a failover between two that
// disagree, earns no second twice.
func TestAlternatingServerClocksMintNothing(t *testing.T) {
	_, _, client := serve(t)
	clock := &clocked{Client: client}
	b := &Bucket{Client: clock, Capacity: 10, Rate: retryafter.PerSecond(10), Timeout: patient}
	clock.now = origin
	admitted := 0
	for b.Allow(ctx) {
		admitted++
	}
	for i := range 500 {
		clock.now = origin + int64(i%2)*1e6
		if b.Allow(ctx) {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("admitted %d, want 10 and those of one second", admitted)
	}
	clock.now = origin - 3600e6
	if d := take(t, b, 1); d != time.Hour+time.Second+100*time.Millisecond {
		t.Errorf("an hour back: wait %v", d)
	}
}

func TestChangedSettingsKeepTheDebt(t *testing.T) {
	_, _, client := serve(t)
	clock := &clocked{Client: client, now: origin}
	with := func(capacity int64, r retryafter.Rate) *Bucket {
		return &Bucket{Client: clock, Key: "k", Capacity: capacity, Rate: r, Timeout: patient}
	}
	if take(t, with(10, retryafter.PerSecond(1)), 10) != 0 {
		t.Fatal("not full at first")
	}
	// A hundred an hour are 36 s a token; a capacity of 100 leaves 90.
	larger := with(100, retryafter.Rate{Tokens: 100, Per: time.Hour})
	if d := take(t, larger, 91); d != 36*time.Second {
		t.Errorf("ten tokens of debt of a hundred: wait %v for the 91st", d)
	}
	if take(t, larger, 90) != 0 {
		t.Error("ten tokens of debt of a hundred leave no ninety")
	}
	// A capacity of 5 at 1/s has to pay a hundred back, to be short of four.
	smaller := with(5, retryafter.PerSecond(1))
	if d := take(t, smaller, 1); d != 96*time.Second {
		t.Errorf("a hundred tokens of debt of five: wait %v", d)
	}
	clock.now += 96e6
	if take(t, smaller, 1) != 0 {
		t.Error("the debt is not paid by the time told")
	}
}

func TestChangedSettingsMintNothing(t *testing.T) {
	_, rdb, client := serve(t)
	r := rand.New(rand.NewPCG(3, 4))
	clock := &clocked{Client: client, now: origin}
	rates := []retryafter.Rate{{Tokens: 1, Per: time.Second}, {Tokens: 7, Per: time.Hour}, {Tokens: 1000007, Per: time.Second}, {Tokens: 3, Per: time.Second},
		{Tokens: 99991, Per: 86413 * time.Second}, {Tokens: 1, Per: 24 * time.Hour}}
	name := NameOf("retryafter:bucket:", "k")
	with := func() *Bucket {
		return &Bucket{Client: clock, Key: "k", Capacity: 1 + r.Int64N(100), Rate: rates[r.IntN(len(rates))], Timeout: patient}
	}
	converted := 0
	var old *Bucket
	for range 2000 {
		b := with()
		if old == nil || r.IntN(5) == 0 {
			rdb.Del(ctx, name)
			old = nil
		}
		var before state
		if old != nil {
			clock.now += r.Int64N(5e6) // or all debts would be whole tokens
			take(t, old, 1)
			if rdb.Exists(ctx, name).Val() == 0 {
				t.Fatal("the key is gone")
			}
			before = stateOf(t, rdb, name)
			clock.now = before.last
		}
		n := 1 + r.Int64N(b.Capacity)
		if take(t, b, int(n)) != 0 {
			continue
		}
		after := stateOf(t, rdb, name)
		_, token, size := b.Units()
		if after.token != token || after.debt > size {
			t.Fatalf("%+v in a bucket of %d units, %d a token", after, size, token)
		}
		if old != nil && before.token != token {
			converted++
			exact := new(big.Rat).Mul(big.NewRat(before.debt, before.token), big.NewRat(token, 1))
			excess := new(big.Rat).Sub(big.NewRat(after.debt-n*token, 1), exact)
			if excess.Sign() < 0 || excess.Cmp(big.NewRat(100, 1)) > 0 {
				t.Fatalf("%+v became %+v with a cost of %d tokens: off by %v units", before, after, n, excess)
			}
		}
		old = b
	}
	if converted < 50 {
		t.Errorf("only %d conversions", converted)
	}
}

func TestDrainedBucketIsNotRefilledByExpiry(t *testing.T) {
	// throttled's fault: a time to live rounded down to seconds mints a bucket.
	_, rdb, client := serve(t)
	b := &Bucket{Client: client, Key: "slow", Capacity: 5, Rate: retryafter.Rate{Tokens: 5, Per: time.Hour}, Timeout: patient}
	// redis_rate's fault: AllowN(-1), and the drained bucket is full again.
	for range 5 {
		if !b.Allow(ctx) {
			t.Fatal("not full at first")
		}
	}
	if _, err := b.Take(ctx, -1); err == nil {
		t.Error("a negative cost is no error")
	}
	for range 100 {
		if b.Allow(ctx) {
			t.Fatal("admitted by a drained bucket")
		}
	}
	s := stateOf(t, rdb, NameOf("retryafter:bucket:", "slow"))
	if left := s.expires*1000 - s.last; left < 3599e6 || left > 3600e6+2000 {
		t.Errorf("lives for %d µs", left)
	}

	// By the server's own clock: 20 at 40/s, in 1.3 s. The key's time to live
	// is hit again and again by emptying it as soon as it is nearly full.
	b = &Bucket{Client: client, Key: "fast", Capacity: 20, Rate: retryafter.PerSecond(40), Timeout: patient}
	begin := serverTime(t, rdb)
	admitted := int64(0)
	for serverTime(t, rdb)-begin < 1300e3 {
		if take(t, b, 19) == 0 {
			admitted += 19
		}
	}
	if span := serverTime(t, rdb) - begin; admitted*1e6 > 20e6+40*span {
		t.Errorf("admitted %d in %d µs", admitted, span)
	}
}
