//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package proof

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
	"golang.org/x/time/rate"
)

type foundBase func(*http.Request) (*http.Response, error)

func (f foundBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func foundReply(req *http.Request, code int, kv ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("x")), Request: req, ProtoMajor: 1, ProtoMinor: 1}
}

// ConfigError: "returned by the first use of what was configured, before anything is sent, charged or slept".
func TestAMisconfiguredLimiterIsToldBeforeTheHold(t *testing.T) {
	for name, l := range map[string]retryafter.Limiter{
		"Bucket": &retryafter.Bucket{}, "Keyed": &retryafter.Keyed{}, "Deny": retryafter.Deny(&retryafter.Bucket{}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &retryafter.Gate{}
				req := get(context.Background())
				g.Hold(req.Context(), retryafter.ByHost(req), time.Now().Add(time.Minute))
				tr := &retryafter.Transport{Gate: g, Limiter: l, Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 200), nil })}
				start := time.Now()
				_, err := tr.RoundTrip(req)
				var ce *retryafter.ConfigError
				if !errors.As(err, &ce) || time.Since(start) > 0 {
					t.Errorf("%s: slept %v before %v", name, time.Since(start), err)
				}
			})
		})
	}
}

// CostError: "a *CostError at once, never a wait" (section 9); promise 2 "gives up at once, with its reason, when it can't".
func TestACostThatNeverFitsIsToldBeforeTheHold(t *testing.T) {
	for name, l := range map[string]retryafter.Limiter{
		"Bucket": &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerSecond(1)},
		"Deny":   retryafter.Deny(&retryafter.Bucket{Capacity: 1, Rate: retryafter.PerSecond(1)}),
		"rate":   rate.NewLimiter(1, 1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &retryafter.Gate{}
				req := get(retryafter.WithCost(context.Background(), 2))
				g.Hold(req.Context(), retryafter.ByHost(req), time.Now().Add(time.Minute))
				tr := &retryafter.Transport{Gate: g, Limiter: l, Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 200), nil })}
				start := time.Now()
				_, err := tr.RoundTrip(req)
				if time.Since(start) > 0 {
					t.Errorf("%s: slept %v before %v", name, time.Since(start), err)
				}
			})
		})
	}
}

type slowHolds struct{ d time.Duration }

func (s slowHolds) Hold(context.Context, retryafter.Key, time.Duration) error {
	time.Sleep(s.d)
	return nil
}
func (s slowHolds) Held(context.Context, retryafter.Key) (time.Duration, error) {
	time.Sleep(s.d)
	return 0, errors.New("away")
}

// Gate.held reads this Gate's own hold before the round trip to Shared, and not again after it. A hold that this
// process learns meanwhile is passed by. (With a working Shared too, whose Held ran before the other's Hold.)
func TestAHoldLearntWhileSharedIsAskedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &retryafter.Gate{Shared: slowHolds{100 * time.Millisecond}}
		req := get(context.Background())
		var sent time.Time
		tr := &retryafter.Transport{Gate: g, Base: foundBase(func(r *http.Request) (*http.Response, error) {
			sent = time.Now()
			return foundReply(r, 200), nil
		})}
		until := time.Now().Add(time.Minute)
		go func() {
			time.Sleep(10 * time.Millisecond)
			g.Hold(context.Background(), retryafter.ByHost(req), until) // known here 90 ms before the send
		}()
		tr.RoundTrip(req)
		time.Sleep(time.Second)
		if sent.Before(until) {
			t.Errorf("sent %v before the end of a hold that this Gate had known for 90ms", until.Sub(sent))
		}
	})
}

// a call asks Shared (a round trip, or the whole timeout of a store that is away) before it tells its own Gate
// of the 429 it got; other calls of this process leave meanwhile.
func TestA429ArmsItsOwnGateAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lag = 500 * time.Millisecond
		g := &retryafter.Gate{Shared: slowHolds{lag}}
		start := time.Now()
		var mu sync.Mutex
		sends := []time.Duration{}
		tr := &retryafter.Transport{Gate: g, Policy: retryafter.Policy{MaxAttempts: 1}, Base: foundBase(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			sends = append(sends, time.Since(start))
			n := len(sends)
			mu.Unlock()
			if n == 1 {
				return foundReply(r, 429, "Retry-After", "60"), nil
			}
			return foundReply(r, 200), nil
		})}
		var wg sync.WaitGroup
		wg.Go(func() { tr.RoundTrip(get(context.Background())) }) // asks at 0, sends and is told 60s at 0.5s
		// Looks at the Gate's own hold at 0.9 s, 0.4 s after the 429, and passes.
		wg.Go(func() { time.Sleep(900 * time.Millisecond); tr.RoundTrip(get(context.Background())) })
		wg.Wait()
		if len(sends) > 1 && sends[1] < sends[0]+60*time.Second {
			t.Errorf("sends at %v: the second began 400ms after the first was told 60s", sends)
		}
	})
}

