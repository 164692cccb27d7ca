package hashicorpretry

import (
	"context"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
)

// Use makes c send through a copy of t, which then repeats what c sends. The
// zero Transport repeats by the default Policy. Where t has no Base, that is
// the Transport of c's HTTPClient.
//
// Use sets c's CheckRetry and ErrorHandler, and puts a copy of its HTTPClient
// in its place, whose Transport and Timeout are set. Set the client up before,
// and call Use before the first request: what is set of these fields later
// undoes it. To use another Transport, call Use again.
func Use(c *retryablehttp.Client, t *retryafter.Transport) {
	if c.HTTPClient == nil {
		c.HTTPClient = retryablehttp.NewClient().HTTPClient
	}
	r := &repeater{client: c, transport: *t, base: c.HTTPClient.Transport, timeout: c.HTTPClient.Timeout}
	if before, ok := r.base.(*repeater); ok {
		r.base = before.base
		if r.timeout == 0 {
			r.timeout = before.timeout
		}
	}
	if t.Base != nil {
		r.base = t.Base
	}
	if r.base == nil {
		r.base = http.DefaultTransport
	}
	hc := *c.HTTPClient
	hc.Transport, hc.Timeout = r, 0
	c.HTTPClient = &hc
	c.CheckRetry = once
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
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
	return t.RoundTrip(req)
}

func (r *repeater) CloseIdleConnections() {
	if b, ok := r.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}
