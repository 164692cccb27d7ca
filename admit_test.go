//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

// slowBucket gives its first token after d, and the next ones d apart.
func slowBucket(d time.Duration) *retryafter.Bucket {
	return &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(d), StartEmpty: true}
}

// held is a Gate that holds req's key for d from now on.
func held(t *testing.T, req *http.Request, d time.Duration) *retryafter.Gate {
	gate := &retryafter.Gate{}
	gate.Hold(t.Context(), retryafter.ByHost(req), time.Now().Add(d))
	return gate
}

// Before the first attempt, too, a wait does not begin that the Limiter's would
// follow in vain.
func TestNoWaitBeginsThatTheLimiterWouldRefuseAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		limiter retryafter.Limiter
		cost    int
		stop    retryafter.Reason
	}{
		"a token after the deadline": {slowBucket(20 * time.Second), 1, retryafter.DeadlineTooNear},
		"no token, and no wait":      {retryafter.Deny(slowBucket(20 * time.Second)), 1, retryafter.Limited},
		"more than it ever has":      {slowBucket(time.Second), 2, retryafter.Limited},
	} {
		for _, redirect := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
					ctx, cancel := context.WithTimeout(retryafter.WithCost(t.Context(), tc.cost), 10*time.Second)
					defer cancel()
					req := get(ctx)
					if redirect {
						req.Response = &http.Response{StatusCode: 303, Header: http.Header{"Retry-After": {"5"}}}
					} else {
						tr.Gate = held(t, req, 5*time.Second)
					}
					tr.Limiter = tc.limiter
					resp, err := tr.RoundTrip(req)
					netWantError(t, resp, err, 0, tc.stop)
					if took := time.Since(s.begin); took != 0 {
						t.Errorf("took %v", took)
					}
				})
			})
		}
	}
}

func TestARedirectIsWaitedForOnce(t *testing.T) {
	// A short hold comes while the call waits for its token, after the redirect's wait.
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		req := get(t.Context())
		req.Response = &http.Response{StatusCode: 303, Header: http.Header{"Retry-After": {"20"}}}
		tr.Gate, tr.Limiter = &retryafter.Gate{}, slowBucket(25*time.Second)
		time.AfterFunc(22*time.Second, func() {
			tr.Gate.Hold(t.Context(), retryafter.ByHost(req), time.Now().Add(time.Second))
		})
		if _, err := tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		wantArrivals(t, s, 25)
	})
}

// A call leaves the queue as soon as its key is held: the token that it waited
// for is there when the hold ends.
func TestACallThatIsHeldLeavesItsPlaceForAToken(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		req := get(t.Context())
		tr.Gate, tr.Limiter = &retryafter.Gate{}, slowBucket(20*time.Second)
		time.AfterFunc(2*time.Second, func() {
			tr.Gate.Hold(t.Context(), retryafter.ByHost(req), time.Now().Add(23*time.Second))
		})
		if _, err := tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		wantArrivals(t, s, 25)
	})
}

// What others were told counts in a decision as what the call was told does.
func TestALongerHoldOfOthersEndsACallInTime(t *testing.T) {
	for name, own := range map[string]reply{
		"of a response that holds too":      told(429, "5"),
		"of a response that holds nobody":   told(500, "5"),
		"of a response that names no delay": {status: 429},
	} {
		t.Run(name, func(t *testing.T) {
			own.takes = time.Second
			inBubble(t, []reply{own, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				req := get(t.Context())
				tr.Gate = &retryafter.Gate{}
				time.AfterFunc(time.Second/2, func() {
					tr.Gate.Hold(t.Context(), retryafter.ByHost(req), time.Now().Add(time.Hour))
				})
				resp, err := tr.RoundTrip(req)
				netWant(t, resp, err, own.status, 1, retryafter.WaitTooLong)
				if d := retryafter.ReportOf(resp).Decision.Server; d != time.Hour-time.Second/2 {
					t.Errorf("the hold is told as %v", d)
				}
				if took := time.Since(s.begin); took != time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// countingHolds counts what it is asked and told.
type countingHolds struct{ asked, told int }

func (h *countingHolds) Hold(context.Context, retryafter.Key, time.Duration) error {
	h.told++
	return nil
}

func (h *countingHolds) Held(context.Context, retryafter.Key) (time.Duration, error) {
	h.asked++
	return 0, nil
}

func TestASharedMemoryHearsOnlyOfDelays(t *testing.T) {
	for name, tc := range map[string]struct {
		reply reply
		want  countingHolds
	}{
		// Once before the first attempt, and not again for an outcome that ends the call.
		"a final outcome":            {reply{status: 403}, countingHolds{asked: 1}},
		"a final one that holds":     {told(403, "5"), countingHolds{asked: 2, told: 1}},
		"a final one for no time":    {told(403, "0"), countingHolds{asked: 1}},
		"one that lasts no one time": {told(403, "soon"), countingHolds{asked: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{tc.reply}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				var holds countingHolds
				tr.Gate = &retryafter.Gate{Shared: &holds, When: func(retryafter.Attempt) bool { return true }}
				if _, err := tr.RoundTrip(get(t.Context())); err != nil {
					t.Fatal(err)
				}
				if holds != tc.want {
					t.Errorf("%+v, want %+v", holds, tc.want)
				}
			})
		})
	}
}

func TestACancelledCallTakesNoToken(t *testing.T) {
	for name, gone := range map[string]func(*http.Request) *http.Request{
		"by its context": func(req *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			cancel()
			return req.WithContext(ctx)
		},
		"by its context, with a Request.Cancel": func(req *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			cancel()
			req.Cancel = make(chan struct{})
			return req.WithContext(ctx)
		},
		"by Request.Cancel": func(req *http.Request) *http.Request {
			cancel := make(chan struct{})
			close(cancel)
			req.Cancel = cancel
			return req
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				bucket := &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}
				tr.Limiter = bucket
				resp, err := tr.RoundTrip(gone(get(t.Context())))
				netWantError(t, resp, err, 0, retryafter.Canceled)
				if len(s.arrivals) != 0 || !bucket.Allow() {
					t.Errorf("%d attempts were sent, or a token is gone", len(s.arrivals))
				}
			})
		})
	}
}