// WithCost: "0 passes freely".
func TestCostZeroPassesFreely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.NewLimiter(1, 1)
		l.Allow()
		go l.Wait(context.Background())
		go l.Wait(context.Background())
		synctest.Wait()
		tr := &retryafter.Transport{Limiter: l, Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 200), nil })}
		start := time.Now()
		_, err := tr.RoundTrip(get(retryafter.WithCost(context.Background(), 0)))
		if d := time.Since(start); d > 0 || err != nil {
			t.Errorf("a cost of 0 waited %v, %v", d, err)
		}
		_, err = (&retryafter.Transport{Limiter: retryafter.Deny(l), Base: tr.Base}).RoundTrip(get(retryafter.WithCost(context.Background(), 0)))
		if err != nil {
			t.Errorf("Deny: %v", err)
		}
		time.Sleep(time.Hour)
	})
}

func TestFleetsKeepEveryPromise(t *testing.T) {
	for seed := uint64(1); seed <= 120; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r0 := rand.New(rand.NewPCG(seed, 3))
			g := &retryafter.Gate{}
			b := &retryafter.Bucket{Capacity: int64(1 + r0.IntN(4)), Rate: retryafter.Rate{Tokens: 1, Per: time.Duration(1+r0.IntN(3000)) * time.Millisecond}}
			budget := &retryafter.RetryBudget{Retries: 1 + r0.IntN(200), SuccessesPerRetry: 1 << 20}
			var lim retryafter.Limiter = b
			kind := r0.IntN(5)
			switch kind {
			case 1:
				lim = retryafter.Deny(b)
			case 2:
				lim = rate.NewLimiter(rate.Every(b.Rate.Per), int(b.Capacity))
			case 3:
				lim = &retryafter.Keyed{Capacity: b.Capacity, Rate: b.Rate}
			case 4:
				lim = retryafter.Deny(&retryafter.Keyed{Capacity: b.Capacity, Rate: b.Rate})
			}
			type hold struct{ at, until time.Time }
			var mu sync.Mutex
			var holds []hold
			var sends []time.Time
			retries, retrySuccess := 0, 0
			rr := rand.New(rand.NewPCG(seed, 5))
			base := foundBase(func(r *http.Request) (*http.Response, error) {
				now := time.Now()
				n := retryafter.AttemptNumber(r.Context())
				mu.Lock()
				if n > 1 {
					retries++
				}
				for _, h := range holds {
					if now.After(h.at) && now.Before(h.until) {
						t.Errorf("seed %d kind %d: sent %v before hold's end", seed, kind, h.until.Sub(now))
					}
				}
				sends = append(sends, now)
				lat := time.Duration(rr.IntN(500)) * time.Millisecond
				x, ra := rr.IntN(10), rr.IntN(9)
				mu.Unlock()
				select {
				case <-time.After(lat):
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case x < 2:
					if ra > 0 {
						holds = append(holds, hold{time.Now(), time.Now().Add(time.Duration(ra) * time.Second)})
					}
					return foundReply(r, 429, "Retry-After", strconv.Itoa(ra)), nil
				case x < 3:
					return foundReply(r, 502), nil
				case x < 4:
					return nil, io.EOF
				}
				if n > 1 {
					retrySuccess++
				}
				return foundReply(r, 200), nil
			})
			tr := &retryafter.Transport{Base: base, Gate: g, Limiter: lim, Budget: budget, AttemptTimeout: 0}
			tr.MaxAttempts = 1 + r0.IntN(5)
			if r0.IntN(2) == 0 {
				tr.MaxWait = 5 * time.Second
			}
			if r0.IntN(2) == 0 {
				tr.MaxElapsed = 8 * time.Second
			}
			if r0.IntN(2) == 0 {
				tr.Reserve = 300 * time.Millisecond
			}
			if r0.IntN(3) == 0 {
				tr.Policy.Backoff = func() backoff.BackOff { return &backoff.ZeroBackOff{} }
				tr.Jitter = retryafter.NoJitter
			}
			var wg sync.WaitGroup
			for c := range 40 {
				wg.Add(1)
				r := rand.New(rand.NewPCG(seed, uint64(100+c)))
				go func() {
					defer wg.Done()
					for range 6 {
						time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
						ctx := context.Background()
						cancelled := time.Time{}
						start := time.Now()
						deadline := time.Time{}
						var annEnd time.Time
						var sentAfterCancel bool
						ctx = retryafter.WithTrace(ctx, &retryafter.Trace{Waiting: func(w retryafter.WaitInfo) {
							annEnd = w.Until
							if !deadline.IsZero() && !w.Until.Before(deadline) {
								t.Errorf("seed %d: announced a wait that does not fit", seed)
							}
						}})
						req := get(ctx)
						var cancel context.CancelFunc = func() {}
						switch r.IntN(4) {
						case 0:
							d := time.Duration(r.IntN(12000)) * time.Millisecond
							ctx, cancel = context.WithTimeout(ctx, d)
							deadline = start.Add(d)
							req = req.WithContext(ctx)
						case 1:
							d := time.Duration(r.IntN(6000)) * time.Millisecond
							ch := make(chan struct{})
							req.Cancel = ch
							cancelled = start.Add(d)
							time.AfterFunc(d, func() { close(ch) })
						case 2:
							d := time.Duration(r.IntN(6000)) * time.Millisecond
							cancelled = start.Add(d)
							ctx, cancel = context.WithCancel(ctx)
							req = req.WithContext(ctx)
							time.AfterFunc(d, cancel)
						}
						resp, err := tr.RoundTrip(req)
						now := time.Now()
						if (resp == nil) == (err == nil) {
							t.Errorf("both or neither")
						}
						var re *retryafter.Error
						if errors.As(err, &re) {
							rep := re.Report
							if rep.Stop == 0 || rep.Decision.Retry {
								t.Errorf("seed %d report %+v", seed, rep)
							}
							var le *retryafter.LimitError
							if rep.Stop == retryafter.Limited && errors.As(err, &le) && le.Delay == 0 && kind != 2 {
								t.Errorf("seed %d no delay: %+v", seed, rep)
							}
						}
						if !cancelled.IsZero() && now.After(cancelled.Add(550*time.Millisecond)) {
							t.Errorf("seed %d: outlasted its cancel by %v: %v", seed, now.Sub(cancelled), err)
						}
						if !deadline.IsZero() && now.After(deadline.Add(100*time.Millisecond)) {
							t.Errorf("seed %d: outlasted its deadline by %v: %v", seed, now.Sub(deadline), err)
						}
						_, _ = annEnd, sentAfterCancel
						if resp != nil {
							io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
						cancel()
					}
				}()
			}
			wg.Wait()
			key := retryafter.ByHost(get(context.Background()))
			if want := budget.Retries - retries + retrySuccess; budget.Left(key) != min(want, budget.Retries) {
				t.Errorf("seed %d: budget left %d want %d (retries %d, successes %d)", seed, budget.Left(key), want, retries, retrySuccess)
			}
			if kind != 2 {
				for a := range sends {
					for z := a; z < len(sends); z++ {
						n := int64(z - a + 1)
						if n > b.Capacity && (n-b.Capacity)*int64(b.Rate.Per) > int64(sends[z].Sub(sends[a])) {
							t.Fatalf("seed %d: %d sends in %v", seed, n, sends[z].Sub(sends[a]))
						}
					}
				}
			}
			time.Sleep(time.Hour)
		})
		if t.Failed() {
			return
		}
	}
}

