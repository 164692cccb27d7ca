//lint:file-ignore SA1019 golang.org/x/net/http2.Transport is deprecated, and another client than net/http's is wanted

package proof

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/faulty"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
)

var (
	chaosTime = flag.Duration("chaos.time", 8*time.Second, "how long TestChaos looks for faults")
	chaosSeed = flag.Uint64("chaos.seed", 0, "the one round that TestChaos plays; 0: as many new ones as there is time for")
)

// TestChaos lets random calls meet a server that fails in every way that it
// knows, over real sockets, and holds what the server recorded against what a
// call may do. A seed decides all but the order in which goroutines run.
func TestChaos(t *testing.T) {
	if *chaosSeed != 0 {
		playRound(t, *chaosSeed)
		return
	}
	var before, after uint64
	until := time.Now().Add(*chaosTime)
	rounds := 0
	for seed := rand.Uint64(); time.Now().Before(until) && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("chaos.seed=%d", seed), func(t *testing.T) { playRound(t, seed) })
		if rounds++; rounds == 1 { // what is made once is there
			before = heap()
		}
	}
	eventually(t, "the heap is where it was", func() bool { after = heap(); return after < before+8<<20 })
	t.Logf("%d rounds, the heap went from %d KiB to %d KiB", rounds, before>>10, after>>10)
}

// heap is what is in use of it; what pools hold is not, after the second time.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A round is one server, one Transport and many calls at once.
type round struct {
	seed      uint64
	url       string
	protocol  string
	kills     bool
	long      bool // an hour's delay ends a call, rather than to hold it
	tr        *retryafter.Transport
	calls     []*chaosCall
	backoff   time.Duration // constant; 0: the default
	capacity  int64         // of the Limiter; 0: none
	perSecond int64

	mu       sync.Mutex
	arrivals map[string][]faulty.Arrival
	told     []told
}

// told is when a Gate surely knew of a hold, and how long that is at least.
type told struct {
	group     int
	at, until time.Time
}

const (
	roundCalls  = 150
	roundAtOnce = 32
	groups      = 8 // of calls that a Gate holds together
)

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func playRound(t *testing.T, seed uint64) {
	httptest.NewServer(nil).Close() // the poller's own files stay open
	old, files := goleak.IgnoreCurrent(), openFiles()
	r := &round{seed: seed, arrivals: map[string][]faulty.Arrival{}}
	rng := rand.New(rand.NewPCG(seed, 0))
	plan := faulty.Plan{Step: r.step, Record: func(a faulty.Arrival) {
		r.mu.Lock()
		r.arrivals[a.Call] = append(r.arrivals[a.Call], a)
		r.mu.Unlock()
	}}
	base := &http.Transport{ExpectContinueTimeout: 10 * time.Millisecond, DisableKeepAlives: chance(rng, 15)}
	if chance(rng, 15) {
		base.MaxConnsPerHost = 8
	}
	if chance(rng, 15) {
		base.ResponseHeaderTimeout = 50 * time.Millisecond
	}
	var sent transport = base
	r.protocol = pick(rng, "HTTP/1.1", "HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2", "HTTP/2 by frames")
	kill, conns := func() {}, func() int { return 0 }
	switch r.protocol {
	case "HTTP/2":
		var running atomic.Int64 // which Close does not wait for
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			running.Add(1)
			defer running.Add(-1)
			plan.ServeHTTP(w, req)
		}))
		var open atomic.Int64
		conns = func() int { return int(open.Load()) }
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		s.EnableHTTP2 = true
		s.Config.ErrorLog = discardLog
		s.StartTLS()
		defer func() {
			s.Close()
			eventually(t, "all handlers are done", func() bool { return running.Load() == 0 })
		}()
		base.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
		base.ForceAttemptHTTP2 = true
		r.url = s.URL
	case "HTTP/2 by frames":
		s := listenFrames(t, &plan)
		defer s.close()
		conns = s.open
		// Where net/http's own repeats by HTTP/2, it may look at a body that is
		// still read; x/net's does not.
		sent = &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
		r.url = "http://" + s.ln.Addr().String()
	default:
		s := &faulty.Server{Plan: plan}
		if r.protocol != "HTTP/1.1" {
			s.TLS, base.TLSClientConfig = loopbackTLS(t)
		}
		if percent := pick(rng, 0, 0, 5); percent > 0 {
			s.Refuses = func() bool { return rand.IntN(100) < percent }
		}
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		conns = s.Conns
		defer s.Kill()
		r.url = s.URL()
		if r.kills = chance(rng, 30); r.kills {
			after := upTo(rng, 100*time.Millisecond)
			kill = func() {
				time.Sleep(after)
				s.Kill()
				time.Sleep(20 * time.Millisecond)
				if err := s.Listen(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	r.draw(rng, sent)
	for i := range roundCalls {
		r.calls = append(r.calls, r.newCall(i))
	}
	begin := time.Now()
	var wg sync.WaitGroup
	wg.Go(kill)
	next := atomic.Int64{}
	for range roundAtOnce {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < roundCalls; i = next.Add(1) - 1 {
				r.calls[i].run(t)
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(time.Minute):
		buf := make([]byte, 1<<20)
		t.Fatalf("calls hang:\n%s", buf[:runtime.Stack(buf, true)])
	}
	took := time.Since(begin)
	t.Cleanup(func() { // when the server is closed
		r.check(t, took)
		if err := goleak.Find(old); err != nil {
			t.Error(err)
		}
		eventually(t, "all files are closed", func() bool { return openFiles() <= files })
		if t.Failed() {
			t.Logf("%s, kills %v, Transport %+v", r.protocol, r.kills, r.tr)
			t.Logf("play it again: go test -run '^TestChaos$' -chaos.seed=%d .", seed)
		}
	})
	for _, c := range r.calls {
		if c.checkBodies(t); t.Failed() {
			break
		}
	}
	eventually(t, "no connection is open", func() bool { r.tr.CloseIdleConnections(); return conns() == 0 })
}

// openFiles is how many this process has open, where the system tells.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("it never came to be that %s", what)
			return
		}
	}
}

