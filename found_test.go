//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter_test

// Faults that a reader found who tried to break each promise, each kept by itself.

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
)

type foundBase func(*http.Request) (*http.Response, error)

func (f foundBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func foundReply(req *http.Request, code int, kv ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("body")), ContentLength: 4, Request: req}
}

func foundZero() backoff.BackOff { return &backoff.ZeroBackOff{} }

// Section 9: "a retry that succeeds gets its withdrawal back". With more keys in retries at once than MaxKeys,
// refunds of keys that were not kept vanish while their withdrawals stay in unseen, which nothing ever lowers:
// a fleet whose every retry succeeds ends with no retries for anybody, for good.
func TestRefundsOutliveEviction(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := &retryafter.RetryBudget{MaxKeys: 16} // 100 retries a key
	refused := 0
	for range 1000 {
		var open []retryafter.Key
		for range 32 { // calls at once, to any of 64 hosts; never more than 32 withdrawn from one key
			if k := retryafter.Key(fmt.Sprint(r.IntN(64))); b.Withdraw(k) {
				open = append(open, k)
			} else {
				refused++
			}
		}
		for _, k := range open {
			b.Refund(k)
		}
	}
	if left := b.Left("fresh"); refused > 0 || left < 50 {
		t.Errorf("all retries were paid back, yet %d were refused and an unknown key has %d of 100", refused, left)
	}
}

// The same for deposits: MaxKeys spent keys that never come back (dead hosts) leave all others without retries
// for ever, however much these deposit.
func TestDepositsOfUnknownKeysCount(t *testing.T) {
	b := &retryafter.RetryBudget{Retries: 2, MaxKeys: 2}
	for i := range 3 {
		for b.Withdraw(retryafter.Key(fmt.Sprint("dead", i))) {
		}
	}
	for range 100000 {
		b.Deposit("live")
	}
	if b.Left("live") == 0 {
		t.Error("100000 first-attempt successes have earned no retry")
	}
}

// RetryBudget doc: "In an outage in which every attempt fails, n calls send at most n + Retries attempts". Any
// response that is not retried counts as a success: 501, 505, 507, 520 to 527 deposit, and refund the retry.
func TestServerErrorsEarnNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		tr := &retryafter.Transport{Budget: &retryafter.RetryBudget{Retries: 5},
			Policy: retryafter.Policy{Backoff: foundZero, Jitter: retryafter.NoJitter},
			Base: foundBase(func(r *http.Request) (*http.Response, error) {
				sent++
				if retryafter.AttemptNumber(r.Context()) == 1 {
					return foundReply(r, 503), nil
				}
				return foundReply(r, 520), nil
			})}
		const calls = 1000
		for range calls {
			req, _ := http.NewRequest("GET", "http://h/", nil)
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		}
		if sent > calls+5 {
			t.Errorf("%d calls, all of whose attempts failed with a 5xx, sent %d attempts, want at most %d", calls, sent, calls+5)
		}
	})
}

// Promise 5, ReportOf: the request of a response that was handed back after one attempt is sent again (the
// documented way after WaitTooLong: wait oneself, send again). The new 200 reports the old call.
func TestARequestUsedAgainReportsItsOwnCall(t *testing.T) {
	n := 0
	c := &http.Client{Transport: &retryafter.Transport{Base: foundBase(func(r *http.Request) (*http.Response, error) {
		if n++; n == 1 {
			return foundReply(r, 429, "Retry-After", "3600"), nil
		}
		return foundReply(r, 200), nil
	})}}
	resp, err := c.Get("http://h/")
	if err != nil {
		t.Fatal(err)
	}
	resp, err = c.Do(resp.Request)
	if err != nil {
		t.Fatal(err)
	}
	if r := retryafter.ReportOf(resp); r.Stop != retryafter.Final {
		t.Errorf("of a %d: %v", resp.StatusCode, r)
	}
}

// A Bucket where another call takes the token between Transport's DelayN and WaitN. Nothing else is simulated: two
// goroutines with a plain Bucket and a Capacity of 1 do it in some percent of rounds.
type contended struct{ *retryafter.Bucket }

