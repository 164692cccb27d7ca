package retryafter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

// A Limiter admits work at some rate. WaitN returns nil once work that costs n
// may begin, and an error where it can't or where ctx is done before. An error
// has cost nothing, or can't tell, as where a server did not answer. [Bucket] is a Limiter, and so is the Limiter of
// golang.org/x/time/rate. A Limiter may be used from many goroutines at once.
//
// One that also has either of
//
//	DelayN(t time.Time, n int) (time.Duration, error)
//	TokensAt(t time.Time) float64
//
// as Bucket and the Limiter of golang.org/x/time/rate do, lets a Transport count
// its wait in before it lets go of a response. One that has neither may refuse a
// retry when the response is gone. One with both DelayN and
//
//	TakeN(t time.Time, n int) (time.Duration, error)
//
// as Bucket has, is asked for the tokens by TakeN first, and by WaitN where they
// are not there; an error of TakeN refuses the attempt.
type Limiter interface {
	WaitN(ctx context.Context, n int) error
}

// A RequestLimiter is a Limiter that keeps a budget a key. A Transport asks it
// for the one that a request is charged to.
type RequestLimiter interface {
	Limiter

	// ForRequest returns the Limiter of req's key: that of WithKey where req's
	// context has one, else what the RequestLimiter's own settings say.
	ForRequest(req *http.Request) Limiter
}

// A LimitError is work that a limiter refused at once instead of letting it
// wait.
type LimitError struct {
	// Delay is the least wait that would have been needed, uncut. It is 0
	// where the limiter can't tell.
	Delay time.Duration

	// Err is context.DeadlineExceeded where the wait would not have ended
	// before the deadline, and nil where no wait was wanted, as with [Deny].
	Err error
}

func (e *LimitError) Error() string {
	s := "retryafter: over the limit"
	if e.Delay > 0 {
		s += fmt.Sprintf(" for another %v", e.Delay)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *LimitError) Unwrap() error { return e.Err }

// Timeout reports whether it was for want of time that the wait did not begin.
func (e *LimitError) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// Deny returns a Limiter that refuses at once, with a *[LimitError], where l
// would have to wait. l may be a *[Bucket], a *[Keyed] or a Limiter of
// golang.org/x/time/rate. Where l has the methods
//
//	TakeN(t time.Time, n int) (time.Duration, error)
//	DelayN(t time.Time, n int) (time.Duration, error)
//
// as the first two have, or TokensAt as the third has, the LimitError tells the
// delay, their errors are passed on, and a Transport knows in time that a retry
// would be refused, and hands back the response it has. Where l is a
// [RequestLimiter], so is the returned Limiter, for what l has for a request in
// the place of l.
func Deny(l interface {
	AllowN(t time.Time, n int) bool
}) Limiter {
	var denying Limiter = deny{l}
	switch l := l.(type) {
	case taker:
		denying = denyTake{l}
	case tokens:
		denying = denyTake{takeTokens{l}}
	}
	if l, ok := l.(RequestLimiter); ok {
		return denyRequest{denying, l}
	}
	return denying
}

type allower interface {
	AllowN(t time.Time, n int) bool
}

type delayer interface {
	DelayN(t time.Time, n int) (time.Duration, error)
}

type taker interface {
	TakeN(t time.Time, n int) (time.Duration, error)
	delayer
}

type tokensAt interface {
	TokensAt(t time.Time) float64
}

type tokens interface {
	allower
	tokensAt
}

// takeTokens makes a taker of what tells how many tokens there will be.
type takeTokens struct{ tokens }

func (l takeTokens) TakeN(t time.Time, n int) (time.Duration, error) {
	if n == 0 || n > 0 && l.AllowN(t, n) {
		return 0, nil
	}
	d, err := l.DelayN(t, n)
	return max(d, 1), err
}

func (l takeTokens) DelayN(t time.Time, n int) (time.Duration, error) { return delayOf(l, t, n) }

// delayOf looks for the instant at which l will have n tokens. Rounding may make
// it a little late or early; what counts is what the limiter then says.
func delayOf(l tokensAt, t time.Time, n int) (time.Duration, error) {
	enough := func(d time.Duration) bool { return l.TokensAt(t.Add(d)) >= float64(n) }
	const never = 100 * 365 * 24 * time.Hour
	switch {
	case n < 0:
		return 0, &CostError{Cost: int64(n)}
	case !enough(never):
		// Who admits even that has no limit, and gives nothing that would be missed.
		if l, ok := l.(allower); ok && l.AllowN(t, math.MaxInt) {
			return 0, nil
		}
		return 0, &CostError{Cost: int64(n)}
	case enough(0):
		return 0, nil
	}
	short, long := time.Duration(0), time.Nanosecond
	for !enough(long) {
		short, long = long, 2*long
	}
	for short+1 < long {
		if middle := short + (long-short)/2; enough(middle) {
			long = middle
		} else {
			short = middle
		}
	}
	return long, nil
}

type deny struct{ allower }

func (d deny) WaitN(ctx context.Context, n int) error {
	if n < 0 {
		return &CostError{Cost: int64(n)}
	}
	if err := contextError(ctx); err != nil {
		return err
	}
	if !d.AllowN(time.Now(), n) {
		return new(LimitError)
	}
	return nil
}

type denyTake struct{ taker }

// denies tells a Transport that there is no wait to begin.
func (denyTake) denies() {}

func (d denyTake) WaitN(ctx context.Context, n int) error {
	gone := contextError(ctx)
	take := d.TakeN
	if gone != nil {
		take = d.DelayN // for the errors that come first
	}
	delay, err := take(time.Now(), n)
	switch {
	case err != nil:
		return err
	case gone != nil:
		return gone
	case delay > 0:
		return &LimitError{Delay: delay}
	}
	return nil
}

type denyRequest struct {
	Limiter
	of RequestLimiter
}

func (d denyRequest) ForRequest(req *http.Request) Limiter { return denied(d.of.ForRequest(req)) }

func (d denyRequest) WaitN(ctx context.Context, n int) error {
	if l, ok := d.of.(interface {
		ForContext(context.Context) Limiter
	}); ok {
		return denied(l.ForContext(ctx)).WaitN(ctx, n)
	}
	return d.Limiter.WaitN(ctx, n)
}

func denied(l Limiter) Limiter {
	if l, ok := l.(allower); ok {
		return Deny(l)
	}
	return l
}
