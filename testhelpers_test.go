//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

// What the tests of the transport share. The names begin with net, so that
// they don't meet those of other test files.

// netAtOnce is a policy without waits of its own: what is waited then is the
// server's delay.
func netAtOnce() retryafter.Policy {
	return retryafter.Policy{
		Backoff: func() backoff.BackOff { return &backoff.ZeroBackOff{} },
		Jitter:  retryafter.NoJitter,
	}
}

// netBackoff is a policy that waits d between attempts.
func netBackoff(d time.Duration) retryafter.Policy {
	return retryafter.Policy{
		Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(d) },
		Jitter:  retryafter.NoJitter,
	}
}

// netBody is a request's or response's body that keeps count.
type netBody struct {
	io.Reader
	mu        sync.Mutex
	bytes     int
	closes    int
	late      bool // read after Close
	onClose   func()
	closedAt  time.Time
	closeOnce sync.Once
}

func netBodyOf(s string) *netBody { return &netBody{Reader: strings.NewReader(s)} }

func (b *netBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.late = b.late || b.closes > 0
	b.mu.Unlock()
	n, err := b.Reader.Read(p)
	b.mu.Lock()
	b.bytes += n
	b.mu.Unlock()
	return n, err
}

func (b *netBody) Close() error {
	b.mu.Lock()
	b.closes++
	b.closedAt = time.Now()
	b.mu.Unlock()
	b.closeOnce.Do(func() {
		if b.onClose != nil {
			b.onClose()
		}
	})
	return nil
}

func (b *netBody) closed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closes
}

func (b *netBody) read() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// netStalled is a body that gives prefix and then nothing until it is closed.
func netStalled(prefix string) *netBody {
	closed := make(chan struct{})
	return &netBody{
		Reader:  io.MultiReader(strings.NewReader(prefix), netStall(closed)),
		onClose: func() { close(closed) },
	}
}

type netStall chan struct{}

func (s netStall) Read([]byte) (int, error) {
	<-s
	return 0, errors.New("closed while reading")
}

// netEndless is a reader without an end.
type netEndless struct{}

func (netEndless) Read(p []byte) (int, error) { return len(p), nil }

// netBodies makes the bodies of one request and keeps all of them.
type netBodies struct {
	text string
	mu   sync.Mutex
	all  []*netBody // the request's own first
	err  error      // what GetBody fails with
	fail int        // which call of GetBody fails, from 1
}

// netPut is a request with a body that is counted.
func netPut(ctx context.Context, method, url, text string) (*http.Request, *netBodies) {
	bs := &netBodies{text: text}
	own := netBodyOf(text)
	bs.all = []*netBody{own}
	req, err := http.NewRequestWithContext(ctx, method, url, own)
	if err != nil {
		panic(err)
	}
	req.ContentLength = int64(len(text))
	req.GetBody = bs.get
	return req, bs
}

func (bs *netBodies) get() (io.ReadCloser, error) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.fail > 0 && len(bs.all) >= bs.fail {
		return nil, bs.err
	}
	b := netBodyOf(bs.text)
	bs.all = append(bs.all, b)
	return b, nil
}

func (bs *netBodies) gets() int {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return len(bs.all) - 1
}

// check fails the test where a body was not closed, closed more than once, or
// read after that.
func (bs *netBodies) check(t *testing.T, gets int) {
	t.Helper()
	bs.checkAtLeast(t, gets)
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for i, b := range bs.all {
		if n := b.closed(); n > 1 {
			t.Errorf("body %d was closed %d times, want once", i, n)
		}
	}
}

// checkAtLeast is for bodies that net/http closes once more: http.Client does
// so where it follows a redirect.
func (bs *netBodies) checkAtLeast(t *testing.T, gets int) {
	t.Helper()
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if n := len(bs.all) - 1; n != gets {
		t.Errorf("GetBody was called %d times, want %d", n, gets)
	}
	for i, b := range bs.all {
		if b.closed() == 0 {
			t.Errorf("body %d was not closed", i)
		}
		b.mu.Lock()
		if b.late {
			t.Errorf("body %d was read after its Close", i)
		}
		b.mu.Unlock()
	}
}

// A netStep is what a scripted base answers.
type netStep func(*http.Request) (*http.Response, error)

// netReply answers with a status and header fields "Name: value".
func netReply(status int, fields ...string) netStep {
	return func(req *http.Request) (*http.Response, error) {
		return netResponse(req, status, netBodyOf(fmt.Sprint("body of ", status)), fields...), nil
	}
}