func (l contended) WaitN(ctx context.Context, n int) error {
	l.Bucket.Allow()
	return l.Bucket.WaitN(ctx, n)
}

// Section 8 "req.Cancel is obeyed"; promise 5. DelayN said 0, so the wait that follows is deaf to Request.Cancel
// (and then takes a token), and is not announced.
func TestAContendedTokensWaitObeysRequestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := contended{&retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Hour)}}
		tr := &retryafter.Transport{Limiter: l, Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 200), nil })}
		req, _ := http.NewRequest("GET", "http://h/", nil)
		cancel := make(chan struct{})
		req.Cancel = cancel
		time.AfterFunc(time.Second, func() { close(cancel) })
		start := time.Now()
		_, err := tr.RoundTrip(req)
		if took := time.Since(start); took > time.Second {
			t.Errorf("cancelled after 1s, returned after %v: %v", took, err)
		}
	})
}

// Promise 2: "with the reason and the uncut delay". Where the Limiter's delay is why the call stops with a
// response in hand, no part of the report tells it; String names a wait that was not the problem.
func TestTheLimitersDelayIsReported(t *testing.T) {
	for _, deny := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Hour)}
			tr := &retryafter.Transport{Limiter: b, Policy: retryafter.Policy{Jitter: retryafter.NoJitter},
				Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 500), nil })}
			if deny {
				tr.Limiter = retryafter.Deny(b)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://h/", nil)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			r := retryafter.ReportOf(resp)
			if r.Decision.Limiter != time.Hour || !strings.Contains(r.String(), "1h0m0s") {
				t.Errorf("the token was an hour away; the report says %q, %+v", r, r.Decision)
			}
		})
	}
}

// Section 4: "A call that its first attempt settles ... returns exactly what Base returned, error included, and
// allocates nothing for it". Every error that is not known costs an allocation (errors.As with &timeout).
func TestAFinalErrorAllocatesNothing(t *testing.T) {
	req, _ := http.NewRequest("GET", "http://h/", nil)
	for _, final := range []error{errors.New("x"), x509.UnknownAuthorityError{}, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("x")}} {
		tr := &retryafter.Transport{Base: foundBase(func(*http.Request) (*http.Response, error) { return nil, final })}
		if n := testing.AllocsPerRun(100, func() { tr.RoundTrip(req) }); n > 0 {
			t.Errorf("%T: %v allocations", final, n)
		}
	}
}

type foundStuck struct{ free chan struct{} }

func (b foundStuck) Read([]byte) (int, error) { <-b.free; return 0, io.EOF }
func (b foundStuck) Close() error             { <-b.free; return nil }

// Rule 13 and 14: a Close that blocks is given 10 ms where the body was drained in vain, but without bound where
// ContentLength is over 64 KiB (or where the drain ended): the cancelled call does not wake.
func TestABlockingCloseDoesNotOutlastTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := foundStuck{make(chan struct{})}
		time.AfterFunc(time.Hour, func() { close(b.free) })
		tr := &retryafter.Transport{Base: foundBase(func(r *http.Request) (*http.Response, error) {
			resp := foundReply(r, 503)
			resp.Body, resp.ContentLength = b, 1<<20
			return resp, nil
		})}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://h/", nil)
		start := time.Now()
		_, err := tr.RoundTrip(req)
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("a deadline of 10s, returned after %v: %v", took, err)
		}
		<-b.free
	})
}

// Rule 4, promise 2: the context is done before the response is let go (here within GetBody; likewise in Retry,
// Backoff, Jitter), yet a wait is announced and the response in hand is thrown away.
func TestACancelBeforeTheReleaseKeepsTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		announced := 0
		tr := &retryafter.Transport{Trace: &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { announced++ }},
			Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 503, "Retry-After", "5"), nil })}
		req, _ := http.NewRequestWithContext(ctx, "PUT", "http://h/", strings.NewReader("x"))
		get := req.GetBody
		req.GetBody = func() (io.ReadCloser, error) { cancel(); return get() }
		if resp, err := tr.RoundTrip(req); resp == nil || announced > 0 {
			t.Errorf("response kept: %v, waits announced: %d, %v", resp != nil, announced, err)
		}
	})
}

