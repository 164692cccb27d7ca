package proof

//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"pgregory.net/rapid"
)

// A script is one call: how it is set up, and what becomes of each attempt.
// Instants are counted from the beginning of the call.
//
// So that no two events fall on one instant without the rules saying which
// comes first, times on the wire end in 7 ns, timeouts of attempts in 5 ns and
// cancellations in 333333 ns. Everything else, deadlines too, is on a coarse
// grid, where meeting exactly is common.
type script struct {
	policy   retryafter.Policy // without its functions
	backoff  string            // "default", "list", "nil"
	steps    []time.Duration   // of the backoff "list"; the last is repeated
	jitter   int               // index into jitters; -1: the default
	retry    []bool            // answers of Policy.Retry; the last is repeated; nil: the default
	timeout  time.Duration     // AttemptTimeout
	caps     []int             // WithMaxAttempts, outermost last
	deadline time.Duration     // 0: none
	cancel   time.Duration
	how      string // "cancel", "cause", "request"
	method   string
	key      http.Header
	body     string // "none", "nobody", "replayable", "opaque", "failing", "once"
	traces   int    // bit 0: in the Transport; bits 1 and 2: in the context
	deaf     bool   // the far end takes no notice of a cancellation
	hop      *reply // the 3xx that the request follows
	replies  []reply
}

// A reply is what the far end does with one attempt.
type reply struct {
	wire   time.Duration
	err    error
	status int
	server server
	size   int // of the body; negative: there is none
	reads  int // bytes of the request's body that are read; negative: all
}

const grid = 100 * time.Millisecond

var (
	errFinal = errors.New("the far end is made of cheese")
	errCause = errors.New("the caller changed its mind")
	errBody  = errors.New("no more bodies")
	forever  = 100*365*24*time.Hour + 333333

	dnsTemporary = &net.DNSError{Err: "try again", IsTemporary: true}
	dnsNotFound  = &net.DNSError{Err: "no such host", IsNotFound: true}
	failures     = []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNREFUSED, os.ErrDeadlineExceeded, dnsTemporary,
		errFinal, context.Canceled, dnsNotFound,
	}
)

// seldom is true once in n draws. (Ranges of integers are biased to their
// ends, choices are not.)
func seldom(t *rapid.T, n int, what string) bool {
	list := make([]int, n)
	list[0] = 1
	return rapid.SampledFrom(list).Draw(t, what) == 1
}

// jitters are pure, so that what they said can be asked again.
var jitters = []retryafter.Jitter{
	retryafter.NoJitter,
	func(time.Duration, bool) time.Duration { return 1 },
	func(time.Duration, bool) time.Duration { return time.Second },
	func(time.Duration, bool) time.Duration { return -5 * time.Second },
	func(time.Duration, bool) time.Duration { return time.Minute },
	func(wait time.Duration, _ bool) time.Duration {
		if wait > time.Minute {
			return 1<<63 - 1
		}
		return wait
	},
	func(time.Duration, bool) time.Duration { return -1 << 63 },
	func(wait time.Duration, _ bool) time.Duration { return wait / 2 },
	func(wait time.Duration, _ bool) time.Duration { return -wait },
	func(wait time.Duration, server bool) time.Duration {
		if server {
			return 3 * time.Second
		}
		return 2 * grid
	},
}

var statuses = []int{503, 429, 503, 429, 503, 429, 503, 429, 503, 429, 500, 502, 504, 408, 425, 413, 413, 409,
	200, 204, 304, 400, 404, 501, 505, 599}

func drawReply(t *rapid.T) reply {
	r := reply{
		status: rapid.SampledFrom(statuses).Draw(t, "status"),
		server: drawServer(t),
		size:   rapid.SampledFrom([]int{-1, 0, 5, 70000}).Draw(t, "size"),
		reads:  rapid.SampledFrom([]int{-1, -1, 0, 3}).Draw(t, "reads"),
		wire:   rapid.SampledFrom([]time.Duration{0, 0, 0, grid + 7, 3*time.Second + 7}).Draw(t, "wire"),
	}
	if seldom(t, 4, "failed") {
		r.err = rapid.SampledFrom(failures).Draw(t, "error")
	}
	return r
}