// loopbackTLS is what a server and its clients need.
func loopbackTLS(t *testing.T) (server, client *tls.Config) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}, s.Client().Transport.(*http.Transport).TLSClientConfig
}

// draw makes the round's Transport.
func (r *round) draw(rng *rand.Rand, base transport) {
	tr := &retryafter.Transport{Base: chaosBase{base}, AttemptTimeout: pick(rng, 0, 0, 30*time.Millisecond, 200*time.Millisecond)}
	if r.protocol == "HTTP/2 by frames" && tr.AttemptTimeout == 0 {
		tr.AttemptTimeout = 300 * time.Millisecond // net/http's own repeats can take a minute
	}
	tr.Hint = faulty.Hint
	tr.MaxAttempts = pick(rng, 0, 1, 2, 5, -1)
	tr.MaxWait = pick(rng, 0, 30*time.Millisecond, -1)
	tr.MaxElapsed = pick(rng, 0, 0, 2*time.Second)
	if tr.MaxAttempts < 0 && tr.AttemptTimeout > 0 {
		tr.MaxElapsed = 2 * time.Second // a busy machine may be late for every attempt
	}
	tr.Reserve = pick(rng, 0, 5*time.Millisecond)
	r.long = tr.MaxWait >= 0
	if !chance(rng, 10) {
		r.backoff = pick(rng, time.Millisecond, 5*time.Millisecond)
		tr.Backoff = func() backoff.BackOff { return backoff.NewConstantBackOff(r.backoff) }
	}
	tr.Jitter = pick(rng, retryafter.NoJitter, retryafter.Spread(0.25, time.Millisecond, 5*time.Millisecond))
	if chance(rng, 50) {
		r.capacity, r.perSecond = 20, pick(rng, int64(100), 500, 5000)
		bucket := &retryafter.Bucket{Capacity: r.capacity, Rate: retryafter.PerSecond(r.perSecond)}
		keyed := &retryafter.Keyed{Capacity: r.capacity, Rate: retryafter.PerSecond(r.perSecond)}
		tr.Limiter = pick[retryafter.Limiter](rng, bucket, keyed, retryafter.Deny(bucket), retryafter.Deny(keyed))
	}
	if chance(rng, 50) {
		tr.Gate = &retryafter.Gate{Key: func(req *http.Request) retryafter.Key { return retryafter.Key(req.URL.Path) }}
	}
	if chance(rng, 50) {
		tr.Budget = &retryafter.RetryBudget{Retries: pick(rng, 5, 50)}
	}
	r.tr = tr
}

