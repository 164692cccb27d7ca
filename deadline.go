//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"
)

// options are what one call says in its context. They are never written to
// once they are there.
type options struct {
	maxAttempts int   // the smallest WithMaxAttempts; 0: none
	cost        int   // tokens an attempt costs
	key         *Key  // whose budget it spends; nil: that of its request
	bad         error // the *ConfigError of a value that makes no sense
	traces      *traces
}

type optionsKey struct{}

var defaultOptions = &options{cost: 1}

func optionsOf(ctx context.Context) *options {
	if o, ok := ctx.Value(optionsKey{}).(*options); ok {
		return o
	}
	return defaultOptions
}

// WithMaxAttempts returns a context whose calls send at most n attempts, the
// first included. It only lowers: of several caps and Policy.MaxAttempts the
// smallest holds. Each redirect hop is a call of its own and has the cap to
// itself. An n of less than 1 makes the call fail with a *ConfigError.
func WithMaxAttempts(ctx context.Context, n int) context.Context {
	o := *optionsOf(ctx)
	switch {
	case n < 1:
		o.bad = &ConfigError{"WithMaxAttempts", strconv.Itoa(n), "must be at least 1"}
	case o.maxAttempts == 0 || n < o.maxAttempts:
		o.maxAttempts = n
	}
	return context.WithValue(ctx, optionsKey{}, &o)
}

// WithCost returns a context whose attempts cost n tokens of the Limiter each
// instead of one. 0 passes freely. A negative n makes the call fail with a
// *ConfigError.
func WithCost(ctx context.Context, n int) context.Context {
	o := *optionsOf(ctx)
	o.cost = n
	return context.WithValue(ctx, optionsKey{}, &o)
}

// AttemptNumber tells a RoundTripper below a Transport which attempt it is
// asked for, by its request's context: 1 for the first, and where there is no
// Transport above it.
func AttemptNumber(ctx context.Context) int {
	if a, ok := ctx.Value(attemptKey{}).(*attemptContext); ok {
		return a.number
	}
	return 1
}

// canceled is why req's caller no longer wants it, or nil.
func canceled(req *http.Request) error {
	if err := contextError(req.Context()); err != nil || req.Cancel == nil {
		return err
	}
	select {
	case <-req.Cancel:
		return errRequestCanceled
	default:
		return nil
	}
}

// errRequestCanceled is the end by Request.Cancel, in net/http's words.
var errRequestCanceled error = refused("net/http: request canceled")

// sleepUntil returns nil once wait has passed since from, never earlier, and
// why req was cancelled as soon as it is.
func sleepUntil(req *http.Request, from time.Time, wait time.Duration) error {
	if err := canceled(req); err != nil {
		return err
	}
	if wait <= 0 {
		return nil // without a look at the clock
	}
	left := wait - time.Since(from)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-req.Context().Done():
		case <-req.Cancel:
		}
		if err := canceled(req); err != nil {
			return err
		}
		before := left
		if left = wait - time.Since(from); left <= 0 {
			return nil
		}
		if left != before { // else the clock has come to its end, as that of testing/synctest may
			timer.Reset(left)
		}
	}
}

// add is a + b for durations that are not negative; it saturates.
func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// cancelWith is context.WithCancel that ends with ch too.
func cancelWith(ctx context.Context, ch <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-ch:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