var spans = []time.Duration{0, grid, time.Second, 2 * time.Second, 5 * time.Second, 60 * time.Second,
	2*time.Minute - 1, 2 * time.Minute, 2*time.Minute + 1, time.Hour, 10 * time.Hour, 1<<63 - 1}

// sensible keeps Reserve and AttemptTimeout to what MaxElapsed allows them.
func (s *script) sensible() {
	if most := s.policy.MaxElapsed; most > 0 {
		s.policy.Reserve = min(s.policy.Reserve, most-1)
		if s.timeout > most {
			s.timeout = 0
		}
	}
}

func drawScript(t *rapid.T) script {
	s := script{
		backoff: "list",
		jitter:  rapid.IntRange(-1, len(jitters)-1).Draw(t, "jitter"),
		timeout: rapid.SampledFrom([]time.Duration{0, 0, 0, 0, grid/2 + 5, time.Second + 5, time.Hour + 5}).Draw(t, "attempt timeout"),
		method:  rapid.SampledFrom([]string{"GET", "GET", "", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"}).Draw(t, "method"),
		body:    "none",
		traces:  rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "traces"),
		cancel:  forever,
		how:     rapid.SampledFrom([]string{"cancel", "cause", "request"}).Draw(t, "how"),
	}
	if seldom(t, 3, "default backoff") {
		s.backoff = "default"
	}
	if seldom(t, 50, "nil backoff") {
		s.backoff = "nil"
	}
	for range rapid.IntRange(1, 4).Draw(t, "steps") {
		s.steps = append(s.steps, rapid.SampledFrom([]time.Duration{0, 0, grid, grid, grid, time.Second, time.Second, time.Second,
			3 * time.Second, 3 * time.Second, time.Minute, time.Minute, 2*time.Minute + 1, 1<<63 - 1, backoff.Stop}).Draw(t, "step"))
	}
	if seldom(t, 4, "unsafe") {
		s.method = rapid.SampledFrom([]string{"POST", "POST", "PATCH", "get", "CONNECT", "LOCK"}).Draw(t, "unsafe method")
	}
	if seldom(t, 4, "keyed") {
		s.key = rapid.SampledFrom([]http.Header{{"Idempotency-Key": {"k"}}, {"X-Idempotency-Key": {"k"}},
			{"Idempotency-Key": {}}, {"X-Idempotency-Key": nil}}).Draw(t, "key")
	}
	if seldom(t, 2, "has a body") {
		s.body = rapid.SampledFrom([]string{"replayable", "replayable", "replayable", "nobody", "failing", "once", "opaque"}).Draw(t, "body")
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3}).Draw(t, "caps") {
		s.caps = append(s.caps, rapid.SampledFrom([]int{5, 4, 3, 2, 1, 9, 1 << 40}).Draw(t, "cap"))
	}
	some := func(n int, of []time.Duration, what string) time.Duration {
		if !seldom(t, n, what) {
			return 0
		}
		return rapid.SampledFrom(of).Draw(t, what)
	}
	s.policy.MaxAttempts = rapid.SampledFrom([]int{-1, -1, -1, 0, 0, 5, 5, 3, 2, 1}).Draw(t, "max attempts")
	s.policy.MaxWait = some(2, append([]time.Duration{-1, -1, -1, -1, -1, -1}, spans...), "max wait")
	s.policy.MaxElapsed = some(5, spans, "max elapsed")
	s.policy.Reserve = some(5, spans, "reserve")
	s.sensible()
	if seldom(t, 8, "own retry") {
		s.retry = rapid.SliceOfN(rapid.Bool(), 1, 4).Draw(t, "retry")
	}
	s.deaf = s.timeout == 0 && seldom(t, 6, "deaf")
	if seldom(t, 12, "hop") {
		h := drawReply(t)
		h.status = rapid.SampledFrom([]int{301, 302, 307, 308, 304, 200}).Draw(t, "hop status")
		s.hop = &h
	}
	for range rapid.SampledFrom([]int{3, 4, 5, 1, 2}).Draw(t, "replies") {
		s.replies = append(s.replies, drawReply(t))
	}

	if seldom(t, 6, "cancelled") {
		s.cancel = rapid.SampledFrom(spans[:len(spans)-1]).Draw(t, "cancel") + 333333
	}
	if seldom(t, 6, "deadline") {
		s.deadline = rapid.SampledFrom(append([]time.Duration{-1, 1}, spans[1:len(spans)-1]...)).Draw(t, "deadline")
	}
	if s.jitter >= 0 && seldom(t, 3, "edge") {
		s.toTheEdge(t)
	}
	return s
}

