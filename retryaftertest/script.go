package retryaftertest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter/internal/redact"
)

// A Response says what a Script does with one request. The zero Response is
// 200 OK at once, without a body.
type Response struct {
	// Status is the status code. 0 means 200.
	Status int

	// Header goes out beside Date and what net/http adds. Here a Retry-After of
	// any form can be had, "0", senseless ones and several included; a Date of
	// its own plays a server whose clock is wrong.
	Header http.Header

	// RetryAfter is sent as a Retry-After in seconds, rounded up. 0 sends none.
	// Only one of RetryAfter, RetryAfterDate and a Retry-After in Header may be
	// set.
	RetryAfter time.Duration

	// RetryAfterDate is sent as a Retry-After with a date so long after the
	// response, by the Date in Header where there is one, rounded up to a second. A negative one is a date gone by. 0
	// sends none.
	RetryAfterDate time.Duration

	// Body is the response's body. A 204 and a 304 can have none.
	Body string

	// Delay is how long the server has the whole request before it answers, or
	// before the Fault.
	Delay time.Duration

	// Fault happens in the place of a response. It goes with Delay and Times
	// only.
	Fault Fault

	// Times is how many requests get this Response. 0 means 1. A negative
	// number means all that are still to come, be it none.
	Times int
}

// A Fault is what becomes of a request that gets no response. The zero Fault is
// none.
//
// Where a connection that has served before ends without an answer, as by Close
// and Reset, http.Transport by itself sends at once again what is safe to
// repeat: the server then sees a request more than the client sent. A Script
// that is used as a RoundTripper has no connections and is free of that.
type Fault uint8

// The faults. HTTP/2 knows one way to break off a single request: Close and
// Reset then are the stream error INTERNAL_ERROR.
const (
	Close Fault = iota + 1 // the connection is closed
	Reset                  // the connection is reset: the client gets ECONNRESET
	Hang                   // nothing comes until the client has gone
)

// String is the name of the constant.
func (f Fault) String() string {
	switch f {
	case 0:
		return "no fault"
	case Close:
		return "Close"
	case Reset:
		return "Reset"
	case Hang:
		return "Hang"
	}
	return fmt.Sprintf("Fault(%d)", uint8(f))
}

// problem names the first field that makes no sense.
func (r Response) problem() string {
	wrong := func(field string, value any, must string) string {
		return fmt.Sprintf("%s is %v, must %s", field, value, must)
	}
	switch {
	case r.Status != 0 && (r.Status < 200 || r.Status > 999):
		return wrong("Status", r.Status, "be 0 or a final one of three digits")
	case r.RetryAfter < 0:
		return wrong("RetryAfter", r.RetryAfter, "not be negative")
	case r.Delay < 0:
		return wrong("Delay", r.Delay, "not be negative")
	case r.Fault > Hang:
		return wrong("Fault", r.Fault, "be Close, Reset or Hang")
	case r.Fault != 0 && (r.Status != 0 || r.Header != nil || r.RetryAfter != 0 || r.RetryAfterDate != 0 || r.Body != ""):
		return wrong("Fault", r.Fault, "stand in the place of a response, and not beside one")
	case r.RetryAfter != 0 && r.RetryAfterDate != 0:
		return wrong("RetryAfterDate", r.RetryAfterDate, "be 0 where RetryAfter is set")
	case r.Body != "" && (r.Status == http.StatusNoContent || r.Status == http.StatusNotModified):
		return wrong("Body", brief([]byte(r.Body)), fmt.Sprint("be empty where Status is ", r.Status))
	}
	for name, values := range r.Header {
		if http.CanonicalHeaderKey(name) == "Retry-After" && (r.RetryAfter != 0 || r.RetryAfterDate != 0) {
			return wrong("Header", fmt.Sprintf("%s: %q", name, values), "have no Retry-After where RetryAfter or RetryAfterDate is set")
		}
	}
	return ""
}

// String is what a message says of r.
func (r Response) String() string {
	if r.Fault != 0 {
		return r.Fault.String()
	}
	return strings.TrimSpace(fmt.Sprint(r.status(), " ", http.StatusText(r.status())))
}

func (r Response) status() int {
	if r.Status == 0 {
		return http.StatusOK
	}
	return r.Status
}

// header is the header of r where it is sent now.
func (r Response) header(now time.Time) http.Header {
	h := make(http.Header)
	for name, values := range r.Header {
		name = http.CanonicalHeaderKey(name)
		h[name] = append(h[name], values...)
	}
	if _, set := h["Date"]; !set {
		h.Set("Date", now.UTC().Format(http.TimeFormat))
	} else if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // by the clock of the server that is played
	}
	if r.RetryAfter > 0 {
		seconds := r.RetryAfter / time.Second
		if r.RetryAfter%time.Second > 0 {
			seconds++
		}
		h.Add("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	if r.RetryAfterDate != 0 {
		date := now.Add(r.RetryAfterDate).Add(time.Second - 1).Truncate(time.Second)
		h.Add("Retry-After", date.UTC().Format(http.TimeFormat))
	}
	return h
}

