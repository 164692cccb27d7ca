//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/retryafter-go/retryafter"
)

// limitedHost refuses until an instant, and keeps the instants of all requests.
type limitedHost struct {
	mu       sync.Mutex
	begin    time.Time
	refuse   time.Duration
	status   int
	arrivals map[string][]time.Duration
	takes    time.Duration
}

func newLimitedHost(refuse time.Duration) *limitedHost {
	return &limitedHost{begin: time.Now(), refuse: refuse, status: 429, arrivals: map[string][]time.Duration{}}
}

func (h *limitedHost) RoundTrip(req *http.Request) (*http.Response, error) {
	at := time.Since(h.begin)
	h.mu.Lock()
	h.arrivals[req.URL.Host] = append(h.arrivals[req.URL.Host], at)
	h.mu.Unlock()
	time.Sleep(h.takes)
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}
	if left := h.refuse - at; left > 0 && req.URL.Host == "busy" {
		resp.StatusCode = h.status
		resp.Header.Set("Retry-After", fmt.Sprint(int((left+time.Second-1)/time.Second)))
	}
	return resp, nil
}

func (h *limitedHost) seen(host string) []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.arrivals[host])
}

func to(ctx context.Context, method, host string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+"/", nil)
	if err != nil {
		panic(err)
	}
	return req
}

func TestWhatOneCallIsToldHoldsAllOfItsKey(t *testing.T) {
	// C068: eight goroutines, one host, and one of them learns of the limit.
	synctest.Test(t, func(t *testing.T) {
		host := newLimitedHost(10 * time.Second)
		tr := &retryafter.Transport{Base: host, Gate: &retryafter.Gate{}}
		var all sync.WaitGroup
		call := func(host string) {
			all.Go(func() {
				resp, err := tr.RoundTrip(to(t.Context(), "GET", host))
				if err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
				}
			})
			synctest.Wait()
		}
		call("busy")
		for range 7 {
			call("busy")
		}
		call("idle")
		if n := len(host.seen("busy")); n != 1 {
			t.Errorf("%d requests reached the busy host at once, want 1", n)
		}
		if n := host.seen("idle"); len(n) != 1 || n[0] != 0 {
			t.Errorf("another host was held: %v", n)
		}
		all.Wait()
		busy := host.seen("busy")[1:]
		slices.Sort(busy)
		if len(busy) != 8 || busy[0] < 10*time.Second || busy[7] > 12500*time.Millisecond {
			t.Errorf("came back at %v, want eight from 10s to 12.5s", busy)
		}
		if len(slices.Compact(busy)) != 8 {
			t.Errorf("some came back together: %v", busy)
		}
	})
}

func TestAHeldCallThatCannotWaitIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &retryafter.Gate{}
		tr := &retryafter.Transport{Base: newLimitedHost(time.Hour), Gate: gate, Policy: retryafter.Policy{Jitter: retryafter.NoJitter}}
		// A POST is not repeated, but what it is told holds the others.
		if resp, err := tr.RoundTrip(to(t.Context(), "POST", "busy")); err != nil || resp.StatusCode != 429 {
			t.Fatal(resp, err)
		}
		begin := time.Now()
		for _, tc := range []struct {
			timeout, maxWait time.Duration
			want             retryafter.Reason
		}{{0, 0, retryafter.WaitTooLong}, {time.Minute, -1, retryafter.DeadlineTooNear}} {
			ctx := t.Context()
			if tc.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.timeout)
				defer cancel()
			}
			tr := *tr
			tr.MaxWait = tc.maxWait
			_, err := tr.RoundTrip(to(ctx, "GET", "busy"))
			e, ok := errors.AsType[*retryafter.Error](err)
			if !ok || e.Report.Stop != tc.want || e.Report.Attempts != 0 || e.Report.Decision.Wait != time.Hour {
				t.Errorf("%v, want %v and an hour", err, tc.want)
			}
		}
		if time.Since(begin) != 0 {
			t.Errorf("took %v", time.Since(begin))
		}
		gate.Release(retryafter.ByHost(to(t.Context(), "GET", "busy")))
		if resp, err := tr.RoundTrip(to(t.Context(), "POST", "busy")); err != nil || resp.StatusCode != 429 {
			t.Errorf("after Release: %v, %v", resp, err)
		}
	})
}

func TestOnlyAReadableDelayOnA429Or503Holds(t *testing.T) {
	for name, tc := range map[string]struct {
		reply reply
		holds bool
	}{
		"429":                   {told(429, "5"), true},
		"503":                   {told(503, "5"), true},
		"C025 a negative delay": {told(429, "-5"), false},
		"0":                     {told(429, "0"), false},
		"a date gone by":        {told(429, "Fri, 31 Dec 1999 23:59:59 GMT"), false},
		"none":                  {reply{status: 429}, false},
		"C058 on a 200":         {told(200, "5"), false},
		"on a 500":              {told(500, "5"), false},
		"on a 301":              {told(301, "5"), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{tc.reply, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				tr.Gate, tr.MaxAttempts = &retryafter.Gate{}, 1
				tr.RoundTrip(get(t.Context()))
				tr.RoundTrip(get(t.Context()))
				want := 0.0
				if tc.holds {
					want = 5
				}
				wantArrivals(t, s, 0, want)
			})
		})
	}
}

