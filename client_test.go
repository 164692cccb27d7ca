//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

// script is a RoundTripper that plays one reply after the other, the last one
// for ever, and records when it was asked. It is for one caller at a time.
type script struct {
	replies  []reply
	arrivals []time.Duration // since the first look at the clock
	numbers  []int
	begin    time.Time
}

type reply struct {
	status int
	header http.Header
	err    error
	takes  time.Duration
}

func told(status int, retryAfter string) reply {
	return reply{status: status, header: http.Header{"Retry-After": {retryAfter}}}
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.arrivals = append(s.arrivals, time.Since(s.begin))
	s.numbers = append(s.numbers, retryafter.AttemptNumber(req.Context()))
	if req.Body != nil {
		io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	r := s.replies[min(len(s.arrivals), len(s.replies))-1]
	if r.takes > 0 {
		select {
		case <-time.After(r.takes):
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	return &http.Response{
		StatusCode: r.status, Header: r.header, Request: req, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf("reply %d", len(s.arrivals)))),
	}, nil
}

// inBubble runs f with a Transport over a script, on a virtual clock.
func inBubble(t *testing.T, replies []reply, f func(t *testing.T, s *script, tr *retryafter.Transport)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: replies, begin: time.Now()}
		f(t, s, &retryafter.Transport{Base: s, Policy: retryafter.Policy{
			MaxAttempts: 4, MaxWait: time.Minute, Jitter: retryafter.NoJitter, Backoff: doubling,
		}})
	})
}

// doubling is 1 s, 2 s, 4 s, …
func doubling() backoff.BackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0), backoff.WithMaxInterval(time.Hour), backoff.WithMaxElapsedTime(0))
}

func get(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://user:secret@example.com/path?token=secret", nil)
	if err != nil {
		panic(err)
	}
	return req
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return string(b)
}

func seconds(s ...float64) []time.Duration {
	d := make([]time.Duration, len(s))
	for i := range s {
		d[i] = time.Duration(s[i] * float64(time.Second))
	}
	return d
}

func wantArrivals(t *testing.T, s *script, at ...float64) {
	t.Helper()
	if diff := cmp.Diff(seconds(at...), s.arrivals); diff != "" {
		t.Errorf("attempts left at (-want +got):\n%s", diff)
	}
}

func TestAttemptsLeaveWhenBothWaitsHavePassed(t *testing.T) {
	date := func(ahead time.Duration) string {
		// A bubble's clock starts at midnight of 2000-01-01 UTC.
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(ahead).Format(http.TimeFormat)
	}
	for name, tc := range map[string]struct {
		replies []reply
		at      []float64
	}{
		"C008 seconds are seconds":                         {[]reply{told(429, "60"), {status: 200}}, []float64{0, 60}},
		"C046 a short hint does not beat a longer backoff": {[]reply{told(503, "1"), told(503, "1"), told(503, "1"), {status: 200}}, []float64{0, 1, 3, 7}},
		"C047 the backoff advances under hints":            {[]reply{told(429, "1"), {status: 503}, {status: 200}}, []float64{0, 1, 3}},
		"C033 a date gone by":                              {[]reply{told(503, date(-time.Second)), {status: 200}}, []float64{0, 1}},
		"C013 a date":                                      {[]reply{told(429, date(time.Minute)), {status: 200}}, []float64{0, 60}},
		"C055 an unreadable value":                         {[]reply{told(503, "soon"), {status: 200}}, []float64{0, 1}},
		"C030 several lines":                               {[]reply{{status: 429, header: http.Header{"Retry-After": {"5", "40"}}}, {status: 200}}, []float64{0, 40}},
		"C039 the same hint again is a second wait":        {[]reply{told(503, "5"), told(503, "5"), {status: 200}}, []float64{0, 5, 10}},
		"F22 one counter for errors and responses":         {[]reply{{err: io.EOF}, {status: 503}, {status: 200}}, []float64{0, 1, 3}},
		"F21 503, then what is final":                      {[]reply{{status: 503}, {status: 400}}, []float64{0, 1}},
		"C074 counted from receipt":                        {[]reply{{status: 429, header: http.Header{"Retry-After": {"5"}}, takes: 3 * time.Second}, {status: 200}}, []float64{0, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.replies, func(t *testing.T, s *script, tr *retryafter.Transport) {
				resp, err := tr.RoundTrip(get(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				wantArrivals(t, s, tc.at...)
				if got, want := body(t, resp), fmt.Sprintf("reply %d", len(tc.at)); got != want {
					t.Errorf("body %q, want that of the last attempt, %q", got, want)
				}
				if r := retryafter.ReportOf(resp); r.Attempts != len(tc.at) || r.Stop != retryafter.Final {
					t.Errorf("report %v, want %d attempts and Final", r, len(tc.at))
				}
				for i, n := range s.numbers {
					if n != i+1 {
						t.Errorf("AttemptNumber was %v", s.numbers)
					}
				}
			})
		})
	}
}

func TestRefusalsTakeNoTimeAndKeepTheResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		reply   reply
		change  func(*retryafter.Transport)
		timeout time.Duration
		method  string
		stop    retryafter.Reason
		wait    time.Duration
	}{
		"C052 longer than MaxWait":        {reply: told(429, "7200"), stop: retryafter.WaitTooLong, wait: 2 * time.Hour},
		"C005 ten digits":                 {reply: told(429, "9999999999"), stop: retryafter.WaitTooLong, wait: 1<<63 - 1},
		"C003 what would wrap":            {reply: told(429, "18446744073"), stop: retryafter.WaitTooLong, wait: 1<<63 - 1},
		"C010 an epoch":                   {reply: told(429, "1746136938"), stop: retryafter.WaitTooLong, wait: 1746136938 * time.Second},
		"C050 a long hint is not dropped": {reply: told(429, "90"), stop: retryafter.WaitTooLong, wait: 90 * time.Second},
		"C009 past the deadline":          {reply: told(429, "55"), timeout: 30 * time.Second, stop: retryafter.DeadlineTooNear, wait: 55 * time.Second},
		"D3 on the deadline":              {reply: told(429, "30"), timeout: 30 * time.Second, stop: retryafter.DeadlineTooNear, wait: 30 * time.Second},
		"past MaxElapsed":                 {reply: told(429, "30"), change: func(t *retryafter.Transport) { t.MaxElapsed = 30 * time.Second }, stop: retryafter.ElapsedTooLong, wait: 30 * time.Second},
		"a POST":                          {reply: told(503, "3"), method: "POST", stop: retryafter.MethodNotIdempotent, wait: 3 * time.Second},
		"no attempts left":                {reply: told(503, "3"), change: func(t *retryafter.Transport) { t.MaxAttempts = 1 }, stop: retryafter.AttemptsUsed, wait: 3 * time.Second},
		"the backoff stops":               {reply: told(503, "3"), change: func(t *retryafter.Transport) { t.Backoff = func() backoff.BackOff { return &backoff.StopBackOff{} } }, stop: retryafter.BackoffStopped, wait: 3 * time.Second},
		"the limiter needs longer": {reply: told(503, "3"), timeout: 30 * time.Second, change: func(t *retryafter.Transport) {
			t.Limiter = &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}
		}, stop: retryafter.DeadlineTooNear, wait: 3 * time.Second},
		"C127 a token that no deadline allows": {reply: told(503, "3"), timeout: time.Minute, change: func(t *retryafter.Transport) {
			t.Limiter = &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}
		}, stop: retryafter.DeadlineTooNear, wait: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{tc.reply}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				if tc.change != nil {
					tc.change(tr)
				}
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				req := get(ctx)
				if tc.method != "" {
					req.Method = tc.method
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(s.begin); took != 0 {
					t.Errorf("took %v", took)
				}
				wantArrivals(t, s, 0)
				if got := body(t, resp); got != "reply 1" || resp.StatusCode != tc.reply.status {
					t.Errorf("handed back %d %q", resp.StatusCode, got)
				}
				r := retryafter.ReportOf(resp)
				if r.Stop != tc.stop || r.Decision.Wait != tc.wait || r.Attempts != 1 || r.Waited != 0 {
					t.Errorf("report %+v, want %v with a wait of %v", r, tc.stop, tc.wait)
				}
			})
		})
	}
}