// Rule 2: "a token is never taken before a long wait". Calls that queue for a token when a hold arrives take
// their tokens during the hold and all leave at its end: 31 sends in one instant from a Bucket of 1 at 1/s.
func TestNoTokenIsTakenBeforeALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		tr := &retryafter.Transport{
			Gate:    &retryafter.Gate{},
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerSecond(1)},
			Policy:  retryafter.Policy{Jitter: retryafter.NoJitter, Backoff: foundZero},
			Base: foundBase(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				at = append(at, time.Since(start))
				first := len(at) == 1
				mu.Unlock()
				if first {
					time.Sleep(100 * time.Millisecond) // on the wire
					return foundReply(r, 429, "Retry-After", "60"), nil
				}
				return foundReply(r, 200), nil
			})}
		var wg sync.WaitGroup
		for range 31 {
			wg.Go(func() {
				req, _ := http.NewRequest("GET", "http://h/", nil)
				if _, err := tr.RoundTrip(req); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		n := 0
		for _, d := range at[1:] {
			if d < at[1]+time.Second {
				n++
			}
		}
		if n > 2 {
			t.Errorf("%d sends in the second from %v on; Capacity 1 and 1/s allow 2", n, at[1])
		}
	})
}

// A Retry-After of exactly MaxWait is waited for. The clock is the real one: in a
// bubble its readings are equal, and nothing can come between them.
func TestAGateDoesNotLengthenTheServersDelay(t *testing.T) {
	for name, gate := range map[string]*retryafter.Gate{
		"none": nil, "its own": {}, "shared": {Shared: gateHolds{&retryafter.Gate{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			tr := &retryafter.Transport{Gate: gate,
				Policy: retryafter.Policy{MaxWait: time.Second, Jitter: retryafter.NoJitter},
				Base: foundBase(func(r *http.Request) (*http.Response, error) {
					if n++; n == 1 {
						return foundReply(r, 429, "Retry-After", "1"), nil
					}
					return foundReply(r, 200), nil
				})}
			req, _ := http.NewRequest("GET", "http://h/", nil)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 200 {
				t.Errorf("%d, %v", resp.StatusCode, retryafter.ReportOf(resp))
			}
		})
	}
}

// gateHolds is a memory that answers later than it is asked.
type gateHolds struct{ g *retryafter.Gate }

func (h gateHolds) Hold(ctx context.Context, k retryafter.Key, d time.Duration) error {
	h.g.Hold(ctx, k, time.Now().Add(d))
	return nil
}
func (h gateHolds) Held(ctx context.Context, k retryafter.Key) (time.Duration, error) {
	return h.g.Held(ctx, k), nil
}

// Promise 4 and section 9, Keyed: "no eviction ever mints credit", "time that seems to go back counts as no
// time". An instant from the future given for one key evicts another as if it had filled until then.
func TestAFutureInstantMintsNoCreditForOthers(t *testing.T) {
	k := &retryafter.Keyed{Capacity: 1, Rate: retryafter.Every(time.Hour), MaxKeys: 1}
	t0 := time.Now()
	if !k.For("v").AllowN(t0, 1) || k.For("v").AllowN(t0, 1) {
		t.Fatal("not a bucket of one")
	}
	k.For("x").AllowN(t0.Add(2*time.Hour), 1)
	if k.For("v").AllowN(t0, 1) {
		t.Error("v got 2 tokens at one instant, capacity 1")
	}
	// A second's reordering is enough, as among goroutines that read the clock before they wait for the lock.
	k = &retryafter.Keyed{Capacity: 1, Rate: retryafter.PerSecond(1), MaxKeys: 1}
	k.For("v").AllowN(t0, 1)
	k.For("x").AllowN(t0.Add(1100*time.Millisecond), 1)
	if k.For("v").AllowN(t0.Add(200*time.Millisecond), 1) {
		t.Error("v got 2 tokens within 200ms at 1/s, capacity 1")
	}
}

// Section 9: "The key is the context's (WithKey)". Keyed.WaitN obeys it, Deny(keyed).WaitN does not.
func TestDenyMindsTheContextsKey(t *testing.T) {
	k := &retryafter.Keyed{Capacity: 1, Rate: retryafter.Every(time.Hour)}
	d := retryafter.Deny(k)
	if err := d.WaitN(retryafter.WithKey(context.Background(), "a"), 1); err != nil {
		t.Fatal(err)
	}
	if err := d.WaitN(retryafter.WithKey(context.Background(), "b"), 1); err != nil {
		t.Errorf("b is refused for what a took: %v", err)
	}
	if k.For("a").Allow() {
		t.Error("a was not charged")
	}
}

type pastDeadline struct{ context.Context }

func (pastDeadline) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// "WaitN is Bucket.WaitN": Bucket refuses a passed deadline whose context is not done yet, KeyedBucket charges.
func TestKeyedMindsAPassedDeadline(t *testing.T) {
	b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Hour)}
	k := &retryafter.Keyed{Capacity: 1, Rate: retryafter.Every(time.Hour)}
	ctx := pastDeadline{context.Background()}
	if be, ke := b.WaitN(ctx, 1), k.For("a").WaitN(ctx, 1); (be == nil) != (ke == nil) {
		t.Errorf("Bucket: %v; Keyed: %v", be, ke)
	}
}