// RetryBudget.MaxKeys: "nothing that is paid back is lost". Withdrawals of keys that shared the rest are refunded
// into places of their own that each begin with all of the rest's debt; the rest itself is never paid.
func TestRefundsOfTheRestAreNotLost(t *testing.T) {
	const n = 100
	b := &retryafter.RetryBudget{Retries: n, MaxKeys: n}
	key := func(p string, i int) retryafter.Key { return retryafter.NewKey(p, strconv.Itoa(i)) }
	for i := range n {
		b.Withdraw(key("early", i))
	}
	for i := range n {
		b.Withdraw(key("late", i))
	}
	for i := range n {
		b.Refund(key("early", i))
	}
	for i := range n {
		b.Refund(key("late", i))
	}
	// every withdrawal of everybody has been refunded
	least := n
	for i := range n {
		least = min(least, b.Left(key("late", i)))
	}
	if fresh := b.Left("fresh"); fresh < n || least < n {
		t.Errorf("all %d withdrawals were refunded; a late key has %d retries left, one never seen %d", 2*n, least, fresh)
	}
}

type waitAndTokens struct{ l *rate.Limiter }

func (w waitAndTokens) WaitN(ctx context.Context, n int) error { return w.l.WaitN(ctx, n) }
func (w waitAndTokens) TokensAt(t time.Time) float64           { return w.l.TokensAt(t) }