// step is what the server does with an attempt.
func (r *round) step(call string, attempt int) faulty.Step {
	i, _ := strconv.Atoi(call)
	rng := rand.New(rand.NewPCG(r.seed, uint64(i)<<8|uint64(attempt)|1<<40))
	s := faulty.Step{Status: 200, Delay: -1, Body: pick(rng, 0, 10, 100, 5000)}
	if attempt >= 6 {
		return s
	}
	whole := []faulty.Fault{faulty.None, faulty.None, faulty.Chunked, faulty.Last, faulty.Interim, faulty.ClosesIdle, faulty.Early}
	switch n := rng.IntN(100); {
	case n < 30:
		s.Fault = pick(rng, whole...)
		return s
	case n < 70:
		s.Fault = pick(rng, whole...)
		s.Status = pick(rng, 429, 503)
	default:
		s.Fault = faulty.Fault(rng.IntN(faulty.Faults))
		s.Status = pick(rng, 200, 201, 404, 408, 409, 413, 425, 429, 500, 502, 503, 504)
	}
	switch n := rng.IntN(100); {
	case n < 30:
	case n < 40:
		s.Delay = 0
	case n < 96:
		s.Delay = time.Duration(1+rng.IntN(60)) * time.Millisecond
	case n < 98:
		s.Delay = time.Second
	case r.long:
		s.Delay = time.Hour
	}
	if s.Fault == faulty.Drip {
		s.Body = min(s.Body, 100)
	}
	return s
}

// A chaosCall is one call, and what it leaves behind.
type chaosCall struct {
	r        *round
	id       string
	group    int
	method   string
	key      []string // of Idempotency-Key; nil: none
	payload  []byte   // nil: no body
	opaque   bool     // no GetBody
	chunked  bool     // of unknown length
	expect   bool
	client   bool // through an http.Client
	timeout  time.Duration
	end      string // how it ends early, if it does
	after    time.Duration
	limit    int // WithMaxAttempts; 0: none
	readOnly int // so much of the response; negative: all

	mu      sync.Mutex
	start   time.Time
	sent    []sending
	hooks   []string
	waits   []wait
	bodies  []*chaosBody // that the Transport was given, or handed on
	reports []retryafter.Report
	resp    *http.Response
	respErr error
	err     error
	text    int // bytes read
}

// A sending is what Base was asked for, and what it said.
type sending struct {
	number     int
	left, back time.Time
	ready      time.Time // the Gate was asked after that
	status     int
	answered   time.Time // by the server's own clock
	err        error
	response   *chaosBody
}

type wait struct {
	retryafter.WaitInfo
	before int // sendings
}

// A chaosBody knows whether it was closed.
type chaosBody struct {
	io.ReadCloser
	what   string
	closed atomic.Int32
}

func (b *chaosBody) Close() error {
	b.closed.Add(1)
	return b.ReadCloser.Close()
}

func (r *round) newCall(i int) *chaosCall {
	rng := rand.New(rand.NewPCG(r.seed, uint64(i)|1<<50))
	c := &chaosCall{r: r, id: strconv.Itoa(i), group: rng.IntN(groups), readOnly: -1}
	c.method = pick(rng, "GET", "GET", "HEAD", "PUT", "POST", "POST", "DELETE", "QUERY", "PATCH")
	if (c.method == "POST" || c.method == "PATCH") && chance(rng, 50) {
		c.key = pick(rng, []string{"k" + c.id}, []string{})
	}
	if c.method != "GET" && c.method != "HEAD" && chance(rng, 70) {
		c.payload = make([]byte, pick(rng, 1, 1000, 20_000, 300_000))
		for i := range c.payload {
			c.payload[i] = byte(rng.Uint32())
		}
		c.opaque, c.chunked, c.expect = chance(rng, 20), chance(rng, 30), chance(rng, 10)
	}
	c.client = chance(rng, 50)
	c.after = upTo(rng, 150*time.Millisecond)
	c.end = pick(rng, "", "", "", "deadline", "cause", "cancel", "Request.Cancel", "Client.Timeout")
	if c.end == "Client.Timeout" {
		c.client, c.timeout = true, c.after+time.Millisecond
	}
	if chance(rng, 20) {
		c.limit = 1 + rng.IntN(3)
	}
	if chance(rng, 20) {
		c.readOnly = rng.IntN(20)
	}
	return c
}

type chaosKey struct{}

