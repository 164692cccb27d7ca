//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

// The contract of http.RoundTripper, over bases in memory that keep to it, and
// over some that don't.

type netPath struct {
	steps    []netStep
	change   func(*retryafter.Transport, *http.Request, *netBodies) *http.Request
	status   int // 0: an *Error
	attempts int
	gets     int
	stop     retryafter.Reason
}

// netPaths are the ways that one call can take, each with what the caller gets
// and how often GetBody is asked. All are entered with a PUT that can be sent
// again.
var netPaths = map[string]netPath{
	"first attempt": {
		steps: []netStep{netReply(200)}, status: 200, attempts: 1, stop: retryafter.Final,
	},
	"retries": {
		steps:  []netStep{netReply(503, "Retry-After: 0"), netReply(429, "Retry-After: 1"), netReply(200)},
		status: 200, attempts: 3, gets: 2, stop: retryafter.Final,
	},
	"an error, then a success": {
		steps:  []netStep{netError(io.EOF), netReply(201)},
		status: 201, attempts: 2, gets: 1, stop: retryafter.Final,
	},
	"attempts used": {
		steps:  []netStep{netReply(503)},
		status: 503, attempts: 3, gets: 2, stop: retryafter.AttemptsUsed,
	},
	"attempts used by errors": {
		steps:    []netStep{netError(io.EOF)},
		attempts: 3, gets: 2, stop: retryafter.AttemptsUsed,
	},
	"a final error after a retry": {
		steps:    []netStep{netReply(503), netError(errors.New("final"))},
		attempts: 2, gets: 1, stop: retryafter.Final,
	},
	"C103 a wait too long": {
		steps:  []netStep{netReply(503), netReply(503, "Retry-After: 7200")},
		status: 503, attempts: 2, gets: 1, stop: retryafter.WaitTooLong,
	},
	"C103 the deadline too near": {
		steps: []netStep{netReply(503), netReply(503, "Retry-After: 60")},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			ctx, cancel := context.WithTimeout(req.Context(), 30*time.Second)
			context.AfterFunc(ctx, cancel)
			return req.WithContext(ctx)
		},
		status: 503, attempts: 2, gets: 1, stop: retryafter.DeadlineTooNear,
	},
	"H3 a POST": {
		steps: []netStep{netReply(503, "Retry-After: 1")},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			req.Method = "POST"
			return req
		},
		status: 503, attempts: 1, stop: retryafter.MethodNotIdempotent,
	},
	"H7 a POST with a key": {
		steps: []netStep{netReply(503, "Retry-After: 1"), netReply(201)},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			req.Method = "POST"
			req.Header.Set("Idempotency-Key", "k")
			return req
		},
		status: 201, attempts: 2, gets: 1, stop: retryafter.Final,
	},
	"C094 an opaque body": {
		steps: []netStep{netReply(503, "Retry-After: 1")},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			req.GetBody, req.ContentLength = nil, 0
			return req
		},
		status: 503, attempts: 1, stop: retryafter.BodyNotReplayable,
	},
	"C100 a GET with an opaque body": {
		steps: []netStep{netReply(503, "Retry-After: 1")},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			req.Method, req.GetBody = "GET", nil
			return req
		},
		status: 503, attempts: 1, stop: retryafter.BodyNotReplayable,
	},
	"C095 GetBody fails at once": {
		steps: []netStep{netReply(503)},
		change: func(_ *retryafter.Transport, req *http.Request, b *netBodies) *http.Request {
			b.fail, b.err = 1, errors.New("gone")
			return req
		},
		status: 503, attempts: 1, stop: retryafter.GetBodyFailed,
	},
	"C095 GetBody fails the second time": {
		steps: []netStep{netReply(503)},
		change: func(_ *retryafter.Transport, req *http.Request, b *netBodies) *http.Request {
			b.fail, b.err = 2, errors.New("gone")
			return req
		},
		status: 503, attempts: 2, gets: 1, stop: retryafter.GetBodyFailed,
	},
	"C095 GetBody fails after an error": {
		steps: []netStep{netError(io.EOF)},
		change: func(_ *retryafter.Transport, req *http.Request, b *netBodies) *http.Request {
			b.fail, b.err = 1, errors.New("gone")
			return req
		},
		attempts: 1, stop: retryafter.GetBodyFailed,
	},
	"C101 the limiter refuses the first attempt": {
		steps: []netStep{netReply(200)},
		change: func(t *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			t.Limiter = netLimiter(func(context.Context, int) error { return errors.New("no") })
			return req
		},
		attempts: 0, stop: retryafter.Limited,
	},
	"C101 the limiter refuses the second attempt": {
		steps: []netStep{netReply(503)},
		change: func(t *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			n := 0
			t.Limiter = netLimiter(func(context.Context, int) error {
				if n++; n > 1 {
					return errors.New("no")
				}
				return nil
			})
			return req
		},
		attempts: 1, gets: 1, stop: retryafter.Limited,
	},
	"C101 cancelled while the limiter holds the first attempt": {
		steps: []netStep{netReply(200)},
		change: func(t *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			t.Limiter = netLimiter(func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() })
			ctx, cancel := context.WithCancel(req.Context())
			time.AfterFunc(time.Second, cancel)
			return req.WithContext(ctx)
		},
		attempts: 0, stop: retryafter.Canceled,
	},
	"a wait cancelled": {
		steps: []netStep{netReply(503, "Retry-After: 60")},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			time.AfterFunc(time.Second, cancel)
			return req.WithContext(ctx)
		},
		attempts: 1, gets: 1, stop: retryafter.Canceled,
	},
	"a wait cancelled by Request.Cancel": {
		steps: []netStep{netReply(503, "Retry-After: 60")},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			cancel := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(cancel) })
			req.Cancel = cancel
			return req
		},
		attempts: 1, gets: 1, stop: retryafter.Canceled,
	},
	"an attempt cancelled": {
		steps: []netStep{netReply(503), netHang},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			time.AfterFunc(time.Minute, cancel)
			return req.WithContext(ctx)
		},
		attempts: 2, gets: 1, stop: retryafter.Canceled,
	},
	"the context is done before the call": {
		steps: []netStep{netHang},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			cancel()
			return req.WithContext(ctx)
		},
		attempts: 0, stop: retryafter.Canceled,
	},
	"D12 misconfigured": {
		steps: []netStep{netReply(200)},
		change: func(t *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			t.AttemptTimeout = -1
			return req
		},
		attempts: 0, stop: retryafter.Misconfigured,
	},
	"misconfigured in the context": {
		steps: []netStep{netReply(200)},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			return req.WithContext(retryafter.WithMaxAttempts(req.Context(), 0))
		},
		attempts: 0, stop: retryafter.Misconfigured,
	},
	"a redirect hop refused": {
		steps: []netStep{netReply(200)},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			req.Response = netResponse(req, 307, http.NoBody, "Retry-After: 7200")
			return req
		},
		attempts: 0, stop: retryafter.WaitTooLong,
	},
	"a redirect hop cancelled": {
		steps: []netStep{netReply(200)},
		change: func(_ *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			req.Response = netResponse(req, 307, http.NoBody, "Retry-After: 60")
			ctx, cancel := context.WithCancel(req.Context())
			time.AfterFunc(time.Second, cancel)
			return req.WithContext(ctx)
		},
		attempts: 0, stop: retryafter.Canceled,
	},
	"every attempt in time": {
		steps: []netStep{netReply(503), netReply(200)},
		change: func(t *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			t.AttemptTimeout = time.Second
			return req
		},
		status: 200, attempts: 2, gets: 1, stop: retryafter.Final,
	},
	"every attempt too late": {
		steps: []netStep{netHang},
		change: func(t *retryafter.Transport, req *http.Request, _ *netBodies) *http.Request {
			t.AttemptTimeout = time.Second
			return req
		},
		attempts: 3, gets: 2, stop: retryafter.AttemptsUsed,
	},
	"the base gives neither response nor error": {
		steps:    []netStep{netReply(503), func(*http.Request) (*http.Response, error) { return nil, nil }},
		attempts: 2, gets: 1, stop: retryafter.Final,
	},
	"the base gives a response and an error": {
		steps: []netStep{func(req *http.Request) (*http.Response, error) {
			return netResponse(req, 200, netBodyOf("x")), io.EOF
		}},
		attempts: 3, gets: 2, stop: retryafter.AttemptsUsed,
	},
}

func TestEveryPathKeepsTheContract(t *testing.T) {
	for name, tc := range netPaths {
		for _, traced := range []bool{false, true} {
			netPathKeepsTheContract(t, name, tc, traced)
		}
	}
}