func TestJitterIsTestedAgainstTheDeadline(t *testing.T) {
	// C080: 5 s left, a hint of 4.9 s, and jitter that does or does not fit.
	for jitter, retried := range map[time.Duration]bool{0: true, 99 * time.Millisecond: true, 100 * time.Millisecond: false, time.Second: false} {
		inBubble(t, []reply{told(503, "4"), {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			tr.Jitter = func(time.Duration, bool) time.Duration { return 900*time.Millisecond + jitter }
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			resp, err := tr.RoundTrip(get(ctx))
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.StatusCode == 200; got != retried {
				t.Errorf("jitter %v: retried %v, want %v", jitter, got, retried)
			}
		})
	}
}

func TestTheSmallestCapHolds(t *testing.T) {
	ctx := context.Background()
	two := retryafter.WithMaxAttempts(ctx, 2)
	for name, tc := range map[string]struct {
		ctx  context.Context
		want int
	}{
		"none":                  {ctx, 4},
		"two":                   {two, 2},
		"a larger inside":       {retryafter.WithMaxAttempts(two, 9), 2},
		"a smaller inside":      {retryafter.WithMaxAttempts(two, 1), 1},
		"above the Policy's":    {retryafter.WithMaxAttempts(ctx, 9), 4},
		"with other values too": {retryafter.WithTrace(retryafter.WithCost(two, 3), &retryafter.Trace{}), 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 503}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				resp, err := tr.RoundTrip(get(tc.ctx))
				if err != nil {
					t.Fatal(err)
				}
				if len(s.arrivals) != tc.want {
					t.Errorf("%d attempts, want %d", len(s.arrivals), tc.want)
				}
				if r := retryafter.ReportOf(resp); r.Stop != retryafter.AttemptsUsed || r.Attempts != tc.want {
					t.Errorf("report %v", r)
				}
			})
		})
	}
}

func TestTheZeroTransportKeepsItsDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 503}}, begin: time.Now()}
		tr := &retryafter.Transport{Base: s}
		resp, err := tr.RoundTrip(get(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if r := retryafter.ReportOf(resp); r.Stop != retryafter.AttemptsUsed || r.Attempts != 3 {
			t.Errorf("report %v, want three attempts", r)
		}
		for i, gap := range []time.Duration{s.arrivals[1], s.arrivals[2] - s.arrivals[1]} {
			if gap < time.Second || gap > 2*time.Second {
				t.Errorf("wait %d of %v, want 1 s and up to as much again", i+1, gap)
			}
		}
	})
}

func TestACancelEndsAWaitAtOnce(t *testing.T) {
	shutdown := errors.New("shutting down")
	for name, tc := range map[string]struct {
		cancel func(ctx context.Context) (context.Context, func())
		is     []error
	}{
		"cancel": {func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }, []error{context.Canceled}},
		"cause": {func(ctx context.Context) (context.Context, func()) {
			ctx, c := context.WithCancelCause(ctx)
			return ctx, func() { c(shutdown) }
		}, []error{context.Canceled, shutdown}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{told(429, "50")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				ctx, cancel := tc.cancel(t.Context())
				time.AfterFunc(7*time.Second, cancel)
				resp, err := tr.RoundTrip(get(ctx))
				if resp != nil || time.Since(s.begin) != 7*time.Second {
					t.Errorf("ended after %v with %v", time.Since(s.begin), resp)
				}
				for _, want := range tc.is {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				e, ok := errors.AsType[*retryafter.Error](err)
				if !ok {
					t.Fatalf("%T", err)
				}
				want := retryafter.Report{Attempts: 1, Waited: 7 * time.Second, Stop: retryafter.Canceled}
				if e.Report.Attempts != want.Attempts || e.Report.Waited != want.Waited || e.Report.Stop != want.Stop {
					t.Errorf("report %+v", e.Report)
				}
				if e.Report.Decision.Wait != 50*time.Second {
					t.Errorf("the pending wait was reported as %v", e.Report.Decision.Wait)
				}
			})
		})
	}
}