// Keyed doc: "nothing for a key that ... was only refused"; KeyedStats.Evicted "counts keys that made way".
// A WaitN that the deadline refuses is put back as a key of its own, and counts in both numbers.
func TestRefusedWaitsEvictNothing(t *testing.T) {
	k := &retryafter.Keyed{Capacity: 1, Rate: retryafter.Every(time.Hour), MaxKeys: 2}
	for i := range 4 {
		k.For(retryafter.Key(fmt.Sprint(i))).Allow()
	}
	before := k.Stats()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range 100 {
		k.For(retryafter.Key(fmt.Sprint("z", i))).WaitN(ctx, 1) // refused at once
	}
	if after := k.Stats(); after != before {
		t.Errorf("refusals changed %+v to %+v", before, after)
	}
}

// Section 7 "EOF in the header": net/http reads the part of a line that came as a whole one, and says of most cuts that
// the header is malformed.
func TestAHeaderThatBreaksOffAnywhereIsWorthAnotherAttempt(t *testing.T) {
	whole := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: b\r\n\r\n"
	for cut := range len(whole) {
		for _, reset := range []bool{false, true} {
			url := netRaw(t, func(n int, c *net.TCPConn) {
				netReadHead(bufio.NewReader(c))
				if n > 1 {
					io.WriteString(c, whole)
					return
				}
				io.WriteString(c, whole[:cut])
				if reset {
					c.SetLinger(0)
				}
			})
			tr := &retryafter.Transport{Base: netFresh(t), Policy: netAtOnce()}
			resp, err := tr.RoundTrip(netRequest("GET", url))
			if err != nil {
				t.Errorf("cut after %q, reset %v: %v", whole[:cut], reset, err)
				continue
			}
			netWant(t, resp, err, 200, 2, retryafter.Final)
			resp.Body.Close()
		}
	}
}

// Section 7 "reset": net/http may find the connection closed by its own reader while it writes the body.
func TestAnUploadThatTheServerBreaksOffIsRepeated(t *testing.T) {
	for _, options := range [][]func(*httptest.Server){nil, {func(s *httptest.Server) { s.TLS = &tls.Config{} }}} {
		var n atomic.Int32
		s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1)%2 == 1 {
				io.CopyN(io.Discard, r.Body, 100<<10)
				panic(http.ErrAbortHandler)
			}
			io.Copy(io.Discard, r.Body)
		}, options...)
		payload := strings.Repeat("x", 4<<20)
		for range 20 {
			tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce()}
			req, _ := netPut(t.Context(), "PUT", s.URL, payload)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			netWant(t, resp, err, 200, 2, retryafter.Final)
			resp.Body.Close()
		}
	}
}