func netPathKeepsTheContract(t *testing.T, name string, tc netPath, traced bool) {
	t.Run(fmt.Sprint(name, " traced ", traced), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// Every response's body is counted too.
			var mu sync.Mutex
			var replies []*netBody
			base := netBase(tc.steps...)
			tr := &retryafter.Transport{Policy: netBackoff(time.Second), Base: netFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(req)
				if resp != nil {
					mu.Lock()
					replies = append(replies, resp.Body.(*netBody))
					mu.Unlock()
				}
				return resp, err
			})}
			req, bodies := netPut(t.Context(), "PUT", "http://user:pass@example.com/a?q=1", "hello")
			req.Header.Set("X-A", "1")
			req.Header["X-B"] = []string{"2", "3"}
			req.Trailer = http.Header{"X-T": {"t"}}
			req.TransferEncoding = []string{"identity"}
			var attemptsDone, done int
			if traced {
				req.Form, req.PostForm = url.Values{"f": {"1"}}, url.Values{"p": {"1"}}
				tr.Trace = &retryafter.Trace{
					AttemptDone: func(a retryafter.Attempt) { attemptsDone++ },
					Done: func(r *http.Request, got retryafter.Report) {
						done++
						if r != req || got.Attempts != tc.attempts || got.Stop != tc.stop {
							t.Errorf("Done was told of %v", got)
						}
					},
				}
			}
			if tc.change != nil {
				req = tc.change(tr, req, bodies)
			}
			before := netPictureOf(req)
			resp, err := tr.RoundTrip(req)
			before.check(t, req)
			if tc.status != 0 {
				netWant(t, resp, err, tc.status, tc.attempts, tc.stop)
			} else {
				netWantError(t, resp, err, tc.attempts, tc.stop)
			}
			if n := base.count(); n != tc.attempts {
				t.Errorf("%d attempts were sent, want %d", n, tc.attempts)
			}
			if traced && (done != 1 || attemptsDone != tc.attempts) {
				t.Errorf("Done ran %d times, AttemptDone %d times for %d attempts", done, attemptsDone, tc.attempts)
			}
			bodies.check(t, tc.gets)
			for i, sent := range base.sent {
				if sent.body != "hello" {
					t.Errorf("attempt %d sent %q", i+1, sent.body)
				}
				if diff := cmp.Diff(base.sent[0].header, sent.header); diff != "" {
					t.Errorf("attempt %d has another header:\n%s", i+1, diff)
				}
				if sent.number != i+1 {
					t.Errorf("attempt %d has AttemptNumber %d", i+1, sent.number)
				}
				// C097: what redirects and HTTP/2 need is still there.
				if (sent.req.GetBody == nil) != (req.GetBody == nil) || sent.req.ContentLength != req.ContentLength {
					t.Errorf("attempt %d has lost GetBody or ContentLength", i+1)
				}
				if sent.req.Cancel != req.Cancel || sent.req.Response != req.Response {
					t.Errorf("attempt %d has lost Cancel or Response", i+1)
				}
			}
			// Nothing of a reply is left open but the last one, handed back unread.
			for i, b := range replies {
				last := resp != nil && i == len(replies)-1
				if want := map[bool]int{true: 0, false: 1}[last]; b.closed() != want {
					t.Errorf("body of response %d was closed %d times, want %d", i+1, b.closed(), want)
				}
				if last && b.read() != 0 {
					t.Errorf("%d bytes of the response handed back were read", b.read())
				}
			}
			if resp != nil {
				// C110
				if got, want := netRead(t, resp), fmt.Sprint("body of ", tc.status); got != want {
					t.Errorf("read %q, want %q", got, want)
				}
			}
		})
	})
}

func TestTheFirstAttemptIsTheCallersRequestAndTheOthersAreClones(t *testing.T) {
	base := netBase(netReply(503), netReply(503), netReply(200))
	tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
	req, _ := netPut(t.Context(), "PUT", "http://example.com/a", "hello")
	req.Header.Set("X-A", "1")
	if _, err := tr.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	if base.sent[0].req != req {
		t.Error("the first attempt is not the caller's request")
	}
	seen := map[*http.Request]bool{}
	headers := map[uintptr]bool{}
	urls := map[*url.URL]bool{}
	for _, s := range base.sent {
		seen[s.req] = true
		headers[netPointer(s.req.Header)] = true
		urls[s.req.URL] = true
	}
	if len(seen) != 3 || len(headers) != 3 || len(urls) != 3 {
		t.Errorf("3 attempts share: %d requests, %d headers, %d URLs", len(seen), len(headers), len(urls))
	}
}

// A base may do with a clone what it likes; the attempts after it don't see it.
func TestABaseThatWritesToItsCloneHarmsNobody(t *testing.T) {
	for _, forms := range []bool{false, true} {
		base := netBase(netReply(503), func(req *http.Request) (*http.Response, error) {
			req.Header.Set("X-A", "spoilt")
			req.Header["X-B"][0] = "spoilt"
			req.Header.Add("X-Signature", "2")
			req.URL.Path, req.URL.User = "/spoilt", url.User("spoilt")
			req.Host = "spoilt"
			req.Trailer.Set("X-T", "spoilt")
			req.TransferEncoding[0] = "spoilt"
			if forms {
				req.Form.Set("f", "spoilt")
				req.PostForm.Set("p", "spoilt")
			}
			req.Body, req.GetBody, req.ContentLength = nil, nil, 0
			return netResponse(req, 503, http.NoBody), nil
		}, netReply(200))
		tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
		req, bodies := netPut(t.Context(), "PUT", "http://example.com/a", "hello")
		req.Header = http.Header{"X-A": {"1"}, "X-B": {"2"}}
		req.Trailer = http.Header{"X-T": {"t"}}
		req.TransferEncoding = []string{"identity"}
		if forms {
			req.Form, req.PostForm = url.Values{"f": {"1"}}, url.Values{"p": {"1"}}
		}
		before := netPictureOf(req)
		resp, err := tr.RoundTrip(req)
		netWant(t, resp, err, 200, 3, retryafter.Final)
		before.check(t, req)
		last := base.sent[2].req
		if diff := cmp.Diff(req.Header, last.Header); diff != "" {
			t.Errorf("attempt 3 has another header:\n%s", diff)
		}
		if last.URL.String() != "http://example.com/a" || last.Host != "example.com" || last.Trailer.Get("X-T") != "t" ||
			last.TransferEncoding[0] != "identity" || base.sent[2].body != "hello" || forms && (last.Form.Get("f") != "1" || last.PostForm.Get("p") != "1") {
			t.Errorf("attempt 3 is spoilt: %+v", last)
		}
		bodies.check(t, 2)
	}
}

// Under the race detector, a write to the caller's request is seen whatever it
// writes.
func TestTheCallersRequestIsReadableAllTheTime(t *testing.T) {
	for name, change := range map[string]func(*retryafter.Transport){
		"plain":           func(*retryafter.Transport) {},
		"attempt timeout": func(tr *retryafter.Transport) { tr.AttemptTimeout = time.Minute },
		"traced":          func(tr *retryafter.Transport) { tr.Trace = &retryafter.Trace{} },
		"limited": func(tr *retryafter.Transport) {
			tr.Limiter = &retryafter.Bucket{Capacity: 1000, Rate: retryafter.PerSecond(1000)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &retryafter.Transport{Base: netBase(netReply(503), netError(io.EOF), netReply(503)), Policy: netAtOnce()}
			tr.MaxAttempts = 20
			change(tr)
			req, bodies := netPut(t.Context(), "PUT", "http://example.com/a", "hello")
			req.Header.Set("X-A", "1")
			done, watched := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(watched)
				for {
					select {
					case <-done:
						return
					default:
						netPictureOf(req)
					}
				}
			}()
			resp, err := tr.RoundTrip(req)
			close(done)
			<-watched
			netWant(t, resp, err, 503, 20, retryafter.AttemptsUsed)
			bodies.check(t, 19)
		})
	}
}

