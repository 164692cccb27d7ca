package clients

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/retryafter-go/retryafter"
)

// A request is what a fake was sent, and when.
type request struct {
	Method, URI, Body string
	Header            http.Header
	ContentLength     int64
	At                time.Time
}

type answer = func(http.ResponseWriter, *http.Request)

// reply answers with a status, a body and the fields of a header.
func reply(status int, body string, fields ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// A fake is a server that gives its answers in turn, and the last of them from
// then on. It keeps what it was sent. It is a RoundTripper too, for bubbles of
// testing/synctest, in which nothing may wait for a network.
type fake struct {
	mu      sync.Mutex
	answers []answer
	got     []request
}

func answers(list ...answer) *fake { return &fake{answers: list} }

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.got = append(f.got, request{r.Method, r.URL.RequestURI(), string(body), r.Header.Clone(), r.ContentLength, time.Now()})
	next := f.answers[min(len(f.got), len(f.answers))-1]
	f.mu.Unlock()
	next(w, r)
}

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	in := req.Clone(req.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

func (f *fake) requests() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// forget begins anew.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = nil
}

// want returns what f was sent, which must be n requests.
func (f *fake) want(t *testing.T, n int) []request {
	t.Helper()
	got := f.requests()
	if len(got) != n {
		var lines []string
		for _, r := range got {
			lines = append(lines, r.Method+" "+r.URI)
		}
		t.Fatalf("%d requests, want %d: %q", len(got), n, lines)
	}
	return got
}

// wantBodies also says that each of the n requests came with the whole of body.
func (f *fake) wantBodies(t *testing.T, n int, body string) {
	t.Helper()
	for i, r := range f.want(t, n) {
		if r.Body != body {
			t.Errorf("request %d came with %d bytes of body, want all %d, unchanged", i+1, len(r.Body), len(body))
		}
	}
}

// listen serves h on loopback until the test ends.
func listen(t *testing.T, h http.Handler) (url string, base *http.Transport) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	base = s.Client().Transport.(*http.Transport)
	t.Cleanup(func() {
		base.CloseIdleConnections()
		s.Close()
	})
	return s.URL, base
}

// atOnce is a Transport without waits of its own, for where a network is waited for.
func atOnce(base http.RoundTripper) *retryafter.Transport {
	return &retryafter.Transport{Base: base, Policy: retryafter.Policy{
		Backoff: func() backoff.BackOff { return &backoff.ZeroBackOff{} },
		Jitter:  retryafter.NoJitter,
	}}
}

// wantWait says that request n came no earlier than wait after the one before.
func wantWait(t *testing.T, got []request, n int, wait time.Duration) {
	t.Helper()
	if gap := got[n-1].At.Sub(got[n-2].At); gap < wait {
		t.Errorf("request %d came %v after the one before, which was told %v", n, gap, wait)
	}
}

func wantReport(t *testing.T, resp *http.Response, attempts int, stop retryafter.Reason) {
	t.Helper()
	if r := retryafter.ReportOf(resp); r.Attempts != attempts || r.Stop != stop {
		t.Errorf("report is %v; want %v after %d attempts", r, stop, attempts)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// file is one that holds text, open.
func file(t *testing.T, text string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