func netReplyBody(status int, body io.ReadCloser, fields ...string) netStep {
	return func(req *http.Request) (*http.Response, error) {
		return netResponse(req, status, body, fields...), nil
	}
}

func netError(err error) netStep {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// netHang answers when its request is cancelled, as net/http does.
func netHang(req *http.Request) (*http.Response, error) {
	select {
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	case <-req.Cancel:
		return nil, errors.New("net/http: request canceled")
	}
}

func netResponse(req *http.Request, status int, body io.ReadCloser, fields ...string) *http.Response {
	h := make(http.Header)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Add(name, value)
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: body, ContentLength: -1, Request: req,
	}
}

// netSent is a request as a base saw it.
type netSent struct {
	req    *http.Request
	at     time.Duration // since the script was made
	body   string
	header http.Header // a copy
	number int
}

// netScript is a base in memory that keeps to the contract of RoundTripper: it
// reads and closes the body, and writes to no request. It gives its steps in
// order, and the last one again and again.
type netScript struct {
	steps []netStep
	start time.Time
	mu    sync.Mutex
	sent  []netSent
	idle  int // calls of CloseIdleConnections
}

func netBase(steps ...netStep) *netScript { return &netScript{steps: steps, start: time.Now()} }

func (s *netScript) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	s.mu.Lock()
	step := s.steps[min(len(s.sent), len(s.steps)-1)]
	s.sent = append(s.sent, netSent{
		req: req, at: time.Since(s.start), body: string(body),
		header: req.Header.Clone(), number: retryafter.AttemptNumber(req.Context()),
	})
	s.mu.Unlock()
	return step(req)
}

func (s *netScript) CloseIdleConnections() { s.idle++ }

func (s *netScript) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// times lists when the attempts arrived.
func (s *netScript) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at []time.Duration
	for _, sent := range s.sent {
		at = append(at, sent.at)
	}
	return at
}

// netRequest makes a request without a body.
func netRequest(method, url string) *http.Request {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

// netRead reads all of a response's body and closes it.
func netRead(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("reading the body: %v", err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Errorf("closing the body: %v", err)
	}
	return string(b)
}

// netWant checks a response: status, attempts and reason.
func netWant(t *testing.T, resp *http.Response, err error, status, attempts int, why retryafter.Reason) {
	t.Helper()
	if err != nil {
		t.Fatalf("error %v, want status %d", err, status)
	}
	if resp.StatusCode != status {
		t.Errorf("status %d, want %d", resp.StatusCode, status)
	}
	if r := retryafter.ReportOf(resp); r.Attempts != attempts || r.Stop != why {
		t.Errorf("report: %v; want %v after %d attempts", r, why, attempts)
	}
}

// netWantError checks for an *Error: attempts and reason.
func netWantError(t *testing.T, resp *http.Response, err error, attempts int, why retryafter.Reason) *retryafter.Error {
	t.Helper()
	if resp != nil {
		t.Errorf("a response came beside the error")
	}
	e, ok := errors.AsType[*retryafter.Error](err)
	if !ok {
		t.Fatalf("error %T %v, want an *Error", err, err)
	}
	if e.Report.Attempts != attempts || e.Report.Stop != why {
		t.Errorf("report: %v; want %v after %d attempts", e.Report, why, attempts)
	}
	return e
}

// netPointer identifies what can't be compared.
func netPointer(v any) uintptr {
	if rv := reflect.ValueOf(v); rv.IsValid() {
		switch rv.Kind() {
		case reflect.Func, reflect.Map, reflect.Pointer, reflect.Chan, reflect.Slice:
			return rv.Pointer()
		}
	}
	return 0
}

// netPicture is all that a request's owner can see of it: values deep, and the
// identity of what it points to.
type netPicture struct {
	Values                    string
	Header, Trailer           http.Header
	Form, PostForm            url.Values
	TransferEncoding          []string
	URL, Body, GetBody        uintptr
	Cancel, Response          uintptr
	TLS, MultipartForm        uintptr
	HeaderAt, TrailerAt       uintptr
	FormAt, PostFormAt, EncAt uintptr
	Context                   string
}

func netPictureOf(req *http.Request) netPicture {
	return netPicture{
		Values: fmt.Sprintf("%q %+v %q %d %d %d %v %q %q %q %q", req.Method, *req.URL, req.Proto, req.ProtoMajor, req.ProtoMinor,
			req.ContentLength, req.Close, req.Host, req.RemoteAddr, req.RequestURI, req.Pattern),
		Header: req.Header.Clone(), Trailer: req.Trailer.Clone(),
		Form: url.Values(http.Header(req.Form).Clone()), PostForm: url.Values(http.Header(req.PostForm).Clone()),
		TransferEncoding: slices.Clone(req.TransferEncoding),
		URL:              netPointer(req.URL), Body: netPointer(req.Body), GetBody: netPointer(req.GetBody),
		Cancel: netPointer(req.Cancel), Response: netPointer(req.Response),
		TLS: netPointer(req.TLS), MultipartForm: netPointer(req.MultipartForm),
		HeaderAt: netPointer(req.Header), TrailerAt: netPointer(req.Trailer),
		FormAt: netPointer(req.Form), PostFormAt: netPointer(req.PostForm), EncAt: netPointer(req.TransferEncoding),
		Context: fmt.Sprintf("%p", req.Context()),
	}
}

// check fails the test where req is no longer what it was in the picture.
func (p netPicture) check(t *testing.T, req *http.Request) {
	t.Helper()
	if diff := cmp.Diff(p, netPictureOf(req)); diff != "" {
		t.Errorf("the caller's request was written to (-before +after):\n%s", diff)
	}
}

// netGoroutines fails the test where goroutines that its course started are
// still there at its end. Tests that call it are not parallel.
func netGoroutines(t *testing.T) {
	t.Helper()
	before := netStacks()
	t.Cleanup(func() {
		var left map[string]string
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			left = netStacks()
			for id := range left {
				if _, ok := before[id]; ok {
					delete(left, id)
				}
			}
			if len(left) == 0 {
				return
			}
		}
		for _, stack := range left {
			t.Errorf("left behind: %s", stack)
		}
	})
}