func TestReleasedResponsesAreClosedBeforeTheWait(t *testing.T) {
	for name, change := range map[string]func(*retryafter.Transport){
		"C106":                    func(*retryafter.Transport) {},
		"C106 by attempt timeout": func(tr *retryafter.Transport) { tr.AttemptTimeout = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := netBodyOf("one"), netBodyOf("two")
				base := netBase(netReplyBody(503, first, "Retry-After: 60"), netReplyBody(503, second, "Retry-After: 60"), netReply(200))
				start := time.Now()
				tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
				change(tr)
				resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
				netWant(t, resp, err, 200, 3, retryafter.Final)
				for i, b := range []*netBody{first, second} {
					if b.closed() != 1 || b.closedAt.Sub(start) != time.Duration(i)*time.Minute {
						t.Errorf("body %d: closed %d times, at %v", i+1, b.closed(), b.closedAt.Sub(start))
					}
				}
				netRead(t, resp)
			})
		})
	}
}

func TestWhatIsReadOfAReleasedBodyIsBounded(t *testing.T) {
	const most = 64 << 10
	for name, tc := range map[string]struct {
		body   *netBody
		length int64
		least  int // read
		most   int
		takes  time.Duration
	}{
		"a short one is read to its end":  {body: netBodyOf("short"), length: 5, least: 5, most: 5},
		"of unknown length":               {body: netBodyOf("short"), length: -1, least: 5, most: 5},
		"just within the bound":           {body: &netBody{Reader: io.LimitReader(netEndless{}, most)}, length: most, least: most, most: most},
		"an endless one":                  {body: &netBody{Reader: netEndless{}}, length: -1, most: most},
		"known to be too long":            {body: &netBody{Reader: netEndless{}}, length: 200 << 20, most: most},
		"a stalled one":                   {body: netStalled("some"), length: 100, most: 4, takes: 10 * time.Millisecond},
		"a stalled one of unknown length": {body: netStalled("some"), length: -1, most: 4, takes: 10 * time.Millisecond},
		"one that fails":                  {body: &netBody{Reader: io.MultiReader(strings.NewReader("some"), netBroken{})}, length: 100, least: 4, most: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := &netBody{Reader: tc.body.Reader, onClose: tc.body.onClose}
				if name == "a stalled one" || name == "a stalled one of unknown length" {
					body = netStalled("some") // its channel must be made in the bubble
				}
				base := netBase(func(req *http.Request) (*http.Response, error) {
					resp := netResponse(req, 503, body)
					resp.ContentLength = tc.length
					return resp, nil
				}, netReply(200))
				tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
				resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
				netWant(t, resp, err, 200, 2, retryafter.Final)
				if body.closed() != 1 {
					t.Errorf("closed %d times", body.closed())
				}
				if n := body.read(); n < tc.least || n > tc.most {
					t.Errorf("%d bytes were read, want %d to %d", n, tc.least, tc.most)
				}
				if at := base.times()[1]; at > tc.takes {
					t.Errorf("the next attempt left after %v, want %v", at, tc.takes)
				}
			})
		})
	}
}

type netBroken struct{}

func (netBroken) Read([]byte) (int, error) { return 0, errors.New("broken") }

// The drain's time is part of the wait, not added to it.
func TestAStalledBodyDoesNotDelayTheNextAttempt(t *testing.T) {
	for _, hint := range []time.Duration{0, time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			base := netBase(netReplyBody(503, netStalled("some"), fmt.Sprint("Retry-After: ", int(hint.Seconds()))), netReply(200))
			tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
			resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
			netWant(t, resp, err, 200, 2, retryafter.Final)
			if at, want := base.times()[1], max(hint, 50*time.Millisecond); at < hint || at > want {
				t.Errorf("C074 told %v, came back after %v", hint, at)
			}
			if r := retryafter.ReportOf(resp); r.Waited != hint {
				t.Errorf("Waited is %v, want %v", r.Waited, hint)
			}
		})
	}
}

func TestBodilessResponsesAreReleased(t *testing.T) {
	for name, body := range map[string]io.ReadCloser{"C120 nil": nil, "C120 NoBody": http.NoBody} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				base := netBase(netReplyBody(503, body), netReplyBody(204, body))
				tr := &retryafter.Transport{Base: base, Policy: netAtOnce(), AttemptTimeout: timeout}
				resp, err := tr.RoundTrip(netRequest("HEAD", "http://example.com/"))
				netWant(t, resp, err, 204, 2, retryafter.Final)
				if resp.Body != body {
					t.Errorf("body is %v, want %v", resp.Body, body)
				}
			})
		}
	}
}

func TestABaseThatBreaksTheContractIsHeldToIt(t *testing.T) {
	neither := func(*http.Request) (*http.Response, error) { return nil, nil }
	for name, tc := range map[string]struct {
		steps    []netStep
		status   int
		attempts int
	}{
		"neither":                {steps: []netStep{neither}, attempts: 1},
		"neither, after a retry": {steps: []netStep{netReply(503), neither}, attempts: 2},
		"both": {steps: []netStep{func(r *http.Request) (*http.Response, error) {
			return netResponse(r, 200, netBodyOf("x")), errors.New("and an error")
		}}, attempts: 1},
		"both, without a body": {steps: []netStep{func(r *http.Request) (*http.Response, error) {
			return netResponse(r, 200, nil), errors.New("and an error")
		}}, attempts: 1},
		"both, then neither":      {steps: []netStep{func(r *http.Request) (*http.Response, error) { return netResponse(r, 200, netBodyOf("x")), io.EOF }, neither}, attempts: 2},
		"no Request, a success":   {steps: []netStep{func(r *http.Request) (*http.Response, error) { return netResponse(nil, 200, netBodyOf("x")), nil }}, status: 200, attempts: 1},
		"no Request, after retry": {steps: []netStep{netReply(503), func(r *http.Request) (*http.Response, error) { return netResponse(nil, 200, netBodyOf("x")), nil }}, status: 200, attempts: 2},
		"no Request, retried":     {steps: []netStep{func(r *http.Request) (*http.Response, error) { return netResponse(nil, 503, netBodyOf("x")), nil }}, status: 503, attempts: 3},
		"no Header": {steps: []netStep{func(r *http.Request) (*http.Response, error) {
			resp := netResponse(r, 503, netBodyOf("x"))
			resp.Header = nil
			return resp, nil
		}}, status: 503, attempts: 3},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				tr := &retryafter.Transport{Base: netBase(tc.steps...), Policy: netAtOnce(), AttemptTimeout: timeout}
				var reports []retryafter.Report
				tr.Trace = &retryafter.Trace{Done: func(_ *http.Request, r retryafter.Report) { reports = append(reports, r) }}
				req := netRequest("GET", "http://example.com/")
				resp, err := tr.RoundTrip(req)
				if (resp == nil) == (err == nil) {
					t.Fatalf("response %v and error %v, want exactly one", resp, err)
				}
				if len(reports) != 1 || reports[0].Attempts != tc.attempts {
					t.Errorf("reports %v, want one with %d attempts", reports, tc.attempts)
				}
				if tc.status != 0 {
					if err != nil {
						t.Fatal(err)
					}
					r := retryafter.ReportOf(resp)
					if resp.StatusCode != tc.status || r.Attempts != tc.attempts {
						t.Errorf("status %d after %d attempts, want %d after %d", resp.StatusCode, r.Attempts, tc.status, tc.attempts)
					}
				} else if _, ok := errors.AsType[*retryafter.Error](err); ok != (tc.attempts > 1) {
					t.Errorf("error %T %v after %d attempts", err, err, tc.attempts)
				}
			})
		}
	}
}

// A call that its first attempt settles returns what Base returned: the same
// response, the same error.
func TestASettledCallReturnsWhatItsBaseReturned(t *testing.T) {
	final := &url.Error{Op: "Get", URL: "u", Err: errors.New("final")}
	for _, traced := range []bool{false, true} {
		tr := &retryafter.Transport{Policy: netAtOnce()}
		if traced {
			tr.Trace = &retryafter.Trace{}
		}
		req := netRequest("GET", "http://example.com/")
		want := netResponse(req, 404, netBodyOf("x"))
		copied := *want
		tr.Base = netFunc(func(*http.Request) (*http.Response, error) { return want, nil })
		if got, err := tr.RoundTrip(req); got != want || err != nil || got.Request != req || got.Body != copied.Body {
			t.Errorf("response %v, error %v: not Base's own", got, err)
		}
		tr.Base = netFunc(func(*http.Request) (*http.Response, error) { return nil, final })
		if got, err := tr.RoundTrip(req); got != nil || err != error(final) {
			t.Errorf("response %v, error %v: not Base's own", got, err)
		}
	}
}

