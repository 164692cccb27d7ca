package retryafter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

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
// as the first two have, the LimitError tells the delay, their errors are passed
// on, and the returned Limiter has DelayN too, by which a Transport knows in time
// that a retry would be refused, and hands back the response it has. Where l is a [RequestLimiter], so
// is the returned Limiter, for what l has for a request in the place of l.
func Deny(l interface {
	AllowN(t time.Time, n int) bool
}) Limiter {
	var denying Limiter = deny{l}
	if l, ok := l.(taker); ok {
		denying = denyTake{l}
	}
	if l, ok := l.(RequestLimiter); ok {
		return denyRequest{denying, l}
	}
	return denying
}

type allower interface {
	AllowN(t time.Time, n int) bool
}

type taker interface {
	TakeN(t time.Time, n int) (time.Duration, error)
	DelayN(t time.Time, n int) (time.Duration, error)
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

func (d denyRequest) ForRequest(req *http.Request) Limiter {
	l := d.of.ForRequest(req)
	if l, ok := l.(allower); ok {
		return Deny(l)
	}
	return l
}