// toTheEdge moves a bound to where a wait just fits it, or just doesn't.
func (s *script) toTheEdge(t *rapid.T) {
	free := s.predict(start, nil).Spans
	if len(free) < 2 {
		return
	}
	i := rapid.IntRange(1, len(free)-1).Draw(t, "edge of")
	end := free[i].Start
	if end > 1<<61 || s.policy.Reserve > 1<<61 {
		return
	}
	off := rapid.SampledFrom([]time.Duration{0, 1, -1}).Draw(t, "off")
	if rapid.Bool().Draw(t, "elapsed") {
		s.policy.MaxElapsed = end - free[0].Start + s.policy.Reserve + off
		s.sensible()
		return
	}
	s.deadline = max(end+s.policy.Reserve+off, 1)
	for _, at := range free {
		if at.Start < at.End && at.End == s.deadline {
			s.deadline++ // no rule says whether an answer or the deadline comes first
		}
	}
}

// reply is what happens to attempt n, 1 for the first.
func (s *script) reply(n int) reply {
	if n <= len(s.replies) {
		return s.replies[n-1]
	}
	return reply{status: 200, size: 4, reads: -1}
}

// again is the answer of the script's own Retry to attempt n.
func (s *script) again(n int) bool { return n <= len(s.replies) && s.retry[min(n, len(s.retry))-1] }

const (
	sent    = "what the caller has to say"
	address = "http://user:secret@server.test/path?q=1"
)

// A span is one attempt as the far end saw it.
type span struct {
	Start, End time.Duration
}

// An observation is all that can be seen of a call.
type observation struct {
	spans    []span
	numbers  []int           // AttemptNumber of each attempt
	requests []string        // how each attempt's request looked, but for its body
	bodies   []*trackedBody  // every request body that was made
	read     []string        // what each attempt read of its body
	replies  []*trackedBody  // every response body
	outcomes []int           // the status of each attempt; 0 where it failed
	draws    []time.Duration // floors that jitter was drawn for
	attempts []retryafter.Attempt
	waits    []retryafter.WaitInfo
	waitedAt []time.Duration // when they were announced
	done     []retryafter.Report
	resp     *http.Response
	err      error
	end      time.Duration
	changed  string // what became of the caller's request
	returned error  // the last error of the far end
	last     *http.Response
}

// A trackedBody knows what was done to it.
type trackedBody struct {
	r      io.Reader
	read   int
	closed int
}

func (b *trackedBody) Read(p []byte) (int, error) {
	if b.closed > 0 {
		return 0, errors.New("read after close")
	}
	n, err := b.r.Read(p)
	b.read += n
	return n, err
}

func (b *trackedBody) Close() error {
	b.closed++
	return nil
}

type steps struct {
	list []time.Duration
	n    int
}