// Promise 3: net/http sends a value of blanks as none.
func TestAKeyOfBlanksIsNone(t *testing.T) {
	for value, want := range map[string]bool{"": false, " ": false, " \t": false, " k ": true} {
		for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			req := netRequest("POST", "http://h/")
			req.Header.Set(name, value)
			if got := retryafter.Replayable(req); got != want {
				t.Errorf("%s: %q: Replayable is %v", name, value, got)
			}
			if got := retryafter.DefaultRetry(retryafter.Attempt{Number: 1, Request: req, StatusCode: 409}); got != want {
				t.Errorf("%s: %q: a 409 is worth another attempt: %v", name, value, got)
			}
		}
	}
}

// Whoever sends a response's request again and again, as to page through a list, keeps no chain of contexts.
func TestARequestThatIsSentAgainAndAgainKeepsNothingOfEachTime(t *testing.T) {
	for name, next := range map[string]func(*http.Response) *http.Request{
		"as it is": func(resp *http.Response) *http.Request { return resp.Request },
		"cloned":   func(resp *http.Response) *http.Request { return resp.Request.Clone(resp.Request.Context()) },
	} {
		for _, retries := range []int{0, 1} {
			n := 0
			tr := &retryafter.Transport{Policy: netAtOnce(), Base: foundBase(func(r *http.Request) (*http.Response, error) {
				if n++; n == 1 || retries > 0 && n%2 == 1 {
					return foundReply(r, 503), nil
				}
				return foundReply(r, 200), nil
			})}
			req := netRequest("GET", "http://h/")
			for range 10 {
				resp, err := tr.RoundTrip(req)
				if err != nil || resp.StatusCode != 200 {
					t.Fatal(resp, err)
				}
				req = next(resp)
			}
			if depth := strings.Count(fmt.Sprintf("%#v", req.Context()), "attemptContext"); depth > 2 {
				t.Errorf("%s, %d retries a call: %d contexts in one another", name, retries, depth)
			}
		}
	}
}

// An attempt may take longer than there is time to begin another one.
func TestAnAttemptTimeoutMayBeLongerThanMaxElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &retryafter.Transport{AttemptTimeout: 30 * time.Second, Policy: netAtOnce(), Base: foundBase(func(r *http.Request) (*http.Response, error) {
			n++
			time.Sleep(11 * time.Second)
			return foundReply(r, 503), nil
		})}
		tr.MaxElapsed = 10 * time.Second
		resp, err := tr.RoundTrip(netRequest("GET", "http://h/"))
		netWant(t, resp, err, 503, 1, retryafter.ElapsedTooLong)
	})
}

// Section 8 "no connection outlives the call", also where a function of the caller's panics.
func TestWhatIsInHandIsClosedWhereAFunctionPanics(t *testing.T) {
	boom := func() { panic("boom") }
	for name, change := range map[string]func(*retryafter.Transport){
		"Retry": func(tr *retryafter.Transport) { tr.Retry = func(retryafter.Attempt) bool { boom(); return false } },
		"Hint": func(tr *retryafter.Transport) {
			tr.Hint = func(http.Header, time.Time) (retryafter.Hint, error) { boom(); return retryafter.Hint{}, nil }
		},
		"Jitter": func(tr *retryafter.Transport) {
			tr.Jitter = func(time.Duration, bool) time.Duration { boom(); return 0 }
		},
		"Backoff": func(tr *retryafter.Transport) { tr.Backoff = func() backoff.BackOff { boom(); return nil } },
		"When": func(tr *retryafter.Transport) {
			tr.Gate = &retryafter.Gate{When: func(retryafter.Attempt) bool { boom(); return false }}
		},
		"AttemptDone": func(tr *retryafter.Transport) {
			tr.Trace = &retryafter.Trace{AttemptDone: func(retryafter.Attempt) { boom() }}
		},
		"Waiting": func(tr *retryafter.Transport) {
			tr.Trace = &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { boom() }}
		},
		"Done": func(tr *retryafter.Transport) {
			tr.MaxAttempts, tr.Trace = 1, &retryafter.Trace{Done: func(*http.Request, retryafter.Report) { boom() }}
		},
	} {
		for got, answer := range map[string]func(*http.Request, *netBody) (*http.Response, error){
			"a response": func(r *http.Request, body *netBody) (*http.Response, error) { return netResponse(r, 503, body), nil },
			"a response without a body": func(r *http.Request, body *netBody) (*http.Response, error) {
				body.Close()
				return netResponse(r, 503, nil), nil
			},
			"an error": func(_ *http.Request, body *netBody) (*http.Response, error) {
				body.Close()
				return nil, io.EOF
			},
		} {
			body := netBodyOf("busy")
			tr := &retryafter.Transport{Policy: netAtOnce(), Base: foundBase(func(r *http.Request) (*http.Response, error) {
				r.Body.Close()
				return answer(r, body)
			})}
			change(tr)
			req, bodies := netPut(t.Context(), "PUT", "http://h/", "hello")
			func() {
				defer func() {
					asked := got != "an error" || name != "Hint" && name != "When"
					if p := recover(); asked && p != "boom" || !asked && p != nil {
						t.Errorf("%s after %s: %v, want its panic", name, got, p)
					}
				}()
				tr.RoundTrip(req)
			}()
			if body.closed() == 0 {
				t.Errorf("%s after %s: the response's body is open", name, got)
			}
			bodies.check(t, bodies.gets())
		}
	}
}