func TestDefaultRetryByStatus(t *testing.T) {
	always := map[int]bool{408: true, 425: true, 429: true, 500: true, 502: true, 503: true, 504: true}
	with := func(extra int) map[int]bool {
		m := maps.Clone(always)
		m[extra] = true
		return m
	}
	for name, tc := range map[string]struct {
		fields []string
		key    string
		want   map[int]bool
	}{
		"no header":                       {want: always},
		"Retry-After":                     {fields: []string{"Retry-After: 0"}, want: with(413)},
		"C061 an unreadable Retry-After":  {fields: []string{"Retry-After: soon"}, want: always},
		"F13 Idempotency-Key":             {key: "Idempotency-Key", want: with(409)},
		"F13 X-Idempotency-Key":           {key: "X-Idempotency-Key", want: with(409)},
		"F28 other fields mean nothing":   {fields: []string{"X-RateLimit-Reset: 1", "RateLimit-Reset: 1", "X-Should-Retry: true"}, want: always},
		"C030 one readable line of three": {fields: []string{"Retry-After: soon", "Retry-After: 0", "Retry-After: -1"}, want: with(413)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for status := 100; status < 600; status++ {
					req := netRequest("GET", "http://example.com/")
					if tc.key != "" {
						req.Header.Set(tc.key, "k")
					}
					for _, custom := range []bool{false, true} {
						base := netBase(netReply(status, tc.fields...), netReply(200))
						tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
						if custom {
							tr.Retry = retryafter.DefaultRetry // must be the same as none
						}
						resp, err := tr.RoundTrip(req)
						if err != nil {
							t.Fatal(err)
						}
						if retried := base.count() == 2; retried != tc.want[status] {
							t.Errorf("%d: retried %v, want %v", status, retried, tc.want[status])
						}
						if !tc.want[status] && netRead(t, resp) != fmt.Sprint("body of ", status) {
							t.Errorf("%d: the body was touched", status)
						}
					}
				}
				// C057, C058, C060: a Retry-After on its own costs no time.
				if took := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); took != 0 {
					t.Errorf("%v passed", took)
				}
			})
		})
	}
}

func TestMethodsThatAreSentAgain(t *testing.T) {
	again := map[string]bool{"": true, "GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true, "QUERY": true}
	for _, method := range []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY",
		"POST", "PATCH", "CONNECT", "LINK", "PROPFIND", "get", "Put", "query"} {
		for _, key := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
			for _, value := range [][]string{{"k"}, {}} {
				for _, step := range []netStep{netReply(503, "Retry-After: 0"), netError(io.EOF), netReply(429), netReply(408, "Retry-After: 0")} {
					base := netBase(step, netReply(200))
					tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
					req := netRequest("GET", "http://example.com/")
					req.Method = method
					if key != "" {
						req.Header[key] = value
					}
					resp, err := tr.RoundTrip(req)
					want := again[method] || key != ""
					if got := base.count() == 2; got != want || want != (err == nil && resp.StatusCode == 200) {
						t.Errorf("H1 %q with %s %v: sent again %v, want %v (error %v)", method, key, value, got, want, err)
					}
					// H8: the same key on every attempt; an empty slice sends none.
					for _, sent := range base.sent {
						if diff := cmp.Diff(req.Header, sent.header); diff != "" {
							t.Errorf("%q: header changed:\n%s", method, diff)
						}
					}
				}
			}
		}
	}
}

// One request without a body may be under way many times at once.
func TestOneRequestManyCalls(t *testing.T) {
	tr := &retryafter.Transport{Policy: netAtOnce(), AttemptTimeout: time.Minute, Base: netFunc(func(req *http.Request) (*http.Response, error) {
		if retryafter.AttemptNumber(req.Context()) < 3 {
			return netResponse(req, 503, netBodyOf("x")), nil
		}
		return netResponse(req, 200, netBodyOf("x")), nil
	})}
	req := netRequest("GET", "http://example.com/")
	req.Header.Set("X-A", "1")
	before := netPictureOf(req)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			resp, err := tr.RoundTrip(req)
			if err != nil || retryafter.ReportOf(resp).Attempts != 3 {
				t.Errorf("%v, %v", resp, err)
				return
			}
			resp.Body.Close()
		})
	}
	wg.Wait()
	before.check(t, req)
}

func TestAGetBodyThatGivesNothingSendsNothing(t *testing.T) {
	for _, length := range []int64{5, 0, -1} {
		base := netBase(netReply(503), netReply(200))
		req, _ := netPut(t.Context(), "PUT", "http://example.com/", "hello")
		req.ContentLength = length
		req.GetBody = func() (io.ReadCloser, error) { return nil, nil }
		resp, err := (&retryafter.Transport{Base: base, Policy: netAtOnce()}).RoundTrip(req)
		netWant(t, resp, err, 503, 1, retryafter.GetBodyFailed)
		if err := retryafter.ReportOf(resp).Err; err == nil {
			t.Error("the report does not say what GetBody did")
		}
	}
}

// A body that is sent again has its trailer again.
func TestATrailerThatTheBodyFillsInGoesWithEachAttempt(t *testing.T) {
	sums := 0
	base := netFunc(func(req *http.Request) (*http.Response, error) {
		if retryafter.AttemptNumber(req.Context()) < 3 {
			req.Body.Close()
			return netResponse(req, 503, http.NoBody), nil
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			t.Error(err)
		}
		req.Body.Close()
		if got := req.Trailer.Get("X-Sum"); got != "sum 1" {
			t.Errorf("trailer %q", got)
		}
		return netResponse(req, 200, http.NoBody), nil
	})
	req := netRequest("PUT", "http://example.com/")
	req.Trailer = http.Header{"X-Sum": nil}
	req.ContentLength = -1
	req.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("hello"), netEnd(func() {
			sums++
			req.Trailer.Set("X-Sum", fmt.Sprint("sum ", sums))
		}))), nil
	}
	req.Body, _ = req.GetBody()
	resp, err := (&retryafter.Transport{Base: base, Policy: netAtOnce()}).RoundTrip(req)
	netWant(t, resp, err, 200, 3, retryafter.Final)
}

// Who answers early goes on reading, and the body may fill in the trailer then.
func TestATrailerIsNotReadWhileABodyMayWriteToIt(t *testing.T) {
	var reading sync.WaitGroup
	base := netFunc(func(req *http.Request) (*http.Response, error) {
		if retryafter.AttemptNumber(req.Context()) > 1 {
			req.Body.Close()
			return netResponse(req, 200, http.NoBody), nil
		}
		reading.Go(func() {
			io.Copy(io.Discard, req.Body)
			req.Body.Close()
		})
		return netResponse(req, 503, http.NoBody), nil
	})
	for _, form := range []url.Values{nil, {"f": {"1"}}} {
		for range 50 {
			req := netRequest("PUT", "http://example.com/")
			req.Form = form
			req.Trailer = http.Header{"X-Sum": nil}
			req.ContentLength = -1
			fill := func() { req.Trailer.Set("X-Sum", "1") }
			req.Body = io.NopCloser(io.MultiReader(strings.NewReader("hello"), netEnd(fill)))
			req.GetBody = func() (io.ReadCloser, error) { return netBodyOf("hello"), nil }
			resp, err := (&retryafter.Transport{Base: base, Policy: netAtOnce()}).RoundTrip(req)
			netWant(t, resp, err, 200, 2, retryafter.Final)
			reading.Wait()
		}
	}
}

func TestATrailerWithoutABodyIsLeftAlone(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		base := netBase(netReply(503), netReply(200))
		req := netRequest("GET", "http://example.com/")
		req.Trailer, req.Body = http.Header{"X-T": {"t"}}, body
		resp, err := (&retryafter.Transport{Base: base, Policy: netAtOnce()}).RoundTrip(req)
		netWant(t, resp, err, 200, 2, retryafter.Final)
		if got := base.sent[1].req.Body; got != body {
			t.Errorf("body %T, want %T", got, body)
		}
	}
}

// netEnd is called at the end of a body.
type netEnd func()

