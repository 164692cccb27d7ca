package proof

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
)

//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestABaseThatBreaksTheContractIsHeldToIt has a Base that gives both a
// response and an error, or neither.
func TestABaseThatBreaksTheContractIsHeldToIt(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var bodies []*trackedBody
			tr := &retryafter.Transport{AttemptTimeout: timeout, Base: roundTripper(func(*http.Request) (*http.Response, error) {
				b := &trackedBody{r: strings.NewReader("both")}
				bodies = append(bodies, b)
				return &http.Response{StatusCode: 200, Body: b}, io.EOF
			})}
			req, _ := http.NewRequest("GET", "http://server.test", nil)
			if resp, err := tr.RoundTrip(req); resp != nil || !errors.Is(err, io.EOF) || len(bodies) != 3 {
				t.Errorf("%v and %v after %d attempts", resp, err, len(bodies))
			}
			for i, b := range bodies {
				if b.closed != 1 {
					t.Errorf("body %d was closed %d times", i+1, b.closed)
				}
			}
			tr.Base = roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
			if resp, err := tr.RoundTrip(req); resp != nil || err == nil {
				t.Errorf("%v and %v", resp, err)
			}
		})
	}
}

// TestACallThatIsRefusedBeforeItsFirstAttemptClosesTheBody holds RoundTrip to
// its contract where Base never sees the request.
func TestACallThatIsRefusedBeforeItsFirstAttemptClosesTheBody(t *testing.T) {
	empty := &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1), StartEmpty: true}
	hop := &http.Response{StatusCode: 302, Header: http.Header{"Retry-After": {"3600"}}}
	for name, c := range map[string]struct {
		t    retryafter.Transport
		ctx  func(context.Context) context.Context
		prev *http.Response
		stop retryafter.Reason
	}{
		"limited":           {t: retryafter.Transport{Limiter: retryafter.Deny(empty)}, stop: retryafter.Limited},
		"no such capacity":  {t: retryafter.Transport{Limiter: empty}, ctx: cost(2), stop: retryafter.Limited},
		"negative cost":     {t: retryafter.Transport{Limiter: empty}, ctx: cost(-1), stop: retryafter.Misconfigured},
		"no attempts":       {ctx: attempts(0), stop: retryafter.Misconfigured},
		"negative reserve":  {t: retryafter.Transport{Policy: retryafter.Policy{Reserve: -1}}, stop: retryafter.Misconfigured},
		"negative timeout":  {t: retryafter.Transport{AttemptTimeout: -1}, stop: retryafter.Misconfigured},
		"a redirect's wait": {prev: hop, stop: retryafter.WaitTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, done := time.Now(), 0
				c.t.Base = roundTripper(func(*http.Request) (*http.Response, error) {
					t.Error("sent")
					return nil, io.EOF
				})
				c.t.Trace = &retryafter.Trace{Done: func(_ *http.Request, r retryafter.Report) {
					if done++; r.Stop != c.stop || r.Attempts != 0 {
						t.Errorf("%v", r)
					}
				}}
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				b := &trackedBody{r: strings.NewReader("a body")}
				req, _ := http.NewRequestWithContext(ctx, "PUT", "http://server.test", b)
				req.Response = c.prev
				resp, err := c.t.RoundTrip(req)
				e, ok := errors.AsType[*retryafter.Error](err)
				if resp != nil || !ok || e.Report.Stop != c.stop || e.Report.Attempts != 0 {
					t.Errorf("%v and %v", resp, err)
				}
				if b.closed != 1 || b.read != 0 || done != 1 || time.Since(begin) != 0 {
					t.Errorf("closed %d times, %d bytes read, done %d times, after %v", b.closed, b.read, done, time.Since(begin))
				}
			})
		})
	}
}

func cost(n int) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context { return retryafter.WithCost(ctx, n) }
}

func attempts(n int) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context { return retryafter.WithMaxAttempts(ctx, n) }
}