// Limiter doc: one that "also has either of DelayN, TokensAt ... lets a Transport count its wait in before it
// lets go of a response". TokensAt counts only together with AllowN, which the doc does not ask for.
func TestTokensAtAloneCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.NewLimiter(rate.Every(time.Minute), 1)
		tr := &retryafter.Transport{Limiter: waitAndTokens{l}, Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 503), nil })}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(get(ctx))
		if resp == nil {
			t.Errorf("the response in hand was let go: %v", err)
		}
	})
}

// with a Trace (or a Retry of one's own), a Gate's Shared is asked after every response, a 200 too.
func TestATraceMakesNoSuccessAskShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lag = 500 * time.Millisecond
		took := func(tr *retryafter.Trace) time.Duration {
			start := time.Now()
			x := &retryafter.Transport{Gate: &retryafter.Gate{Shared: slowHolds{lag}}, Trace: tr, Base: foundBase(func(r *http.Request) (*http.Response, error) { return foundReply(r, 200), nil })}
			x.RoundTrip(get(context.Background()))
			return time.Since(start)
		}
		plain, traced := took(nil), took(&retryafter.Trace{Done: func(*http.Request, retryafter.Report) {}})
		if traced > plain {
			t.Errorf("a 200 took %v untraced, %v traced", plain, traced)
		}
	})
}

// announced limiter wait = slept, alone and in a queue, and through a hold that comes meanwhile
func TestAnnouncedLimiterWaits(t *testing.T) {
	for _, mk := range []func() retryafter.Limiter{
		func() retryafter.Limiter { return &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerSecond(3)} },
		func() retryafter.Limiter { return &retryafter.Keyed{Capacity: 1, Rate: retryafter.PerSecond(3)} },
		func() retryafter.Limiter { return rate.NewLimiter(3, 1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := mk()
			for i := range 20 {
				var until, sent time.Time
				tr := &retryafter.Transport{Gate: &retryafter.Gate{}, Limiter: l, Trace: &retryafter.Trace{Waiting: func(w retryafter.WaitInfo) { until = w.Until }},
					Base: foundBase(func(r *http.Request) (*http.Response, error) { sent = time.Now(); return foundReply(r, 200), nil })}
				go func() {
					tr.RoundTrip(get(context.Background()))
					if i > 0 && (sent.Sub(until) > 2 || until.Sub(sent) > 2) {
						t.Errorf("%T %d: announced %v, sent %v after", l, i, until, sent.Sub(until))
					}
				}()
				synctest.Wait()
			}
			time.Sleep(time.Minute)
		})
	}
}

// Promise 4/Keyed. An instant in the future + eviction + WaitN: start() caps the debt at size and forgets that the
// filling begins only at that instant; WaitN then promotes {size, now} to a queue that fills from now on.
func TestAFutureInstantAndAWaitMintNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &retryafter.Keyed{Capacity: 10, Rate: retryafter.PerSecond(1), MaxKeys: 1}
		start := time.Now()
		a, b := k.For("a"), k.For("b")
		if !a.AllowN(start.Add(time.Hour), 10) || !b.AllowN(start.Add(2*time.Hour), 10) { // b stays, a is forgotten
			t.Fatal("setup")
		}
		time.Sleep(time.Hour - 10*time.Second)
		if err := a.WaitN(context.Background(), 10); err != nil {
			t.Fatal(err)
		}
		if at := time.Since(start); at < time.Hour+10*time.Second {
			t.Errorf("a was admitted 10 at +1h0m0s and 10 more at +%v; a Bucket admits the second at +1h0m10s", at)
		}
	})
}