// It is the caller who gives up a wait, or its deadline, and not a Gate.
func TestAHoldThatIsOverEndsNoCall(t *testing.T) {
	for name, retried := range map[string]bool{"before a first attempt": false, "before a retry": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := &retryafter.Gate{}
				bucket := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(10 * time.Second), StartEmpty: !retried}
				steps := []netStep{netReply(200)}
				if retried {
					steps = []netStep{netReply(500), netReply(200)}
				}
				tr := &retryafter.Transport{Base: netBase(steps...), Gate: gate, Limiter: bucket, Policy: netAtOnce()}
				req := to(t.Context(), "GET", "busy")
				go func() {
					time.Sleep(5 * time.Second)
					gate.Hold(t.Context(), retryafter.ByHost(req), time.Now().Add(time.Minute))
					gate.Release(retryafter.ByHost(req))
				}()
				begin := time.Now()
				resp, err := tr.RoundTrip(req)
				netWant(t, resp, err, 200, len(steps), retryafter.Final)
				if took := time.Since(begin); took != 10*time.Second {
					t.Errorf("took %v, the token was there after 10 s", took)
				}
			})
		})
	}
}

func TestAHoldOfAMomentFailsNoneOfThoseInLine(t *testing.T) {
	gate := &retryafter.Gate{}
	tr := &retryafter.Transport{
		Base: netBase(netReply(200)), Gate: gate,
		Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(100 * time.Microsecond), StartEmpty: true},
		Policy:  retryafter.Policy{Jitter: retryafter.NoJitter},
	}
	var calls sync.WaitGroup
	for range 500 {
		calls.Go(func() {
			if _, err := tr.RoundTrip(to(t.Context(), "GET", "busy")); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		gate.Hold(t.Context(), retryafter.ByHost(to(t.Context(), "GET", "busy")), time.Now().Add(time.Millisecond))
		time.Sleep(3 * time.Millisecond)
	}
	calls.Wait()
}

func TestWhatHoldsAGateCanBeChosen(t *testing.T) {
	forbidden := func(a retryafter.Attempt) bool {
		if a.Err != nil || a.Header == nil {
			t.Errorf("asked about %+v", a)
		}
		return a.StatusCode == 403
	}
	quota := func(h http.Header, _ time.Time) (retryafter.Hint, error) {
		s, err := strconv.Atoi(h.Get("X-Reset"))
		if err != nil {
			return retryafter.Hint{}, retryafter.ErrNoHint
		}
		return retryafter.Hint{Delay: time.Duration(s) * time.Second}, nil
	}
	for _, tc := range []struct {
		name string
		step netStep
		want time.Duration
	}{
		{"by another status", netReply(403, "Retry-After: 60"), time.Minute},
		{"by another field", netReply(403, "X-Reset: 60"), time.Minute},
		{"not without a delay", netReply(403), 0},
		{"not by the others", netReply(429, "Retry-After: 60"), 0},
		{"not by an error", netError(io.EOF), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := &retryafter.Gate{When: forbidden}
				tr := &retryafter.Transport{Base: netBase(tc.step), Gate: gate, Policy: retryafter.Policy{Hint: quota, MaxAttempts: 1}}
				req := to(t.Context(), "GET", "busy")
				if resp, err := tr.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
				if held := gate.Held(t.Context(), retryafter.ByHost(req)); held != tc.want {
					t.Errorf("held for %v, want %v", held, tc.want)
				}
			})
		})
	}
}

func TestWhoSharesAGateCanBeChosen(t *testing.T) {
	inBubble(t, []reply{told(429, "5"), {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.MaxAttempts = 1
		tr.Gate = &retryafter.Gate{Key: func(r *http.Request) retryafter.Key { return retryafter.Key(r.Method) }}
		for _, req := range []*http.Request{to(t.Context(), "GET", "a"), to(t.Context(), "HEAD", "a"), to(t.Context(), "GET", "b")} {
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		}
		wantArrivals(t, s, 0, 0, 5)
	})
}

func TestAHoldOnlyMovesForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, ctx, now := &retryafter.Gate{}, t.Context(), time.Now()
		for _, hold := range []time.Duration{10, 3, -5, 20, 15} {
			gate.Hold(ctx, "a", now.Add(hold*time.Second))
		}
		if d := gate.Held(ctx, "a"); d != 20*time.Second {
			t.Errorf("held for %v, want 20s", d)
		}
		if d := gate.Held(ctx, "b"); d != 0 {
			t.Errorf("another key is held for %v", d)
		}
		time.Sleep(20 * time.Second)
		if d := gate.Held(ctx, "a"); d != 0 {
			t.Errorf("held for %v after the hold", d)
		}
	})
}