func TestAnErrorThatEndsACallIsWrappedWithItsReport(t *testing.T) {
	inBubble(t, []reply{{err: io.ErrUnexpectedEOF}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		resp, err := tr.RoundTrip(get(t.Context()))
		if resp != nil || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%v, %v", resp, err)
		}
		e, ok := errors.AsType[*retryafter.Error](err)
		if !ok || e.Report.Attempts != 4 || e.Report.Stop != retryafter.AttemptsUsed || e.Report.Waited != 7*time.Second {
			t.Fatalf("%+v", err)
		}
	})
}

func TestASettledFirstAttemptIsHandedOnUntouched(t *testing.T) {
	failure := errors.New("malformed HTTP response")
	inBubble(t, []reply{{err: failure}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		if _, err := tr.RoundTrip(get(t.Context())); err != failure {
			t.Errorf("%T %v, want the very error of Base", err, err)
		}
	})
	inBubble(t, []reply{told(202, "30")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		req := get(t.Context())
		resp, err := tr.RoundTrip(req)
		if err != nil || resp.Request != req || time.Since(s.begin) != 0 {
			t.Fatalf("%v, %v after %v", resp, err, time.Since(s.begin))
		}
		if diff := cmp.Diff(retryafter.Report{Attempts: 1, Stop: retryafter.Final}, retryafter.ReportOf(resp)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestARetriedSuccessCostsAtMostFiveAllocations(t *testing.T) {
	bare := testing.AllocsPerRun(200, func() { roundTrips(t, &refusing{}, 1) })
	if one := testing.AllocsPerRun(200, func() { roundTrips(t, &retryafter.Transport{Base: &refusing{}}, 1) }); one > bare+1 {
		// The Transport itself is the one more.
		t.Errorf("a call that needs no retry: %v allocations, Base alone: %v", one, bare)
	}
	base := &refusing{}
	twice := testing.AllocsPerRun(200, func() { roundTrips(t, base, 2) })
	tr := &retryafter.Transport{Base: &refusing{refuse: true}, Policy: retryafter.Policy{
		Backoff: func() backoff.BackOff { return tick },
		Jitter:  func(time.Duration, bool) time.Duration { return time.Millisecond }, // so long that a timer is needed
	}}
	if got := testing.AllocsPerRun(200, func() { roundTrips(t, tr, 1) }); got > twice+5 {
		t.Errorf("503, a wait, 200: %v allocations, Base twice: %v", got, twice)
	}
	plain := &retryafter.Transport{Base: &refusing{}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for name, req := range map[string]*http.Request{"no context": settledRequest, "deadline": settledRequest.WithContext(ctx),
		"cap": settledRequest.WithContext(retryafter.WithMaxAttempts(ctx, 2))} {
		if got := testing.AllocsPerRun(200, func() { plain.RoundTrip(req) }); got > 1 {
			t.Errorf("%s: %v allocations, want that of Base", name, got)
		}
	}
}

var (
	tick           = backoff.NewConstantBackOff(time.Microsecond)
	settledRequest = httptest.NewRequest("GET", "http://example.com/path", nil)
)

// refusing answers 200, or alternately 503 and 200, with one allocation.
type refusing struct{ refuse, refused bool }

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.refuse {
		if r.refused = !r.refused; r.refused {
			return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
		}
	}
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
}

func roundTrips(t *testing.T, rt http.RoundTripper, n int) {
	for range n {
		if resp, err := rt.RoundTrip(settledRequest); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
	}
}

func TestWhatIsAnnouncedIsSleptAndReported(t *testing.T) {
	inBubble(t, []reply{told(503, "3"), {err: io.EOF}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		var log []string
		say := func(format string, args ...any) {
			log = append(log, fmt.Sprintf("%v: ", time.Since(s.begin))+fmt.Sprintf(format, args...))
		}
		tr.Jitter = func(time.Duration, bool) time.Duration { return 500 * time.Millisecond }
		trace := func(who string) *retryafter.Trace {
			return &retryafter.Trace{
				AttemptDone: func(a retryafter.Attempt) { say("%s attempt %d: %d %v", who, a.Number, a.StatusCode, a.Err) },
				Waiting: func(w retryafter.WaitInfo) {
					say("%s waits %v before %d, until %v, for %d %v", who, w.Wait, w.Attempt, w.Until.Sub(s.begin), w.StatusCode, w.Err)
				},
				Done: func(req *http.Request, r retryafter.Report) { say("%s done: %v, waited %v", who, r, r.Waited) },
			}
		}
		tr.Trace = trace("transport")
		ctx := retryafter.WithTrace(retryafter.WithTrace(t.Context(), trace("outer")), trace("inner"))
		if _, err := tr.RoundTrip(get(ctx)); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, line := range []string{
			"0s: %s attempt 1: 503 <nil>",
			"0s: %s waits 3.5s before 2, until 3.5s, for 503 <nil>",
			"3.5s: %s attempt 2: 0 EOF",
			"3.5s: %s waits 2.5s before 3, until 6s, for 0 EOF",
			"6s: %s attempt 3: 200 <nil>",
			"6s: %s done: Final after 3 attempts, waited 6s",
		} {
			for _, who := range []string{"inner", "outer", "transport"} {
				want = append(want, fmt.Sprintf(line, who))
			}
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		wantArrivals(t, s, 0, 3.5, 6)
	})
}

func TestEveryAttemptPaysTheLimiter(t *testing.T) {
	// C128: five calls of three attempts each, at one a second.
	synctest.Test(t, func(t *testing.T) {
		bucket := &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerSecond(1)}
		begin := time.Now()
		sent := make(chan int)
		for range 5 {
			go func() {
				s := &script{replies: []reply{told(503, "0"), told(503, "0"), {status: 200}}, begin: begin}
				tr := &retryafter.Transport{Base: s, Limiter: bucket, Policy: retryafter.Policy{
					Backoff: func() backoff.BackOff { return &backoff.ZeroBackOff{} }, Jitter: retryafter.NoJitter}}
				resp, err := tr.RoundTrip(get(t.Context()))
				if err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
				}
				sent <- len(s.arrivals)
			}()
		}
		all := 0
		for range 5 {
			all += <-sent
		}
		if all != 15 || time.Since(begin) != 14*time.Second {
			t.Errorf("%d attempts in %v, want 15 in 14s", all, time.Since(begin))
		}
	})
}

func TestTheTokenIsTakenAfterTheWait(t *testing.T) {
	inBubble(t, []reply{told(503, "30"), {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		bucket := &retryafter.Bucket{Capacity: 2, Rate: retryafter.Rate{Tokens: 1, Per: time.Hour}}
		tr.Limiter = bucket
		time.AfterFunc(15*time.Second, func() {
			if d, err := bucket.DelayN(time.Now(), 1); d != 0 || err != nil {
				t.Errorf("during the wait the second token is %v away (%v)", d, err)
			}
		})
		if _, err := tr.RoundTrip(get(t.Context())); err != nil {
			t.Fatal(err)
		}
		if bucket.Allow() {
			t.Error("the second attempt did not pay")
		}
		wantArrivals(t, s, 0, 30)
	})
}

func TestALimiterThatRefusesEndsTheCallUnsent(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Limiter = &retryafter.Bucket{Capacity: 5, Rate: retryafter.PerSecond(1)}
		var closed closeCounter
		req := get(retryafter.WithCost(t.Context(), 6))
		req.Body = &closed
		var done retryafter.Report
		tr.Trace = &retryafter.Trace{Done: func(_ *http.Request, r retryafter.Report) { done = r }}
		_, err := tr.RoundTrip(req)
		cost, ok := errors.AsType[*retryafter.CostError](err)
		if !ok || cost.Cost != 6 || cost.Capacity != 5 {
			t.Errorf("%v", err)
		}
		e, _ := errors.AsType[*retryafter.Error](err)
		if e == nil || e.Report.Stop != retryafter.Limited || e.Report.Attempts != 0 || done.Stop != retryafter.Limited {
			t.Errorf("%+v, hook: %+v", e, done)
		}
		if len(s.arrivals) != 0 || closed != 1 {
			t.Errorf("sent %d times, body closed %d times", len(s.arrivals), closed)
		}
	})
}

func TestADeadlineThatTheFirstTokenMissesIsRefusedAtOnce(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		bucket := &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}
		bucket.Allow()
		for _, limiter := range []retryafter.Limiter{bucket, retryafter.Deny(bucket)} {
			tr.Limiter = limiter
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			_, err := tr.RoundTrip(get(ctx))
			cancel()
			limit, ok := errors.AsType[*retryafter.LimitError](err)
			if !ok || limit.Delay != time.Minute || time.Since(s.begin) != 0 {
				t.Errorf("%v after %v", err, time.Since(s.begin))
			}
			if e, ok := errors.AsType[*retryafter.Error](err); !ok || e.Report.Decision.Limiter != time.Minute {
				t.Errorf("the report has no delay: %+v", e)
			}
		}
	})
}