var errChaos = errors.New("the caller's reason")

// chaosBase notes what a Transport sends.
type chaosBase struct{ transport }

// transport is what both transports of HTTP are.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

func (b chaosBase) RoundTrip(req *http.Request) (*http.Response, error) {
	c := req.Context().Value(chaosKey{}).(*chaosCall)
	s := sending{number: retryafter.AttemptNumber(req.Context()), left: time.Now()}
	r := req.Clone(req.Context())
	r.Header.Set(faulty.CallField, c.id)
	r.Header.Set(faulty.AttemptField, strconv.Itoa(s.number))
	if req.GetBody != nil {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.payload)), nil } // net/http's own
	}
	c.mu.Lock()
	s.ready = c.start
	if n := len(c.sent); n > 0 {
		s.ready = c.sent[n-1].back
	}
	for _, w := range c.waits {
		if !w.Limiter && w.before == len(c.sent) && w.Until.After(s.ready) {
			s.ready = w.Until
		}
	}
	c.mu.Unlock()
	resp, err := b.transport.RoundTrip(r)
	s.back, s.err = time.Now(), err
	if err == nil {
		s.status = resp.StatusCode
		s.answered, _ = faulty.AnsweredAt(resp.Header)
		s.response = &chaosBody{ReadCloser: resp.Body, what: fmt.Sprint("of response ", s.number)}
		resp.Body = s.response
	}
	c.mu.Lock()
	c.sent = append(c.sent, s)
	if s.response != nil {
		c.bodies = append(c.bodies, s.response)
	}
	c.mu.Unlock()
	return resp, err
}

func (c *chaosCall) body() (io.ReadCloser, error) {
	b := &chaosBody{ReadCloser: io.NopCloser(bytes.NewReader(c.payload)), what: "of a request"}
	c.mu.Lock()
	c.bodies = append(c.bodies, b)
	c.mu.Unlock()
	return b, nil
}

func (c *chaosCall) request(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, c.method, fmt.Sprintf("%s/%d", c.r.url, c.group), nil)
	if err != nil {
		panic(err)
	}
	if c.key != nil {
		req.Header["Idempotency-Key"] = c.key
	}
	if c.payload != nil {
		req.Body, _ = c.body()
		req.ContentLength = int64(len(c.payload))
		if c.chunked {
			req.ContentLength = -1
		}
		if !c.opaque {
			req.GetBody = c.body
		}
		if c.expect {
			req.Header.Set("Expect", "100-continue")
		}
	}
	return req
}

// trace notes the hooks' calls.
func (c *chaosCall) trace() *retryafter.Trace {
	note := func(what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hooks = append(c.hooks, what)
		c.gateKnows()
	}
	return &retryafter.Trace{
		AttemptDone: func(a retryafter.Attempt) {
			c.mu.Lock()
			c.hooks = append(c.hooks, fmt.Sprint("attempt ", a.Number))
			if n := len(c.sent); n > 0 && a.Err == retryafter.ErrAttemptTimeout { // so an answer that came all the same is none
				c.sent[n-1].status, c.sent[n-1].err = 0, a.Err
			}
			c.mu.Unlock()
		},
		Waiting: func(w retryafter.WaitInfo) {
			note(fmt.Sprint("wait for ", w.Attempt))
			c.mu.Lock()
			c.waits = append(c.waits, wait{w, len(c.sent)})
			c.mu.Unlock()
		},
		Done: func(_ *http.Request, report retryafter.Report) {
			note("done")
			c.mu.Lock()
			c.reports = append(c.reports, report)
			c.mu.Unlock()
		},
	}
}

// gateKnows notes that the Gate was told what the last response asked for. It
// is told between AttemptDone and the hook that follows.
func (c *chaosCall) gateKnows() {
	if len(c.sent) == 0 {
		return
	}
	s := c.sent[len(c.sent)-1]
	if delay := c.r.step(c.id, s.number).Delay; (s.status == 429 || s.status == 503) && delay > 0 && !s.answered.IsZero() {
		c.r.mu.Lock()
		c.r.told = append(c.r.told, told{c.group, time.Now(), s.answered.Add(delay)})
		c.r.mu.Unlock()
	}
}