// A panic surfaces also where a body can't be closed, and nothing is closed twice.
func TestAPanicAfterTheResponseWasLetGoSurfaces(t *testing.T) {
	free := make(chan struct{})
	defer close(free)
	for _, stuck := range []bool{false, true} {
		body := netBodyOf("busy")
		n := 0
		tr := &retryafter.Transport{
			Policy: netAtOnce(),
			Base: foundBase(func(r *http.Request) (*http.Response, error) {
				r.Body.Close()
				if stuck {
					return netResponse(r, 503, foundStuck{free}), nil
				}
				return netResponse(r, 503, body), nil
			}),
			Limiter: limiterFunc(func(context.Context, int) error {
				if n++; n == 2 {
					panic("boom")
				}
				return nil
			}),
		}
		req, bodies := netPut(t.Context(), "PUT", "http://h/", "hello")
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("%v, want the Limiter's panic", p)
				}
			}()
			tr.RoundTrip(req)
		}()
		if n := body.closed(); !stuck && n != 1 {
			t.Errorf("closed %d times", n)
		}
		bodies.check(t, 1)
	}
}

// The same before the first attempt, and where it settles the call.
func TestWhatIsInHandIsClosedWhereAFunctionPanicsBeforeItIsDecided(t *testing.T) {
	boom := func() { panic("boom") }
	for name, change := range map[string]func(*retryafter.Transport){
		"Limiter": func(tr *retryafter.Transport) {
			tr.Limiter = limiterFunc(func(context.Context, int) error { boom(); return nil })
		},
		"Gate.Key": func(tr *retryafter.Transport) {
			tr.Gate = &retryafter.Gate{Key: func(*http.Request) retryafter.Key { boom(); return "" }}
		},
		"Budget.Key": func(tr *retryafter.Transport) {
			tr.Budget = &retryafter.RetryBudget{Key: func(*http.Request) retryafter.Key { boom(); return "" }}
		},
		"Trace.Done": func(tr *retryafter.Transport) {
			tr.Trace = &retryafter.Trace{Done: func(*http.Request, retryafter.Report) { boom() }}
		},
		"Done, failed": func(tr *retryafter.Transport) {
			tr.Reserve, tr.Trace = -1, &retryafter.Trace{Done: func(*http.Request, retryafter.Report) { boom() }}
		},
	} {
		body, sent := netBodyOf("fine"), false
		tr := &retryafter.Transport{Policy: netAtOnce(), Base: foundBase(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			sent = true
			return netResponse(r, 200, body), nil
		})}
		change(tr)
		req, bodies := netPut(t.Context(), "PUT", "http://h/", "hello")
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("%s: %v, want its panic", name, p)
				}
			}()
			tr.RoundTrip(req)
		}()
		if n := body.closed(); sent && n != 1 {
			t.Errorf("%s: the response's body was closed %d times", name, n)
		}
		bodies.check(t, 0)
	}
}

