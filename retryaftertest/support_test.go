package retryaftertest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

// A witness is a testing.TB that notes what fails. Its cleanups run by end.
type witness struct {
	testing.TB
	mu      sync.Mutex
	failed  []string
	cleanup []func()
}

type fatal struct{}

func (w *witness) Helper() {}

func (w *witness) Errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

func (w *witness) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	panic(fatal{})
}

func (w *witness) Cleanup(f func()) { w.cleanup = append(w.cleanup, f) }

func (w *witness) end() {
	for len(w.cleanup) > 0 {
		last := len(w.cleanup) - 1
		f := w.cleanup[last]
		w.cleanup = w.cleanup[:last]
		f()
	}
}

// want compares what failed: one message for each of parts, which are then in
// it, with "…" between them.
func (w *witness) want(t *testing.T, messages ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	ok := len(w.failed) == len(messages)
	for i := 0; ok && i < len(messages); i++ {
		rest := w.failed[i]
		for part := range strings.SplitSeq(messages[i], "…") {
			_, after, found := strings.Cut(rest, part)
			ok, rest = ok && found, after
		}
	}
	if !ok {
		t.Errorf("failed with\n%s\nwant\n%s", strings.Join(w.failed, "\n"), strings.Join(messages, "\n"))
	}
}

// doors are the ways to a script, or to a handler in its place.
var doors = []struct {
	name   string
	bubble bool
	http2  bool
	open   func(t *testing.T, h http.Handler) (base http.RoundTripper, url string)
}{
	{"RoundTripper", true, false, func(t *testing.T, h http.Handler) (http.RoundTripper, string) {
		return h.(*retryaftertest.Script), "http://example.com"
	}},
	{"Serve", true, false, func(t *testing.T, h http.Handler) (http.RoundTripper, string) {
		return retryaftertest.Serve(t, h), "http://example.com"
	}},
	{"Serve, HTTP/2", true, true, func(t *testing.T, h http.Handler) (http.RoundTripper, string) {
		tr := retryaftertest.Serve(t, h)
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
		return tr, "http://example.com"
	}},
	{"loopback", false, false, func(t *testing.T, h http.Handler) (http.RoundTripper, string) {
		return loopback(t, h, (*httptest.Server).Start)
	}},
	{"loopback, TLS", false, false, func(t *testing.T, h http.Handler) (http.RoundTripper, string) {
		return loopback(t, h, (*httptest.Server).StartTLS)
	}},
	{"loopback, HTTP/2", false, true, func(t *testing.T, h http.Handler) (http.RoundTripper, string) {
		return loopback(t, h, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() })
	}},
}

func loopback(t *testing.T, h http.Handler, start func(*httptest.Server)) (http.RoundTripper, string) {
	s := httptest.NewUnstartedServer(h)
	start(s)
	t.Cleanup(s.Close)
	return s.Client().Transport, s.URL
}

// eachDoor runs f once a door, in a bubble where that is possible.
func eachDoor(t *testing.T, f func(t *testing.T, d door)) {
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			run := func(t *testing.T) { f(t, door{d.bubble, d.http2, d.open}) }
			if d.bubble {
				synctest.Test(t, run)
			} else {
				t.Parallel()
				run(t)
			}
		})
	}
}

type door struct {
	bubble, http2 bool
	open          func(t *testing.T, h http.Handler) (base http.RoundTripper, url string)
}

// since checks an instant: exactly in a bubble, else for being too early.
func (d door) since(t *testing.T, what string, got, want time.Time) {
	t.Helper()
	if d.bubble && !got.Equal(want) || got.Before(want) {
		t.Errorf("%s at %v, want %v", what, got, want)
	}
}

// atOnce is a client that waits as long as the server says and no longer.
func atOnce(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &retryafter.Transport{Base: base, Policy: retryafter.Policy{
		MaxAttempts: 10,
		Backoff:     func() backoff.BackOff { return &backoff.ZeroBackOff{} },
		Jitter:      retryafter.NoJitter,
	}}}
}

// send makes a request, and returns the status and the body of its response.
func send(t *testing.T, c *http.Client, method, url, body string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(request(t, method, url, body))
	if err != nil {
		t.Fatal(err)
	}
	return resp, read(t, resp)
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