func TestACallReportsTheDelayThatItWasTold(t *testing.T) {
	inBubble(t, []reply{{status: 429, header: http.Header{"Retry-After": {"5"}}, takes: 1234567 * time.Nanosecond}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		tr.Gate, tr.MaxAttempts = &retryafter.Gate{}, 1
		resp, err := tr.RoundTrip(get(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if r := retryafter.ReportOf(resp); r.Decision.Server != 5*time.Second {
			t.Errorf("%+v", r)
		}
	})
}

func TestAGateKeepsLiveHoldsAndSweepsEndedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, ctx := &retryafter.Gate{MaxKeys: 10}, t.Context()
		for round := range 50 {
			for i := range 20 {
				gate.Hold(ctx, retryafter.NewKey(fmt.Sprint(round), fmt.Sprint(i)), time.Now().Add(time.Second))
			}
			for i := range 20 {
				if gate.Held(ctx, retryafter.NewKey(fmt.Sprint(round), fmt.Sprint(i))) != time.Second {
					t.Fatal("a live hold was dropped")
				}
			}
			time.Sleep(2 * time.Second)
		}
		if n := gate.Len(); n > 60 {
			t.Errorf("%d holds are kept of 1000, of which none lasts", n)
		}
	})
}

func TestEndedHoldsAreSweptWhenThereAreManyAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := func(gate *retryafter.Gate, from, n int, d time.Duration) {
			for i := range n {
				gate.Hold(t.Context(), retryafter.NewKey(fmt.Sprint(from+i)), time.Now().Add(d))
			}
		}
		zero, ten := &retryafter.Gate{}, &retryafter.Gate{MaxKeys: 10}
		hold(zero, 0, 128, time.Second)
		hold(ten, 0, 10, time.Second)
		time.Sleep(time.Second)
		hold(zero, 128, 1, time.Second)
		if n := zero.Len(); n != 129 {
			t.Errorf("the zero Gate keeps %d holds, want all of 129", n)
		}
		hold(ten, 10, 1, time.Hour)
		if n := ten.Len(); n != 1 {
			t.Errorf("%d holds are kept, want the one that lasts", n)
		}
		// Where all last, as many again may come before the next sweep.
		hold(ten, 11, 10, time.Hour)
		hold(ten, 21, 8, time.Second)
		time.Sleep(time.Second)
		hold(ten, 29, 1, time.Hour)
		if n := ten.Len(); n != 20 {
			t.Errorf("%d holds are kept before the sweep, want 20", n)
		}
		hold(ten, 30, 1, time.Hour)
		if n := ten.Len(); n != 13 {
			t.Errorf("%d holds are kept after the sweep, want the 13 that last", n)
		}
	})
}

func TestWhatHasPassedHoldsNobody(t *testing.T) {
	for _, late := range []time.Duration{0, time.Nanosecond} {
		// A slow hook has a call learn of a hold when it has ended.
		inBubble(t, []reply{told(429, "5")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			var holds countingHolds
			tr.Gate, tr.MaxAttempts = &retryafter.Gate{Shared: &holds}, 1
			tr.Trace = &retryafter.Trace{AttemptDone: func(retryafter.Attempt) { time.Sleep(5*time.Second + late) }}
			resp, err := tr.RoundTrip(get(t.Context()))
			netWant(t, resp, err, 429, 1, retryafter.AttemptsUsed)
			if tr.Gate.Len() != 0 || holds.told != 0 {
				t.Errorf("%d holds are kept, %d were told", tr.Gate.Len(), holds.told)
			}
		})
		// That of others has ended when it is decided.
		inBubble(t, []reply{{status: 500}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			tr.Gate = &retryafter.Gate{}
			tr.Trace = &retryafter.Trace{AttemptDone: func(a retryafter.Attempt) {
				if a.Number == 1 {
					tr.Gate.Hold(t.Context(), retryafter.ByHost(a.Request), time.Now().Add(time.Hour))
					time.Sleep(time.Hour + late)
				}
			}}
			resp, err := tr.RoundTrip(get(t.Context()))
			netWant(t, resp, err, 200, 2, retryafter.Final)
		})
		// And a hold that never was is told to nobody.
		synctest.Test(t, func(t *testing.T) {
			var holds countingHolds
			gate := &retryafter.Gate{Shared: &holds}
			gate.Hold(t.Context(), "a", time.Now().Add(-late))
			if gate.Len() != 0 || holds.told != 0 {
				t.Errorf("%d holds are kept, %d were told", gate.Len(), holds.told)
			}
		})
	}
}

