package retryafter_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
)

// flow is a limiter that tells how many tokens there are, one more each second
// until burst.
type flow struct {
	t     *testing.T
	burst float64
	full  time.Time // when the last of them is there
	stuck bool      // says so, and lets nobody pass
}

func (l *flow) TokensAt(t time.Time) float64 {
	return min(l.burst, l.burst-l.full.Sub(t).Seconds())
}

func (l *flow) AllowN(t time.Time, n int) bool {
	if n <= 0 {
		l.t.Errorf("asked for %d tokens", n)
	}
	if l.stuck || l.TokensAt(t) < float64(n) {
		return false
	}
	if l.full.Before(t) {
		l.full = t
	}
	l.full = l.full.Add(time.Duration(n) * time.Second)
	return true
}

func TestDenyFindsTheDelayWhereTokensAreTold(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx   context.Context
		have  int // of 5
		cost  int
		stuck bool
		delay time.Duration // of the LimitError; 0: none
		err   error         // a *CostError, or the context's
		left  float64
	}{
		"all of them":           {context.Background(), 5, 5, false, 0, nil, 0},
		"some":                  {context.Background(), 3, 2, false, 0, nil, 1},
		"one too many":          {context.Background(), 3, 4, false, time.Second, nil, 3},
		"of none":               {context.Background(), 0, 5, false, 5 * time.Second, nil, 0},
		"nothing of none":       {context.Background(), 0, 0, false, 0, nil, 0},
		"more than there are":   {context.Background(), 5, 6, false, 0, &retryafter.CostError{Cost: 6}, 5},
		"less than nothing":     {context.Background(), 5, -1, false, 0, &retryafter.CostError{Cost: -1}, 5},
		"refused all the same":  {context.Background(), 3, 2, true, 1, nil, 3},
		"after a cancel":        {gone, 3, 2, false, 0, context.Canceled, 3},
		"nothing after that":    {gone, 3, 0, false, 0, context.Canceled, 3},
		"too much after that":   {gone, 3, 6, false, 0, &retryafter.CostError{Cost: 6}, 3},
		"too little after that": {gone, 3, -1, false, 0, &retryafter.CostError{Cost: -1}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				l := &flow{t, 5, now.Add(time.Duration(5-tc.have) * time.Second), tc.stuck}
				err := retryafter.Deny(l).WaitN(tc.ctx, tc.cost)
				var cost, wantCost *retryafter.CostError
				var limit *retryafter.LimitError
				switch {
				case errors.As(tc.err, &wantCost):
					if !errors.As(err, &cost) || *cost != *wantCost {
						t.Errorf("%v, want %v", err, tc.err)
					}
				case tc.delay > 0:
					if !errors.As(err, &limit) || *limit != (retryafter.LimitError{Delay: tc.delay}) {
						t.Errorf("%v, want a LimitError with %v", err, tc.delay)
					}
				case err != tc.err:
					t.Errorf("%v, want %v", err, tc.err)
				}
				if left := l.TokensAt(now); left != tc.left {
					t.Errorf("%v tokens are left, want %v", left, tc.left)
				}
			})
		})
	}
}

// onePerRequest keeps a limiter a request, which can't be asked to allow.
type onePerRequest struct {
	*flow
	retryafter.Limiter
}

func (l onePerRequest) ForRequest(*http.Request) retryafter.Limiter { return l.Limiter }

func TestDenyingWhatCanNotBeDeniedLeavesItAsItIs(t *testing.T) {
	asked := 0
	own := netLimiter(func(context.Context, int) error { asked++; return nil })
	denying := retryafter.Deny(onePerRequest{&flow{t: t, burst: 1}, own})
	per, ok := denying.(retryafter.RequestLimiter)
	if !ok {
		t.Fatalf("%T has no limiter for a request", denying)
	}
	if err := per.ForRequest(get(t.Context())).WaitN(t.Context(), 1); err != nil || asked != 1 {
		t.Errorf("%v, after its own WaitN was called %d times", err, asked)
	}
	// Without a request it is the whole that is asked, and that denies.
	err := denying.WaitN(t.Context(), 2)
	if _, ok := errors.AsType[*retryafter.CostError](err); !ok || asked != 1 {
		t.Errorf("%v, after its own WaitN was called %d times", err, asked)
	}
}

func TestALimitErrorSaysWhatItKnows(t *testing.T) {
	for _, tc := range []struct {
		err  retryafter.LimitError
		want string
	}{
		{retryafter.LimitError{}, "retryafter: over the limit"},
		{retryafter.LimitError{Delay: time.Second}, "retryafter: over the limit for another 1s"},
		{retryafter.LimitError{Err: context.DeadlineExceeded}, "retryafter: over the limit: context deadline exceeded"},
		{retryafter.LimitError{Delay: 1, Err: context.DeadlineExceeded}, "retryafter: over the limit for another 1ns: context deadline exceeded"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestACostErrorSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		err  retryafter.CostError
		want string
	}{
		{retryafter.CostError{Cost: 6, Capacity: 5}, "retryafter: a cost of 6 can never fit a capacity of 5"},
		{retryafter.CostError{Cost: -1, Capacity: 5}, "retryafter: a cost of -1 is negative"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// What tells its tokens, and has them, does not stand in the way of an attempt
// that follows at once.
func TestDenyLetsPassWhatHasItsTokens(t *testing.T) {
	inBubble(t, []reply{{status: 503}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Backoff = foundZero
		tr.Limiter = retryafter.Deny(&flow{t: t, burst: 5})
		resp, err := tr.RoundTrip(get(t.Context()))
		netWant(t, resp, err, 200, 2, retryafter.Final)
	})
}