func (f netEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func TestCloseIdleConnectionsIsForwarded(t *testing.T) {
	base := netBase(netReply(200))
	tr := &retryafter.Transport{Base: base}
	tr.CloseIdleConnections()
	(&http.Client{Transport: tr}).CloseIdleConnections()
	if base.idle != 2 {
		t.Errorf("Base heard of it %d times, want 2", base.idle)
	}
	// A base without the method, and none.
	(&retryafter.Transport{Base: netFunc(nil)}).CloseIdleConnections()
	(&http.Client{Transport: &retryafter.Transport{}}).CloseIdleConnections()
}

func TestCancellationNamesItsCause(t *testing.T) {
	errShutdown := errors.New("shutting down")
	for name, tc := range map[string]struct {
		steps    []netStep
		ctx      func(context.Context) (context.Context, context.CancelFunc)
		limiter  retryafter.Limiter
		attempts int
		is       []error
		timeout  bool
	}{
		"C088 cause during a wait": {
			steps: []netStep{netReply(503, "Retry-After: 60")}, attempts: 1,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(errShutdown) })
				return ctx, func() { cancel(nil) }
			},
			is: []error{errShutdown, context.Canceled},
		},
		"C088 cause during an attempt": {
			steps: []netStep{netHang}, attempts: 1,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(errShutdown) })
				return ctx, func() { cancel(nil) }
			},
			is: []error{errShutdown, context.Canceled},
		},
		"C088 cause during the limiter's wait": {
			steps: []netStep{netReply(200)}, attempts: 0,
			limiter: netLimiter(func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }),
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(errShutdown) })
				return ctx, func() { cancel(nil) }
			},
			is: []error{errShutdown, context.Canceled},
		},
		"plain cancel during a wait": {
			steps: []netStep{netReply(503, "Retry-After: 60")}, attempts: 1,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
			is: []error{context.Canceled},
		},
		"G4 plain cancel during an attempt": {
			steps: []netStep{netReply(503), netHang}, attempts: 2,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
			is: []error{context.Canceled},
		},
		"C087 the deadline passes during an attempt": {
			steps: []netStep{netReply(503), netHang}, attempts: 2,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, time.Second, errShutdown)
			},
			is: []error{context.DeadlineExceeded, errShutdown}, timeout: true,
		},
		"D11 a base that calls the deadline a timeout of its own": {
			steps: []netStep{func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, errors.New("i/o timeout")
			}}, attempts: 1,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
			is: []error{context.DeadlineExceeded}, timeout: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tr := &retryafter.Transport{Base: netBase(tc.steps...), Policy: netAtOnce(), Limiter: tc.limiter}
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := (&http.Client{Transport: tr}).Do(req)
				if resp != nil {
					t.Error("a response came beside the error")
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v, want just until the cancel", took)
				}
				e := netWantError(t, resp, err, tc.attempts, retryafter.Canceled)
				for _, want := range tc.is {
					if !errors.Is(err, want) || !errors.Is(e, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				ue, ok := err.(*url.Error)
				if !ok || ue.Timeout() != tc.timeout {
					t.Errorf("%T: Timeout() is not %v", err, tc.timeout)
				}
			})
		})
	}
}

func TestARequestThatIsCancelledWithItsResponseInHandGivesItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tr := &retryafter.Transport{Policy: netAtOnce(), Base: netBase(func(req *http.Request) (*http.Response, error) {
			cancel()
			return netResponse(req, 503, netBodyOf("told"), "Retry-After: 5"), nil
		})}
		resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
		netWant(t, resp, err, 503, 1, retryafter.Canceled)
		if got := netRead(t, resp); got != "told" {
			t.Errorf("body %q", got)
		}
		if w := retryafter.ReportOf(resp).Decision.Wait; w != 5*time.Second {
			t.Errorf("Wait is %v", w)
		}
	})
}

// Request.Cancel is what http.Client.Timeout uses beside the context.
func TestRequestCancelIsObeyed(t *testing.T) {
	for name, steps := range map[string][]netStep{
		"during a wait":               {netReply(503, "Retry-After: 60")},
		"during the first attempt":    {netHang},
		"during an attempt after it":  {netReply(503), netHang},
		"during a wait after another": {netReply(503), netReply(503, "Retry-After: 60")},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					tr := &retryafter.Transport{Base: netBase(steps...), Policy: netAtOnce(), AttemptTimeout: timeout}
					req := netRequest("GET", "http://example.com/")
					cancel := make(chan struct{})
					req.Cancel = cancel
					time.AfterFunc(time.Second, func() { close(cancel) })
					resp, err := tr.RoundTrip(req)
					e := netWantError(t, resp, err, min(len(steps), 2), retryafter.Canceled)
					if took := time.Since(start); took != time.Second {
						t.Errorf("took %v, want just until the cancel", took)
					}
					if !strings.Contains(e.Error(), "net/http: request canceled") {
						t.Errorf("error %v", e)
					}
				})
			})
		}
	}
}

// C089: 10 000 calls, 500 at once, each cancelled 1 ms into a wait of an hour. A bubble
// does not end while goroutines are left in it.
func TestCancelledWaitsLeaveNothingBehind(t *testing.T) {
	netGoroutines(t)
	synctest.Test(t, func(t *testing.T) {
		base := netFunc(func(req *http.Request) (*http.Response, error) {
			return netResponse(req, 503, netBodyOf("busy"), "Retry-After: 3600"), nil
		})
		tr := &retryafter.Transport{Base: base, Policy: netAtOnce(), AttemptTimeout: time.Minute}
		tr.MaxWait = -1
		start := time.Now()
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
					time.AfterFunc(time.Millisecond, cancel)
					_, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
					if !errors.Is(err, context.Canceled) {
						t.Errorf("error %v", err)
					}
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 20*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestStateIsPerCall(t *testing.T) {
	// C113: one Transport, 1000 concurrent calls, each failing twice.
	var mu sync.Mutex
	failed := map[string]int{}
	tr := &retryafter.Transport{Base: netFunc(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := retryafter.AttemptNumber(req.Context()); n != failed[req.URL.Path]+1 {
			t.Errorf("%s: AttemptNumber %d at attempt %d", req.URL.Path, n, failed[req.URL.Path]+1)
		}
		if failed[req.URL.Path]++; failed[req.URL.Path] < 3 {
			return netResponse(req, 503, netBodyOf("x")), nil
		}
		return netResponse(req, 200, netBodyOf("x")), nil
	}), Policy: netAtOnce()}
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			resp, err := tr.RoundTrip(netRequest("GET", fmt.Sprint("http://example.com/", i)))
			if err != nil || resp.StatusCode != 200 || retryafter.ReportOf(resp).Attempts != 3 {
				t.Errorf("call %d: %v, %v", i, resp, err)
			}
		})
	}
	wg.Wait()
}

func TestAttemptTimeoutIsItsOwnError(t *testing.T) {
	for name, tc := range map[string]struct {
		method   string
		steps    []netStep
		status   int
		attempts int
		why      retryafter.Reason
		takes    time.Duration
	}{
		"C085 a GET is sent again": {method: "GET", steps: []netStep{netHang, netReply(200)}, status: 200, attempts: 2, why: retryafter.Final, takes: time.Second},
		"C065 H6 a POST is not":    {method: "POST", steps: []netStep{netHang, netReply(200)}, attempts: 1, why: retryafter.MethodNotIdempotent, takes: time.Second},
		"a GET to the end":         {method: "GET", steps: []netStep{netHang}, attempts: 3, why: retryafter.AttemptsUsed, takes: 3 * time.Second},
		"a header that comes too late": {method: "GET", steps: []netStep{func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second) // a base that does not look at its context
			return netResponse(req, 200, netBodyOf("late")), nil
		}, netReply(201)}, status: 201, attempts: 2, why: retryafter.Final, takes: 2 * time.Second},
		"an error of its own that comes too late": {method: "GET", steps: []netStep{func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, errors.New("some final error")
		}, netReply(201)}, status: 201, attempts: 2, why: retryafter.Final, takes: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tr := &retryafter.Transport{Base: netBase(tc.steps...), Policy: netAtOnce(), AttemptTimeout: time.Second}
				var seen []error
				tr.Trace = &retryafter.Trace{AttemptDone: func(a retryafter.Attempt) { seen = append(seen, a.Err) }}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				resp, err := tr.RoundTrip(netRequest(tc.method, "http://example.com/").WithContext(ctx))
				if took := time.Since(start); took != tc.takes {
					t.Errorf("took %v, want %v", took, tc.takes)
				}
				if seen[0] != retryafter.ErrAttemptTimeout {
					t.Errorf("attempt 1 failed with %v", seen[0])
				}
				if tc.status != 0 {
					netWant(t, resp, err, tc.status, tc.attempts, tc.why)
					return
				}
				e := netWantError(t, resp, err, tc.attempts, tc.why)
				if !errors.Is(err, retryafter.ErrAttemptTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || !e.Timeout() {
					t.Errorf("error %v: want ErrAttemptTimeout, a timeout, and not the caller's", err)
				}
			})
		})
	}
	t.Run("C085 the caller's deadline comes first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr := &retryafter.Transport{Base: netBase(netHang), Policy: netAtOnce(), AttemptTimeout: 10 * time.Second}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
			netWantError(t, resp, err, 1, retryafter.Canceled)
			if errors.Is(err, retryafter.ErrAttemptTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
}

// netCounting is a context that counts what hangs on it: package context asks
// for AfterFunc where it doesn't know a context's type.
type netCounting struct {
	context.Context
	done chan struct{}
	mu   sync.Mutex
	hung int
	most int
}

func (c *netCounting) Done() <-chan struct{} { return c.done }
func (c *netCounting) Value(any) any         { return nil }

func (c *netCounting) AfterFunc(func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hung++
	c.most = max(c.most, c.hung)
	return sync.OnceValue(func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hung--
		return true
	})
}