func TestASlowSharedMemoryHidesNoHold(t *testing.T) {
	for name, tc := range map[string]struct {
		takes, other time.Duration // other: the hold of another call, set meanwhile
		told         int
		stop         retryafter.Reason
	}{
		"quick":                    {time.Second, 0, 1, retryafter.AttemptsUsed},
		"slower than the delay":    {5 * time.Second, 0, 0, retryafter.AttemptsUsed},
		"others are held for long": {2 * time.Second, time.Hour, 2, retryafter.WaitTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{told(429, "5")}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				holds := &slowHolds{takes: tc.takes}
				tr.Gate, tr.MaxAttempts = &retryafter.Gate{Shared: holds}, 1
				if tc.other > 0 {
					tr.MaxAttempts = 2
					time.AfterFunc(time.Second, func() {
						tr.Gate.Hold(t.Context(), retryafter.ByHost(get(t.Context())), time.Now().Add(tc.other))
					})
				}
				resp, err := tr.RoundTrip(get(t.Context()))
				netWant(t, resp, err, 429, 1, tc.stop)
				holds.mu.Lock()
				defer holds.mu.Unlock()
				if holds.told != tc.told {
					t.Errorf("the shared memory was told %d holds, want %d", holds.told, tc.told)
				}
			})
		})
	}
}

// Those who wait for a token hear of a hold of their key, whoever comes and
// goes meanwhile: their tokens, of the 20th second, are there when it ends.
func TestAHoldReachesAllWhoWaitForAToken(t *testing.T) {
	type caller struct {
		host    string
		begin   time.Duration
		cancel  time.Duration // 0: never
		limiter retryafter.Limiter
		at      time.Duration // when its attempt leaves; 0: never
	}
	deaf := netLimiter(func(context.Context, int) error { time.Sleep(10 * time.Second); return nil })
	type hold struct {
		host        string
		from, until time.Duration
	}
	for name, tc := range map[string]struct {
		callers []caller
		holds   []hold
	}{
		"several, of several keys": {[]caller{
			{"a", 0, 0, slowBucket(20 * time.Second), 25 * time.Second},
			{"a", 0, 0, slowBucket(20 * time.Second), 25 * time.Second},
			{"b", 0, 0, slowBucket(20 * time.Second), 26 * time.Second},
		}, []hold{{"a", 2 * time.Second, 25 * time.Second}, {"b", 3 * time.Second, 26 * time.Second}}},
		"one leaves before": {[]caller{
			{"a", 0, 0, slowBucket(20 * time.Second), 25 * time.Second},
			{"a", 0, time.Second, slowBucket(20 * time.Second), 0},
		}, []hold{{"a", 2 * time.Second, 25 * time.Second}}},
		"one is late to leave an earlier hold": {[]caller{
			{"a", 0, 0, deaf, 10 * time.Second},
			{"a", 3 * time.Second, 0, slowBucket(20 * time.Second), 30 * time.Second},
		}, []hold{{"a", time.Second, 2 * time.Second}, {"a", 12 * time.Second, 30 * time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, gate := time.Now(), &retryafter.Gate{}
				var all sync.WaitGroup
				for i, c := range tc.callers {
					all.Go(func() {
						time.Sleep(c.begin)
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						if c.cancel > 0 {
							time.AfterFunc(c.cancel, cancel)
						}
						at := time.Duration(0)
						tr := &retryafter.Transport{Gate: gate, Limiter: c.limiter, Policy: netAtOnce(),
							Base: netFunc(func(r *http.Request) (*http.Response, error) {
								at = time.Since(begin)
								return netResponse(r, 200, netBodyOf("")), nil
							})}
						tr.RoundTrip(to(ctx, "GET", c.host))
						if at != c.at {
							t.Errorf("the attempt of caller %d left at %v, want %v", i, at, c.at)
						}
					})
					synctest.Wait()
				}
				for _, h := range tc.holds {
					time.AfterFunc(h.from, func() {
						gate.Hold(t.Context(), retryafter.ByHost(to(t.Context(), "GET", h.host)), begin.Add(h.until))
					})
				}
				all.Wait()
			})
		})
	}
}

func TestKeysThatWereWaitedForLeaveNothingInAGate(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const keys, size = 200, 100 << 10
	n := 0
	tr := &retryafter.Transport{
		Base: netBase(netReply(200)),
		Gate: &retryafter.Gate{Key: func(*http.Request) retryafter.Key {
			n++
			return retryafter.Key(strconv.Itoa(n) + strings.Repeat("x", size))
		}},
		Limiter: netLimiter(func(context.Context, int) error { return errors.New("no") }),
	}
	before := heap()
	for range keys {
		tr.RoundTrip(get(t.Context()))
	}
	if after := heap(); after > before+keys*size/4 {
		t.Errorf("%d bytes are kept of %d keys", after-before, keys)
	}
	runtime.KeepAlive(tr)
}