func TestReserveIsLeftForTheAttemptAfterAWait(t *testing.T) {
	for name, tc := range map[string]struct {
		reserve, left time.Duration
		spent         bool // the bucket is empty at first
		attempts      int
		stop          retryafter.Reason
	}{
		"left after the server's wait":     {2 * time.Second, 5*time.Second + 1, false, 2, retryafter.Final},
		"not left after the server's wait": {2 * time.Second, 5 * time.Second, false, 1, retryafter.DeadlineTooNear},
		"not left after the token":         {5 * time.Second, 6 * time.Second, true, 0, retryafter.Limited},
		"no wait, so nothing to reserve":   {9 * time.Second, 6 * time.Second, false, 1, retryafter.DeadlineTooNear},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{told(503, "3"), {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				bucket := &retryafter.Bucket{Capacity: 9, Rate: retryafter.PerSecond(1)}
				if tc.spent {
					bucket.AllowN(time.Now(), 9)
				}
				tr.Limiter, tr.Reserve = bucket, tc.reserve
				ctx, cancel := context.WithTimeout(t.Context(), tc.left)
				defer cancel()
				resp, err := tr.RoundTrip(get(ctx))
				r := retryafter.ReportOf(resp)
				if e, ok := errors.AsType[*retryafter.Error](err); ok {
					r = e.Report
				}
				if len(s.arrivals) != tc.attempts || r.Stop != tc.stop {
					t.Errorf("%d attempts, %v; want %d, %v", len(s.arrivals), r, tc.attempts, tc.stop)
				}
			})
		})
	}
}

func TestARedirectHopWaits(t *testing.T) {
	// C060: a server asks for two seconds before each of its redirects.
	for name, tc := range map[string]struct {
		retryAfter string
		timeout    time.Duration
		took       time.Duration
		hops       int
		stop       retryafter.Reason
	}{
		"2 s a hop":                   {"2", 0, 10 * time.Second, 6, retryafter.Final},
		"0 s":                         {"0", 0, 0, 6, retryafter.Final},
		"unreadable":                  {"soon", 0, 0, 6, retryafter.Final},
		"longer than MaxWait":         {"3600", 0, 0, 1, retryafter.WaitTooLong},
		"past http.Client's deadline": {"2", 3 * time.Second, 2 * time.Second, 2, retryafter.DeadlineTooNear},
	} {
		t.Run(name, func(t *testing.T) {
			hop := reply{status: 303, header: http.Header{"Location": {"/same"}, "Retry-After": {tc.retryAfter}}}
			inBubble(t, []reply{hop, hop, hop, hop, hop, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				client := &http.Client{Transport: tr, Timeout: tc.timeout}
				resp, err := client.Do(get(t.Context()))
				r := retryafter.ReportOf(resp)
				if e, ok := errors.AsType[*retryafter.Error](err); ok {
					r = e.Report
				}
				if r.Stop != tc.stop || len(s.arrivals) != tc.hops || time.Since(s.begin) != tc.took {
					t.Errorf("%v after %d hops and %v; want %v, %d, %v", r, len(s.arrivals), time.Since(s.begin), tc.stop, tc.hops, tc.took)
				}
				if resp != nil {
					resp.Body.Close()
				}
			})
		})
	}
}

