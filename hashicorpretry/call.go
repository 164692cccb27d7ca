package hashicorpretry

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/redact"
)

// A call is one RoundTrip, and the Base of the Transport that makes it.
type call struct {
	*repeater
	resp *http.Response // of the newest attempt, until it is let go
}

// RoundTrip makes one attempt.
func (c *call) RoundTrip(req *http.Request) (*http.Response, error) {
	var err error
	if n := retryafter.AttemptNumber(req.Context()); n > 1 {
		err = c.prepare(req, n-1)
	}
	if err == nil && missing(req.Body) {
		err = errNoBody
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	c.resp, err = c.send(req)
	return c.resp, err
}

// prepare does what go-retryablehttp does before a retry. Its request is a
// clone, made for this attempt.
func (c *call) prepare(req *http.Request, retry int) error {
	if prepare := c.client.PrepareRetry; prepare != nil {
		again := req.GetBody
		if req.Body == nil || req.Body == http.NoBody {
			again = nil
		}
		if err := prepare(req); err != nil {
			return err
		}
		// The hook may have read the body, or taken it away.
		if again != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			var err error
			if req.Body, err = again(); err != nil {
				return err
			}
			if req.Body == nil {
				return errNoBody
			}
		}
	}
	if hook := c.client.RequestLogHook; hook != nil {
		hook(c.logger(), req, retry)
	}
	return nil
}

// send passes req to the base, within the time that an attempt has.
func (c *call) send(req *http.Request) (*http.Response, error) {
	if c.timeout <= 0 {
		return c.base.RoundTrip(req)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), c.timeout, errTimeout)
	sent := req.WithContext(ctx)
	resp, err := c.base.RoundTrip(sent)
	if err != nil || resp == nil || resp.Body == nil {
		cancel()
	} else {
		resp.Body = timedBody{resp.Body, cancel}
	}
	if resp != nil && resp.Request == sent {
		resp.Request = req // whose context does not end with the body
	}
	return resp, err
}

// errTimeout is what HTTPClient.Timeout ends an attempt with, or the reading of
// its body, as that of net/http.
var errTimeout error = timeout{}

type timeout struct{}

func (timeout) Error() string { return "hashicorpretry: HTTPClient.Timeout exceeded" }
func (timeout) Timeout() bool { return true }
func (timeout) Is(target error) bool {
	return target == context.DeadlineExceeded || target == retryafter.ErrAttemptTimeout
}

// timedBody releases an attempt's timer when its body is done with.
type timedBody struct {
	io.ReadCloser
	release context.CancelFunc
}

func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b timedBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// trace is t, with the client told of each wait first.
func (c *call) trace(t *retryafter.Trace) *retryafter.Trace {
	told := retryafter.Trace{}
	if t != nil {
		told = *t
	}
	next := told.Waiting
	told.Waiting = func(w retryafter.WaitInfo) {
		if w.Attempt > 1 && !w.Limiter {
			c.waiting(w)
		}
		if next != nil {
			next(w)
		}
	}
	return &told
}

// waiting does what go-retryablehttp does between an attempt and the wait for
// the next.
func (c *call) waiting(w retryafter.WaitInfo) {
	if hook := c.client.ResponseLogHook; hook != nil && c.resp != nil && w.Err == nil { // else it was discarded
		hook(c.logger(), c.resp)
	}
	c.resp = nil
	request := w.Request.Method + " " + redact.URL(w.Request.URL)
	switch {
	case w.Err != nil:
		request += fmt.Sprintf(" (error: %s)", redact.Error(w.Err))
	case w.StatusCode != 0:
		request += fmt.Sprintf(" (status: %d)", w.StatusCode)
	}
	switch l := c.client.Logger.(type) {
	case retryablehttp.LeveledLogger:
		l.Debug("retrying request", "request", request, "timeout", w.Wait)
	case retryablehttp.Logger:
		l.Printf("[DEBUG] %s: retrying in %s", request, w.Wait)
	}
}

// logger is what a client gives to its hooks.
func (c *call) logger() retryablehttp.Logger {
	switch l := c.client.Logger.(type) {
	case retryablehttp.LeveledLogger:
		return leveled{l}
	case retryablehttp.Logger:
		return l
	}
	return nil
}

type leveled struct{ retryablehttp.LeveledLogger }

func (l leveled) Printf(format string, args ...any) { l.Info(fmt.Sprintf(format, args...)) }
