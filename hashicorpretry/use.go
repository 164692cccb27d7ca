package hashicorpretry

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
)

// Use makes c send through a copy of t, which then repeats what c sends. The
// zero Transport repeats by the default Policy. Where t has no Base, that is
// the Transport of c's HTTPClient.
//
// Use sets c's CheckRetry, wraps its ErrorHandler or sets one, and puts a copy
// of its HTTPClient in its place, whose Transport and Timeout are set. Set the
// client up before, and call Use before the first request: what is set of these
// fields later undoes it.
//
// To use another Transport, call Use again: what an earlier Use set is replaced,
// also where it is t's Base, http.DefaultTransport, or in the HTTPClient of
// another client. Use does not see it within a RoundTripper that was put around
// it: both would repeat, and the attempts multiply. Put such a RoundTripper
// beneath: as t's Base, or as HTTPClient.Transport before the first Use.
func Use(c *retryablehttp.Client, t *retryafter.Transport) {
	if c.HTTPClient == nil {
		c.HTTPClient = retryablehttp.NewClient().HTTPClient
	}
	r := &repeater{client: c, transport: *t, base: c.HTTPClient.Transport, timeout: c.HTTPClient.Timeout}
	if before, ok := r.base.(*repeater); ok && r.timeout == 0 {
		r.timeout = before.timeout
	}
	if t.Base != nil {
		r.base = t.Base
	}
	if r.base == nil {
		r.base = http.DefaultTransport
	}
	if before, ok := r.base.(*repeater); ok {
		r.base = before.base
	}
	hc := *c.HTTPClient
	hc.Transport, hc.Timeout = r, 0
	c.HTTPClient = &hc
	c.CheckRetry = once
	c.ErrorHandler = counting(c.ErrorHandler)
}

// counting is h, or what passes all through, told how many tries there were.
func counting(h retryablehttp.ErrorHandler) retryablehttp.ErrorHandler {
	if h == nil {
		return retryablehttp.PassthroughErrorHandler
	}
	return func(resp *http.Response, err error, tries int) (*http.Response, error) {
		if e, ok := errors.AsType[*retryafter.Error](err); ok {
			tries = e.Report.Attempts
		} else if resp != nil { // which a ResponseHandlerFunc did not like
			tries = retryafter.ReportOf(resp).Attempts
		}
		return h(resp, err, tries)
	}
}

// once is the CheckRetry that leaves go-retryablehttp's loop after one round.
func once(context.Context, *http.Response, error) (bool, error) { return false, nil }

// A repeater is the Transport of a client's HTTPClient.
type repeater struct {
	client    *retryablehttp.Client
	transport retryafter.Transport
	base      http.RoundTripper
	timeout   time.Duration // of an attempt; 0: none
}

func (r *repeater) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{repeater: r}
	t := r.transport
	t.Base = c
	t.Trace = c.trace(t.Trace)
	req, shared := share(req)
	resp, err := t.RoundTrip(req)
	switch {
	case shared == nil:
	case err != nil:
		shared.ended.Store(true)
	case resp.StatusCode == http.StatusTemporaryRedirect, resp.StatusCode == http.StatusPermanentRedirect:
		// http.Client rewinds the reader next.
		if err := shared.end(req.Context()); err != nil {
			if resp.Body != nil {
				resp.Body.Close()
			}
			return nil, err
		}
	}
	return resp, err
}

func (r *repeater) CloseIdleConnections() {
	if b, ok := r.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}