// A Limiter that admits just as the caller gives up has admitted nothing.
func TestAnAttemptThatIsAdmittedTooLateIsNotSent(t *testing.T) {
	for _, cost := range []int{1, 0} {
		inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			ctx, cancel := context.WithCancel(retryafter.WithCost(t.Context(), cost))
			defer cancel()
			asked := 0
			tr.Limiter = netLimiter(func(context.Context, int) error {
				asked++
				cancel()
				return nil
			})
			resp, err := tr.RoundTrip(get(ctx))
			if cost == 0 { // nothing to ask for
				netWant(t, resp, err, 200, 1, retryafter.Final)
			} else {
				netWantError(t, resp, err, 0, retryafter.Canceled)
			}
			if asked != cost || len(s.arrivals) != 1-cost {
				t.Errorf("cost %d: the Limiter was asked %d times, %d attempts were sent", cost, asked, len(s.arrivals))
			}
		})
	}
}

func TestReserveIsKeptFromALimiterThatCannotTell(t *testing.T) {
	// Before the first attempt nothing is known to be waited for.
	inBubble(t, []reply{{status: 503}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		var left []time.Duration
		tr.Limiter = netLimiter(func(ctx context.Context, _ int) error {
			deadline, _ := ctx.Deadline()
			left = append(left, deadline.Sub(s.begin))
			return nil
		})
		tr.Reserve = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := tr.RoundTrip(get(ctx)); err != nil {
			t.Fatal(err)
		}
		if len(left) != 2 || left[0] != 30*time.Second || left[1] != 20*time.Second {
			t.Errorf("the Limiter could take until %v, want 30s and 20s", left)
		}
	})
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Limiter = netLimiter(func(context.Context, int) error { return nil })
		tr.Reserve = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(get(ctx))
		netWant(t, resp, err, 200, 1, retryafter.Final)
	})
}

func TestTheLimitersWaitsAreReported(t *testing.T) {
	slow := func(err error) retryafter.Limiter {
		return netLimiter(func(context.Context, int) error { time.Sleep(3 * time.Second); return err })
	}
	for name, tc := range map[string]struct {
		limiter retryafter.Limiter
		replies []reply
		want    time.Duration
	}{
		"of one that can tell":     {slowBucket(3 * time.Second), []reply{{status: 200}}, 3 * time.Second},
		"of one that can not":      {slow(nil), []reply{{status: 200}}, 3 * time.Second},
		"of two attempts":          {slow(nil), []reply{{status: 503}, {status: 200}}, 6 * time.Second},
		"before it refuses":        {slow(errors.New("no")), []reply{{status: 200}}, 3 * time.Second},
		"before TakeN refuses":     {slowTaker{}, []reply{{status: 200}}, 3 * time.Second},
		"of one that is not asked": {nil, []reply{{status: 200}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.replies, func(t *testing.T, s *script, tr *retryafter.Transport) {
				var done retryafter.Report
				tr.Trace = &retryafter.Trace{Done: func(_ *http.Request, r retryafter.Report) { done = r }}
				tr.Limiter = tc.limiter
				tr.RoundTrip(get(t.Context()))
				if done.Limited != tc.want {
					t.Errorf("%v is reported, want %v", done.Limited, tc.want)
				}
			})
		})
	}
}

