//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

// Faults that were found while the properties were written, each kept by itself.

package proof

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"golang.org/x/time/rate"
)

func refusing(h http.Header) roundTripper {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 503, Header: h, Body: http.NoBody, Request: req}, nil
	}
}

func get(ctx context.Context) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test", nil)
	return req
}

// Request.Cancel does not end a wait for the Limiter.
func TestRequestCancelEndsAWaitForTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Hour)}
		b.Allow()
		req, gone, begin := get(t.Context()), make(chan struct{}), time.Now()
		req.Cancel = gone
		time.AfterFunc(time.Second, func() { close(gone) })
		_, err := (&retryafter.Transport{Limiter: b, Base: refusing(nil)}).RoundTrip(req)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("cancelled after 1s, back after %v: %v", took, err)
		}
	})
}

// A Deny that is known to refuse lets the call sleep, then loses the response.
func TestARefusalThatIsKnownBeforeTheWaitHandsBackTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		tr := &retryafter.Transport{
			Limiter: retryafter.Deny(&retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}),
			Base:    refusing(http.Header{"Retry-After": {"1"}}), Policy: retryafter.Policy{Jitter: retryafter.NoJitter},
		}
		resp, err := tr.RoundTrip(get(t.Context()))
		if resp == nil || time.Since(begin) != 0 {
			t.Errorf("%v and %v after %v", resp, err, time.Since(begin))
		}
	})
}

// A wait for the Limiter is announced that is then refused, not slept.
func TestOnlyWaitsThatAreMadeAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}
		b.Allow()
		for name, l := range map[string]retryafter.Limiter{"Deny": retryafter.Deny(b), "Bucket": b} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			tr := &retryafter.Transport{Limiter: l, Base: refusing(nil), Trace: &retryafter.Trace{Waiting: func(w retryafter.WaitInfo) {
				t.Errorf("%s: announced %v with 1s left", name, w.Wait)
			}}}
			tr.RoundTrip(get(ctx))
		}
	})
}

// The wait is announced only after the drain, which stretches short waits
// and does not end on a cancel.
func TestADrainIsPartOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t0, n := time.Now(), 0
		tr := &retryafter.Transport{
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				if n++; n > 1 {
					if at := time.Since(t0); at != 10*time.Millisecond {
						t.Errorf("left after %v, the wait is 10ms", at)
					}
					return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: 503, Body: &stalledBody{closed: make(chan struct{})}, ContentLength: -1}, nil
			}),
			Policy: retryafter.Policy{Jitter: retryafter.NoJitter, Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) }},
			Trace: &retryafter.Trace{Waiting: func(w retryafter.WaitInfo) {
				if time.Now().After(w.Until) {
					t.Errorf("announced at %v a wait until %v", time.Since(t0), w.Until.Sub(t0))
				}
			}},
		}
		tr.RoundTrip(get(t.Context()))
	})
	synctest.Test(t, func(t *testing.T) {
		t0 := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		tr := &retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Body: &stalledBody{closed: make(chan struct{})}, ContentLength: -1}, nil
		})}
		if tr.RoundTrip(get(ctx)); time.Since(t0) != time.Millisecond {
			t.Errorf("cancelled after 1ms, back after %v", time.Since(t0))
		}
	})
}

// Reserve refuses a first attempt that no wait precedes, where the Limiter has no DelayN.
func TestReserveIsNotForAFirstAttemptThatNeedsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tr := &retryafter.Transport{Limiter: rate.NewLimiter(1, 1), Base: refusing(nil), Policy: retryafter.Policy{MaxAttempts: 1, Reserve: 2 * time.Second}}
		if resp, err := tr.RoundTrip(get(ctx)); resp == nil {
			t.Error(err)
		}
	})
}

// A context borrowed from an earlier response numbers the next call's attempts.
func TestABorrowedContextDoesNotNumberAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var numbers []int
		tr := &retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			numbers = append(numbers, retryafter.AttemptNumber(req.Context()))
			if n++; n == 1 {
				return refusing(nil)(req)
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		})}
		resp, _ := tr.RoundTrip(get(t.Context()))
		tr.RoundTrip(get(resp.Request.Context()))
		if numbers[2] != 1 {
			t.Errorf("attempts %v, want 1 2 1", numbers)
		}
	})
}

// A body whose Close waits for its Read holds the call past its deadline.
type lockedBody struct {
	stop chan struct{}
	lock chan struct{} // a mutex, as synctest sees it
}

func (b lockedBody) Read([]byte) (int, error) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	<-b.stop
	return 0, io.EOF
}

func (b lockedBody) Close() error {
	b.lock <- struct{}{}
	<-b.lock
	return nil
}

func TestABodyThatWillNotCloseDoesNotHoldTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		t0 := time.Now()
		(&retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			b := lockedBody{make(chan struct{}), make(chan struct{}, 1)}
			time.AfterFunc(time.Hour, func() { close(b.stop) })
			return &http.Response{StatusCode: 503, ContentLength: -1, Body: b}, nil
		})}).RoundTrip(get(ctx))
		if took := time.Since(t0); took > 10*time.Second {
			t.Errorf("the deadline is 10s, back after %v", took)
		}
		time.Sleep(2 * time.Hour)
	})
}

// A Bucket without a Capacity is Misconfigured, not Limited.
func TestALimiterThatIsMisconfiguredIsReportedSo(t *testing.T) {
	_, err := (&retryafter.Transport{Limiter: &retryafter.Bucket{}, Base: refusing(nil)}).RoundTrip(get(t.Context()))
	if e := err.(*retryafter.Error); e.Report.Stop != retryafter.Misconfigured {
		t.Error(err)
	}
}