func (b *steps) NextBackOff() time.Duration {
	d := b.list[min(b.n, len(b.list)-1)]
	b.n++
	return d
}

func (b *steps) Reset() { panic("nobody may rewind a call's backoff") }

// A farEnd plays the replies.
type farEnd struct {
	s   *script
	o   *observation
	now func() time.Duration
}

func (f *farEnd) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	o, begin := f.o, f.now()
	o.requests = append(o.requests, looks(req))
	o.numbers = append(o.numbers, retryafter.AttemptNumber(req.Context()))
	n := len(o.numbers)
	r := f.s.reply(n)
	text := ""
	if req.Body != nil {
		from := io.Reader(req.Body)
		if r.reads >= 0 {
			from = io.LimitReader(from, int64(r.reads))
		}
		b, err := io.ReadAll(from)
		if err != nil {
			panic(err)
		}
		text = string(b)
		req.Body.Close()
	}
	o.read = append(o.read, text)
	defer func() {
		o.spans = append(o.spans, span{begin, f.now()})
		o.returned, o.last = err, resp
		if resp != nil {
			o.outcomes = append(o.outcomes, resp.StatusCode)
		} else {
			o.outcomes = append(o.outcomes, 0)
		}
		if n > 1 { // a clone is its own: nothing written to it may come back
			req.Header.Set("Authorization", "mine")
			req.Header["Accept"][0] = "mine"
			req.URL.Path, req.URL.User = "/elsewhere", nil
			req.Trailer.Set("T", "mine")
			req.TransferEncoding = append(req.TransferEncoding[:0], "mine")
			req.Host, req.Method = "elsewhere.test", "MINE"
		}
	}()
	ctx, written := req.Context(), time.Now()
	if f.s.deaf {
		time.Sleep(r.wire)
		if r.err != nil {
			return nil, r.err
		}
		return f.response(r, n, written, req), nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case <-req.Cancel:
		return nil, errRequest
	default:
	}
	if r.wire > 0 {
		timer := time.NewTimer(r.wire)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-req.Cancel:
			return nil, errRequest
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return f.response(r, n, written, req), nil
}

var errRequest = errors.New("request cancelled")

func (f *farEnd) response(r reply, n int, written time.Time, req *http.Request) *http.Response {
	resp := &http.Response{StatusCode: r.status, Header: r.server.write(written), Request: req, ContentLength: int64(r.size), Body: http.NoBody}
	if r.size >= 0 {
		b := &trackedBody{r: strings.NewReader(content(n, r.size))}
		f.o.replies = append(f.o.replies, b)
		resp.Body = b
	}
	return resp
}

func content(n, size int) string { return strings.Repeat(fmt.Sprint(n), size) }

func looks(req *http.Request) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %v %s %d %v %v %v\n", req.Method, req.URL, req.Host, req.ContentLength, req.TransferEncoding, req.Close, req.Trailer)
	req.Header.Write(&b)
	return b.String()
}