// run makes the call.
func (c *chaosCall) run(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), chaosKey{}, c))
	defer cancel(nil)
	if c.limit > 0 {
		ctx = retryafter.WithMaxAttempts(ctx, c.limit)
	}
	ctx = retryafter.WithTrace(ctx, c.trace())
	closed := make(chan struct{})
	switch c.end {
	case "deadline":
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.after)
		defer cancel()
	case "cause":
		defer time.AfterFunc(c.after, func() { cancel(errChaos) }).Stop()
	case "cancel":
		defer time.AfterFunc(c.after, func() { cancel(nil) }).Stop()
	case "Request.Cancel":
		defer time.AfterFunc(c.after, func() { close(closed) }).Stop()
	}
	req := c.request(ctx)
	if c.end == "Request.Cancel" {
		req.Cancel = closed //lint:ignore SA1019 it must be obeyed all the same
	}
	c.start = time.Now()
	var resp *http.Response
	var err error
	if c.client {
		resp, err = (&http.Client{Transport: c.r.tr, Timeout: c.timeout}).Do(req)
	} else {
		resp, err = c.r.tr.RoundTrip(req)
	}
	if (resp == nil) == (err == nil) {
		t.Errorf("call %s has response %v and error %v", c.id, resp, err)
	}
	c.resp, c.err = resp, err
	if resp == nil {
		return
	}
	var text int64
	if c.readOnly >= 0 {
		text, c.respErr = io.CopyN(io.Discard, resp.Body, int64(c.readOnly))
	} else {
		text, c.respErr = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	}
	c.text = int(text)
	resp.Body.Close()
}

// check holds all that happened against what may happen.
func (r *round) check(t *testing.T, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, refunded, deposits := 0, 0, 0
	for _, c := range r.calls {
		c.check(t)
		sent += len(c.sent)
		if len(c.reports) == 1 && c.reports[0].Stop == retryafter.Final && len(c.sent) > 0 {
			if s := c.sent[len(c.sent)-1]; s.status != 0 && s.status < 500 {
				if len(c.sent) == 1 {
					deposits++
				} else {
					refunded++
				}
			}
		}
		if t.Failed() {
			t.Logf("call %s: %s, key %q, %d bytes, opaque %v, chunked %v, ends by %q after %v, limit %d\nhooks %q\nsent %+v\nerror %v, %+v\narrivals %+v",
				c.id, c.method, c.key, len(c.payload), c.opaque, c.chunked, c.end, c.after, c.limit, c.hooks, c.sent, c.err, c.reports, short(r.arrivals[c.id]))
			return
		}
	}
	if r.capacity > 0 {
		if most := r.capacity + r.perSecond*int64(took)/int64(time.Second); int64(sent) > most {
			t.Errorf("%d attempts in %v, the Limiter admits %d", sent, took, most)
		}
	}
	if b := r.tr.Budget; b != nil {
		retries := -refunded
		for _, c := range r.calls {
			retries += max(len(c.sent)-1, 0)
		}
		if most := b.Retries + deposits/10; retries > most {
			t.Errorf("%d retries, the budget has %d", retries, most)
		}
	}
}

func short(all []faulty.Arrival) []faulty.Arrival {
	all = append([]faulty.Arrival(nil), all...)
	for i := range all {
		all[i].Body = all[i].Body[:min(len(all[i].Body), 10)]
	}
	return all
}

func (c *chaosCall) check(t *testing.T) {
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("call "+c.id+": "+format, args...)
	}
	if len(c.reports) != 1 {
		fail("%d reports", len(c.reports))
		return
	}
	report := c.reports[0]
	if report.Attempts != len(c.sent) {
		fail("%d attempts reported, %d were sent", report.Attempts, len(c.sent))
	}
	c.checkHooks(fail)
	c.checkOutcome(fail, report)
	c.checkWaits(fail)
	c.checkArrivals(fail)
}

// checkBodies waits for what a call lets go of after its end.
func (c *chaosCall) checkBodies(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.bodies {
		eventually(t, "the body "+b.what+" is closed", func() bool { return b.closed.Load() > 0 })
	}
}

type failer func(format string, args ...any)

func (c *chaosCall) checkHooks(fail failer) {
	next := 1
	for i, h := range c.hooks {
		switch h {
		case fmt.Sprint("attempt ", next):
			next++
		case fmt.Sprint("wait for ", next):
		case "done":
			if i != len(c.hooks)-1 {
				fail("hooks in the order %q", c.hooks)
			}
		default:
			fail("hooks in the order %q", c.hooks)
		}
	}
	if next != len(c.sent)+1 {
		fail("hooks %q for %d attempts", c.hooks, len(c.sent))
	}
}