func TestASenselessSettingIsNamedAndNothingIsSent(t *testing.T) {
	for says, change := range map[string]func(*retryafter.Transport, *http.Request) *http.Request{
		"Policy.Reserve is -1s": func(t *retryafter.Transport, r *http.Request) *http.Request { t.Reserve = -time.Second; return r },
		"Transport.AttemptTimeout is -2s": func(t *retryafter.Transport, r *http.Request) *http.Request {
			t.AttemptTimeout = -2 * time.Second
			return r
		},
		"Policy.Reserve is 10s: must be less than MaxElapsed": func(t *retryafter.Transport, r *http.Request) *http.Request {
			t.Reserve, t.MaxElapsed = 10*time.Second, 10*time.Second
			return r
		},
		"WithCost is -1": func(_ *retryafter.Transport, r *http.Request) *http.Request {
			return r.WithContext(retryafter.WithCost(r.Context(), -1))
		},
		"WithMaxAttempts is 0": func(t *retryafter.Transport, r *http.Request) *http.Request {
			return r.WithContext(retryafter.WithMaxAttempts(r.Context(), 0))
		},
		"Bucket.Capacity is 0": func(t *retryafter.Transport, r *http.Request) *http.Request {
			t.Limiter = &retryafter.Bucket{Rate: retryafter.PerSecond(1)}
			return r
		},
	} {
		inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			var closed closeCounter
			req := get(t.Context())
			req.Body = &closed
			_, err := tr.RoundTrip(change(tr, req))
			config, ok := errors.AsType[*retryafter.ConfigError](err)
			if !ok || !strings.Contains(config.Error(), says) {
				t.Errorf("%v, want it to say %q", err, says)
			}
			if len(s.arrivals) != 0 || closed != 1 {
				t.Errorf("%s: sent %d times, body closed %d times", says, len(s.arrivals), closed)
			}
		})
	}
}

type closeCounter int

func (c *closeCounter) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closeCounter) Close() error             { *c++; return nil }

func TestMessagesAndLogsKeepSecrets(t *testing.T) {
	inner := &url.Error{Op: "Get", URL: "http://user:secret@example.com/path?token=secret", Err: io.EOF}
	inBubble(t, []reply{{err: inner}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		_, err := tr.RoundTrip(get(t.Context()))
		e, ok := errors.AsType[*retryafter.Error](err)
		if !ok {
			t.Fatal(err)
		}
		e.Report.Err = inner
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("gave up", "report", e.Report)
		for _, text := range []string{err.Error(), log.String()} {
			if strings.Contains(text, "secret") || !strings.Contains(text, "example.com/path") {
				t.Error(text)
			}
		}
	})
}

func TestOneURLMayBeginWithAnother(t *testing.T) {
	at := func(u string, err error) error { return &url.Error{Op: "Get", URL: u, Err: err} }
	quoted := at(`http://h/a?k="secret`, io.EOF)
	for _, err := range []error{
		errors.Join(at("http://u@h/", io.EOF), at("http://u@h/?q=secret", io.EOF)),
		at("http://h/a?k=ab", at("http://h/a?k=absecret", io.EOF)),
		fmt.Errorf("%q: %w", quoted.Error(), quoted),
		quoted,
		at("http://u:secret@h:bad/", io.EOF),
		at("http:u:secret@h/?q=secret", io.EOF),
	} {
		text := (&retryafter.Error{Err: err}).Error()
		if strings.Contains(text, "secret") || strings.Contains(text, "u@") {
			t.Errorf("%v: %s", err, text)
		}
	}
}

func TestAReportReadsWell(t *testing.T) {
	inBubble(t, []reply{told(429, "3600")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		resp, err := tr.RoundTrip(get(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		r := retryafter.ReportOf(resp)
		if got, want := r.String(), "WaitTooLong after 1 attempt, the server asked for 1h0m0s"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})).Info("gave up", "call", r)
		want := "level=INFO msg=\"gave up\" call.attempts=1 call.waited=0s call.stop=WaitTooLong call.wait=1h0m0s call.server=1h0m0s\n"
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Error(diff)
		}
	})
	if got := retryafter.ReportOf(nil); got != (retryafter.Report{}) {
		t.Errorf("of no response: %+v", got)
	}
	if got := retryafter.Reason(200).String(); got != "Reason(200)" {
		t.Error(got)
	}
}

func TestTheExampleUnderSynctest(t *testing.T) { comesBackAfterAMinute(t) }

func TestATransportThatIsItsOwnBaseSaysSo(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	tr := &retryafter.Transport{}
	http.DefaultTransport = tr
	var closed closeCounter
	req := get(t.Context())
	req.Body = &closed
	_, err := tr.RoundTrip(req)
	if c, ok := errors.AsType[*retryafter.ConfigError](err); !ok || c.Field != "Transport.Base" {
		t.Errorf("%v", err)
	}
	if closed != 1 {
		t.Errorf("the body was closed %d times", closed)
	}
}

func TestHooksMayLogWhatTheyGet(t *testing.T) {
	inBubble(t, []reply{{status: 503, header: http.Header{"Set-Cookie": {"secret"}, "Retry-After": {"2"}}}, {err: io.EOF}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		var log bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		tr.Trace = &retryafter.Trace{
			AttemptDone: func(a retryafter.Attempt) { logger.Info("attempt", "a", a) },
			Waiting:     func(w retryafter.WaitInfo) { logger.Info("waiting", "w", w) },
			Done:        func(_ *http.Request, r retryafter.Report) { logger.Info("done", "r", r) },
		}
		tr.Limiter = &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(3 * time.Second)}
		if _, err := tr.RoundTrip(get(t.Context())); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		for _, want := range []string{`"a":{"number":1,"elapsed":0,"status":503}`, `"error":"EOF"`, `"w":{"attempt":2,"wait":2000000000,`, `"limiter":true`, `"server":2000000000`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		for _, bad := range []string{"secret", "ERROR:", "example.com"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s in\n%s", bad, text)
			}
		}
	})
}

