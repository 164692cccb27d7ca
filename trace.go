package retryafter

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/retryafter-go/retryafter/internal/redact"
)

// A Trace is a set of hooks that run in the goroutine of the call, so a slow
// hook delays it. Any of them may be nil. A Trace that serves several calls is
// called concurrently. No hook gets a response body, so none can eat it; none
// may write to what it is given.
type Trace struct {
	// AttemptDone runs when an attempt has its response header or its error,
	// before it is decided what follows.
	AttemptDone func(Attempt)

	// Waiting runs before each wait that the Transport knows the length of,
	// with the number that will be slept. For the Limiter it is what it would
	// be as things stand: other calls may come before this one, or leave the
	// queue that it joins.
	Waiting func(WaitInfo)

	// Done runs once a call, last, also where nothing was sent.
	Done func(*http.Request, Report)
}

// WaitInfo describes a wait that is about to begin.
type WaitInfo struct {
	Request    *http.Request // the caller's
	Attempt    int           // number of the attempt that follows the wait; 1 for a Gate or a redirect hop before the first
	StatusCode int           // of the response that asks for the wait; 0 where there is none
	Err        error         // the error of the attempt before; else nil
	Limiter    bool          // the wait is for the Limiter's token
	Wait       time.Duration // from the response's receipt; from now for the Limiter, and for a Gate before the first attempt
	Until      time.Time     // when the next attempt may leave
	Decision   Decision      // the parts that make up Wait; zero for the Limiter
}

// LogValue is what log/slog writes of a: nothing of the request or the header.
func (a Attempt) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Int("number", a.Number), slog.Duration("elapsed", a.Elapsed)}
	if a.Err != nil {
		return slog.GroupValue(append(attrs, slog.String("error", redact.Error(a.Err)))...)
	}
	return slog.GroupValue(append(attrs, slog.Int("status", a.StatusCode))...)
}

// LogValue is what log/slog writes of w: nothing of the request.
func (w WaitInfo) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Int("attempt", w.Attempt), slog.Duration("wait", w.Wait), slog.Time("until", w.Until)}
	switch {
	case w.Limiter:
		attrs = append(attrs, slog.Bool("limiter", true))
	case w.Err != nil:
		attrs = append(attrs, slog.String("error", redact.Error(w.Err)))
	case w.StatusCode != 0:
		attrs = append(attrs, slog.Int("status", w.StatusCode))
	}
	return slog.GroupValue(w.Decision.appendServer(attrs)...)
}

// WithTrace returns a context whose calls run t's hooks, those that ctx
// already has after them, and the Transport's own last. A nil t adds none.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	if t == nil {
		return ctx
	}
	o := *optionsOf(ctx)
	o.traces = &traces{t, o.traces}
	return context.WithValue(ctx, optionsKey{}, &o)
}

// traces is a list of hooks in the order in which they run.
type traces struct {
	*Trace
	next *traces
}

func (c *call) traced() bool { return c.opts.traces != nil || c.t.Trace != nil }

// eachTrace calls f with every Trace of the call.
func (c *call) eachTrace(f func(*Trace)) {
	for l := c.opts.traces; l != nil; l = l.next {
		f(l.Trace)
	}
	if c.t.Trace != nil {
		f(c.t.Trace)
	}
}

func (c *call) attemptDone(a Attempt) {
	c.eachTrace(func(t *Trace) {
		if t.AttemptDone != nil {
			t.AttemptDone(a)
		}
	})
}

func (c *call) waiting(w WaitInfo) {
	c.eachTrace(func(t *Trace) {
		if t.Waiting != nil {
			t.Waiting(w)
		}
	})
}

func (c *call) done() {
	c.eachTrace(func(t *Trace) {
		if t.Done != nil {
			t.Done(c.req, c.report)
		}
	})
}