// slowTaker refuses after a while.
type slowTaker struct{ retryafter.Limiter }

func (slowTaker) TakeN(time.Time, int) (time.Duration, error) {
	time.Sleep(3 * time.Second)
	return 0, errors.New("no")
}

func (slowTaker) DelayN(time.Time, int) (time.Duration, error) { return 0, errors.New("no") }

// Promise 5: what is announced is slept.
func TestOnlyAWaitForTheLimiterThatIsMadeIsAnnounced(t *testing.T) {
	for name, tc := range map[string]struct {
		limiter retryafter.Limiter
		timeout time.Duration
		want    int
	}{
		"one that is made":             {slowBucket(3 * time.Second), time.Minute, 1},
		"one that refuses":             {retryafter.Deny(slowBucket(3 * time.Second)), time.Minute, 0},
		"one that is too long":         {slowBucket(3 * time.Second), 2 * time.Second, 0},
		"one that ends at the end":     {slowBucket(3 * time.Second), 3 * time.Second, 0},
		"one that nobody has measured": {netLimiter(func(context.Context, int) error { return nil }), time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				announced := 0
				tr.Limiter = tc.limiter
				tr.Trace = &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { announced++ }}
				tr.RoundTrip(get(ctx))
				if announced != tc.want {
					t.Errorf("%d waits were announced, want %d", announced, tc.want)
				}
			})
		})
	}
}

func TestAWaitForTheLimiterLeavesNothingBehind(t *testing.T) {
	for _, reserve := range []time.Duration{0, time.Second} { // with one there is a context more
		synctest.Test(t, func(t *testing.T) { // which fails where a goroutine is left
			ctx := &netCounting{Context: deadlineIn(time.Hour), done: make(chan struct{})}
			req := get(ctx)
			req.Cancel = make(chan struct{})
			tr := &retryafter.Transport{
				Base: netBase(netReply(200)), Limiter: slowBucket(time.Second), Gate: &retryafter.Gate{},
				Policy: retryafter.Policy{Reserve: reserve},
			}
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if hung, most := ctx.counts(); hung != 0 || most == 0 {
				t.Errorf("%d of at most %d registrations are left", hung, most)
			}
		})
	}
}

// deadlineIn is a context that has a deadline to tell and nothing else.
func deadlineIn(d time.Duration) context.Context {
	return deadlineOnly{context.Background(), time.Now().Add(d)}
}

type deadlineOnly struct {
	context.Context
	at time.Time
}

func (d deadlineOnly) Deadline() (time.Time, bool) { return d.at, true }

// A Limiter that can't tell its wait is given until MaxElapsed, or until the
// caller's deadline, less Reserve; which of them it was is the reason.
func TestALimiterIsBoundByWhatEndsFirst(t *testing.T) {
	other := errors.New("other")
	for name, tc := range map[string]struct {
		maxElapsed, reserve, timeout time.Duration
		err                          error // of the Limiter, where it is not its context's
		took                         time.Duration
		stop                         retryafter.Reason
	}{
		"MaxElapsed":                           {10 * time.Second, 0, 0, nil, 10 * time.Second, retryafter.ElapsedTooLong},
		"MaxElapsed, less Reserve":             {10 * time.Second, 2 * time.Second, 0, nil, 8 * time.Second, retryafter.ElapsedTooLong},
		"MaxElapsed before the deadline":       {10 * time.Second, 0, 20 * time.Second, nil, 10 * time.Second, retryafter.ElapsedTooLong},
		"the deadline":                         {10 * time.Second, 0, 5 * time.Second, nil, 5 * time.Second, retryafter.Canceled},
		"the deadline, less Reserve":           {10 * time.Second, 2 * time.Second, 5 * time.Second, nil, 3 * time.Second, retryafter.Limited},
		"the deadline alone, less Reserve":     {0, 2 * time.Second, 5 * time.Second, nil, 3 * time.Second, retryafter.Limited},
		"another error at MaxElapsed":          {10 * time.Second, 0, 0, other, 10 * time.Second, retryafter.Limited},
		"its own time, where nothing is bound": {0, 0, 0, context.DeadlineExceeded, 0, retryafter.Limited},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 503}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				tr.Backoff, tr.MaxElapsed, tr.Reserve = foundZero, tc.maxElapsed, tc.reserve
				asked := 0
				tr.Limiter = netLimiter(func(ctx context.Context, _ int) error {
					if asked++; asked == 1 {
						return nil
					}
					if tc.took > 0 {
						<-ctx.Done()
					}
					if tc.err != nil {
						return tc.err
					}
					return ctx.Err()
				})
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				resp, err := tr.RoundTrip(get(ctx))
				netWantError(t, resp, err, 1, tc.stop)
				if took := time.Since(s.begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
			})
		})
	}
}

