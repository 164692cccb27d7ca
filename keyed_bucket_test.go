package retryafter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

type bucket interface {
	Allow() bool
	AllowN(t time.Time, n int) bool
	TakeN(t time.Time, n int) (time.Duration, error)
	DelayN(t time.Time, n int) (time.Duration, error)
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int) error
}

// A KeyedBucket, and a Keyed for those without a key, answer as a Bucket does:
// with room, without, and while somebody waits.
func TestAKeyedBucketAnswersAsABucket(t *testing.T) {
	answers := func(t *testing.T, b bucket) (all []string) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			say := func(what string, v ...any) {
				all = append(all, fmt.Sprintf("%v: %s %v", time.Since(begin), what, v))
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			look := func() {
				for _, n := range []int{-1, 0, 1, 3, 4} {
					d, err := b.DelayN(time.Now(), n)
					say("DelayN", n, d, err)
					say("WaitN of who left", n, b.WaitN(gone, n))
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if n != 1 { // for which there may be time
						say("WaitN with a second", n, b.WaitN(ctx, n))
					}
					cancel()
				}
				for _, n := range []int{-1, 0, 4} {
					d, err := b.TakeN(time.Now(), n)
					say("TakeN", n, d, err)
					say("AllowN", n, b.AllowN(time.Now(), n))
				}
			}
			d, err := b.TakeN(time.Now(), 1)
			say("TakeN", 1, d, err)
			look()
			say("Allow", b.Allow(), b.AllowN(time.Now(), 2), b.AllowN(time.Now(), 1), b.Allow())
			d, err = b.TakeN(time.Now(), 2)
			say("TakeN", 2, d, err)
			look()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			say("Wait that ends with its deadline", b.Wait(ctx))
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Second+1)
			say("Wait that ends before it", b.Wait(ctx))
			cancel()
			done := make(chan error)
			go func() { done <- b.WaitN(t.Context(), 3) }()
			synctest.Wait()
			look()
			d, err = b.TakeN(time.Now(), 1)
			say("TakeN while one waits", d, err)
			say("Allow while one waits", b.Allow(), b.AllowN(time.Now(), 1))
			say("of who waited", <-done)
			say("Wait", b.Wait(t.Context()))
			time.Sleep(2 * time.Second)
			say("AllowN", b.AllowN(time.Now(), 2), b.Allow())
		})
		return all
	}
	want := answers(t, &retryafter.Bucket{Capacity: 3, Rate: retryafter.PerSecond(1)})
	keyed := &retryafter.Keyed{Capacity: 3, Rate: retryafter.PerSecond(1)}
	for name, b := range map[string]bucket{"of a key": keyed.For("a"), "of none": &retryafter.Keyed{Capacity: 3, Rate: retryafter.PerSecond(1)}} {
		if diff := cmp.Diff(want, answers(t, b)); diff != "" {
			t.Errorf("%s (-Bucket +%T):\n%s", name, b, diff)
		}
	}
}

// While others wait for a key, it is theirs: who gives up takes nothing along.
func TestWhoGivesUpLeavesTheOthersInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := (&retryafter.Keyed{Capacity: 1, Rate: retryafter.PerSecond(1)}).For("a")
		b.Allow()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(500*time.Millisecond, cancel)
		at := make(chan time.Duration, 2)
		wait := func() {
			if err := b.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			at <- time.Since(begin)
		}
		go b.Wait(ctx)
		synctest.Wait()
		go wait()
		time.Sleep(600 * time.Millisecond)
		go wait()
		if first, second := <-at, <-at; first != time.Second || second != 2*time.Second {
			t.Errorf("tokens were had at %v and %v, want 1s and 2s", first, second)
		}
	})
}

func TestAKeyedTellsWhatItHolds(t *testing.T) {
	for _, most := range []int{0, 1, 2, 1000, 65537, 100_003, 1 << 20} {
		k := &retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1), MaxKeys: most}
		want := most
		if most == 0 {
			want = 65536
		}
		if got := k.Stats().MaxKeys; got != want {
			t.Errorf("MaxKeys %d: room for %d", most, got)
		}
	}
	k := &retryafter.Keyed{Capacity: 2, Rate: retryafter.Every(time.Hour), MaxKeys: 2}
	for i, step := range []struct {
		take int
		want retryafter.KeyedStats
	}{
		{1, retryafter.KeyedStats{Keys: 1, MaxKeys: 2}},
		{2, retryafter.KeyedStats{Keys: 2, MaxKeys: 2}},
		{2, retryafter.KeyedStats{Keys: 2, MaxKeys: 2, Evicted: 1}}, // the first makes way, and leaves what it owed to those to come
		{1, retryafter.KeyedStats{Keys: 2, MaxKeys: 2, Evicted: 2, StartedBelow: 1}},
	} {
		if !k.For(retryafter.Key(fmt.Sprint(i))).AllowN(time.Now(), step.take) {
			t.Errorf("key %d was refused", i)
		}
		if got := k.Stats(); got != step.want {
			t.Errorf("after key %d: %+v, want %+v", i, got, step.want)
		}
	}
	none := &retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1)}
	b := none.For("a")
	b.AllowN(time.Now(), 0)
	b.TakeN(time.Now(), 0)
	b.WaitN(t.Context(), 0)
	if got := none.Stats(); got.Keys != 0 {
		t.Errorf("%d keys are kept of one that took nothing", got.Keys)
	}
	for _, bad := range []int{-1, 1<<30 + 1} {
		k := &retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1), MaxKeys: bad}
		err := k.For("a").WaitN(t.Context(), 1)
		if c, ok := errors.AsType[*retryafter.ConfigError](err); !ok || c.Field != "Keyed.MaxKeys" || c.Value != fmt.Sprint(bad) {
			t.Errorf("MaxKeys %d: %v", bad, err)
		}
		if got := k.Stats(); got != (retryafter.KeyedStats{}) {
			t.Errorf("MaxKeys %d: %+v", bad, got)
		}
	}
}