func TestAHoldThatComesDuringAWaitIsWaitedForToo(t *testing.T) {
	for name, limiter := range map[string]retryafter.Limiter{
		"for another hold": nil,
		"for a token":      &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(5 * time.Second), StartEmpty: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
				gate := &retryafter.Gate{}
				key := retryafter.ByHost(get(t.Context()))
				tr.Gate = gate
				if tr.Limiter = limiter; limiter == nil {
					tr.Limiter = nil
					gate.Hold(t.Context(), key, time.Now().Add(5*time.Second))
				} else {
					limiter = &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(5 * time.Second), StartEmpty: true}
					tr.Limiter = limiter
				}
				time.AfterFunc(2*time.Second, func() { gate.Hold(t.Context(), key, time.Now().Add(10*time.Second)) })
				if _, err := tr.RoundTrip(get(t.Context())); err != nil {
					t.Fatal(err)
				}
				wantArrivals(t, s, 12)
			})
		})
	}
}

// sharedHolds is a memory that fails on demand.
type sharedHolds struct {
	fail  error
	until time.Time
}

func (s *sharedHolds) Hold(_ context.Context, _ retryafter.Key, d time.Duration) error {
	if s.fail == nil {
		s.until = time.Now().Add(d)
	}
	return s.fail
}

func (s *sharedHolds) Held(context.Context, retryafter.Key) (time.Duration, error) {
	return max(0, time.Until(s.until)), s.fail
}

func TestGatesThatShareAMemoryHoldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &sharedHolds{}
		var failures []error
		here := &retryafter.Gate{Shared: shared}
		there := &retryafter.Gate{Shared: shared, Failed: func(err error) { failures = append(failures, err) }}
		here.Hold(t.Context(), "a", time.Now().Add(time.Minute))
		if d := there.Held(t.Context(), "a"); d != time.Minute {
			t.Errorf("the other machine is held for %v", d)
		}
		shared.fail = errors.New("away")
		here.Hold(t.Context(), "c", time.Now().Add(time.Second)) // which nobody wants to hear of
		there.Hold(t.Context(), "b", time.Now().Add(time.Second))
		if d := there.Held(t.Context(), "b"); d != time.Second || len(failures) != 2 {
			t.Errorf("without the memory: %v, failures %v", d, failures)
		}
	})
}

func TestAnOutageCostsTheBudgetOnly(t *testing.T) {
	for _, failing := range []reply{{status: 503}, {err: errors.New("http2: client connection lost")}} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{replies: []reply{failing}, begin: time.Now()}
			budget := &retryafter.RetryBudget{}
			tr := &retryafter.Transport{Base: s, Budget: budget, Policy: retryafter.Policy{
				Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) }, Jitter: retryafter.NoJitter}}
			const calls = 1000
			spent := 0
			for range calls {
				resp, err := tr.RoundTrip(get(t.Context()))
				r := retryafter.ReportOf(resp)
				if e, ok := errors.AsType[*retryafter.Error](err); ok {
					r = e.Report
				}
				if r.Stop == retryafter.BudgetSpent {
					spent++
					if r.Decision.Wait != time.Millisecond {
						t.Fatalf("a denial told a wait of %v", r.Decision.Wait)
					}
				}
			}
			// The worst case of the documentation: calls + Retries.
			if n := len(s.arrivals); n != calls+100 || spent != calls-50 {
				t.Errorf("%d attempts for %d calls, %d without a retry; want 1100 and 950", n, calls, spent)
			}
		})
	}
}

func TestSuccessesEarnRetriesInTheirShare(t *testing.T) {
	for _, each := range []int{1, 3, 10, 100} {
		b := &retryafter.RetryBudget{SuccessesPerRetry: each}
		for b.Withdraw("a") {
		}
		retries := 0
		for range 10_000 {
			b.Deposit("a")
			if b.Withdraw("a") {
				retries++
			}
		}
		if retries != 10_000/each {
			t.Errorf("one in %d: %d retries for 10000 successes", each, retries)
		}
	}
}