func (c *chaosCall) checkOutcome(fail failer, report retryafter.Report) {
	r, stop := c.r, report.Stop
	last := sending{}
	if n := len(c.sent); n > 0 {
		last = c.sent[n-1]
	}
	if c.resp != nil {
		if c.resp.StatusCode != last.status || c.resp.Header.Get(faulty.CallField) != c.id {
			fail("got %s of call %q, the last attempt %d", c.resp.Status, c.resp.Header.Get(faulty.CallField), last.status)
		}
		if got := retryafter.ReportOf(c.resp); got.Attempts != report.Attempts || got.Stop != stop {
			fail("the response reports %v, the hook %v", got, report)
		}
		step := r.step(c.id, last.number)
		whole := step.Body
		if c.method == "HEAD" {
			whole = 0
		}
		switch {
		case c.readOnly >= 0 || !step.Fault.Answers():
		case c.respErr == nil && c.text != whole:
			fail("read %d of %d bytes", c.text, whole)
		case c.respErr != nil && c.end == "" && !r.kills && step.Fault != faulty.Early && r.protocol != "HTTP/2 by frames":
			fail("read %d of %d bytes, %v", c.text, whole, c.respErr)
		}
	} else if e, ok := errors.AsType[*retryafter.Error](c.err); ok {
		if diff := cmp.Diff(report.String(), e.Report.String()); diff != "" {
			fail("the error and the hook differ: %s", diff)
		}
	} else if c.end != "Client.Timeout" && !(stop == retryafter.Final && len(c.sent) == 1) {
		fail("error %T %v", c.err, c.err)
	}
	if last.status == 0 && c.resp != nil || c.resp == nil && last.status != 0 && stop == retryafter.Final && c.end != "Client.Timeout" {
		fail("the last attempt has status %d, the call %v, %v", last.status, c.resp, c.err)
	}
	unsafe := (c.method == "POST" || c.method == "PATCH") && c.key == nil
	limit := r.tr.MaxAttempts
	if limit == 0 {
		limit = 3
	}
	if c.limit > 0 && (limit < 0 || c.limit < limit) {
		limit = c.limit
	}
	if limit > 0 && len(c.sent) > limit {
		fail("%d attempts, the cap is %d", len(c.sent), limit)
	}
	bounded := c.end == "deadline" || c.end == "Client.Timeout"
	for _, why := range []struct {
		reason retryafter.Reason
		can    bool
	}{
		{retryafter.MethodNotIdempotent, unsafe && len(c.sent) == 1},
		{retryafter.BodyNotReplayable, c.opaque && c.payload != nil && len(c.sent) == 1},
		{retryafter.AttemptsUsed, len(c.sent) == limit},
		{retryafter.WaitTooLong, r.tr.MaxWait >= 0},
		{retryafter.DeadlineTooNear, bounded},
		{retryafter.ElapsedTooLong, r.tr.MaxElapsed > 0},
		{retryafter.BudgetSpent, r.tr.Budget != nil},
		{retryafter.Canceled, c.end != ""},
		{retryafter.Limited, r.tr.Limiter != nil},
		{retryafter.Final, len(c.sent) > 0},
		{retryafter.BackoffStopped, false}, {retryafter.GetBodyFailed, false}, {retryafter.Misconfigured, false}, {0, false},
	} {
		if stop == why.reason && !why.can {
			fail("stopped by %v", report)
		}
	}
	if stop == retryafter.Canceled && c.resp == nil && c.end != "Client.Timeout" {
		want := map[string]error{"cause": errChaos, "cancel": context.Canceled, "deadline": context.DeadlineExceeded}[c.end]
		if want != nil && !errors.Is(c.err, want) {
			fail("cancelled by %s, the error is %v", c.end, c.err)
		}
	}
	if stop == retryafter.WaitTooLong && max(report.Decision.Server, report.Decision.Local) <= max(r.tr.MaxWait, 30*time.Millisecond) {
		fail("refused %v", report)
	}
	if stop == retryafter.AttemptsUsed || stop == retryafter.MethodNotIdempotent || stop == retryafter.BodyNotReplayable || stop == retryafter.WaitTooLong && c.resp != nil { // else the Gate was told more
		if h := c.hooks; len(h) > 1 && h[len(h)-2] != fmt.Sprint("attempt ", len(c.sent)) {
			fail("waited before it was refused: %q", h)
		}
	}
}

