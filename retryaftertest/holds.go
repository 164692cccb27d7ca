package retryaftertest

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

// TestHolds checks that a memory of Gates keeps to what [retryafter.Holds]
// says: a key is held for as long as it was told, whatever else is told, and no
// other key is.
//
// Each check calls newHolds for a memory that holds nothing. A hold may be kept
// up to a minute too long, by rounding and by a slow network, and never too
// short.
func TestHolds(t *testing.T, newHolds func(t *testing.T) retryafter.Holds) {
	const slack = time.Minute
	ctx := context.Background()
	hold := func(t *testing.T, h retryafter.Holds, key retryafter.Key, d time.Duration) {
		t.Helper()
		if err := h.Hold(ctx, key, d); err != nil {
			t.Fatal(err)
		}
	}
	held := func(t *testing.T, h retryafter.Holds, key retryafter.Key) time.Duration {
		t.Helper()
		left, err := h.Held(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	// check wants a key to be held for d from an instant on.
	check := func(t *testing.T, h retryafter.Holds, key retryafter.Key, from time.Time, d time.Duration) {
		t.Helper()
		left := held(t, h, key)
		if least := d - time.Since(from); left < least || left > d+slack {
			t.Errorf("%v is held for %v, want %v", key, left, least)
		}
	}

	t.Run("nothing is held at first", func(t *testing.T) {
		if left := held(t, newHolds(t), "key"); left != 0 {
			t.Errorf("held for %v", left)
		}
	})

	t.Run("a hold of no time or less is none", func(t *testing.T) {
		h := newHolds(t)
		for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
			hold(t, h, "key", d)
			if left := held(t, h, "key"); left != 0 {
				t.Errorf("after one of %v held for %v", d, left)
			}
		}
	})

	t.Run("a hold only moves forward", func(t *testing.T) {
		h := newHolds(t)
		var from time.Time
		longest := time.Hour
		for _, more := range []time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Hour} {
			longest += more
			from = time.Now()
			hold(t, h, "key", longest)
			check(t, h, "key", from, longest)
		}
		for _, d := range []time.Duration{time.Hour, time.Millisecond, 0, -time.Hour} {
			hold(t, h, "key", d)
			check(t, h, "key", from, longest)
		}
	})

	t.Run("no part of a hold is cut off", func(t *testing.T) {
		h := newHolds(t)
		for i, unit := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, time.Second, time.Minute, time.Hour} {
			for n := range 10 {
				key, d, from := retryafter.NewKey(fmt.Sprint(i, n)), time.Hour+unit-1, time.Now()
				hold(t, h, key, d)
				check(t, h, key, from, d)
			}
		}
	})

	t.Run("a hold ends, and not too early", func(t *testing.T) {
		h, begin := newHolds(t), time.Now()
		const d = 60*time.Millisecond - 1
		hold(t, h, "key", d)
		for held(t, h, "key") > 0 {
			if left := held(t, h, "key"); left > d+slack || time.Since(begin) > slack {
				t.Fatalf("after %v held for another %v, want %v in all", time.Since(begin), left, d)
			}
			time.Sleep(100 * time.Microsecond)
		}
		if took := time.Since(begin); took < d {
			t.Errorf("ended after %v, want %v", took, d)
		}
		from := time.Now()
		hold(t, h, "key", time.Hour)
		check(t, h, "key", from, time.Hour)
	})

	t.Run("each key has its own", func(t *testing.T) {
		h, from := newHolds(t), time.Now()
		keys := []retryafter.Key{"", "a", "A", "a ", "b", "{a}", "a\x00", "\xff", retryafter.NewKey("a"), retryafter.NewKey("a", "b"), retryafter.NewKey("ab")}
		for i, key := range keys {
			if left := held(t, h, key); left != 0 {
				t.Errorf("%v is held for %v by that of another", key, left)
			}
			hold(t, h, key, time.Duration(i+1)*time.Hour)
		}
		for i, key := range keys {
			check(t, h, key, from, time.Duration(i+1)*time.Hour)
		}
	})

	t.Run("none makes way for another", func(t *testing.T) {
		h, from := newHolds(t), time.Now()
		const many = 300
		key := func(i int) retryafter.Key { return retryafter.NewKey("one of many", fmt.Sprint(i)) }
		for i := range many {
			hold(t, h, key(i), time.Hour+time.Duration(i%7)*time.Minute)
			hold(t, h, retryafter.NewKey("one that ends", fmt.Sprint(i)), 1)
		}
		for i := range many {
			check(t, h, key(i), from, time.Hour+time.Duration(i%7)*time.Minute)
		}
	})

	t.Run("the longest delay holds for a century", func(t *testing.T) {
		h := newHolds(t)
		hold(t, h, "key", math.MaxInt64)
		const century = 100 * 365 * 24 * time.Hour
		if left := held(t, h, "key"); left < century {
			t.Errorf("held for %v, want %v", left, century)
		}
	})

	t.Run("of many at once the longest counts", func(t *testing.T) {
		h, from := newHolds(t), time.Now()
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				key := retryafter.Key(fmt.Sprint(i % 2))
				for _, hours := range []int{i + 1, 16 - i} {
					if err := h.Hold(ctx, key, time.Duration(hours)*time.Hour); err != nil {
						t.Error(err)
					}
					if _, err := h.Held(ctx, key); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		check(t, h, "0", from, 16*time.Hour)
		check(t, h, "1", from, 16*time.Hour)
	})
}
