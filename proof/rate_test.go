package proof

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/retryafter-go/retryafter"
	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

var _ retryafter.Limiter = (*rate.Limiter)(nil)

// TestBucketAgreesWithRateLimiter asks both the same, where x/time/rate is
// exact: time never goes back, runs in eighths of a second, and the rate is a
// power of two, so that no float64 is rounded.
func TestBucketAgreesWithRateLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := int64(1) << rapid.IntRange(0, 5).Draw(t, "rate")
		burst := rapid.IntRange(1, 20).Draw(t, "burst")
		ours := &retryafter.Bucket{Capacity: int64(burst), Rate: retryafter.PerSecond(perSecond)}
		theirs := rate.NewLimiter(rate.Limit(perSecond), burst)
		at := start
		for range rapid.IntRange(1, 40).Draw(t, "questions") {
			at = at.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 2, 8, 80}).Draw(t, "step")) * time.Second / 8)
			n := rapid.IntRange(0, burst+1).Draw(t, "n")
			if rapid.Bool().Draw(t, "take") {
				if a, b := ours.AllowN(at, n), theirs.AllowN(at, n); a != b {
					t.Fatalf("AllowN(%v, %d): %v, rate.Limiter says %v", at, n, a, b)
				}
				continue
			}
			r := theirs.ReserveN(at, n)
			d, err := ours.DelayN(at, n)
			_, never := errors.AsType[*retryafter.CostError](err)
			if r.OK() == never || !never && r.DelayFrom(at) != d {
				t.Fatalf("DelayN(%v, %d): %v and %v, rate.Limiter says %v and %v", at, n, d, err, r.DelayFrom(at), r.OK())
			}
			r.CancelAt(at)
		}
	})
}

// TestWaitsAgreeWithRateLimiter makes the same calls through both.
func TestWaitsAgreeWithRateLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := int64(1) << rapid.IntRange(0, 3).Draw(t, "rate")
		burst := rapid.IntRange(1, 5).Draw(t, "burst")
		type call struct {
			pause   time.Duration
			fails   int
			cost    int
			timeout time.Duration
		}
		var calls []call
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			calls = append(calls, call{
				pause:   time.Duration(rapid.SampledFrom([]int{0, 0, 1, 8, 40}).Draw(t, "pause")) * time.Second / 8,
				fails:   rapid.IntRange(0, 3).Draw(t, "fails"),
				cost:    rapid.IntRange(0, burst).Draw(t, "cost"),
				timeout: time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3, 17}).Draw(t, "timeout")) * time.Second / 16,
			})
		}
		rapid.SyncTest(t, func(t *rapid.T) {
			through := func(l retryafter.Limiter) (at []time.Duration, stops []retryafter.Reason) {
				fails := 0
				far := &arrivals{t0: time.Now(), reply: func(n int) *http.Response {
					if n > fails {
						return &http.Response{StatusCode: 200}
					}
					return &http.Response{StatusCode: 503}
				}}
				tr := &retryafter.Transport{Base: far, Limiter: l, Policy: retryafter.Policy{
					MaxAttempts: 4, Jitter: retryafter.NoJitter,
					Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second / 8) },
				}}
				for _, c := range calls {
					time.Sleep(c.pause)
					fails = c.fails
					ctx := retryafter.WithCost(context.Background(), c.cost)
					if c.timeout > 0 {
						cc, cancel := context.WithTimeout(ctx, c.timeout)
						defer cancel()
						ctx = cc
					}
					req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test", nil)
					resp, err := tr.RoundTrip(req)
					// Only a Bucket's wait is known before the wait that it follows.
					why := retryafter.ReportOf(resp).Stop
					if e, ok := errors.AsType[*retryafter.Error](err); ok {
						why = e.Report.Stop
					}
					if c.timeout > 0 && why != retryafter.Final {
						return far.at, append(stops, 0)
					}
					stops = append(stops, why)
				}
				return far.at, stops
			}
			at, stops := through(&retryafter.Bucket{Capacity: int64(burst), Rate: retryafter.PerSecond(perSecond)})
			wantAt, wantStops := through(rate.NewLimiter(rate.Limit(perSecond), burst))
			if diff := cmp.Diff(wantStops, stops); diff != "" {
				t.Errorf("ended otherwise than with rate.Limiter (-rate +bucket):\n%s", diff)
			}
			if diff := cmp.Diff(wantAt, at); diff != "" {
				t.Errorf("other attempts than with rate.Limiter (-rate +bucket):\n%s", diff)
			}
		})
	})
}

func TestRateLimiterHoldsEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &arrivals{t0: time.Now(), reply: func(n int) *http.Response {
			if n <= 2 {
				return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"1"}}}
			}
			return &http.Response{StatusCode: 200}
		}}
		var limited time.Duration
		tr := &retryafter.Transport{
			Base: far, Policy: retryafter.Policy{Jitter: retryafter.NoJitter}, Limiter: rate.NewLimiter(rate.Every(4*time.Second), 1),
			Trace: &retryafter.Trace{Done: func(_ *http.Request, r retryafter.Report) { limited += r.Limited }},
		}
		for range 2 {
			req, _ := http.NewRequest("GET", "http://server.test", nil)
			if resp, err := tr.RoundTrip(req); err != nil || resp.StatusCode != 200 {
				t.Error(resp, err)
			}
		}
		want := []time.Duration{0, 4 * time.Second, 8 * time.Second, 12 * time.Second, 16 * time.Second, 20 * time.Second}
		if diff := cmp.Diff(want, far.at); diff != "" {
			t.Error(diff)
		}
		if limited != 16*time.Second { // 20 less the four seconds of Retry-After
			t.Errorf("limited for %v", limited)
		}
	})
}

func TestRateLimiterThatCanNotEndInTimeEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &arrivals{t0: time.Now(), reply: func(int) *http.Response { return &http.Response{StatusCode: 200} }}
		tr := &retryafter.Transport{Base: far, Limiter: rate.NewLimiter(rate.Every(time.Minute), 1)}
		for n := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test", nil)
			resp, err := tr.RoundTrip(req)
			switch e, ok := errors.AsType[*retryafter.Error](err); {
			case n == 0 && err != nil:
				t.Error(err)
			case n == 1 && (resp != nil || !ok || e.Report.Stop != retryafter.Limited || e.Report.Attempts != 0):
				t.Errorf("%v and %v", resp, err)
			}
		}
		if len(far.at) != 1 || time.Since(far.t0) != 0 {
			t.Errorf("%v in %v", far.at, time.Since(far.t0))
		}
	})
}

func TestDenyTakesARateLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &arrivals{t0: time.Now(), reply: func(int) *http.Response { return &http.Response{StatusCode: 200} }}
		tr := &retryafter.Transport{Base: far, Limiter: retryafter.Deny(rate.NewLimiter(1, 2))}
		var limited int
		for range 5 {
			req, _ := http.NewRequest("GET", "http://server.test", nil)
			_, err := tr.RoundTrip(req)
			if e, ok := errors.AsType[*retryafter.LimitError](err); ok {
				limited++
				if e.Delay != time.Second || e.Timeout() {
					t.Errorf("%+v", e)
				}
			}
		}
		if limited != 3 || time.Since(far.t0) != 0 {
			t.Errorf("%d refused, in %v", limited, time.Since(far.t0))
		}
	})
}

func TestARateLimitersDelayIsKnownBeforeTheResponseIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, open := range map[string]func() retryafter.Limiter{
			"waiting": func() retryafter.Limiter { return rate.NewLimiter(rate.Every(time.Hour), 1) },
			"denying": func() retryafter.Limiter { return retryafter.Deny(rate.NewLimiter(rate.Every(time.Hour), 1)) },
		} {
			far := &arrivals{t0: time.Now(), reply: func(int) *http.Response {
				return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"5"}}}
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test", nil)
			resp, err := (&retryafter.Transport{Base: far, Limiter: open()}).RoundTrip(req)
			if resp == nil || time.Since(far.t0) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(far.t0))
			}
			if d := retryafter.ReportOf(resp).Decision; d.Limiter.Round(time.Millisecond) != time.Hour {
				t.Errorf("%s: %+v", name, d)
			}
		}
	})
}