func TestLogsTellWhatTheServerAskedForWhereItDid(t *testing.T) {
	read := retryafter.Hint{Form: retryafter.Seconds}
	for name, tc := range map[string]struct {
		decision retryafter.Decision
		status   int
		tells    bool
	}{
		"a delay":                   {retryafter.Decision{Server: 2 * time.Second}, 503, true},
		"no wait":                   {retryafter.Decision{Hint: read}, 503, true},
		"nothing":                   {retryafter.Decision{HintErr: retryafter.ErrNoHint}, 503, false},
		"by what a Gate was told":   {retryafter.Decision{Server: time.Second, HintErr: retryafter.ErrNoHint}, 0, true},
		"nothing, for it is broken": {retryafter.Decision{HintErr: retryafter.ErrNoHint}, 0, false},
	} {
		tc.decision.Wait = time.Minute
		for _, v := range []slog.LogValuer{
			retryafter.WaitInfo{StatusCode: tc.status, Wait: time.Minute, Decision: tc.decision},
			retryafter.Report{Attempts: 1, Decision: tc.decision},
		} {
			tells := slices.ContainsFunc(v.LogValue().Group(), func(a slog.Attr) bool { return a.Key == "server" })
			if tells != tc.tells {
				t.Errorf("%s: %v", name, v.LogValue())
			}
		}
	}
}

func TestAServerThatRenewsItsPenaltyIsLeftAloneLongEnough(t *testing.T) {
	// C071: a request within the window begins it anew.
	synctest.Test(t, func(t *testing.T) {
		var free time.Time
		sent := 0
		tr := &retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			sent++
			if now := time.Now(); now.Before(free) || free.IsZero() {
				free = now.Add(5 * time.Second)
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"5"}}, Body: http.NoBody, Request: req}, nil
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		})}
		resp, err := tr.RoundTrip(get(t.Context()))
		if err != nil || resp.StatusCode != 200 || sent != 2 {
			t.Errorf("%v, %v after %d requests", resp, err, sent)
		}
	})
}

func TestAWaitOfMaxWaitIsStillSpread(t *testing.T) {
	// C043: nothing cuts the jitter away where the delay is just allowed.
	instants := map[time.Duration]bool{}
	for range 300 {
		inBubble(t, []reply{told(429, "60"), {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			tr.Jitter = nil
			if _, err := tr.RoundTrip(get(t.Context())); err != nil {
				t.Fatal(err)
			}
			instants[s.arrivals[1]] = true
		})
	}
	if len(instants) < 290 {
		t.Errorf("300 clients came back at %d instants", len(instants))
	}
}

func TestMaxElapsedThatNoWaitFitsEndsTheCall(t *testing.T) {
	// C090: it ends, and zero is no bound.
	for most, attempts := range map[time.Duration]int{0: 4, -1: 4, time.Millisecond: 1} {
		inBubble(t, []reply{{status: 503}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			tr.MaxElapsed = most
			if _, err := tr.RoundTrip(get(t.Context())); err != nil || len(s.arrivals) != attempts {
				t.Errorf("MaxElapsed %v: %d attempts, %v; want %d", most, len(s.arrivals), err, attempts)
			}
		})
	}
}

// What docs/roundtrippers.md says of who replaces a response's request.
func TestAReportHangsOnTheRequestOfItsResponse(t *testing.T) {
	inBubble(t, []reply{told(429, "3600")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		req := get(t.Context())
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			request *http.Request
			want    retryafter.Reason
		}{
			"the same":      {resp.Request, retryafter.WaitTooLong},
			"a copy":        {resp.Request.WithContext(resp.Request.Context()), retryafter.Final},
			"the caller's":  {req, retryafter.Final},
			"none whatever": {nil, retryafter.Final},
		} {
			wrapped := http.Response{StatusCode: resp.StatusCode, Body: http.NoBody, Request: tc.request}
			if r := retryafter.ReportOf(&wrapped); r.Stop != tc.want || r.Attempts != 1 {
				t.Errorf("%s: %v, want %v", name, r, tc.want)
			}
		}
	})
}