// TestCancellationsEndAWaitForTheLimiter cancels while a Limiter holds a call.
func TestCancellationsEndAWaitForTheLimiter(t *testing.T) {
	for _, how := range []string{"context", "Request.Cancel"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}
				b.Allow()
				tr := &retryafter.Transport{Limiter: b, Base: roundTripper(func(*http.Request) (*http.Response, error) {
					t.Error("sent")
					return nil, io.EOF
				})}
				begin := time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test", nil)
				if how == "context" {
					time.AfterFunc(time.Second, func() { cancel(errCause) })
				} else {
					gone := make(chan struct{})
					time.AfterFunc(time.Second, func() { close(gone) })
					req.Cancel = gone
				}
				resp, err := tr.RoundTrip(req)
				e, ok := errors.AsType[*retryafter.Error](err)
				if resp != nil || !ok || e.Report.Stop != retryafter.Canceled {
					t.Fatalf("%v and %v", resp, err)
				}
				if how == "context" && (!errors.Is(err, errCause) || !errors.Is(err, context.Canceled)) {
					t.Errorf("the cause is not in %v", err)
				}
				if took := time.Since(begin); took != time.Second || e.Report.Limited != time.Second {
					t.Errorf("took %v, reported %v", took, e.Report.Limited)
				}
				// Nothing was paid.
				if d, err := b.DelayN(time.Now(), 1); d != 59*time.Second || err != nil {
					t.Errorf("the next token is %v away, %v", d, err)
				}
			})
		})
	}
}

// TestAnAttemptsContextLastsAsLongAsItsBody looks for the context that
// AttemptTimeout makes: too early an end would cut the body, none would leak.
func TestAnAttemptsContextLastsAsLongAsItsBody(t *testing.T) {
	for name, end := range map[string]func(io.ReadCloser){
		"read":   func(b io.ReadCloser) { io.ReadAll(b) },
		"closed": func(b io.ReadCloser) { b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var attempts []context.Context
				tr := &retryafter.Transport{AttemptTimeout: time.Second, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
					attempts = append(attempts, req.Context())
					switch len(attempts) {
					case 1:
						return nil, io.EOF
					case 2:
						return &http.Response{StatusCode: 503, Body: &trackedBody{r: strings.NewReader("busy")}, Request: req}, nil
					}
					return &http.Response{StatusCode: 200, Body: &trackedBody{r: strings.NewReader("ready")}, Request: req}, nil
				})}
				req, _ := http.NewRequest("GET", "http://server.test", nil)
				resp, err := tr.RoundTrip(req)
				if err != nil || len(attempts) != 3 {
					t.Fatal(resp, err)
				}
				time.Sleep(time.Hour) // far longer than AttemptTimeout
				for i, ctx := range attempts {
					if over := ctx.Err() != nil; over != (i < 2) {
						t.Errorf("before the body's end, the context of attempt %d says %v", i+1, ctx.Err())
					}
				}
				end(resp.Body)
				if attempts[2].Err() == nil {
					t.Error("the context outlives the body")
				}
			})
		})
	}
}

// TestAnAnswerAfterAttemptTimeoutIsNone has a Base that takes no notice of
// its context. The body of what it brings is cut by then.
func TestAnAnswerAfterAttemptTimeoutIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []*trackedBody
		tr := &retryafter.Transport{AttemptTimeout: time.Second, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			b := &trackedBody{r: strings.NewReader("late")}
			bodies = append(bodies, b)
			return &http.Response{StatusCode: 200, Body: b}, nil
		})}
		req, _ := http.NewRequest("GET", "http://server.test", nil)
		resp, err := tr.RoundTrip(req)
		if resp != nil || !errors.Is(err, retryafter.ErrAttemptTimeout) || errors.Is(err, context.DeadlineExceeded) || !timeoutOf(err) || len(bodies) != 3 {
			t.Errorf("%v and %v after %d attempts", resp, err, len(bodies))
		}
		for i, b := range bodies {
			if b.closed != 1 {
				t.Errorf("body %d was closed %d times", i+1, b.closed)
			}
		}
	})
}
