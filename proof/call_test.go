package proof

import (
	"context"
	"errors"
	"io"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/retryafter-go/retryafter"
	"pgregory.net/rapid"
)

// report is what is told of the call: by the response, or by the error.
func (o *observation) report() retryafter.Report {
	if e, ok := errors.AsType[*retryafter.Error](o.err); ok {
		return e.Report
	}
	if o.resp != nil {
		return retryafter.ReportOf(o.resp)
	}
	return retryafter.Report{Attempts: 1, Stop: retryafter.Final}
}

// traced is how many traces saw the call.
func (s *script) traced() int { return s.traces&1 + s.traces>>1&1 + s.traces>>2 }

// start is when a call in a bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestNoAttemptIsEarly(t *testing.T) {
	forAll(t, func(t *rapid.T, s *script, o *observation) {
		list := 0
		for i, at := range o.spans {
			if i == 0 {
				if s.hop != nil && s.hop.status/100 == 3 {
					if delay, _ := s.hop.server.means(start, start); at.Start < delay {
						t.Errorf("the hop left at %v, before %v", at.Start, delay)
					}
				}
				continue
			}
			prev, r := o.spans[i-1], s.reply(i)
			waited := at.Start - prev.End
			told := false
			status := 0
			if o.outcomes[i-1] != 0 {
				var delay time.Duration
				status = r.status
				delay, told = r.server.means(start.Add(prev.Start), start.Add(prev.End))
				if waited < delay {
					t.Errorf("attempt %d left %v after the response that said %v", i+1, waited, delay)
				}
			}
			local := time.Duration(0)
			switch s.backoff {
			case "default":
				local = defaultBackoff(i, status, told)
			case "list":
				local = s.steps[min(list, len(s.steps)-1)]
				list++
			}
			if waited < local {
				t.Errorf("attempt %d left after %v, the local backoff is %v", i+1, waited, local)
			}
		}
		for _, w := range o.waits {
			if w.Decision.Jitter < 0 {
				t.Errorf("a jitter of %v", w.Decision.Jitter)
			}
		}
	})
}

func TestNoWaitIsShortened(t *testing.T) {
	forAll(t, func(t *rapid.T, s *script, o *observation) {
		r := o.report()
		d := r.Decision
		if floor := max(d.Server, d.Local); d.Wait != saturated(new(big.Int).Add(big.NewInt(int64(floor)), big.NewInt(int64(d.Jitter)))) {
			t.Errorf("a wait of %v out of %v, %v and %v", d.Wait, d.Server, d.Local, d.Jitter)
		}
		switch r.Stop {
		case 0:
			t.Error("a call without a reason for its end")
		case retryafter.Canceled:
		default:
			last := time.Duration(0)
			if n := len(o.spans); n > 0 {
				last = o.spans[n-1].End
			}
			if o.end != last {
				t.Errorf("refused (%v) %v after the last response", r.Stop, o.end-last)
			}
		}
		var slept time.Duration
		for i := 1; i < len(o.spans); i++ {
			slept += o.spans[i].Start - o.spans[i-1].End
		}
		if len(o.spans) > 0 {
			slept += o.spans[0].Start
		}
		if n := len(o.spans); n > 0 && r.Stop == retryafter.Canceled {
			slept += o.end - o.spans[n-1].End
		} else if n == 0 {
			slept += o.end
		}
		whole := r.Attempts == 1 && o.err != nil && r.Stop == retryafter.Final // then there is no report but what a Trace gets
		if r.Waited != slept && !whole {
			t.Errorf("reported %v, slept %v", r.Waited, slept)
		}
		for _, report := range o.done {
			if report.Waited != slept {
				t.Errorf("traced %v, slept %v", report.Waited, slept)
			}
		}
		k := s.traced()
		for i := 0; i < len(o.waits); i += max(k, 1) {
			w := o.waits[i]
			for _, other := range o.waits[i : i+k] {
				if other.Wait != w.Wait || other.Attempt != w.Attempt {
					t.Errorf("two traces were told %v and %v", w.Wait, other.Wait)
				}
			}
			if w.Wait != w.Decision.Wait {
				t.Errorf("announced %v, decided %v", w.Wait, w.Decision.Wait)
			}
			if n := w.Attempt - 1; n < len(o.spans) { // it was slept
				if got := o.spans[n].Start - o.waitedAt[i]; got != w.Wait {
					t.Errorf("announced %v before attempt %d, slept %v", w.Wait, w.Attempt, got)
				}
				if until := start.Add(o.spans[n].Start); !w.Until.Equal(until) {
					t.Errorf("announced %v as the end of the wait, it was %v", w.Until, until)
				}
			}
		}
	})
}

