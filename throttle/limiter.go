package throttle

import (
	"context"
	"math"
	"sort"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Limiter keeps a budget a key. It may be used from many goroutines at once.
// [Keyed] makes one that lives in this process; one that is shared with other
// machines asks a server, within the time that ctx leaves it.
type Limiter interface {
	// Take charges n tokens to key and returns 0, or charges nothing and
	// returns the least wait, more than 0, after which n would fit. n is not
	// negative; an n of 0 is a look, and fits.
	//
	// An error has charged nothing, or can't tell. A
	// *[retryafter.CostError] means that n never fits, a
	// *[retryafter.ConfigError] that the settings make no sense, any other
	// that the Limiter failed.
	Take(ctx context.Context, key retryafter.Key, n int) (time.Duration, error)
}

// A LimiterFunc is a Limiter's Take. It makes a Limiter of what has another
// shape.
type LimiterFunc func(ctx context.Context, key retryafter.Key, n int) (time.Duration, error)

// Take calls f.
func (f LimiterFunc) Take(ctx context.Context, key retryafter.Key, n int) (time.Duration, error) {
	return f(ctx, key, n)
}

// A QuotaLimiter is a Limiter that can say what it has left, as Handler.Policy
// needs it.
type QuotaLimiter interface {
	Limiter

	// Quota returns what each key's bucket holds at most and gains. It is
	// asked once.
	Quota() (capacity int64, rate retryafter.Rate)

	// TakeLeft is Take, and tells what is left after it.
	TakeLeft(ctx context.Context, key retryafter.Key, n int) (time.Duration, Left, error)
}

// Left is what a key can still take.
type Left struct {
	Tokens int64         // whole ones; never more than there are
	Next   time.Duration // the least wait until Tokens + 1 could be taken in all, Tokens of them now
}

// Keyed returns the Limiter of the buckets that k keeps, a [QuotaLimiter]. Keys
// are Handler's: neither k.Key nor retryafter.WithKey matters here.
func Keyed(k *retryafter.Keyed) Limiter { return keyed{k} }

type keyed struct{ *retryafter.Keyed }

func (k keyed) Take(_ context.Context, key retryafter.Key, n int) (time.Duration, error) {
	return k.take(time.Now(), key, n)
}

func (k keyed) take(now time.Time, key retryafter.Key, n int) (time.Duration, error) {
	if k.Keyed == nil {
		return 0, &retryafter.ConfigError{Field: "Keyed", Value: "nil", Problem: "must be set"}
	}
	return k.For(key).TakeN(now, n)
}

func (k keyed) Quota() (int64, retryafter.Rate) {
	if k.Keyed == nil {
		return 0, retryafter.Rate{}
	}
	return k.Capacity, k.Rate
}

// TakeLeft finds what is left by asking for the delays of so many tokens, the
// more the longer.
func (k keyed) TakeLeft(_ context.Context, key retryafter.Key, n int) (time.Duration, Left, error) {
	now := time.Now()
	delay, err := k.take(now, key, n)
	if err != nil {
		return 0, Left{}, err
	}
	b := k.For(key)
	most := int(min(k.Capacity, math.MaxInt))
	left := sort.Search(most, func(i int) bool {
		d, err := b.DelayN(now, i+1)
		return d > 0 || err != nil
	})
	var next time.Duration
	if left < most {
		next, err = b.DelayN(now, left+1)
	} else {
		next = tokenTime(k.Rate)
	}
	return delay, Left{Tokens: int64(left), Next: max(next, 1)}, err
}

// tokenTime is how long a bucket takes to gain one token, rounded up.
func tokenTime(r retryafter.Rate) time.Duration {
	whole := r.Per / time.Duration(r.Tokens)
	if r.Per%time.Duration(r.Tokens) != 0 {
		whole++
	}
	return whole
}