func TestAResponseThatNoTransportReturnedHasNoReportOfAnother(t *testing.T) {
	inBubble(t, []reply{told(429, "3600")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		first, err := tr.RoundTrip(get(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		other := get(first.Request.Context()) // a context that is borrowed for a call by other means
		resp, err := s.RoundTrip(other)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := retryafter.ReportOf(resp), (retryafter.Report{Attempts: 1, Stop: retryafter.Final}); got != want {
			t.Errorf("%+v", got)
		}
	})
}

// Who is shown an Attempt is told how long the call has taken, the first time
// too.
func TestElapsedCountsFromTheFirstSend(t *testing.T) {
	for name, watch := range map[string]func(*retryafter.Transport, func(retryafter.Attempt)){
		"by Trace": func(tr *retryafter.Transport, see func(retryafter.Attempt)) {
			tr.Trace = &retryafter.Trace{AttemptDone: see}
		},
		"by Retry": func(tr *retryafter.Transport, see func(retryafter.Attempt)) {
			tr.Retry = func(a retryafter.Attempt) bool { see(a); return retryafter.DefaultRetry(a) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 503, takes: 2 * time.Second}, {status: 200, takes: 3 * time.Second}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				var got []time.Duration
				watch(tr, func(a retryafter.Attempt) { got = append(got, a.Elapsed) })
				if _, err := tr.RoundTrip(get(t.Context())); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(seconds(2, 6), got); diff != "" {
					t.Errorf("elapsed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAnAttemptMayTakeAllOfMaxElapsed(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.MaxElapsed, tr.AttemptTimeout = time.Minute, time.Minute
		if _, err := tr.RoundTrip(get(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// stingyLimiter admits the first attempt, and never another.
type stingyLimiter struct{ asked int }

func (l *stingyLimiter) WaitN(context.Context, int) error { l.asked++; return nil }

func (l *stingyLimiter) DelayN(time.Time, int) (time.Duration, error) {
	if l.asked > 0 {
		return 0, errors.New("never")
	}
	return 0, nil
}

func TestALimiterThatWillRefuseEndsTheCallWithItsResponse(t *testing.T) {
	for _, tc := range []struct {
		status, attempts int
		stop             retryafter.Reason
	}{{503, 1, retryafter.Limited}, {404, 1, retryafter.Final}} {
		inBubble(t, []reply{told(tc.status, "5")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			tr.Limiter = &stingyLimiter{}
			resp, err := tr.RoundTrip(get(t.Context()))
			netWant(t, resp, err, tc.status, tc.attempts, tc.stop)
			r := retryafter.ReportOf(resp)
			if refused := r.Err != nil && r.Err.Error() == "never"; refused != (tc.stop == retryafter.Limited) {
				t.Errorf("the report tells the error %v", r.Err)
			}
			if took := time.Since(s.begin); took != 0 {
				t.Errorf("took %v", took)
			}
		})
	}
	// What it says of a call that ends for another reason is not told.
	inBubble(t, []reply{told(503, "5")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Limiter, tr.Backoff = &stingyLimiter{}, nil
		tr.Budget = &retryafter.RetryBudget{Retries: 1}
		tr.Budget.Withdraw(retryafter.ByHost(get(t.Context())))
		resp, err := tr.RoundTrip(get(t.Context()))
		netWant(t, resp, err, 503, 1, retryafter.BudgetSpent)
		if err := retryafter.ReportOf(resp).Err; err != nil {
			t.Errorf("the report tells the error %v", err)
		}
	})
}

// countedBackoff tells how often it was asked.
type countedBackoff struct{ asked *int }

func (countedBackoff) Reset()                       {}
func (b countedBackoff) NextBackOff() time.Duration { *b.asked++; return time.Second }

func TestACallsBackoffIsMadeOnceAndStepsOnceARetry(t *testing.T) {
	inBubble(t, []reply{{status: 503}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		made, asked := 0, 0
		tr.Backoff = func() backoff.BackOff { made++; return countedBackoff{&asked} }
		resp, err := tr.RoundTrip(get(t.Context()))
		netWant(t, resp, err, 503, 4, retryafter.AttemptsUsed)
		if made != 1 || asked != 4 {
			t.Errorf("%d were made, and asked %d times, want 1 and 4", made, asked)
		}
	})
}

// Rule 14: what delays the end of a wait, as a slow hook, may leave no time for
// the attempt.
func TestTheClockIsLookedAtAgainAfterAWait(t *testing.T) {
	for name, tc := range map[string]struct {
		maxElapsed, reserve, timeout, hook time.Duration
		stop                               retryafter.Reason
	}{
		"Reserve is gone":     {0, 3 * time.Second, 10 * time.Second, 7 * time.Second, retryafter.DeadlineTooNear},
		"Reserve is left":     {0, 3 * time.Second, 10 * time.Second, 7*time.Second - 1, retryafter.Final},
		"MaxElapsed is gone":  {8 * time.Second, 0, 0, 8 * time.Second, retryafter.ElapsedTooLong},
		"MaxElapsed is left":  {8 * time.Second, 0, 0, 8*time.Second - 1, retryafter.Final},
		"Reserve of that":     {8 * time.Second, time.Second, 0, 7 * time.Second, retryafter.ElapsedTooLong},
		"there are no bounds": {0, 0, 0, time.Hour, retryafter.Final},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{told(503, "2"), {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				tr.MaxElapsed, tr.Reserve = tc.maxElapsed, tc.reserve
				tr.Trace = &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { time.Sleep(tc.hook) }}
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				resp, err := tr.RoundTrip(get(ctx))
				if tc.stop == retryafter.Final {
					netWant(t, resp, err, 200, 2, tc.stop)
				} else {
					netWantError(t, resp, err, 1, tc.stop)
				}
			})
		})
	}
}

// What Retry says holds for statuses that DefaultRetry is sure of too.
func TestRetryMayAskForWhatIsFinalByDefault(t *testing.T) {
	inBubble(t, []reply{{status: 404}, {status: 503}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Retry = func(a retryafter.Attempt) bool { return a.StatusCode == 404 }
		resp, err := tr.RoundTrip(get(t.Context()))
		netWant(t, resp, err, 503, 2, retryafter.Final)
	})
}

func TestTheBodyOfAnAttemptThatIsNotMadeIsClosed(t *testing.T) {
	for name, cancelAt := range map[string]time.Duration{"while it is decided": 0, "in the wait": time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{told(503, "5")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var closed closeCounter
				req := get(ctx)
				req.Method, req.Body = "PUT", new(closeCounter)
				req.GetBody = func() (io.ReadCloser, error) {
					if cancelAt == 0 {
						cancel()
					}
					time.AfterFunc(cancelAt, cancel)
					return &closed, nil
				}
				tr.RoundTrip(req)
				if closed != 1 || len(s.arrivals) != 1 {
					t.Errorf("%d attempts were sent, the body of the next was closed %d times", len(s.arrivals), closed)
				}
			})
		})
	}
}

func TestWhyThereWasNoBodyIsReported(t *testing.T) {
	inBubble(t, []reply{{status: 503}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		req := get(t.Context())
		req.Method = "PUT"
		withoutBody(req)
		resp, err := tr.RoundTrip(req)
		netWant(t, resp, err, 503, 1, retryafter.GetBodyFailed)
		if err := retryafter.ReportOf(resp).Err; err == nil || err.Error() != "the file is gone" {
			t.Errorf("the report tells the error %v", err)
		}
	})
}

func TestASuccessHasNoDelayToReport(t *testing.T) {
	inBubble(t, []reply{told(503, "5"), {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		resp, err := tr.RoundTrip(get(t.Context()))
		netWant(t, resp, err, 200, 2, retryafter.Final)
		if d := retryafter.ReportOf(resp).Decision; d != (retryafter.Decision{Reason: retryafter.Final}) {
			t.Errorf("the report tells the decision %+v", d)
		}
	})
}

func TestACallThatBeganNothingHasNoDecisionToReport(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Reserve = -1
		resp, err := tr.RoundTrip(get(t.Context()))
		e := netWantError(t, resp, err, 0, retryafter.Misconfigured)
		if e.Report.Decision != (retryafter.Decision{}) {
			t.Errorf("the report tells the decision %+v", e.Report.Decision)
		}
	})
}

func TestANilBackOffEndsTheCall(t *testing.T) {
	inBubble(t, []reply{told(503, "5")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Backoff = func() backoff.BackOff { return nil }
		resp, err := tr.RoundTrip(get(t.Context()))
		netWant(t, resp, err, 503, 1, retryafter.BackoffStopped)
	})
}

// An error of a cancelled call has the context's error and its cause, each once.
func TestACancelledCallsErrorSaysAllAndNothingTwice(t *testing.T) {
	cause, other := errors.New("the cause"), errors.New("another")
	for name, tc := range map[string]struct {
		cause error
		base  func(context.Context) error
		want  string
	}{
		"the context's error":        {nil, context.Context.Err, "context canceled"},
		"that, where a cause is":     {cause, context.Context.Err, "context canceled: the cause: context canceled"},
		"the cause":                  {cause, context.Cause, "context canceled: the cause"},
		"another":                    {cause, func(context.Context) error { return other }, "context canceled: the cause: another"},
		"another, without a cause":   {nil, func(context.Context) error { return other }, "context canceled: another"},
		"one that has both of these": {cause, func(c context.Context) error { return fmt.Errorf("%w, by %w", c.Err(), context.Cause(c)) }, "context canceled, by the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				tr := &retryafter.Transport{Base: netFunc(func(r *http.Request) (*http.Response, error) {
					cancel(tc.cause)
					return nil, tc.base(r.Context())
				}), Policy: retryafter.Policy{Retry: func(retryafter.Attempt) bool { return true }}}
				resp, err := tr.RoundTrip(get(ctx))
				e := netWantError(t, resp, err, 1, retryafter.Canceled)
				if got := e.Err.Error(); got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
				if !errors.Is(err, context.Canceled) || !errors.Is(err, context.Cause(ctx)) {
					t.Errorf("%v lacks the context's error or its cause", err)
				}
			})
		})
	}
}