func TestNothingHappensPastTheDeadline(t *testing.T) {
	forAll(t, func(t *rapid.T, s *script, o *observation) {
		for i, at := range o.spans {
			followed := i > 0 || at.Start > 0
			if followed && s.deadline != 0 && at.Start >= s.deadline-s.policy.Reserve {
				t.Errorf("attempt %d left at %v; the deadline is %v with a reserve of %v", i+1, at.Start, s.deadline, s.policy.Reserve)
			}
			if limit := s.policy.MaxElapsed; i > 0 && limit > 0 && at.Start-o.spans[0].Start >= limit-s.policy.Reserve {
				t.Errorf("attempt %d left after %v of at most %v with a reserve of %v", i+1, at.Start-o.spans[0].Start, limit, s.policy.Reserve)
			}
		}
		end := o.end
		if n := len(o.spans); n > 0 && s.deaf && end == o.spans[n-1].End {
			end = o.spans[n-1].Start // what follows is the far end's fault
		}
		if s.deadline > 0 && end > s.deadline {
			t.Errorf("ended at %v, past the deadline at %v", o.end, s.deadline)
		}
		if end > s.cancel {
			t.Errorf("ended at %v, cancelled at %v", o.end, s.cancel)
		}
	})
}

func TestUnsafeRequestsAreSentOnce(t *testing.T) {
	forAll(t, func(t *rapid.T, s *script, o *observation) {
		n := len(o.spans)
		if n > 1 && !repeatable(s.method, s.key) {
			t.Errorf("%q with %v was sent %d times", s.method, s.key, n)
		}
		if n > 1 && s.body == "opaque" {
			t.Errorf("a body that can't be had again was sent %d times", n)
		}
		for i, look := range o.requests {
			if look != o.requests[0] {
				t.Errorf("attempt %d looks like\n%s, the first like\n%s", i+1, look, o.requests[0])
			}
			want := sent
			if s.body == "none" || s.body == "nobody" {
				want = ""
			}
			if r := s.reply(i + 1); r.reads >= 0 {
				want = want[:min(r.reads, len(want))]
			}
			if o.read[i] != want {
				t.Errorf("attempt %d had the body %q, want %q", i+1, o.read[i], want)
			}
		}
		for i, b := range o.bodies {
			if b.closed != 1 { // sent ones by the far end, others by the Transport
				t.Errorf("request body %d of %d was closed %d times", i+1, len(o.bodies), b.closed)
			}
		}
		if o.changed != "" {
			t.Errorf("the caller's request was written to: %s", o.changed)
		}
	})
}

func TestCapsHold(t *testing.T) {
	forAll(t, func(t *rapid.T, s *script, o *observation) {
		limit := len(s.replies) + 1
		for _, n := range settings(s.policy, s.caps...).caps {
			limit = min(limit, n)
		}
		if len(o.spans) > limit {
			t.Errorf("%d attempts of at most %d", len(o.spans), limit)
		}
	})
}