func (c *netCounting) counts() (hung, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hung, c.most
}

// A timer or context of an attempt that stayed on a long-lived parent would
// stay until that parent ends.
func TestAttemptTimeoutLeavesNothingOnTheCallersContext(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []netStep
		body  func(*testing.T, *http.Response)
	}{
		"read to the end": {[]netStep{netReply(200)}, func(_ *testing.T, r *http.Response) { io.Copy(io.Discard, r.Body) }},
		"closed unread":   {[]netStep{netReply(200)}, func(_ *testing.T, r *http.Response) { r.Body.Close() }},
		"without a body":  {[]netStep{netReplyBody(204, http.NoBody)}, func(*testing.T, *http.Response) {}},
		"with a nil body": {[]netStep{netReplyBody(204, nil)}, func(*testing.T, *http.Response) {}},
		"an error":        {[]netStep{netError(errors.New("final"))}, nil},
		"timed out":       {[]netStep{netHang}, nil},
		"neither":         {[]netStep{func(*http.Request) (*http.Response, error) { return nil, nil }}, nil},
		"failing in body": {[]netStep{netReplyBody(200, &netBody{Reader: netBroken{}})}, func(_ *testing.T, r *http.Response) { io.Copy(io.Discard, r.Body) }},
	} {
		t.Run(name, func(t *testing.T) {
			netGoroutines(t)
			ctx := &netCounting{Context: context.Background(), done: make(chan struct{})}
			tr := &retryafter.Transport{Base: netBase(tc.steps...), Policy: netAtOnce(), AttemptTimeout: 5 * time.Millisecond}
			if name != "timed out" {
				tr.AttemptTimeout = time.Hour
			}
			req, err := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, _ := tr.RoundTrip(req)
			if resp != nil {
				tc.body(t, resp)
			}
			hung, most := ctx.counts()
			for end := time.Now().Add(time.Second); hung != 0 && time.Now().Before(end); hung, most = ctx.counts() {
				time.Sleep(time.Millisecond) // the timer's own goroutine may still be at it
			}
			if most == 0 || hung != 0 {
				t.Errorf("%d of at most %d registrations are left", hung, most)
			}
		})
	}
}

func TestBodiesOfSwitchedProtocolsStayWritable(t *testing.T) {
	type readWriter struct {
		io.Reader
		io.Writer
		io.Closer
	}
	for _, timeout := range []time.Duration{0, time.Minute} {
		var written strings.Builder
		b := netBodyOf("from the server")
		base := netBase(netReply(503), netReplyBody(101, readWriter{b, &written, b}))
		tr := &retryafter.Transport{Base: base, Policy: netAtOnce(), AttemptTimeout: timeout}
		resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
		netWant(t, resp, err, 101, 2, retryafter.Final)
		w, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("AttemptTimeout %v: the body is a %T", timeout, resp.Body)
		}
		fmt.Fprint(w, "from the client")
		if got := netRead(t, resp); got != "from the server" || written.String() != "from the client" {
			t.Errorf("read %q, wrote %q", got, written.String())
		}
	}
}

func TestReportsReachWhoeverHoldsTheResponse(t *testing.T) {
	steps := func() *netScript { return netBase(netReply(503), netReply(503), netReply(200)) }
	for name, rt := range map[string]func() http.RoundTripper{
		"bare":             func() http.RoundTripper { return &retryafter.Transport{Base: steps(), Policy: netAtOnce()} },
		"a cloner outside": func() http.RoundTripper { return netCloner{&retryafter.Transport{Base: steps(), Policy: netAtOnce()}} },
		"a cloner inside":  func() http.RoundTripper { return &retryafter.Transport{Base: netCloner{steps()}, Policy: netAtOnce()} },
		"cloners on both sides": func() http.RoundTripper {
			return netCloner{netCloner{&retryafter.Transport{Base: netCloner{netCloner{steps()}}, Policy: netAtOnce()}}}
		},
		"with an attempt timeout": func() http.RoundTripper {
			return &retryafter.Transport{Base: netCloner{steps()}, Policy: netAtOnce(), AttemptTimeout: time.Hour}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, timeout := range []time.Duration{0, time.Hour} {
				resp, err := (&http.Client{Transport: rt(), Timeout: timeout}).Get("http://example.com/")
				netWant(t, resp, err, 200, 3, retryafter.Final)
				netRead(t, resp)
			}
		})
	}
	t.Run("none, and none of ours", func(t *testing.T) {
		if r := retryafter.ReportOf(nil); r.Attempts != 0 || r.Stop != 0 {
			t.Errorf("of nil: %v", r)
		}
		for _, resp := range []*http.Response{{}, {Request: netRequest("GET", "http://example.com/")}} {
			if r := retryafter.ReportOf(resp); r.Attempts != 1 || r.Stop != retryafter.Final {
				t.Errorf("of another's response: %v", r)
			}
		}
	})
}

// A context that is taken from a response and used again tells of the new call.
func TestABorrowedContextTellsOfTheCallItIsUsedFor(t *testing.T) {
	tr := &retryafter.Transport{Base: netBase(netReply(503), netReply(200), netReply(404), netReply(503), netReply(500)), Policy: netAtOnce()}
	first, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
	netWant(t, first, err, 200, 2, retryafter.Final)

	second, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(first.Request.Context()))
	netWant(t, second, err, 404, 1, retryafter.Final)
	third, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(first.Request.Context()))
	netWant(t, third, err, 500, 3, retryafter.AttemptsUsed)
	netWant(t, first, nil, 200, 2, retryafter.Final) // as before
	netWant(t, second, nil, 404, 1, retryafter.Final)

	tr.Base = netFunc(func(r *http.Request) (*http.Response, error) {
		resp := netResponse(r, 503, netBodyOf(""))
		resp.Request = nil // a Base may forget it
		return resp, nil
	})
	req := netRequest("POST", "http://example.com/").WithContext(first.Request.Context())
	fourth, err := tr.RoundTrip(req)
	netWant(t, fourth, err, 503, 1, retryafter.MethodNotIdempotent)
}

func TestHooksSeeEveryAttemptAndEveryWaitBeforeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// C143
		start := time.Now()
		type seen struct {
			What    string
			At      time.Duration
			Attempt int
			Status  int
			Err     error
			Wait    time.Duration
			Until   time.Duration
		}
		var got []seen
		tr := &retryafter.Transport{Policy: netAtOnce(), Base: netBase(netReply(429, "Retry-After: 3600"), netError(io.EOF), netReply(200))}
		tr.MaxWait = -1
		tr.Jitter = func(time.Duration, bool) time.Duration { return 7 * time.Second }
		tr.Trace = &retryafter.Trace{
			AttemptDone: func(a retryafter.Attempt) {
				got = append(got, seen{What: "attempt", At: time.Since(start), Attempt: a.Number, Status: a.StatusCode, Err: a.Err})
			},
			Waiting: func(w retryafter.WaitInfo) {
				got = append(got, seen{"waiting", time.Since(start), w.Attempt, w.StatusCode, w.Err, w.Wait, w.Until.Sub(start)})
			},
			Done: func(_ *http.Request, r retryafter.Report) {
				got = append(got, seen{What: "done", At: time.Since(start), Attempt: r.Attempts, Wait: r.Waited})
			},
		}
		resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
		netWant(t, resp, err, 200, 3, retryafter.Final)
		hour := time.Hour + 7*time.Second
		want := []seen{
			{What: "attempt", Attempt: 1, Status: 429},
			{"waiting", 0, 2, 429, nil, hour, hour},
			{What: "attempt", At: hour, Attempt: 2, Err: io.EOF},
			{"waiting", hour, 3, 0, io.EOF, 7 * time.Second, hour + 7*time.Second},
			{What: "attempt", At: hour + 7*time.Second, Attempt: 3, Status: 200},
			{What: "done", At: hour + 7*time.Second, Attempt: 3, Wait: hour + 7*time.Second},
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
			t.Errorf("hooks saw (-want +got):\n%s", diff)
		}
	})
}