func TestACallThatEndsInAWaitReportsNoRetryToCome(t *testing.T) {
	inBubble(t, []reply{told(503, "5")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req := get(ctx)
		stop := make(chan struct{})
		req.Cancel = stop
		time.AfterFunc(time.Second, func() { close(stop) })
		resp, err := tr.RoundTrip(req)
		e := netWantError(t, resp, err, 1, retryafter.Canceled)
		if d := e.Report.Decision; d.Retry || d.Reason != retryafter.Canceled || d.Wait != 5*time.Second {
			t.Errorf("the report tells the decision %+v", d)
		}
		if e.Report.Err == nil || e.Report.Err != e.Err {
			t.Errorf("the report tells the error %v, and the Error %v", e.Report.Err, e.Err)
		}
	})
}

func TestAResponseKeepsTheRequestThatItsBaseSent(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Base = netCloner{netBase(netReply(503))}
		resp, err := tr.RoundTrip(get(t.Context()))
		netWant(t, resp, err, 503, 4, retryafter.AttemptsUsed)
		if resp.Request.Header.Get("Authorization") == "" {
			t.Error("the response's request is not the one that was sent")
		}
	})
}

func TestOnlyARedirectAsksForAWaitBeforeTheFirstAttempt(t *testing.T) {
	for _, tc := range []struct {
		status     int
		retryAfter string
		at         float64
		announced  int
	}{
		{303, "5", 6, 1},
		{303, "0", 1, 1}, // said to come back at once: the jitter is left
		{303, "soon", 0, 0},
		{200, "5", 0, 0},
		{429, "5", 0, 0},
	} {
		inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			announced := 0
			tr.Jitter = func(time.Duration, bool) time.Duration { return time.Second }
			tr.Trace = &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { announced++ }}
			req := get(t.Context())
			req.Response = &http.Response{StatusCode: tc.status, Header: http.Header{"Retry-After": {tc.retryAfter}}}
			resp, err := tr.RoundTrip(req)
			netWant(t, resp, err, 200, 1, retryafter.Final)
			wantArrivals(t, s, tc.at)
			if announced != tc.announced {
				t.Errorf("%d, Retry-After: %s: %d waits were announced, want %d", tc.status, tc.retryAfter, announced, tc.announced)
			}
		})
	}
}

func TestARedirectsWaitIsNotOfMaxElapsed(t *testing.T) {
	inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.MaxElapsed = 3 * time.Second // since the first send
		req := get(t.Context())
		req.Response = &http.Response{StatusCode: 303, Header: http.Header{"Retry-After": {"5"}}}
		resp, err := tr.RoundTrip(req)
		netWant(t, resp, err, 200, 1, retryafter.Final)
		wantArrivals(t, s, 5)
	})
}

// A body that stalls is being let go when the caller leaves, and there is no
// wait after it in which that would be noticed.
func TestACancelDuringADrainEndsTheCall(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, tr *retryafter.Transport) {
		base := netBase(netReplyBody(503, netStalled("")), netReply(200))
		tr.Base, tr.Backoff = base, foundZero
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		resp, err := tr.RoundTrip(get(ctx))
		netWantError(t, resp, err, 1, retryafter.Canceled)
		if base.count() != 1 {
			t.Errorf("%d attempts were sent", base.count())
		}
	})
}

// A body that stalls is given the time that is left of the wait, and 10 ms where
// less is.
func TestADrainTakesNoLongerThanWhatIsLeftOfTheWait(t *testing.T) {
	for _, tc := range []struct{ hook, left time.Duration }{
		{5 * time.Millisecond, 20 * time.Millisecond},
		{15 * time.Millisecond, 25 * time.Millisecond},
	} {
		inBubble(t, nil, func(t *testing.T, s *script, tr *retryafter.Transport) {
			base := netBase(netReplyBody(503, netStalled("")), netReply(200))
			tr.Base, tr.Backoff = base, netBackoff(20*time.Millisecond).Backoff
			tr.Trace = &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { time.Sleep(tc.hook) }}
			resp, err := tr.RoundTrip(get(t.Context()))
			netWant(t, resp, err, 200, 2, retryafter.Final)
			if diff := cmp.Diff([]time.Duration{0, tc.left}, base.times()); diff != "" {
				t.Errorf("a hook of %v (-want +got):\n%s", tc.hook, diff)
			}
		})
	}
}