func TestACallEndsOnceWithAllThereIsToTell(t *testing.T) {
	forAll(t, func(t *rapid.T, s *script, o *observation) {
		if (o.resp == nil) == (o.err == nil) {
			t.Fatalf("response %v and error %v", o.resp, o.err)
		}
		r := o.report()
		if r.Attempts != len(o.spans) {
			t.Errorf("reported %d attempts of %d", r.Attempts, len(o.spans))
		}
		for i, n := range o.numbers {
			if n != i+1 {
				t.Errorf("attempt %d has number %d", i+1, n)
			}
		}
		if k := s.traced(); len(o.done) != k || len(o.attempts) != k*len(o.spans) {
			t.Errorf("%d traces saw %d calls and %d attempts of %d", k, len(o.done), len(o.attempts), len(o.spans))
		}
		for _, d := range o.done {
			if d.Attempts != r.Attempts || d.Stop != r.Stop {
				t.Errorf("told %v, traced %v", r, d)
			}
		}
		keep := -1
		if o.resp != nil {
			if o.resp != o.last {
				t.Error("not the last response")
			}
			if n := len(o.replies); n > 0 && s.reply(len(o.spans)).size >= 0 {
				keep = n - 1
				b := o.replies[keep]
				if b.read > 0 || b.closed > 0 {
					t.Errorf("%d bytes of the body were read and it was closed %d times", b.read, b.closed)
				}
				text, err := io.ReadAll(o.resp.Body)
				if want := content(len(o.spans), s.reply(len(o.spans)).size); err != nil || string(text) != want {
					t.Errorf("the body is %d bytes of %d, %v", len(text), len(want), err)
				}
			}
		}
		for i, b := range o.replies {
			if i != keep && b.closed != 1 {
				t.Errorf("response body %d was closed %d times", i+1, b.closed)
			}
		}
		if o.err != nil && len(o.spans) == 1 && r.Stop == retryafter.Final && o.err != o.returned && s.timeout == 0 {
			t.Errorf("the error is %v, Base's was %v", o.err, o.returned)
		}
		for i, floor := range o.draws {
			if floor < 0 {
				t.Errorf("jitter %d was drawn for %v", i, floor)
			}
		}
	})
}

// TestNothingLeavesLateBehindWhatIsSlow has hooks and a Limiter that take their
// time, so that waits end later than they were decided to.
func TestNothingLeavesLateBehindWhatIsSlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slow := rapid.SampledFrom([]time.Duration{0, 0, 0, grid + 1, time.Second + 1, 3*time.Second + 1, 10*time.Second + 1})
		var (
			done     = slow.Draw(t, "AttemptDone")
			waiting  = slow.Draw(t, "Waiting")
			limiter  = slow.Draw(t, "Limiter")
			deadline = rapid.SampledFrom([]time.Duration{0, 0, time.Second, 5 * time.Second, 20 * time.Second}).Draw(t, "deadline")
			cause    = rapid.Bool().Draw(t, "by the caller")
			p        = retryafter.Policy{
				MaxAttempts: -1, Jitter: retryafter.NoJitter,
				MaxElapsed: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 5 * time.Second, 20 * time.Second, time.Minute}).Draw(t, "elapsed"),
				Reserve:    rapid.SampledFrom([]time.Duration{0, 0, time.Second, 5 * time.Second}).Draw(t, "reserve"),
			}
		)
		rapid.SyncTest(t, func(t *rapid.T) {
			t0, ctx := time.Now(), context.Background()
			if deadline > 0 {
				c, cancel := context.WithDeadline(ctx, t0.Add(deadline))
				defer cancel()
				ctx = c
			}
			if cause {
				c, cancel := context.WithCancelCause(ctx)
				defer time.AfterFunc(grid*25+333333, func() { cancel(errCause) }).Stop()
				ctx = c
			}
			far := &arrivals{t0: t0, reply: func(n int) *http.Response {
				if n > 8 {
					return &http.Response{StatusCode: 200}
				}
				return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"1"}}}
			}}
			tr := &retryafter.Transport{Base: far, Policy: p, Trace: &retryafter.Trace{
				AttemptDone: func(retryafter.Attempt) { time.Sleep(done) },
				Waiting:     func(retryafter.WaitInfo) { time.Sleep(waiting) },
			}}
			if limiter > 0 {
				tr.Limiter = deafLimiter(limiter)
			}
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test", nil)
			resp, err := tr.RoundTrip(req)
			if (resp == nil) == (err == nil) {
				t.Fatalf("response %v and error %v", resp, err)
			}
			for i, at := range far.at {
				if i == 0 && limiter == 0 {
					continue
				}
				if deadline > 0 && at >= deadline-p.Reserve {
					t.Errorf("attempt %d left at %v; the deadline is %v with a reserve of %v", i+1, at, deadline, p.Reserve)
				}
				if since := at - far.at[0]; i > 0 && p.MaxElapsed > 0 && since >= p.MaxElapsed-p.Reserve {
					t.Errorf("attempt %d left after %v of at most %v with a reserve of %v", i+1, since, p.MaxElapsed, p.Reserve)
				}
				if cause && at > grid*25+333333 {
					t.Errorf("attempt %d left at %v, after the caller's cancel", i+1, at)
				}
			}
		})
	})
}

