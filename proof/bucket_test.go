package proof

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/model"
	"pgregory.net/rapid"
)

// A shape is how a bucket is set up.
type shape struct {
	capacity int64
	rate     retryafter.Rate
	empty    bool
}

func (s shape) bucket() *retryafter.Bucket {
	return &retryafter.Bucket{Capacity: s.capacity, Rate: s.rate, StartEmpty: s.empty}
}

func (s shape) model(first int64) *model.Bucket {
	return model.NewBucket(s.capacity, s.rate.Tokens, s.rate.Per, s.empty, first)
}

// countable tells whether the shape's units fit, by the definition.
func (s shape) countable() bool {
	per := new(big.Rat).SetFrac64(int64(s.rate.Per), s.rate.Tokens) // in lowest terms
	size := new(big.Int).Mul(big.NewInt(s.capacity), per.Num())
	return size.Cmp(new(big.Int).Lsh(big.NewInt(1), 62)) <= 0
}

func drawShape(t *rapid.T) shape {
	return shape{
		capacity: rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, 1<<33), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "capacity"),
		rate: retryafter.Rate{
			Tokens: rapid.OneOf(rapid.Int64Range(1, 10), rapid.SampledFrom([]int64{1_000_007, 1 << 31, math.MaxInt64}), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "tokens"),
			Per: time.Duration(rapid.OneOf(rapid.Just(int64(time.Second)), rapid.SampledFrom([]int64{1, 3, int64(time.Minute), int64(time.Hour), math.MaxInt64}),
				rapid.Int64Range(1, int64(time.Second))).Draw(t, "per")),
		},
		empty: rapid.Bool().Draw(t, "empty"),
	}
}

// A question is one call to a bucket at an instant.
type question struct {
	at   int64 // nanoseconds from the first
	take bool
	cost int
}

func drawQuestions(t *rapid.T, s shape) []question {
	var list []question
	at := int64(0)
	// About the time that a token takes to flow in.
	token := min(int64(s.rate.Per)/s.rate.Tokens, 1<<50) + 1
	for range rapid.IntRange(1, 25).Draw(t, "questions") {
		step := rapid.OneOf(
			rapid.Just[int64](0), rapid.Just[int64](1),
			rapid.Int64Range(0, 3*token),
			rapid.Int64Range(-2*token, 0),
			rapid.Int64Range(-1<<58, 1<<58),
		).Draw(t, "step")
		if next := at + step; next > -1<<61 && next < 1<<61 && len(list) > 0 {
			at = next
		}
		cost := rapid.OneOf(rapid.Int64Range(-1, 3), rapid.Int64Range(-1, 3), rapid.Int64Range(0, s.capacity),
			rapid.Just(s.capacity), rapid.Just(s.capacity-1), rapid.Just[int64](math.MaxInt64), rapid.Just[int64](math.MinInt64)).Draw(t, "cost")
		if s.capacity < math.MaxInt64 && seldom(t, 8, "over") {
			cost = s.capacity + 1
		}
		list = append(list, question{at, rapid.Bool().Draw(t, "take"), int(cost)})
	}
	return list
}

// ask puts q to b, and gives the answer in words.
func (q question) ask(b *retryafter.Bucket, origin time.Time) string {
	at := origin.Add(time.Duration(q.at))
	if q.take {
		return fmt.Sprint(b.AllowN(at, q.cost))
	}
	d, err := b.DelayN(at, q.cost)
	if cost, ok := errors.AsType[*retryafter.CostError](err); ok {
		return fmt.Sprintf("never: %d", cost.Cost)
	}
	if _, ok := errors.AsType[*retryafter.ConfigError](err); ok {
		return "misconfigured"
	}
	return fmt.Sprint(d, err)
}

func (q question) answer(s shape, m *model.Bucket) string {
	switch never := q.cost < 0 || int64(q.cost) > s.capacity; {
	case never && q.take:
		return "false"
	case never:
		return fmt.Sprintf("never: %d", q.cost)
	case q.take && q.cost == 0:
		return "true"
	case q.take:
		return fmt.Sprint(m.Take(q.at, int64(q.cost)))
	case q.cost == 0:
		return fmt.Sprint(time.Duration(0), nil)
	}
	return fmt.Sprint(saturated(m.Wait(q.at, int64(q.cost))), nil)
}

func TestBucketDecidesAsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		list := drawQuestions(t, s)
		b, m := s.bucket(), s.model(list[0].at)
		for i, q := range list {
			got, want := q.ask(b, start), ""
			switch {
			case s.countable():
				want = q.answer(s, m)
			case q.take:
				want = "false"
			default:
				want = "misconfigured"
			}
			if got != want {
				t.Fatalf("question %d, %+v of %+v: %s, want %s", i, q, s, got, want)
			}
		}
	})
}

func TestAdvisedWaitIsTheLeastThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		list := drawQuestions(t, s)
		last := list[len(list)-1]
		if last.cost < 1 || int64(last.cost) > s.capacity {
			last.cost = 1
		}
		replay := func() *retryafter.Bucket {
			b := s.bucket()
			for _, q := range list {
				q.ask(b, start)
			}
			return b
		}
		at := start.Add(time.Duration(last.at))
		d, err := replay().DelayN(at, last.cost)
		if err != nil || d > 1<<62 {
			return
		}
		if !replay().AllowN(at.Add(d), last.cost) {
			t.Errorf("refused after the %v that were advised", d)
		}
		if d > 0 && replay().AllowN(at.Add(d-1), last.cost) {
			t.Errorf("admitted a nanosecond before the %v that were advised", d)
		}
	})
}

func TestScaledRateIsTheSameRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		k := rapid.Int64Range(2, 1000).Draw(t, "k")
		if s.rate.Tokens > math.MaxInt64/k || int64(s.rate.Per) > math.MaxInt64/k {
			t.SkipNow()
		}
		scaled := s
		scaled.rate = retryafter.Rate{Tokens: k * s.rate.Tokens, Per: time.Duration(k) * s.rate.Per}
		a, b := s.bucket(), scaled.bucket()
		for i, q := range drawQuestions(t, s) {
			if x, y := q.ask(a, start), q.ask(b, start); x != y {
				t.Fatalf("question %d, %+v: %s at %v, %s at %v", i, q, x, s.rate, y, scaled.rate)
			}
		}
	})
}

func TestWhatIsNotAdmittedChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		quiet, noisy := s.bucket(), s.bucket()
		for i, q := range drawQuestions(t, s) {
			for _, n := range drawQuestions(t, s) {
				if i == 0 && s.empty {
					break // the first use starts the filling
				}
				if n.take = n.take && n.cost > 0; n.take { // only what can't be had
					if d, err := noisy.DelayN(start.Add(time.Duration(n.at)), n.cost); err == nil && d == 0 {
						continue
					}
				}
				if got := n.ask(noisy, start); n.take && got != "false" {
					t.Fatalf("%+v was to wait, and was admitted", n)
				}
			}
			if x, y := q.ask(quiet, start), q.ask(noisy, start); x != y {
				t.Fatalf("question %d, %+v: %s, with others refused before it %s", i, q, x, y)
			}
		}
	})
}

// A visitor of a bucket comes, and leaves when served or cancelled.
type visitor struct {
	come, cancel, deadline time.Duration // from the start; 0: never cancelled, no deadline
	cost                   int
	hasty                  bool // asks AllowN, and does not wait
}

// A visit is what became of a visitor.
type visit struct {
	left  time.Duration
	how   string
	delay time.Duration // named in a refusal
}

// visits says what must become of visitors in the order of their coming; not
// ok where two things fall on one instant, so that either may come first.
func (s shape) visits(list []visitor) (all []visit, ok bool) {
	m := s.model(int64(list[0].come))
	for i, v := range list {
		// Who is there before it, with what they have taken by then.
		var ahead []visitor
		plan := s.model(int64(list[0].come))
		for j, w := range all {
			switch {
			case w.left == v.come && w.how != "refused":
				return nil, false
			case w.left < v.come && w.how == "served":
				plan.Take(int64(w.left), int64(list[j].cost))
			case w.left > v.come:
				ahead = append(ahead, list[j])
			}
		}
		if v.hasty {
			how := "refused"
			if len(ahead) == 0 && m.Take(int64(v.come), int64(v.cost)) {
				how = "served"
			}
			all = append(all, visit{v.come, how, 0})
			continue
		}
		at := int64(v.come)
		for _, w := range append(ahead, v) {
			at += plan.Wait(at, int64(w.cost)).Int64()
			plan.Take(at, int64(w.cost))
		}
		if delay := time.Duration(at) - v.come; v.deadline != 0 && time.Duration(at) >= v.deadline {
			all = append(all, visit{v.come, "refused", delay})
			continue
		}
		turn := v.come
		for _, w := range all[:i] {
			if w.how != "refused" {
				turn = max(turn, w.left)
			}
		}
		served := int64(turn) + m.Wait(int64(turn), int64(v.cost)).Int64()
		for _, end := range []time.Duration{v.cancel, v.deadline} {
			if end != 0 && end == time.Duration(served) {
				return nil, false
			}
		}
		end := v.cancel
		if v.deadline != 0 && (end == 0 || v.deadline < end) {
			end = v.deadline
		}
		if end != 0 && end < time.Duration(served) {
			all = append(all, visit{end, "cancelled", 0})
			continue
		}
		m.Take(served, int64(v.cost))
		all = append(all, visit{time.Duration(served), "served", 0})
	}
	return all, true
}

func TestWhoGivesUpHasPaidNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shape{
			capacity: rapid.Int64Range(1, 5).Draw(t, "capacity"),
			rate: retryafter.Rate{Tokens: rapid.Int64Range(1, 7).Draw(t, "tokens"),
				Per: rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 999_999_937, time.Minute}).Draw(t, "per")},
			empty: rapid.Bool().Draw(t, "empty"),
		}
		var list []visitor
		at := time.Duration(0)
		for range rapid.SampledFrom([]int{3, 6, 9, 2, 1}).Draw(t, "visitors") {
			at += time.Duration(rapid.Int64Range(1, int64(rapid.SampledFrom([]time.Duration{2, time.Second, 5 * time.Second}).Draw(t, "within"))).Draw(t, "pause"))
			v := visitor{come: at, cost: rapid.IntRange(1, int(s.capacity)).Draw(t, "cost")}
			v.hasty = seldom(t, 4, "hasty")
			if seldom(t, 3, "cancelled") {
				v.cancel = at + time.Duration(rapid.Int64Range(1, int64(10*time.Second)).Draw(t, "after"))
			}
			if seldom(t, 4, "has a deadline") {
				v.deadline = at + time.Duration(rapid.Int64Range(1, int64(20*time.Second)).Draw(t, "until"))
			}
			list = append(list, v)
		}
		want, ok := s.visits(list)
		if !ok {
			t.SkipNow()
		}
		rapid.SyncTest(t, func(t *rapid.T) {
			t0, b := time.Now(), s.bucket()
			got := make([]visit, len(list))
			var wg sync.WaitGroup
			for i, v := range list {
				wg.Go(func() {
					time.Sleep(v.come)
					if v.hasty {
						got[i] = visit{left: v.come, how: "refused"}
						if b.AllowN(time.Now(), v.cost) {
							got[i].how = "served"
						}
						return
					}
					ctx := context.Background()
					if v.deadline != 0 {
						c, cancel := context.WithDeadline(ctx, t0.Add(v.deadline))
						defer cancel()
						ctx = c
					}
					if v.cancel != 0 {
						c, cancel := context.WithCancel(ctx)
						defer time.AfterFunc(v.cancel-v.come, cancel).Stop()
						ctx = c
					}
					err := b.WaitN(ctx, v.cost)
					got[i] = visit{left: time.Since(t0), how: "cancelled"}
					if err == nil {
						got[i].how = "served"
					} else if limit, ok := errors.AsType[*retryafter.LimitError](err); ok {
						got[i].how, got[i].delay = "refused", limit.Delay
					} else if !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
						got[i].how = err.Error()
					}
				})
			}
			wg.Wait()
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("visitor %d, %+v: %+v, want %+v", i, list[i], got[i], want[i])
				}
			}
		})
	})
}

// arrivals is a Base that notes when attempts come.
type arrivals struct {
	mu    sync.Mutex
	t0    time.Time
	at    []time.Duration
	reply func(n int) *http.Response
}

func (a *arrivals) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Since(a.t0))
	resp := a.reply(retryafter.AttemptNumber(req.Context()))
	resp.Request, resp.Body = req, http.NoBody
	return resp, nil
}

// overdrawn gives two of the arrivals between which there are more than s
// admits in that time.
func (s shape) overdrawn(at []time.Duration) string {
	for i := range at {
		for j := i; j < len(at); j++ {
			n := big.NewInt(int64(j-i+1) - s.capacity) // must be at most rate times time
			n.Mul(n, big.NewInt(int64(s.rate.Per)))
			flow := new(big.Int).Mul(big.NewInt(int64(at[j]-at[i])), big.NewInt(s.rate.Tokens))
			if n.Cmp(flow) > 0 {
				return fmt.Sprintf("%d attempts from %v to %v", j-i+1, at[i], at[j])
			}
		}
	}
	return ""
}

func TestEveryAttemptPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &arrivals{t0: time.Now(), reply: func(n int) *http.Response {
			if n <= 2 {
				return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"0"}}}
			}
			return &http.Response{StatusCode: 200}
		}}
		s := shape{capacity: 1, rate: retryafter.PerSecond(1)}
		tr := &retryafter.Transport{Base: far, Limiter: s.bucket()}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				req, _ := http.NewRequest("GET", "http://server.test", nil)
				resp, err := tr.RoundTrip(req)
				if err != nil || resp.StatusCode != 200 || retryafter.ReportOf(resp).Attempts != 3 {
					t.Error(resp, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(far.t0); len(far.at) != 15 || took != 14*time.Second || s.overdrawn(far.at) != "" {
			t.Errorf("%d attempts in %v: %v", len(far.at), took, far.at)
		}
	})
}

func TestAttemptsStayWithinTheBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shape{
			capacity: rapid.Int64Range(1, 4).Draw(t, "capacity"),
			rate: retryafter.Rate{Tokens: rapid.Int64Range(1, 7).Draw(t, "tokens"),
				Per: rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 999_999_937}).Draw(t, "per")},
			empty: rapid.Bool().Draw(t, "empty"),
		}
		type caller struct {
			begin, timeout, backoff time.Duration
			method                  string
		}
		var callers []caller
		for range rapid.SampledFrom([]int{4, 8, 2, 1}).Draw(t, "callers") {
			callers = append(callers, caller{
				begin:   time.Duration(rapid.IntRange(0, 30).Draw(t, "begin")) * grid,
				timeout: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 3*time.Second + 1, time.Minute}).Draw(t, "timeout"),
				backoff: rapid.SampledFrom([]time.Duration{0, 0, 1, grid, time.Second}).Draw(t, "backoff"),
				method:  rapid.SampledFrom([]string{"GET", "GET", "POST"}).Draw(t, "method"),
			})
		}
		fails := rapid.IntRange(0, 4).Draw(t, "failures")
		after := rapid.SampledFrom([]string{"", "0", "1", "2"}).Draw(t, "retry after")
		reserve := rapid.SampledFrom([]time.Duration{0, 0, time.Second}).Draw(t, "reserve")
		rapid.SyncTest(t, func(t *rapid.T) {
			far := &arrivals{t0: time.Now(), reply: func(n int) *http.Response {
				if n > fails {
					return &http.Response{StatusCode: 200}
				}
				return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {after}}}
			}}
			var wg sync.WaitGroup
			b := s.bucket()
			for _, c := range callers {
				wg.Go(func() {
					tr := &retryafter.Transport{Base: far, Limiter: b, Policy: retryafter.Policy{
						MaxAttempts: 4, Jitter: retryafter.NoJitter, Reserve: reserve,
						Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(c.backoff) },
					}}
					time.Sleep(c.begin)
					ctx := context.Background()
					if c.timeout > 0 {
						cc, cancel := context.WithTimeout(ctx, c.timeout)
						defer cancel()
						ctx = cc
					}
					begin := time.Now()
					req, _ := http.NewRequestWithContext(ctx, c.method, "http://server.test", nil)
					resp, err := tr.RoundTrip(req)
					if (resp == nil) == (err == nil) {
						t.Errorf("response %v and error %v", resp, err)
					}
					if c.timeout > 0 && time.Since(begin) > c.timeout {
						t.Errorf("took %v of at most %v", time.Since(begin), c.timeout)
					}
				})
			}
			wg.Wait()
			if over := s.overdrawn(far.at); over != "" {
				t.Errorf("%s at a capacity of %d and a rate of %v: %v", over, s.capacity, s.rate, far.at)
			}
			// Whoever gave up has paid nothing: what is left is what a bucket
			// has that only the attempts were charged to.
			m := s.model(0)
			if s.empty {
				first := callers[0].begin
				for _, c := range callers {
					first = min(first, c.begin)
				}
				m = s.model(int64(first))
			}
			for _, at := range far.at {
				if !m.Take(int64(at), 1) {
					t.Fatalf("the attempt at %v did not fit", at)
				}
			}
			for n := 1; n <= int(s.capacity); n++ {
				now := time.Now()
				got, err := b.DelayN(now, n)
				if want := saturated(m.Wait(int64(now.Sub(far.t0)), int64(n))); err != nil || got != want {
					t.Errorf("%d tokens are %v away (%v), want %v", n, got, err, want)
				}
			}
		})
	})
}