// What did not wait is no wait: such a call returns what Base returned, and costs nothing.
func TestALimiterThatDoesNotWaitLeavesTheResponseAsItIs(t *testing.T) {
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
	req := netRequest("GET", "http://h/")
	for name, l := range map[string]retryafter.Limiter{
		"of its own":        limiterFunc(func(context.Context, int) error { return nil }),
		"AllowN alone":      retryafter.Deny(always{}),
		"a Bucket":          &retryafter.Bucket{Capacity: 1 << 20, Rate: retryafter.PerSecond(1)},
		"a Bucket, denying": retryafter.Deny(&retryafter.Bucket{Capacity: 1 << 20, Rate: retryafter.PerSecond(1)}),
	} {
		tr := &retryafter.Transport{Limiter: l, Base: foundBase(func(r *http.Request) (*http.Response, error) {
			resp.Request = r
			return resp, nil
		})}
		if n := testing.AllocsPerRun(100, func() {
			if got, err := tr.RoundTrip(req); got != resp || err != nil || got.Request != req {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

type limiterFunc func(context.Context, int) error

func (f limiterFunc) WaitN(ctx context.Context, n int) error { return f(ctx, n) }

type always struct{}

func (always) AllowN(time.Time, int) bool { return true }

// Each key of a RetryBudget that comes and goes costs the same, however many others owe something.
func TestARetryBudgetForgetsWhoOwesNothing(t *testing.T) {
	b := &retryafter.RetryBudget{MaxKeys: 3, Retries: 2}
	for i := range 2 {
		b.Withdraw(retryafter.Key(fmt.Sprint("owes", i)))
	}
	for i := range 100 { // each has a place of its own
		key := retryafter.Key(fmt.Sprint(i))
		if !b.Withdraw(key) || b.Left(key) != 1 || b.Left("unseen") != 2 {
			t.Fatalf("%d: %d left, %d for others", i, b.Left(key), b.Left("unseen"))
		}
		b.Refund(key)
	}
	b.Withdraw("third")
	b.Withdraw("rest") // which has none
	if b.Left("unseen") != 1 {
		t.Errorf("%d left for the rest", b.Left("unseen"))
	}
	b.Refund("third") // full, and kept apart from the rest
	if b.Left("third") != 2 {
		t.Errorf("the third has %d", b.Left("third"))
	}
	b.Refund("rest")
	if !b.Withdraw("new") || b.Left("new") != 1 || b.Left("unseen") != 2 { // in the place of the third
		t.Errorf("new has %d, others %d", b.Left("new"), b.Left("unseen"))
	}
	if b.Left("owes0") != 1 {
		t.Errorf("who owes has %d", b.Left("owes0"))
	}
}

// A bubble's clock ends before some waits do. Then there is nothing to do but to wait for the caller.
func TestAWaitBeyondTheEndOfTheClockDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(math.MaxInt64, func() { time.Sleep(0); cancel() })
		asked := &countedContext{Context: ctx, most: 100}
		tr := &retryafter.Transport{Policy: retryafter.Policy{MaxWait: -1}, Base: foundBase(func(r *http.Request) (*http.Response, error) {
			return foundReply(r, 503, "Retry-After", "9223372037"), nil
		})}
		_, err := tr.RoundTrip(netRequest("GET", "http://h/").WithContext(asked))
		if e, ok := errors.AsType[*retryafter.Error](err); !ok || e.Report.Stop != retryafter.Canceled || e.Report.Attempts != 1 {
			t.Errorf("%v", err)
		}
	})
}

// countedContext panics where it is asked too often.
type countedContext struct {
	context.Context
	asked, most int
}

func (c *countedContext) Err() error {
	if c.asked++; c.asked > c.most {
		panic("it spins")
	}
	return c.Context.Err()
}

// A Limiter on a network takes its time to give what it has. What happened meanwhile counts.
func TestWhatHappensWhileALimiterGivesATokenCounts(t *testing.T) {
	open := func(took time.Duration, replies ...int) (*retryafter.Transport, *[]time.Duration) {
		var sent []time.Duration
		begin := time.Now()
		return &retryafter.Transport{Policy: netAtOnce(), Limiter: givesSlowly(took), Base: foundBase(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(begin))
			return foundReply(r, replies[min(len(sent), len(replies))-1]), nil
		})}, &sent
	}
	t.Run("a hold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr, sent := open(300*time.Millisecond, 200)
			tr.Gate = &retryafter.Gate{}
			req := netRequest("GET", "http://h/")
			time.AfterFunc(100*time.Millisecond, func() {
				tr.Gate.Hold(context.Background(), retryafter.ByHost(req), time.Now().Add(time.Minute))
			})
			resp, err := tr.RoundTrip(req)
			netWant(t, resp, err, 200, 1, retryafter.Final)
			// At 0.3 s it has a token, and must not use it; from 60.1 s on it gets another.
			if want := time.Minute + 400*time.Millisecond; len(*sent) != 1 || (*sent)[0] < want {
				t.Errorf("sent at %v, want %v or later", *sent, want)
			}
			if r := retryafter.ReportOf(resp); r.Limited != 600*time.Millisecond {
				t.Errorf("limited for %v", r.Limited)
			}
		})
	})
	t.Run("MaxElapsed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr, sent := open(300*time.Millisecond, 503)
			tr.MaxElapsed = 200 * time.Millisecond
			resp, err := tr.RoundTrip(netRequest("GET", "http://h/"))
			netWantError(t, resp, err, 1, retryafter.ElapsedTooLong)
			if len(*sent) != 1 {
				t.Errorf("sent at %v", *sent)
			}
		})
	})
	t.Run("a deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr, sent := open(300*time.Millisecond, 503)
			tr.Reserve = 50 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), 620*time.Millisecond)
			defer cancel()
			resp, err := tr.RoundTrip(netRequest("GET", "http://h/").WithContext(ctx))
			netWantError(t, resp, err, 1, retryafter.DeadlineTooNear)
			if len(*sent) != 1 {
				t.Errorf("sent at %v", *sent)
			}
		})
	})
	t.Run("a cancellation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr, sent := open(300*time.Millisecond, 200)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			resp, err := tr.RoundTrip(netRequest("GET", "http://h/").WithContext(ctx))
			netWantError(t, resp, err, 0, retryafter.Canceled)
			if len(*sent) != 0 {
				t.Errorf("sent at %v", *sent)
			}
		})
	})
}