// A deafLimiter holds everyone for the same time, whatever their contexts say.
type deafLimiter time.Duration

func (l deafLimiter) WaitN(context.Context, int) error {
	time.Sleep(time.Duration(l))
	return nil
}

// TestCallsGoByTheRules compares everything at once with a second
// implementation.
func TestCallsGoByTheRules(t *testing.T) {
	forAll(t, func(t *rapid.T, s *script, o *observation) {
		if s.jitter < 0 && s.traces == 0 {
			return // there is no telling what was drawn
		}
		want := s.predict(start, o.defaults(t, s))
		r := o.report()
		got := outcome{
			Spans: o.spans, WaitedAt: o.waitedAt, Attempts: r.Attempts, Stop: r.Stop, Waited: r.Waited, End: o.end,
			Last: r.Decision, GetBody: errors.Is(r.Err, errBody), Err: want.Err, Whole: want.Whole,
		}
		for _, w := range o.waits {
			got.Waits = append(got.Waits, w.Wait)
		}
		if o.resp != nil {
			got.Status = o.resp.StatusCode
			want.Err = nil
			got.Err = nil
		} else if want.Err != nil && !errors.Is(o.err, want.Err) {
			got.Err = o.err
		}
		if want.Whole {
			if o.err != nil && o.err != want.Err {
				got.Err = o.err
			}
			want.Last, got.Last = retryafter.Decision{}, retryafter.Decision{}
			if o.err != nil {
				got.Waited = want.Waited
			}
		}
		got.Last.Hint, got.Last.HintErr = retryafter.Hint{}, nil
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("not by the rules (-want +got):\n%s", diff)
		}
		if want.Stop == retryafter.Canceled && o.err != nil {
			late := s.deadline != 0 && s.deadline < s.cancel
			if late && !errors.Is(o.err, context.DeadlineExceeded) {
				t.Errorf("the deadline passed, and the error is %v", o.err)
			}
			if !late && s.how != "request" && !errors.Is(o.err, context.Canceled) {
				t.Errorf("the caller cancelled, and the error is %v", o.err)
			}
		}
		if want.Stop == retryafter.DeadlineTooNear && o.err != nil && want.Attempts == 0 && !timeoutOf(o.err) {
			t.Errorf("the deadline is too near, and that is no timeout: %v", o.err)
		}
	})
}

// defaults gives the random jitters that were drawn, as far as they can be
// seen, and holds them to what the Policy says of them.
func (o *observation) defaults(t *rapid.T, s *script) (draws []time.Duration) {
	if s.jitter >= 0 {
		return nil
	}
	seen := func(d retryafter.Decision) {
		floor := max(d.Server, d.Local)
		most := floor
		if d.Server > 0 && d.Server >= d.Local {
			most = min(max(floor/4, time.Second), 30*time.Second)
		}
		if d.Jitter < 0 || d.Jitter > most && d.Jitter-most > floor>>50 { // the fraction is a float64
			t.Errorf("a jitter of %v on %v, at most %v", d.Jitter, floor, most)
		}
		draws = append(draws, d.Jitter)
	}
	for i := 0; i < len(o.waits); i += s.traced() {
		seen(o.waits[i].Decision)
	}
	r := o.report()
	announced := len(o.waits) > 0 && o.waits[len(o.waits)-1].Attempt == r.Attempts+1
	if r.Decision.Reason != 0 && !announced {
		seen(r.Decision)
	}
	return draws
}