// checkWaits holds the instants at which attempts left against what was
// announced, and what the server said.
func (c *chaosCall) checkWaits(fail failer) {
	r := c.r
	for _, w := range c.waits {
		if !w.Limiter && w.before < len(c.sent) && c.sent[w.before].left.Before(w.Until) {
			fail("attempt %d left %v before the announced instant", w.Attempt, w.Until.Sub(c.sent[w.before].left))
		}
		if w.Limiter {
			continue
		}
		d := w.Decision
		if w.Wait != max(d.Server, d.Local)+d.Jitter {
			fail("waits %v for %+v", w.Wait, d)
		}
		if most := r.tr.MaxWait; most >= 0 && max(d.Server, d.Local) > max(most, map[bool]time.Duration{true: 2 * time.Minute}[most == 0]) {
			fail("waits %v", w.Wait)
		}
		if deadline, ok := w.Request.Context().Deadline(); ok && !w.Until.Add(r.tr.Reserve).Before(deadline) {
			fail("a wait ends %v after the deadline", w.Until.Sub(deadline))
		}
		if r.tr.MaxElapsed > 0 && w.before > 0 && !w.Until.Add(r.tr.Reserve).Before(c.sent[0].left.Add(r.tr.MaxElapsed)) {
			fail("a wait ends %v after the first attempt left", w.Until.Sub(c.sent[0].left))
		}
	}
	for i, s := range c.sent {
		if s.number != i+1 {
			fail("attempt %d has the number %d", i+1, s.number)
		}
		if r.tr.Gate != nil {
			for _, told := range r.told {
				if told.group == c.group && told.at.Before(s.ready) && s.left.Before(told.until) {
					fail("attempt %d left %v before the end of a hold that was known for %v", s.number, told.until.Sub(s.left), s.ready.Sub(told.at))
				}
			}
		}
		if i == 0 {
			continue
		}
		before := c.sent[i-1]
		if gap := s.left.Sub(before.back); gap < r.backoff {
			fail("attempt %d left %v after the one before, the backoff is %v", s.number, gap, r.backoff)
		}
		for _, a := range r.arrivals[c.id] {
			if a.Attempt == before.number && before.status != 0 && a.Answered.Equal(before.answered) && (s.left.Before(a.NotBefore())) {
				fail("attempt %d left %v early", s.number, a.NotBefore().Sub(s.left))
			}
		}
	}
}

// checkArrivals looks at the server's record.
func (c *chaosCall) checkArrivals(fail failer) {
	all := c.r.arrivals[c.id]
	times := map[int]int{}
	served := 0
	for _, a := range all {
		times[a.Attempt]++
		if !a.Refused {
			served++
		}
		if a.Attempt < 1 || a.Attempt > len(c.sent) {
			fail("attempt %d arrived, %d were sent", a.Attempt, len(c.sent))
		}
		if a.Whole && !bytes.Equal(a.Body, c.payload) {
			fail("attempt %d arrived with %d bytes, want %d", a.Attempt, len(a.Body), len(c.payload))
		}
		for _, s := range c.sent {
			if s.number == a.Attempt && a.At.Before(s.left) {
				fail("attempt %d arrived %v before it left", a.Attempt, s.left.Sub(a.At))
			}
		}
	}
	if unsafe := (c.method == "POST" || c.method == "PATCH") && c.key == nil; unsafe && served > 1 {
		fail("a %s arrived %d times", c.method, served)
	}
	// What net/http repeats by itself is told in docs/roundtrippers.md.
	theirs := c.key != nil || c.method == "GET" || c.method == "HEAD" || c.r.protocol == "HTTP/2" || c.r.protocol == "HTTP/2 by frames"
	for n, k := range times {
		if k > 1 && !theirs {
			fail("attempt %d arrived %d times", n, k)
		}
	}
	for _, s := range c.sent {
		if s.status == 0 {
			continue
		}
		found := false
		for _, a := range all {
			found = found || a.Attempt == s.number && a.Answered.Equal(s.answered) && a.Step.Status == s.status
		}
		if !found {
			fail("attempt %d has an answer that no server gave", s.number)
		}
	}
}

var discardLog = log.New(io.Discard, "", 0)

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