func TestARetryThatSucceedsOrIsNotMadeCostsNothing(t *testing.T) {
	key := retryafter.ByHost(get(t.Context()))
	for name, tc := range map[string]struct {
		replies []reply
		change  func(*retryafter.Transport, *http.Request)
		left    int
	}{
		"first attempt succeeds":  {[]reply{{status: 200}}, nil, 6},
		"final at once":           {[]reply{{status: 404}}, nil, 6},
		"a final server error":    {[]reply{{status: 501}}, nil, 5},
		"so after a retry":        {[]reply{{status: 503}, {status: 501}}, nil, 4},
		"fails for good":          {[]reply{{err: errors.New("no")}}, nil, 5},
		"retry succeeds":          {[]reply{{status: 503}, {status: 200}}, nil, 5},
		"second retry succeeds":   {[]reply{{status: 503}, {status: 503}, {status: 200}}, nil, 4},
		"no retry succeeds":       {[]reply{{status: 503}}, nil, 2},
		"retry fails for good":    {[]reply{{status: 503}, {err: errors.New("no")}}, nil, 4},
		"cancelled in the wait":   {[]reply{told(503, "30")}, nil, 5},
		"refused by the limiter":  {[]reply{{status: 503}}, func(t *retryafter.Transport, _ *http.Request) { t.Limiter = &once{} }, 5},
		"refused when decided":    {[]reply{{status: 503}}, func(t *retryafter.Transport, _ *http.Request) { t.Limiter = &stingyLimiter{} }, 5},
		"refused before it began": {[]reply{{status: 200}}, func(t *retryafter.Transport, _ *http.Request) { t.Limiter = &once{used: true} }, 5},
		"no body for the retry":   {[]reply{{status: 503}}, func(_ *retryafter.Transport, r *http.Request) { r.Method = "PUT"; withoutBody(r) }, 5},
		"not repeated, a 429":     {[]reply{{status: 429}}, func(_ *retryafter.Transport, r *http.Request) { r.Method = "POST" }, 5},
		"a 429 to the end":        {[]reply{{status: 429}}, nil, 2},
		"a 500 that is final":     {[]reply{{status: 500}}, func(t *retryafter.Transport, _ *http.Request) { t.Retry = never }, 5},
		"cancelled on the wire":   {[]reply{{status: 200, takes: 30 * time.Second}}, nil, 5},
		"cancelled on the way":    {[]reply{{status: 503}}, func(_ *retryafter.Transport, r *http.Request) { cancelledByGetBody(r) }, 5},
		"not repeated for safety": {[]reply{{status: 503}}, func(_ *retryafter.Transport, r *http.Request) { r.Method = "POST" }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.replies, func(t *testing.T, s *script, tr *retryafter.Transport) {
				// Five are left of six, and one success earns one.
				b := &retryafter.RetryBudget{Retries: 6, SuccessesPerRetry: 1}
				b.Withdraw(key)
				tr.Budget = b
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(20*time.Second, cancel)
				req := get(ctx)
				if tc.change != nil {
					tc.change(tr, req)
				}
				tr.RoundTrip(req)
				if got := b.Left(key); got != tc.left {
					t.Errorf("%d left, want %d", got, tc.left)
				}
			})
		})
	}
}

func TestASuccessEarnsItsShareAndARetryThatSucceedsAllOfIt(t *testing.T) {
	key := retryafter.ByHost(get(t.Context()))
	for name, tc := range map[string]struct {
		replies []reply
		left    int // after two calls
	}{
		"two successes are a retry": {[]reply{{status: 200}}, 5},
		"two retries that succeed":  {[]reply{{status: 503}, {status: 200}, {status: 503}, {status: 200}}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.replies, func(t *testing.T, s *script, tr *retryafter.Transport) {
				tr.Budget = &retryafter.RetryBudget{Retries: 6, SuccessesPerRetry: 2}
				tr.Budget.Withdraw(key)
				tr.Budget.Withdraw(key)
				for range 2 {
					resp, err := tr.RoundTrip(get(t.Context()))
					if err != nil || resp.StatusCode != 200 {
						t.Fatal(resp, err)
					}
				}
				if got := tr.Budget.Left(key); got != tc.left {
					t.Errorf("%d left, want %d", got, tc.left)
				}
			})
		})
	}
}

// once admits one attempt.
type once struct{ used bool }

func (o *once) WaitN(context.Context, int) error {
	if o.used {
		return errors.New("once only")
	}
	o.used = true
	return nil
}

func never(retryafter.Attempt) bool { return false }

func cancelledByGetBody(r *http.Request) {
	cancel := make(chan struct{})
	r.Method, r.Body, r.Cancel = "PUT", new(closeCounter), cancel
	r.GetBody = func() (io.ReadCloser, error) { close(cancel); return new(closeCounter), nil }
}

func withoutBody(r *http.Request) {
	r.Body = new(closeCounter)
	r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
}

func TestBudgetsAreKeptAKeyAndForgettingOneGivesNothing(t *testing.T) {
	b := &retryafter.RetryBudget{Retries: 3, MaxKeys: 2}
	spend := func(key retryafter.Key) (n int) {
		for b.Withdraw(key) {
			n++
		}
		return n
	}
	if spend("a") != 3 || spend("b") != 3 {
		t.Error("two keys do not have three each")
	}
	for i := range 50 {
		spend(retryafter.NewKey(fmt.Sprint(i)))
	}
	if n := spend("a"); n != 0 {
		t.Errorf("%d more after being forgotten", n)
	}
}

func TestABudgetDoesNotDrift(t *testing.T) {
	b := &retryafter.RetryBudget{Retries: 1000, SuccessesPerRetry: 7}
	for range 500 {
		b.Withdraw("a")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 7000 {
				if !b.Withdraw("a") {
					t.Error("spent")
				}
				b.Refund("a")
			}
			for range 7 {
				b.Deposit("a")
			}
		})
	}
	all.Wait()
	if n := b.Left("a"); n != 508 {
		t.Errorf("%d left, want 508", n)
	}
}