// StartedBelow counts keys that were known: one that waited is put back as if it were unknown.
func TestStartedBelowCountsUnknownKeysOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &retryafter.Keyed{Capacity: 4, Rate: retryafter.PerSecond(1), MaxKeys: 2}
		k.For("a").AllowN(time.Now(), 4)
		k.For("b").AllowN(time.Now(), 3)
		k.For("c").AllowN(time.Now(), 4) // b goes
		before := k.Stats()
		if err := k.For("a").Wait(context.Background()); err != nil { // a is remembered all the while
			t.Fatal(err)
		}
		if after := k.Stats(); after.StartedBelow != before.StartedBelow {
			t.Errorf("a known key that waited counts as unknown: %+v, then %+v", before, after)
		}
	})
}

// A Limiter without a limit says that it has the tokens of its burst, and admits any number.
func TestALimiterWithoutALimitRefusesNothing(t *testing.T) {
	for _, burst := range []int{0, 1, 5} {
		for _, cost := range []int{1, 2, 10} {
			raised := rate.NewLimiter(1, burst)
			raised.SetLimit(rate.Inf)
			for name, l := range map[string]retryafter.Limiter{
				"as it is": rate.NewLimiter(rate.Inf, burst), "raised": raised,
				"Deny": retryafter.Deny(rate.NewLimiter(rate.Inf, burst)),
			} {
				synctest.Test(t, func(t *testing.T) {
					script := retryaftertest.NewScript(t, retryaftertest.Response{Status: 503, RetryAfter: time.Second}, retryaftertest.Response{})
					tr := &retryafter.Transport{Base: script, Limiter: l}
					req, err := http.NewRequestWithContext(retryafter.WithCost(t.Context(), cost), "GET", "http://example.com/", nil)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := tr.RoundTrip(req)
					if err != nil || resp.StatusCode != 200 {
						t.Errorf("%s, burst %d, cost %d: %v, %v, %v", name, burst, cost, resp, err, retryafter.ReportOf(resp))
					}
				})
			}
			// With a limit it is as before: what can never be is refused while the response is in hand.
			if cost <= burst {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				script := retryaftertest.NewScript(t, retryaftertest.Response{Status: 503, RetryAfter: time.Second})
				l := rate.NewLimiter(1, burst)
				tr := &retryafter.Transport{Base: script, Limiter: first{l}}
				req, _ := http.NewRequestWithContext(retryafter.WithCost(t.Context(), cost), "GET", "http://example.com/", nil)
				resp, err := tr.RoundTrip(req)
				if err != nil || retryafter.ReportOf(resp).Stop != retryafter.Limited {
					t.Errorf("burst %d, cost %d: %v, %v", burst, cost, err, retryafter.ReportOf(resp))
				}
				if have := l.Tokens(); have != float64(burst) {
					t.Errorf("%v tokens are left of %d", have, burst)
				}
			})
		}
	}
}

// first admits whatever comes, and knows beforehand what l would say.
type first struct{ *rate.Limiter }

func (first) WaitN(context.Context, int) error { return nil }
func (f first) AllowN(t time.Time, n int) bool { return f.Limiter.AllowN(t, n) }

// inDebt admits what it has no tokens for, and owes them, as some limiters do.
type inDebt struct{ tokens float64 }

func (l *inDebt) WaitN(_ context.Context, n int) error { l.tokens -= float64(n); return nil }
func (l *inDebt) TokensAt(time.Time) float64           { return l.tokens }
func (l *inDebt) AllowN(_ time.Time, n int) bool {
	if n > 100 {
		return false
	}
	l.tokens -= float64(n)
	return true
}

// Asking takes nothing.
func TestWhetherALimiterHasALimitIsAskedForFree(t *testing.T) {
	l := &inDebt{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := retryafter.Deny(l).WaitN(ctx, 1); err == nil || l.tokens != 0 {
		t.Errorf("%v tokens, %v", l.tokens, err)
	}
}