// Before the first attempt no time of MaxElapsed has passed, and Reserve counts
// only where there is a deadline.
func TestTheFirstAttemptMayWaitForItsToken(t *testing.T) {
	for name, tc := range map[string]struct {
		maxElapsed, reserve, timeout time.Duration
	}{
		"with MaxElapsed":                {time.Second, 0, 0},
		"with MaxElapsed and a deadline": {time.Second, 0, time.Minute},
		"with Reserve":                   {0, time.Second, 0},
		"with all":                       {2 * time.Second, time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				tr.Limiter, tr.MaxElapsed, tr.Reserve = slowBucket(3*time.Second), tc.maxElapsed, tc.reserve
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				if _, err := tr.RoundTrip(get(ctx)); err != nil {
					t.Fatal(err)
				}
				wantArrivals(t, s, 3)
			})
		})
	}
}

// Where the Limiter waited before the first attempt, Reserve counts after that.
func TestReserveCountsAfterAWaitThatNobodyKnewOf(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Limiter = netLimiter(func(context.Context, int) error { time.Sleep(3 * time.Second); return nil })
		tr.Reserve = 4 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(get(ctx))
		netWantError(t, resp, err, 0, retryafter.DeadlineTooNear)
	})
}

func TestALimiterThatFailsACancelledCallDoesNotHideTheCancel(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tr.Limiter = slowTaker{}
		resp, err := tr.RoundTrip(get(ctx))
		netWantError(t, resp, err, 0, retryafter.Canceled)
	})
}

func TestAnAttemptThatCostsNothingAsksNobody(t *testing.T) {
	inBubble(t, []reply{{status: 503}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Limiter = slowTaker{} // and would panic in WaitN
		resp, err := tr.RoundTrip(get(retryafter.WithCost(t.Context(), 0)))
		netWant(t, resp, err, 200, 2, retryafter.Final)
		wantArrivals(t, s, 0, 1)
	})
}

// slowHolds is a memory that takes its time once it was asked for the first
// attempt.
type slowHolds struct {
	mu sync.Mutex
	countingHolds
	takes time.Duration
}

func (h *slowHolds) Hold(ctx context.Context, key retryafter.Key, d time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.countingHolds.Hold(ctx, key, d)
}

func (h *slowHolds) Held(ctx context.Context, key retryafter.Key) (time.Duration, error) {
	h.mu.Lock()
	first := h.asked == 0
	left, err := h.countingHolds.Held(ctx, key)
	h.mu.Unlock()
	if !first {
		time.Sleep(h.takes)
	}
	return left, err
}

func TestTimeThatASharedMemoryTakesIsNotTakenFromReserve(t *testing.T) {
	inBubble(t, []reply{{status: 503}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Gate = &retryafter.Gate{Shared: &slowHolds{takes: 2 * time.Second}}
		tr.Limiter = netLimiter(func(context.Context, int) error { return nil })
		tr.Reserve = 4 * time.Second
		// It is asked before the token of the first attempt is used, for the
		// decision, and before and after the second one asks for a token.
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(get(ctx))
		netWantError(t, resp, err, 1, retryafter.DeadlineTooNear)
		if took := time.Since(s.begin); took != 8*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// tellingLimiter tells its delay, and has no TakeN.
type tellingLimiter struct {
	netLimiter
	delay time.Duration
	err   error
}

func (l tellingLimiter) DelayN(time.Time, int) (time.Duration, error) { return l.delay, l.err }

func TestADelayIsAnnouncedAndAnErrorIsLeftToTheWait(t *testing.T) {
	for name, tc := range map[string]struct {
		delay time.Duration
		err   error
		want  []time.Duration
	}{
		"a delay":  {3 * time.Second, nil, seconds(3)},
		"none":     {0, nil, nil},
		"an error": {0, errors.New("away"), nil},
		"both":     {3 * time.Second, errors.New("away"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				var announced []time.Duration
				asked := 0
				tr.Trace = &retryafter.Trace{Waiting: func(w retryafter.WaitInfo) { announced = append(announced, w.Wait) }}
				tr.Limiter = tellingLimiter{func(context.Context, int) error { asked++; return nil }, tc.delay, tc.err}
				resp, err := tr.RoundTrip(get(t.Context()))
				netWant(t, resp, err, 200, 1, retryafter.Final)
				if diff := cmp.Diff(tc.want, announced); diff != "" || asked != 1 {
					t.Errorf("WaitN was called %d times; announced (-want +got):\n%s", asked, diff)
				}
			})
		})
	}
}