func TestSenselessBudgetsRefuseTheCall(t *testing.T) {
	for field, b := range map[string]*retryafter.RetryBudget{
		"RetryBudget.Retries":           {Retries: -1},
		"RetryBudget.SuccessesPerRetry": {SuccessesPerRetry: -1},
		"RetryBudget.MaxKeys":           {MaxKeys: -1},
	} {
		inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			tr.Budget = b
			_, err := tr.RoundTrip(get(t.Context()))
			if c, ok := errors.AsType[*retryafter.ConfigError](err); !ok || c.Field != field || len(s.arrivals) != 0 {
				t.Errorf("%s: %v, sent %d", field, err, len(s.arrivals))
			}
		})
		if b.Withdraw("a") || b.Left("a") != 0 {
			t.Errorf("%s gives retries", field)
		}
	}
}

func TestBudgetsAreBoundedAndSayWhere(t *testing.T) {
	const most = 1 << 30
	for field, b := range map[string]*retryafter.RetryBudget{
		"RetryBudget.Retries":           {Retries: most + 1},
		"RetryBudget.SuccessesPerRetry": {SuccessesPerRetry: most + 1},
		"RetryBudget.MaxKeys":           {MaxKeys: most + 1},
		"":                              {Retries: most, SuccessesPerRetry: most, MaxKeys: most},
	} {
		inBubble(t, []reply{{status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
			tr.Budget = b
			_, err := tr.RoundTrip(get(t.Context()))
			c, ok := errors.AsType[*retryafter.ConfigError](err)
			if ok != (field != "") || ok && (c.Field != field || c.Value != strconv.Itoa(most+1)) {
				t.Errorf("%s: %v", field, err)
			}
		})
	}
}

// What is missing from a budget is kept for its key where there is a place, and
// for all that have none together otherwise. Places are freed, of the keys that
// miss nothing, when one is needed; a key gets one when those without miss
// nothing.
func TestBudgetsInLittleMemoryDoAsTheModel(t *testing.T) {
	const retries, each = 3, 2
	rng := rand.New(rand.NewPCG(1, 2))
	for most := 1; most <= 4; most++ {
		b := &retryafter.RetryBudget{Retries: retries, SuccessesPerRetry: each, MaxKeys: most}
		missing, shared := map[retryafter.Key]int{}, 0
		of := func(key retryafter.Key) int {
			if m, ok := missing[key]; ok {
				return m
			}
			return shared
		}
		set := func(key retryafter.Key, m int) {
			if _, ok := missing[key]; !ok && shared == 0 && len(missing) == most {
				maps.DeleteFunc(missing, func(_ retryafter.Key, m int) bool { return m == 0 })
			}
			if _, ok := missing[key]; ok || shared == 0 && len(missing) < most {
				missing[key] = m
			} else {
				shared = m
			}
		}
		for i := range 20_000 {
			key := retryafter.Key("abcdef"[rng.IntN(6):][:1])
			switch m := of(key); rng.IntN(3) {
			case 0:
				fits := m+each <= retries*each
				if got := b.Withdraw(key); got != fits {
					t.Fatalf("step %d, %d keys: Withdraw of %v: %v, want %v", i, most, key, got, fits)
				}
				if fits {
					set(key, m+each)
				}
			case 1:
				if b.Refund(key); m > 0 {
					set(key, max(m-each, 0))
				}
			default:
				if b.Deposit(key); m > 0 {
					set(key, m-1)
				}
			}
			for _, key := range []retryafter.Key{"a", "b", "c", "d", "e", "f", "never seen"} {
				if got, want := b.Left(key), (retries*each-of(key))/each; got != want {
					t.Fatalf("step %d, %d keys: %d left for %v, want %d", i, most, got, key, want)
				}
			}
		}
	}
}

func TestARequestIsChargedToItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newLimitedHost(0)
		keyed := &retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1)}
		tr := &retryafter.Transport{Base: host, Limiter: retryafter.Deny(keyed)}
		send := func(ctx context.Context, host string) error {
			_, err := tr.RoundTrip(to(ctx, "GET", host))
			return err
		}
		ctx := t.Context()
		alice := retryafter.WithKey(ctx, retryafter.NewKey("north", "alice"))
		for i, step := range []struct {
			ctx  context.Context
			host string
			ok   bool
		}{{ctx, "a", true}, {ctx, "a", false}, {ctx, "b", true}, {alice, "a", true}, {alice, "b", false}, {retryafter.WithCost(alice, 0), "b", true}} {
			if err := send(step.ctx, step.host); (err == nil) != step.ok {
				t.Errorf("step %d: %v", i, err)
			}
		}
		limit, ok := errors.AsType[*retryafter.LimitError](send(alice, "c"))
		if !ok || limit.Delay != time.Minute {
			t.Errorf("%v", limit)
		}
		if _, ok := errors.AsType[*retryafter.CostError](send(retryafter.WithCost(ctx, 2), "c")); !ok {
			t.Error("a cost of 2 is not refused for good")
		}
		keyed.Key = nil
		wait := &retryafter.Transport{Base: host, Limiter: keyed}
		begin := time.Now()
		if _, err := wait.RoundTrip(to(ctx, "GET", "a")); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("waited %v, %v", time.Since(begin), err)
		}
	})
}

