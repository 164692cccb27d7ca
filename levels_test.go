package retryafter

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What bounded memory remembers is what a map would that drops the key that is
// full first, and has every unseen key start with the most that was dropped. At
// a flow of so many units a nanosecond a level is full at last·flow + debt.
func TestLevelsDropTheLeastDebtAndNoneOfIt(t *testing.T) {
	const size, flow = 1 << 40, 3
	for _, limit := range []int{1, 2, 3, 10, 60} {
		rng := rand.New(rand.NewPCG(1, uint64(limit)))
		m := &meter{flow: flow, token: 1, size: size}
		got := levels{meter: m, unseen: m.start(false, 0), limit: limit}
		want := map[hash]level{}
		var unseen, now int64 // unseen: when what was dropped is full, by flow
		var evicted, below uint64
		full := func(l level) int64 { return l.last*flow + int64(l.debt) }
		drop := func(l level) {
			if full(l) > now*flow {
				evicted++
			}
			unseen = max(unseen, full(l))
		}
		put := func(h hash, l level, taken bool) {
			if _, ok := want[h]; !ok {
				if !taken && unseen > now*flow {
					below++
				}
				if len(want) == limit {
					least, top := hash{}, l
					for h, l := range want {
						if full(l) < full(top) {
							least, top = h, l
						}
					}
					drop(top)
					if top == l {
						return
					}
					delete(want, least)
				}
			}
			want[h] = l
		}
		for step := range 3000 {
			now += rng.Int64N(1 << 30 / int64(limit))
			h := hash{rng.Uint64N(uint64(2*limit + 3)), 7} // so that many share a home
			l := level{debt: rng.Uint64N(1 << 34), last: now}
			taken := rng.IntN(4) == 0
			if taken {
				before, seen := got.take(h, now)
				old, ok := want[h]
				delete(want, h)
				if seen != ok || ok && before != old {
					t.Fatalf("limit %d, step %d: took %v, %v; want %v, %v", limit, step, before, seen, old, ok)
				}
				if !seen || rng.IntN(2) == 0 {
					continue
				}
			}
			got.put(h, l, now, taken)
			put(h, l, taken)
			for k := range uint64(2*limit + 3) {
				h := hash{k, 7}
				l, seen := got.get(h, now)
				old, ok := want[h]
				if seen != ok || ok && l != old || !ok && max(full(l), now*flow) != max(unseen, now*flow) {
					t.Fatalf("limit %d, step %d: key %d is at %v, %v; want %v, %v, unseen ones until %d", limit, step, k, l, seen, old, ok, unseen)
				}
			}
			if at := now - rng.Int64N(1<<31); unseen > 0 { // some time ago as much more was missing as has flowed in since
				if debt := int64(got.debt(got.start(at), at)); debt != min(max(unseen-at*flow, 0), size) {
					t.Fatalf("limit %d, step %d: %d is missing at %d, where all is there by %d/%d", limit, step, debt, at, unseen, flow)
				}
			}
			if got.evicted != evicted || got.below != below {
				t.Fatalf("limit %d, step %d: %d evicted, %d started below; want %d, %d", limit, step, got.evicted, got.below, evicted, below)
			}
		}
		if evicted == 0 || below == 0 {
			t.Errorf("limit %d: %d evicted, %d started below", limit, evicted, below)
		}
	}
}

// What flows in between two instants may be more than 64 bits hold.
func TestTheLevelThatIsFullLaterIsFoundExactly(t *testing.T) {
	for _, tc := range []struct {
		a, b  level
		later bool
	}{
		{level{0, 1 << 30}, level{1 << 62, 0}, true},
		{level{1 << 62, 0}, level{0, 1 << 30}, false},
		{level{5, 0}, level{0, 1 << 30}, false},
		{level{0, 1 << 30}, level{5, 0}, true},
		{level{1, 7}, level{0, 7}, true},
		{level{0, 7}, level{0, 7}, false},
		{level{1<<40 + 1, 6}, level{0, 7}, true},
		{level{1 << 40, 6}, level{0, 7}, false},
		{level{0, math.MaxInt64}, level{1 << 62, math.MinInt64}, true},
	} {
		l := levels{meter: &meter{flow: 1 << 40, token: 1, size: 1 << 62}}
		if got := l.later(tc.a, tc.b); got != tc.later {
			t.Errorf("%v is full later than %v: %v", tc.a, tc.b, got)
		}
	}
}