// givesSlowly gives every token, and takes so long for it.
type givesSlowly time.Duration

func (s givesSlowly) WaitN(context.Context, int) error { time.Sleep(time.Duration(s)); return nil }
func (s givesSlowly) TakeN(time.Time, int) (time.Duration, error) {
	time.Sleep(time.Duration(s))
	return 0, nil
}
func (givesSlowly) DelayN(time.Time, int) (time.Duration, error) { return 0, nil }

// What one was told, all are to know, also where that one leaves.
func TestWhatAGateIsToldIsSharedThoughItsCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		shared := &heldFor{}
		tr := &retryafter.Transport{Gate: &retryafter.Gate{Shared: shared}, Base: foundBase(func(r *http.Request) (*http.Response, error) {
			cancel()
			return foundReply(r, 429, "Retry-After", "60"), nil
		})}
		tr.RoundTrip(netRequest("GET", "http://h/").WithContext(ctx))
		if shared.d != time.Minute || shared.err != nil {
			t.Errorf("held for %v, by a context that has %v", shared.d, shared.err)
		}
		if shared.left <= 0 || shared.left > time.Second {
			t.Errorf("there is no bound to it, or a far one: %v", shared.left)
		}
	})
}

// heldFor remembers what it was told, and how.
type heldFor struct {
	d, left time.Duration
	err     error
}

func (h *heldFor) Hold(ctx context.Context, _ retryafter.Key, d time.Duration) error {
	deadline, _ := ctx.Deadline()
	h.d, h.left, h.err = d, time.Until(deadline), ctx.Err()
	return nil
}
func (h *heldFor) Held(context.Context, retryafter.Key) (time.Duration, error) { return 0, nil }