func TestAGateAndABudgetAreAboutTheServer(t *testing.T) {
	// Whose budget an attempt spends says nothing of which server is busy.
	synctest.Test(t, func(t *testing.T) {
		host := newLimitedHost(time.Hour)
		tr := &retryafter.Transport{Base: host, Gate: &retryafter.Gate{}, Budget: &retryafter.RetryBudget{Retries: 2},
			Limiter: &retryafter.Keyed{Capacity: 100, Rate: retryafter.PerSecond(1)}, Policy: retryafter.Policy{MaxWait: time.Second}}
		for i, tenant := range []string{"a", "b"} {
			ctx := retryafter.WithKey(t.Context(), retryafter.NewKey(tenant))
			_, err := tr.RoundTrip(to(ctx, "GET", "busy"))
			if held := err != nil; held != (i > 0) {
				t.Errorf("tenant %s: %v", tenant, err)
			}
			if _, err := tr.RoundTrip(to(ctx, "GET", "idle")); err != nil {
				t.Errorf("tenant %s to another host: %v", tenant, err)
			}
		}
		refused := 0
		tr = &retryafter.Transport{Budget: tr.Budget, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			refused++
			return &http.Response{StatusCode: 502, Body: http.NoBody, Request: req}, nil
		})}
		for _, tenant := range []string{"a", "b", "c", "d", "e"} {
			tr.RoundTrip(to(retryafter.WithKey(t.Context(), retryafter.NewKey(tenant)), "GET", "dead"))
		}
		if refused != 5+2 {
			t.Errorf("%d attempts for 5 calls with 2 retries to spend", refused)
		}
	})
}

// A call that its first attempt settles tells what it waited before that.
func TestAWaitBeforeTheOnlyAttemptIsReported(t *testing.T) {
	hold := func(t *testing.T, tr *retryafter.Transport, req *http.Request) {
		tr.Gate = &retryafter.Gate{}
		tr.Gate.Hold(t.Context(), retryafter.ByHost(req), time.Now().Add(time.Minute))
	}
	for name, tc := range map[string]struct {
		prepare         func(*testing.T, *retryafter.Transport, *http.Request)
		waited, limited time.Duration
	}{
		"nothing": {prepare: func(*testing.T, *retryafter.Transport, *http.Request) {}},
		"a Gate":  {prepare: hold, waited: time.Minute},
		"a redirect": {waited: 3 * time.Second, prepare: func(_ *testing.T, _ *retryafter.Transport, req *http.Request) {
			req.Response = &http.Response{StatusCode: 302, Header: http.Header{"Retry-After": {"3"}}}
		}},
		"a Limiter": {limited: time.Second, prepare: func(_ *testing.T, tr *retryafter.Transport, _ *http.Request) {
			b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerSecond(1)}
			b.Allow()
			tr.Limiter = b
		}},
		"a Limiter, for a moment": {limited: 500 * time.Microsecond, prepare: func(_ *testing.T, tr *retryafter.Transport, _ *http.Request) {
			b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(500 * time.Microsecond)}
			b.Allow()
			tr.Limiter = b
		}},
		"a Limiter that can't tell how long": {limited: time.Second, prepare: func(_ *testing.T, tr *retryafter.Transport, _ *http.Request) {
			tr.Limiter = slow(time.Second)
		}},
	} {
		for _, failing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, then an error is %v", name, failing), func(t *testing.T) {
				only := reply{status: 200}
				if failing {
					only = reply{err: io.EOF}
				}
				inBubble(t, []reply{only}, func(t *testing.T, s *script, tr *retryafter.Transport) {
					tr.Retry = func(retryafter.Attempt) bool { return false }
					var done retryafter.Report
					tr.Trace = &retryafter.Trace{Done: func(_ *http.Request, r retryafter.Report) { done = r }}
					req := get(t.Context())
					tc.prepare(t, tr, req)
					resp, err := tr.RoundTrip(req)
					want := retryafter.Report{Attempts: 1, Waited: tc.waited, Limited: tc.limited, Stop: retryafter.Final,
						Decision: retryafter.Decision{Reason: retryafter.Final}}
					if done != want {
						t.Errorf("told %+v, want %+v", done, want)
					}
					if failing {
						if err != io.EOF {
							t.Errorf("not the attempt's own error: %v", err)
						}
						return
					}
					if tc.waited+tc.limited == 0 {
						want.Decision = retryafter.Decision{}
					}
					if got := retryafter.ReportOf(resp); got != want {
						t.Errorf("reported %+v, want %+v", got, want)
					}
				})
			})
		}
	}
}

// slow is a Limiter that tells nothing beforehand.
type slow time.Duration

func (d slow) WaitN(ctx context.Context, _ int) error { time.Sleep(time.Duration(d)); return nil }