// netStacks maps the goroutines' numbers to their stacks.
func netStacks() map[string]string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	stacks := make(map[string]string)
	for _, s := range strings.Split(string(buf), "\n\n") {
		id, _, _ := strings.Cut(strings.TrimPrefix(s, "goroutine "), " ")
		if strings.Contains(s, "testing.(*T).Run(") || strings.Contains(s, "testing.tRunner") && strings.Contains(s, "netStacks") {
			continue
		}
		stacks[id] = s
	}
	return stacks
}

// netServer is an httptest server that counts connections. It is closed, and
// its transport's idle connections too, at the end of the test.
type netServer struct {
	*httptest.Server
	conns atomic.Int32    // ever made
	open  atomic.Int32    // not closed yet
	base  *http.Transport // to reach it
}

func netServe(t *testing.T, h http.HandlerFunc, options ...func(*httptest.Server)) *netServer {
	t.Helper()
	s := &netServer{Server: httptest.NewUnstartedServer(h)}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.conns.Add(1)
			s.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Add(-1)
		}
	}
	start := s.Start
	for _, o := range options {
		o(s.Server)
		if s.TLS != nil || s.EnableHTTP2 {
			start = s.StartTLS
		}
	}
	start()
	s.base = s.Client().Transport.(*http.Transport)
	t.Cleanup(func() {
		s.base.CloseIdleConnections()
		s.Close()
	})
	return s
}

// netRaw is a TCP server that gives each connection, numbered from 1, to
// serve and closes it after that.
func netRaw(t *testing.T, serve func(n int, c *net.TCPConn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(10 * time.Second))
				serve(n, c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// netReadHead reads the head of one request.
func netReadHead(r io.ByteReader) string {
	var head bytes.Buffer
	for !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")) {
		b, err := r.ReadByte()
		if err != nil {
			break
		}
		head.WriteByte(b)
	}
	return head.String()
}

// netFresh is a transport of its own, whose connections end with the test.
func netFresh(t *testing.T) *http.Transport {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// netCloner passes a clone of each request on, as oauth2.Transport does.
type netCloner struct{ next http.RoundTripper }

func (c netCloner) RoundTrip(req *http.Request) (*http.Response, error) {
	clone := req.Clone(req.Context())
	clone.Header.Set("Authorization", "Bearer t")
	return c.next.RoundTrip(clone)
}

// netFunc is a RoundTripper by one function.
type netFunc func(*http.Request) (*http.Response, error)

func (f netFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// netLimiter is a Limiter by one function.
type netLimiter func(ctx context.Context, n int) error

func (f netLimiter) WaitN(ctx context.Context, n int) error { return f(ctx, n) }

// netList is a list that servers' goroutines append to.
type netList[T any] struct {
	mu sync.Mutex
	of []T
}

// add appends v and returns the new length.
func (l *netList[T]) add(v T) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = append(l.of, v)
	return len(l.of)
}

func (l *netList[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.of)
}