// play makes the call.
func (s *script) play(t *rapid.T) *observation {
	o := new(observation)
	t0 := time.Now()
	now := func() time.Duration { return time.Since(t0) }

	ctx := context.Background()
	var cancels []func()
	if s.deadline != 0 {
		c, cancel := context.WithDeadline(ctx, t0.Add(s.deadline))
		ctx, cancels = c, append(cancels, cancel)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancels = append(cancels, func() { cancel(nil) })
	closed := make(chan struct{})
	stop := time.AfterFunc(s.cancel, func() {
		switch s.how {
		case "cancel":
			cancel(nil)
		case "cause":
			cancel(errCause)
		case "request":
			close(closed)
		}
	})
	cancels = append(cancels, func() { stop.Stop() })

	tr := &retryafter.Transport{Policy: s.policy, AttemptTimeout: s.timeout, Base: &farEnd{s, o, now}}
	made := 0
	switch s.backoff {
	case "list":
		tr.Policy.Backoff = func() backoff.BackOff {
			if made++; made > 1 {
				t.Error("a second backoff was made for one call")
			}
			return &steps{list: s.steps}
		}
	case "nil":
		tr.Policy.Backoff = func() backoff.BackOff { return nil }
	}
	if s.jitter >= 0 {
		tr.Jitter = func(wait time.Duration, server bool) time.Duration {
			o.draws = append(o.draws, wait)
			return jitters[s.jitter](wait, server)
		}
	}
	if s.retry != nil {
		tr.Retry = func(a retryafter.Attempt) bool { return s.again(a.Number) }
	}
	trace := &retryafter.Trace{
		AttemptDone: func(a retryafter.Attempt) { o.attempts = append(o.attempts, a) },
		Waiting: func(w retryafter.WaitInfo) {
			o.waits, o.waitedAt = append(o.waits, w), append(o.waitedAt, now())
		},
		Done: func(_ *http.Request, r retryafter.Report) { o.done = append(o.done, r) },
	}
	if s.traces&1 != 0 {
		tr.Trace = trace
	}
	for _, n := range s.caps {
		ctx = retryafter.WithMaxAttempts(ctx, n)
	}
	for bit := 2; bit <= 4; bit *= 2 {
		if s.traces&bit != 0 {
			ctx = retryafter.WithTrace(ctx, trace)
		}
	}

	u, _ := url.Parse(address)
	req := (&http.Request{
		Method: s.method, URL: u, Host: "virtual.test", Trailer: http.Header{"T": nil}, Close: true,
		TransferEncoding: []string{"identity"},
		Header:           http.Header{"Accept": {"text/plain", "*/*"}, "Authorization": {"secret"}},
	}).WithContext(ctx)
	for k, v := range s.key {
		req.Header[k] = v
	}
	body := func() io.ReadCloser {
		b := &trackedBody{r: strings.NewReader(sent)}
		o.bodies = append(o.bodies, b)
		return b
	}
	gets := 0
	get := func() (io.ReadCloser, error) {
		if gets++; s.body == "failing" && gets == 2 || s.body == "once" {
			return nil, errBody
		}
		return body(), nil
	}
	switch s.body {
	case "nobody":
		req.Body = http.NoBody
	case "opaque":
		req.Body, req.ContentLength = body(), int64(len(sent))
	case "replayable", "failing", "once":
		req.Body, req.GetBody, req.ContentLength = body(), get, int64(len(sent))
	}
	if s.how == "request" {
		req.Cancel = closed
	}
	if s.hop != nil {
		req.Response = &http.Response{StatusCode: s.hop.status, Header: s.hop.server.write(t0)}
	}

	before := snapshot(req)
	o.resp, o.err = tr.RoundTrip(req)
	o.end = now()
	o.changed = before.differs(req)
	for _, c := range cancels {
		c()
	}
	return o
}

// A snapshot is a request at one time: the things it points to as well as what
// they hold.
type likeness struct {
	req   http.Request
	looks string
}

func snapshot(req *http.Request) likeness { return likeness{*req, looks(req)} }

func (s likeness) differs(req *http.Request) string {
	was := &s.req
	switch {
	case looks(req) != s.looks:
		return "looks: " + looks(req)
	case req.URL != was.URL:
		return "URL"
	case req.Body != was.Body:
		return "Body"
	case (req.GetBody == nil) != (was.GetBody == nil):
		return "GetBody"
	case req.Cancel != was.Cancel:
		return "Cancel"
	case req.Response != was.Response:
		return "Response"
	case req.Context() != was.Context():
		return "Context"
	}
	return ""
}

// forAll checks a property of calls, under the clock of a bubble.
func forAll(t *testing.T, property func(t *rapid.T, s *script, o *observation)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		rapid.SyncTest(t, func(t *rapid.T) {
			o := s.play(t)
			property(t, &s, o)
			synctest.Wait()
		})
	})
}