// C148: hooks get headers, and no body; what they see of an attempt is that
// attempt's.
func TestHooksCanNotEatTheResponse(t *testing.T) {
	tr := &retryafter.Transport{Policy: netAtOnce(), Base: netBase(netReply(503, "X-N: 1"), netReply(503, "X-N: 2"), netReply(200, "X-N: 3"))}
	var ns []string
	req := netRequest("GET", "http://example.com/")
	tr.Trace = &retryafter.Trace{AttemptDone: func(a retryafter.Attempt) {
		ns = append(ns, a.Header.Get("X-N"))
		if a.Request != req {
			t.Error("an attempt's Request is not the caller's")
		}
	}}
	resp, err := tr.RoundTrip(req)
	netWant(t, resp, err, 200, 3, retryafter.Final)
	if diff := cmp.Diff([]string{"1", "2", "3"}, ns); diff != "" {
		t.Error(diff)
	}
	if got := netRead(t, resp); got != "body of 200" {
		t.Errorf("body %q", got)
	}
}

// An error's text may be logged anywhere.
func TestErrorsShowNoUserinfoAndNoQuery(t *testing.T) {
	const secret = "s3cret"
	inner := &http.Client{Transport: netFunc(func(*http.Request) (*http.Response, error) { return nil, io.EOF })}
	asBase := netFunc(func(req *http.Request) (*http.Response, error) {
		return inner.Do(&http.Request{Method: req.Method, URL: req.URL, Header: req.Header})
	})
	for name, base := range map[string]http.RoundTripper{
		"Base is an http.Client":         asBase,
		"Base is one over another of us": &retryafter.Transport{Base: asBase, Policy: netAtOnce()},
		"wrapped once more": netFunc(func(req *http.Request) (*http.Response, error) {
			_, err := asBase(req)
			return nil, fmt.Errorf("tried: %w", err)
		}),
		"a *url.Error that Base makes": netErrorAbout(func(u string) error { return &url.Error{Op: "Get", URL: u, Err: io.EOF} }),
		"one in another": netErrorAbout(func(u string) error {
			return &url.Error{Op: "Get", URL: "http://h/?" + secret, Err: &url.Error{Op: "Get", URL: u, Err: io.EOF}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
			for _, u := range []string{
				"http://" + secret + ":" + secret + "@example.com/path?token=" + secret + "#" + secret,
				"http://" + secret + "@example.com/path?" + secret + "=1&b=2;c",
			} {
				resp, err := tr.RoundTrip(netRequest("GET", u))
				e := netWantError(t, resp, err, 3, retryafter.AttemptsUsed)
				if strings.Contains(e.Error(), secret) {
					t.Errorf("the error tells: %v", e)
				}
				if strings.Contains(fmt.Sprint(e.Report.LogValue()), secret) || strings.Contains(e.Report.String(), secret) {
					t.Errorf("the report tells: %v", e.Report.LogValue())
				}
				if !errors.Is(err, io.EOF) {
					t.Errorf("%v is not io.EOF", err)
				}
			}
		})
	}
}

func netErrorAbout(f func(url string) error) http.RoundTripper {
	return netFunc(func(req *http.Request) (*http.Response, error) { return nil, f(req.URL.String()) })
}

// http.Client.Timeout spans all attempts, as its documentation says, and
// reaches a Transport as its context's deadline.
func TestClientTimeoutIsADeadline(t *testing.T) {
	t.Run("C083 a wait past it is refused at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			c := &http.Client{Timeout: 3 * time.Second, Transport: &retryafter.Transport{Base: netBase(netReply(503, "Retry-After: 5")), Policy: netAtOnce()}}
			resp, err := c.Get("http://example.com/")
			netWant(t, resp, err, 503, 1, retryafter.DeadlineTooNear)
			if took := time.Since(start); took != 0 {
				t.Errorf("took %v", took)
			}
			if w := retryafter.ReportOf(resp).Decision.Wait; w != 5*time.Second {
				t.Errorf("Wait is %v, want 5s, uncut", w)
			}
			if got := netRead(t, resp); got != "body of 503" {
				t.Errorf("body %q", got)
			}
		})
	})
	t.Run("it ends an attempt, and nothing follows", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start, base := time.Now(), netBase(netReply(503), netHang)
			c := &http.Client{Timeout: 3 * time.Second, Transport: &retryafter.Transport{Base: base, Policy: netAtOnce()}}
			_, err := c.Get("http://example.com/")
			if took := time.Since(start); took != 3*time.Second || base.count() != 2 {
				t.Errorf("took %v and %d attempts", took, base.count())
			}
			if ue, ok := err.(*url.Error); !ok || !ue.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v is not a timeout", err)
			}
		})
	})
	t.Run("an error is handed back with the reason that nothing followed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			tr := &retryafter.Transport{Base: netBase(netError(io.ErrUnexpectedEOF)), Policy: retryafter.Policy{
				Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(3 * time.Second) }, Jitter: retryafter.NoJitter}}
			_, err := (&http.Client{Timeout: 3 * time.Second, Transport: tr}).Get("http://example.com/")
			e := netWantError(t, nil, err, 1, retryafter.DeadlineTooNear)
			if took := time.Since(start); took != 0 || !errors.Is(err, io.ErrUnexpectedEOF) || e.Report.Decision.Wait != 3*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		})
	})
	t.Run("a redirect hop past it is refused at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			tr := &retryafter.Transport{Base: netBase(netReply(303, "Location: /next", "Retry-After: 5")), Policy: netAtOnce()}
			_, err := (&http.Client{Timeout: 3 * time.Second, Transport: tr}).Get("http://example.com/")
			netWantError(t, nil, err, 0, retryafter.DeadlineTooNear)
			if took := time.Since(start); took != 0 {
				t.Errorf("took %v", took)
			}
			if ue, ok := err.(*url.Error); !ok || !ue.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v is not a timeout", err)
			}
		})
	})
}

