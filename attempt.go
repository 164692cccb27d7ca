package retryafter

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// attemptContext is the context of an attempt after the first, and of a
// response that has a Report to tell.
type attemptContext struct {
	context.Context
	number int
	req    *http.Request // whose context it is
	report Report
	sent   http.Request // req and its URL, to save allocations
	url    url.URL
}

// clone is req.Clone(a) without the Response of a redirect and with trailer, for
// req's own may be written to by who reads its body, with fewer allocations where
// no form was parsed. It shares what can't be written to, as URL.User.
func (a *attemptContext) clone(req *http.Request, trailer http.Header) *http.Request {
	a.sent = *req.WithContext(a)
	r := &a.sent
	r.Response = nil // its wait was made
	r.Trailer = trailer.Clone()
	if req.Form != nil || req.PostForm != nil || req.MultipartForm != nil {
		return r.Clone(a)
	}
	if req.URL != nil {
		a.url = *req.URL
		r.URL = &a.url
	}
	r.Header = cloneHeader(req.Header)
	r.TransferEncoding = slices.Clone(req.TransferEncoding)
	return r
}

// cloneHeader is h.Clone(), faster for the many requests without a field.
func cloneHeader(h http.Header) http.Header {
	if h != nil && len(h) == 0 {
		return make(http.Header)
	}
	return h.Clone()
}

// callers is req's context without those of attempts that it is made of: each
// has its parent, and a request that is sent again and again would have them all.
func callers(req *http.Request) context.Context {
	ctx := req.Context()
	for {
		a, ok := ctx.(*attemptContext)
		if !ok {
			return ctx
		}
		ctx = a.Context
	}
}

type attemptKey struct{}

func (a *attemptContext) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// one holds a Base to the contract of RoundTripper: a response or an error.
func one(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil && resp != nil:
		if resp.Body != nil {
			resp.Body.Close()
		}
		return nil, err
	case err == nil && resp == nil:
		return nil, errNoOutcome
	}
	return resp, err
}

var errNoOutcome error = refused("retryafter: Base returned neither a response nor an error")

// ErrAttemptTimeout is what an attempt failed with that Transport's
// AttemptTimeout ended. It is a timeout, but not a context.DeadlineExceeded:
// that is the caller's.
var ErrAttemptTimeout error = attemptTimeout{}

type attemptTimeout struct{}

func (attemptTimeout) Error() string {
	return "retryafter: no response header within AttemptTimeout"
}
func (attemptTimeout) Timeout() bool { return true }

// roundTripWithin sends req by way of base and fails with ErrAttemptTimeout
// where no header has come after d.
func roundTripWithin(d time.Duration, base http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(d, func() { cancel(ErrAttemptTimeout) })
	sent := req.WithContext(ctx)
	resp, err := one(base.RoundTrip(sent))
	if late := !timer.Stop(); late && req.Context().Err() == nil {
		// The header may have come just then, but its body is cut already.
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		return nil, ErrAttemptTimeout // the timer ends ctx
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if resp.Request == sent {
		resp.Request = req // whose context does not end with the body
	}
	if resp.Body == nil || resp.Body == http.NoBody {
		cancel(nil)
		return resp, nil
	}
	// Whoever reads the body still needs ctx, and releases it at its end.
	body := timedBody{resp.Body, func() { cancel(nil) }}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = timedReadWriter{body, w}
	} else {
		resp.Body = body
	}
	return resp, nil
}