// pause lasts as long as the server takes. It fails where the client goes.
func (r Response) pause(ctx context.Context) error {
	var over <-chan time.Time // of Hang, never
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.Fault != Hang:
		if r.Delay == 0 {
			return nil
		}
		timer := time.NewTimer(r.Delay)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A Script plays a server: it gives its responses one after the other, in the
// order in which requests come, whatever they ask for. Make one by [NewScript].
//
// It is an http.RoundTripper that needs no connection, and an http.Handler, for
// [Serve] or httptest.NewServer. As either it reads the whole body of a request
// before it answers.
//
// The Recorder in it has a record of the requests, and fails the test where one
// came early. Its Key may be set before the first request.
//
// A Script may be used from many goroutines at once.
type Script struct {
	Recorder

	mu   sync.Mutex
	left []Response // the first is next; Times says for how many more
	want int        // how many requests must come
	came int
}

// NewScript returns a Script of these responses. A request for which none is
// left fails the test, and gets 501 Not Implemented. So does, at the end of the
// test, a response that no request came for, unless its Times is negative. A
// Response that makes no sense ends the test at once.
func NewScript(t testing.TB, responses ...Response) *Script {
	t.Helper()
	s := &Script{Recorder: Recorder{TB: t}, left: slices.Clone(responses)}
	for i := range s.left {
		r := &s.left[i]
		if problem := r.problem(); problem != "" {
			t.Fatalf("retryaftertest: response %d: %s", i+1, problem)
		}
		if r.Times == 0 {
			r.Times = 1
		}
		s.want += max(0, r.Times)
		if r.Times < 0 && i+1 < len(s.left) {
			t.Fatalf("retryaftertest: response %d: Times is %d, which leaves nothing to the responses after it", i+1, r.Times)
		}
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.came < s.want {
			t.Errorf("retryaftertest: %s came, want %d more; the next was to get %v", count(s.came, "request"), s.want-s.came, s.left[0])
		}
	})
	return s
}

func (s *Script) next(req *http.Request) Response {
	s.TB.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came++
	if len(s.left) == 0 {
		s.TB.Errorf("retryaftertest: request %d came, %s %s, want no more than %d", s.came, method(req), redact.URL(absolute(req)), s.want)
		return Response{Status: http.StatusNotImplemented, Body: "the script is over"}
	}
	r := s.left[0]
	if s.left[0].Times--; s.left[0].Times == 0 {
		s.left = s.left[1:]
	}
	return r
}

// RoundTrip answers req as a server would, without one. Close is io.EOF, and
// Reset is ECONNRESET, as from http.Transport.
func (s *Script) RoundTrip(req *http.Request) (*http.Response, error) {
	return s.Transport(roundTripper(s.roundTrip)).RoundTrip(req)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (s *Script) roundTrip(req *http.Request) (*http.Response, error) {
	r := s.next(req)
	if req.Body != nil {
		n, err := io.Copy(io.Discard, req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		if req.ContentLength > 0 && n != req.ContentLength {
			return nil, fmt.Errorf("retryaftertest: ContentLength is %d, and the body has %s", req.ContentLength, count(int(n), "byte"))
		}
	}
	if err := r.pause(req.Context()); err != nil {
		return nil, err
	}
	switch r.Fault {
	case Close:
		return nil, io.EOF
	case Reset:
		return nil, resetError("read")
	}
	resp := &http.Response{
		Status: fmt.Sprintf("%03d %s", r.status(), http.StatusText(r.status())), StatusCode: r.status(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.header(time.Now()), Body: http.NoBody, ContentLength: int64(len(r.Body)), Request: req,
	}
	if r.Body != "" && req.Method != http.MethodHead {
		resp.Body = io.NopCloser(strings.NewReader(r.Body))
	}
	return resp, nil
}

// ServeHTTP answers req.
func (s *Script) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.Handler(http.HandlerFunc(s.serveHTTP)).ServeHTTP(w, req)
}

func (s *Script) serveHTTP(w http.ResponseWriter, req *http.Request) {
	r := s.next(req)
	io.Copy(io.Discard, req.Body) // the server sees only then that the client goes
	if r.pause(req.Context()) != nil {
		panic(http.ErrAbortHandler)
	}
	if r.Fault != 0 {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil { // HTTP/2
			panic(http.ErrAbortHandler)
		}
		if r.Fault == Reset {
			c = withReset(c)
		}
		c.Close()
		return
	}
	h := w.Header()
	for name, values := range r.header(time.Now()) {
		h[name] = values
	}
	w.WriteHeader(r.status())
	io.WriteString(w, r.Body)
}

// withReset is the connection below c, whose Close will reset it.
func withReset(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if c, ok := c.(interface{ SetLinger(sec int) error }); ok {
		c.SetLinger(0)
	}
	return c
}