func TestRedirectsAreCallsOfTheirOwn(t *testing.T) {
	hop := func(n int, fields ...string) netStep {
		return netReply(n, append(fields, "Location: /next")...)
	}
	for name, tc := range map[string]struct {
		method   string
		ctx      func(context.Context) context.Context
		steps    []netStep
		status   int
		reason   retryafter.Reason // of the last call
		attempts int               // of the last call
		at       []time.Duration
		methods  string
	}{
		"C060 a 303 with Retry-After waits before its hop": {
			steps: []netStep{hop(303, "Retry-After: 2"), netReply(200)}, status: 200, attempts: 1,
			reason: retryafter.Final, at: []time.Duration{0, 2}, methods: "GET GET",
		},
		"C060 every hop waits for itself": {
			steps:  []netStep{hop(301, "Retry-After: 2"), hop(302, "Retry-After: 3"), hop(307), hop(308, "Retry-After: 1"), netReply(200)},
			status: 200, attempts: 1, reason: retryafter.Final, at: []time.Duration{0, 2, 5, 5, 6}, methods: "GET GET GET GET GET",
		},
		"F20 a hop without the field does not wait": {
			steps: []netStep{hop(302), netReply(200)}, status: 200, attempts: 1,
			reason: retryafter.Final, at: []time.Duration{0, 0}, methods: "GET GET",
		},
		"a hop is retried by its own right": {
			steps:  []netStep{hop(302, "Retry-After: 2"), netReply(503, "Retry-After: 3"), netReply(200)},
			status: 200, attempts: 2, reason: retryafter.Final, at: []time.Duration{0, 2, 5}, methods: "GET GET GET",
		},
		"the hop after a retry": {
			steps:  []netStep{netReply(503, "Retry-After: 3"), hop(302, "Retry-After: 2"), netReply(200)},
			status: 200, attempts: 1, reason: retryafter.Final, at: []time.Duration{0, 3, 5}, methods: "GET GET GET",
		},
		"a cap holds for each hop by itself": {
			ctx:    func(ctx context.Context) context.Context { return retryafter.WithMaxAttempts(ctx, 2) },
			steps:  []netStep{netReply(503), hop(302), netReply(503), hop(302), netReply(503)},
			status: 503, attempts: 2, reason: retryafter.AttemptsUsed, at: []time.Duration{0, 0, 0, 0, 0, 0}, methods: "GET GET GET GET GET GET",
		},
		"POST, 303, GET: the GET is retried": {
			method: "POST", steps: []netStep{hop(303, "Retry-After: 2"), netReply(503), netReply(200)}, status: 200, attempts: 2,
			reason: retryafter.Final, at: []time.Duration{0, 2, 2}, methods: "POST GET GET",
		},
		"POST, 307, POST: it is not": {
			method: "POST", steps: []netStep{hop(307, "Retry-After: 2"), netReply(503), netReply(200)}, status: 503, attempts: 1,
			reason: retryafter.MethodNotIdempotent, at: []time.Duration{0, 2}, methods: "POST POST",
		},
		"an unreadable field is none": {
			steps: []netStep{hop(303, "Retry-After: soon"), netReply(200)}, status: 200, attempts: 1,
			reason: retryafter.Final, at: []time.Duration{0, 0}, methods: "GET GET",
		},
		"a hop that is too far off is refused": {
			steps: []netStep{hop(303, "Retry-After: 7200"), netReply(200)}, reason: retryafter.WaitTooLong,
			at: []time.Duration{0}, methods: "GET",
		},
		"a cached 304 is no redirect": {
			steps: []netStep{netReply(304, "Retry-After: 5")}, status: 304, attempts: 1, reason: retryafter.Final,
			at: []time.Duration{0}, methods: "GET",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := netBase(tc.steps...)
				tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
				ctx := t.Context()
				if tc.ctx != nil {
					ctx = tc.ctx(ctx)
				}
				method := tc.method
				if method == "" {
					method = "GET"
				}
				req, bodies := netPut(ctx, method, "http://example.com/", "hello")
				if method == "GET" {
					req.Body, req.GetBody, req.ContentLength = nil, nil, 0
				}
				resp, err := (&http.Client{Transport: tr}).Do(req)
				if tc.status == 0 {
					netWantError(t, resp, err, tc.attempts, tc.reason)
				} else {
					netWant(t, resp, err, tc.status, tc.attempts, tc.reason)
				}
				for i := range tc.at {
					tc.at[i] *= time.Second
				}
				if diff := cmp.Diff(tc.at, base.times()); diff != "" {
					t.Errorf("attempts left at (-want +got):\n%s", diff)
				}
				var methods []string
				for i, s := range base.sent {
					methods = append(methods, s.req.Method)
					if want := map[bool]string{true: "", false: "hello"}[s.req.Method == "GET"]; s.body != want {
						t.Errorf("attempt %d sent %q", i+1, s.body)
					}
				}
				if got := strings.Join(methods, " "); got != tc.methods {
					t.Errorf("sent %s, want %s", got, tc.methods)
				}
				if method != "GET" {
					bodies.checkAtLeast(t, strings.Count(tc.methods, "POST")-1)
				}
			})
		})
	}
}

// A hop whose body can't be sent yet is closed with its call.
func TestARefusedHopClosesItsBody(t *testing.T) {
	base := netBase(netReply(307, "Location: /next", "Retry-After: 7200"))
	req, bodies := netPut(t.Context(), "PUT", "http://example.com/", "hello")
	_, err := (&http.Client{Transport: &retryafter.Transport{Base: base}}).Do(req)
	e := netWantError(t, nil, err, 0, retryafter.WaitTooLong)
	if e.Report.Decision.Wait < 2*time.Hour || e.Report.Decision.Server != 2*time.Hour {
		t.Errorf("decision %+v: want the delay uncut", e.Report.Decision)
	}
	bodies.checkAtLeast(t, 1)
}

// C096: no code can tell that GetBody gives a reader that is used up; the
// length that does not match must come out as an error, not as a retry.
func TestAGetBodyThatGivesAUsedReaderIsNoticedByTheLength(t *testing.T) {
	var got []string
	s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, string(b))
		w.WriteHeader(503)
	})
	s.base.DisableKeepAlives = true
	tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce()}
	req, _ := http.NewRequest("PUT", s.URL, strings.NewReader("hello"))
	own := req.Body
	req.GetBody = func() (io.ReadCloser, error) { return own, nil }
	resp, err := tr.RoundTrip(req)
	e := netWantError(t, resp, err, 2, retryafter.Final)
	if !strings.Contains(e.Error(), "ContentLength=5 with Body length 0") {
		t.Errorf("error %v", e)
	}
	if len(got) == 0 || got[0] != "hello" {
		t.Errorf("the server got %q", got)
	}
}

func TestRequestCancelIsObeyedWhileTheLimiterWaits(t *testing.T) {
	for name, limiter := range map[string]func() retryafter.Limiter{
		"a Bucket": func() retryafter.Limiter {
			return &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1), StartEmpty: true}
		},
		"another": func() retryafter.Limiter {
			return netLimiter(func(ctx context.Context, _ int) error { <-ctx.Done(); return context.Cause(ctx) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tr := &retryafter.Transport{Base: netBase(netReply(200)), Policy: netAtOnce(), Limiter: limiter()}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				req, bodies := netPut(ctx, "PUT", "http://example.com/", "hello")
				cancel := make(chan struct{})
				req.Cancel = cancel
				time.AfterFunc(time.Second, func() { close(cancel) })
				resp, err := tr.RoundTrip(req)
				e := netWantError(t, resp, err, 0, retryafter.Canceled)
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v, want just until the cancel", took)
				}
				if !strings.Contains(e.Error(), "net/http: request canceled") {
					t.Errorf("error %v", e)
				}
				bodies.check(t, 0)
			})
		})
	}
}

// The first attempt is the first, whatever the context has been through.
func TestABorrowedContextCountsFromOne(t *testing.T) {
	base := netBase(netReply(503), netReply(200), netReply(503), netReply(200))
	tr := &retryafter.Transport{Base: base, Policy: netAtOnce()}
	first, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
	netWant(t, first, err, 200, 2, retryafter.Final)
	second, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(first.Request.Context()))
	netWant(t, second, err, 200, 2, retryafter.Final)
	var numbers []int
	for _, s := range base.sent {
		numbers = append(numbers, s.number)
	}
	if fmt.Sprint(numbers) != "[1 2 1 2]" {
		t.Errorf("AttemptNumber was %v", numbers)
	}
}

// Whoever goes on with resp.Request, or with its context, is not to meet the
// context of an attempt that is over.
func TestAttemptTimeoutLeavesTheResponsesRequestUsable(t *testing.T) {
	for name, steps := range map[string][]netStep{
		"the first attempt": {netReply(200)},
		"the second":        {netReply(503), netReply(200)},
		"without a body":    {netReplyBody(204, http.NoBody)},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &retryafter.Transport{Base: netBase(steps...), Policy: netAtOnce(), AttemptTimeout: time.Minute}
			req := netRequest("GET", "http://example.com/")
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if len(steps) == 1 && resp.Request != req {
				t.Error("the response's Request is not the caller's")
			}
			netRead(t, resp)
			if err := resp.Request.Context().Err(); err != nil {
				t.Errorf("the context of the response's request is done: %v", err)
			}
		})
	}
}

// *url.Error quotes its URL, so that it may not stand there as it is.
func TestErrorsShowNoQueryThatQuotesChange(t *testing.T) {
	for _, u := range []string{
		`http://example.com/path?token="s3cret"`,
		`http://example.com/path?token=\s3cret`,
		"http://example.com/path?token=s3cret\u00a0\u200b",
		"http://example.com/päth?tökен=s3cret",
	} {
		tr := &retryafter.Transport{Base: netErrorAbout(func(u string) error { return &url.Error{Op: "Get", URL: u, Err: io.EOF} }), Policy: netAtOnce()}
		resp, err := tr.RoundTrip(netRequest("GET", u))
		e := netWantError(t, resp, err, 3, retryafter.AttemptsUsed)
		if strings.Contains(e.Error(), "s3cret") {
			t.Errorf("the error tells: %v", e)
		}
	}
	// Several at once.
	tr := &retryafter.Transport{Base: netErrorAbout(func(u string) error {
		return errors.Join(&url.Error{Op: "Get", URL: "http://one/?s3cret", Err: io.EOF}, &url.Error{Op: "Get", URL: "http://two/?s3cret", Err: io.EOF})
	}), Policy: netAtOnce()}
	resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
	if e := netWantError(t, resp, err, 3, retryafter.AttemptsUsed); strings.Contains(e.Error(), "s3cret") {
		t.Errorf("the error tells: %v", e)
	}
}

func TestACancelEndsADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &retryafter.Transport{Base: netBase(netReplyBody(503, netStalled("some"), "Retry-After: 60")), Policy: netAtOnce()}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
		netWantError(t, resp, err, 1, retryafter.Canceled)
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}
