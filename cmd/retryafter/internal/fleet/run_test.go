package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
)

func herd() Scenario {
	return Scenario{
		Clients: 1000, Processes: 10, Attempts: 3, Opens: time.Minute,
		Capacity: 100, Rate: retryafter.PerSecond(100), Status: http.StatusServiceUnavailable, Seed: 1,
	}
}

func outage() Scenario {
	return Scenario{
		Clients: 3000, Over: 5 * time.Minute, Processes: 10, Attempts: 3, Closes: time.Minute, Opens: 2 * time.Minute,
		Capacity: 20, Rate: retryafter.PerSecond(20), Status: http.StatusServiceUnavailable, Seed: 1,
	}
}

func quota() Scenario {
	return Scenario{
		Clients: 2000, Over: time.Minute, Processes: 10, Attempts: 3,
		Capacity: 600, Rate: retryafter.PerMinute(600), Status: http.StatusTooManyRequests, Seed: 1,
	}
}

// with is s after change.
func with(s Scenario, change func(*Scenario)) Scenario {
	change(&s)
	return s
}

func scenarios() map[string]Scenario {
	return map[string]Scenario{
		"herd":              herd(),
		"herd of one":       with(herd(), func(s *Scenario) { s.Clients = 1 }),
		"outage":            outage(),
		"outage, no hint":   with(outage(), func(s *Scenario) { s.NoHint = true }),
		"outage, 30s":       with(outage(), func(s *Scenario) { s.Delay = 30 * time.Second }),
		"outage, too long":  with(outage(), func(s *Scenario) { s.Delay = 3 * time.Minute }),
		"outage, one sends": with(outage(), func(s *Scenario) { s.Attempts = 1 }),
		"no outage":         with(outage(), func(s *Scenario) { s.Opens = s.Closes }),
		"quota":             quota(),
		"quota, 20 tries":   with(quota(), func(s *Scenario) { s.Attempts = 20 }),
		"quota, no hint":    with(quota(), func(s *Scenario) { s.NoHint = true }),
	}
}

func rule(t *testing.T, name string) Rule {
	t.Helper()
	for _, r := range Rules {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no rule %q", name)
	return Rule{}
}

func result(t *testing.T, s Scenario, r Rule) *Result {
	t.Helper()
	got, err := s.Run(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// everywhere runs check for every rule in every scenario.
func everywhere(t *testing.T, check func(*testing.T, Scenario, *Result)) {
	for name, s := range scenarios() {
		for _, r := range Rules {
			t.Run(name+"/"+r.Name, func(t *testing.T) { check(t, s, result(t, s, r)) })
		}
	}
}

func TestEveryCallEndsOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, s Scenario, got *Result) {
		if got.Completed+got.GaveUp != s.Clients {
			t.Errorf("%d completed and %d gave up, of %d", got.Completed, got.GaveUp, s.Clients)
		}
		var all, early, served int
		for _, w := range got.Windows {
			all, early, served = all+int(w.All), early+int(w.Early), served+int(w.Served)
		}
		if all != got.Attempts || early != got.Early || served != got.Completed {
			t.Errorf("the windows have %d attempts, %d early, %d served; the result %d, %d, %d",
				all, early, served, got.Attempts, got.Early, got.Completed)
		}
		if got.Firsts > s.Clients || got.Attempts < got.Firsts || got.Attempts > got.Firsts*s.Attempts {
			t.Errorf("%d attempts by %d of %d clients, with %d each", got.Attempts, got.Firsts, s.Clients, s.Attempts)
		}
	})
}

func TestProgressAddsUp(t *testing.T) {
	sum := 0
	s := outage()
	if _, err := s.Run(t.Context(), rule(t, "exact"), func(n int) { sum += n }); err != nil || sum != s.Clients {
		t.Errorf("told of %d of %d (%v)", sum, s.Clients, err)
	}
}

func TestOnlyBentRulesComeEarly(t *testing.T) {
	early := map[string]int{}
	everywhere(t, func(t *testing.T, _ Scenario, got *Result) {
		early[got.Rule.Name] += got.Early
		if got.Rule.bend == nil && got.Early > 0 {
			t.Errorf("%d came early", got.Early)
		}
	})
	for _, name := range []string{"symmetric", "clamped"} {
		if early[name] == 0 {
			t.Errorf("%s never came early", name)
		}
	}
}

func TestServedStaysWithinCapacityAndOutsideOutage(t *testing.T) {
	everywhere(t, func(t *testing.T, s Scenario, got *Result) {
		per := float64(s.Rate.Tokens) * float64(Window) / float64(s.Rate.Per)
		most, open := float64(s.Capacity), float64(s.Capacity)
		for i, w := range got.Windows {
			// What a bucket that is full at best has at the end of the window.
			open = min(open, most) + per - float64(w.Served)
			if open < -1e-6 {
				t.Fatalf("at %v more was served than %d + %v allow", time.Duration(i)*Window, s.Capacity, s.Rate)
			}
			if at := time.Duration(i) * Window; at >= s.Closes && at < s.Opens && w.Served > 0 {
				t.Fatalf("%d served at %v, in the outage", w.Served, at)
			}
		}
	})
}

func TestHerd(t *testing.T) {
	for seed := range uint64(20) {
		s := with(herd(), func(s *Scenario) { s.Seed = seed })
		for _, name := range []string{"exact", "max", "nojitter"} {
			if got := result(t, s, rule(t, name)); got.Worst != s.Clients {
				t.Errorf("seed %d, %s: the worst window has %d of %d", seed, name, got.Worst, s.Clients)
			}
		}
		got := result(t, s, rule(t, "retryafter"))
		// 1000 spread evenly over 150 windows: 7 each, the fullest of them about 13.
		if got.Worst < 10 || got.Worst > 20 {
			t.Errorf("seed %d: the worst window has %d", seed, got.Worst)
		}
		if got.Completed != s.Clients || got.Attempts != 2*s.Clients || got.Settled < 14*time.Second || got.Settled > 15*time.Second {
			t.Errorf("seed %d: %d completed with %d attempts, the last after %v", seed, got.Completed, got.Attempts, got.Settled)
		}
	}
}

func TestOnlyTheLibraryRefusesALongWait(t *testing.T) {
	s := with(herd(), func(s *Scenario) { s.Opens = 3 * time.Minute })
	for _, r := range Rules {
		got := result(t, s, r)
		if r.bend == nil && (got.Attempts != got.Firsts || got.GaveUp != s.Clients) {
			t.Errorf("%s: %d attempts, %d gave up; want %d to give up at once", r.Name, got.Attempts, got.GaveUp, s.Clients)
		}
		if r.bend != nil && got.Attempts < 2*s.Clients {
			t.Errorf("%s: %d attempts, want each to come back", r.Name, got.Attempts)
		}
	}
}

func TestSettledCountsWhatWasNotServedAtOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Scenario
		rule string
		want time.Duration
	}{
		{"all served at once", with(herd(), func(s *Scenario) { s.Opens, s.Capacity = 0, 1000 }), "exact", 0},
		{"served by the second attempt", with(herd(), func(s *Scenario) { s.Capacity = 1000 }), "exact", 0},
		{"given up at the third", herd(), "exact", time.Second},
		{"given up, none served but the first", with(herd(), func(s *Scenario) {
			s.Opens, s.Delay, s.Capacity, s.Rate = 0, time.Second, 1, retryafter.PerMinute(1)
		}), "exact", 2 * time.Second},
		{"given up in the outage", herd(), "clamped", 0},
		{"served late, but at the first attempt", with(herd(), func(s *Scenario) { s.Opens, s.Clients, s.Processes = 0, 200, 1 }), "retryafter+bucket", time.Second},
	} {
		if got := result(t, c.s, rule(t, c.rule)); got.Settled != c.want {
			t.Errorf("%s: settled after %v, want %v", c.name, got.Settled, c.want)
		}
	}
}

func TestRetryBudgetBoundsTheLoadOfATotalOutage(t *testing.T) {
	s := with(outage(), func(s *Scenario) { s.Closes, s.Opens, s.NoHint = 0, time.Hour, true })
	const retries = 100 // RetryBudget's own default
	most := s.Clients + retries*s.Processes
	if got := result(t, s, rule(t, "retryafter+budget")); got.Attempts != most {
		t.Errorf("%d attempts, want %d", got.Attempts, most)
	}
	if got := result(t, s, rule(t, "retryafter")); got.Attempts != s.Clients*s.Attempts {
		t.Errorf("without a budget %d attempts, want %d", got.Attempts, s.Clients*s.Attempts)
	}
}

func TestGateKeepsAProcessOutOfAnOutage(t *testing.T) {
	s := outage()
	during := 0
	got := result(t, s, rule(t, "retryafter+gate"))
	for _, w := range got.Windows[s.Closes/Window : s.Opens/Window] {
		during += int(w.All)
	}
	if during != s.Processes {
		t.Errorf("%d arrivals during the outage, want one from each of %d processes", during, s.Processes)
	}
}

func TestBucketIsNeverRefused(t *testing.T) {
	s := quota()
	got := result(t, s, rule(t, "retryafter+bucket"))
	if got.Completed != s.Clients || got.Attempts != s.Clients {
		t.Errorf("%d of %d completed with %d attempts", got.Completed, s.Clients, got.Attempts)
	}
	if got := result(t, s, rule(t, "retryafter")); got.Attempts == s.Clients {
		t.Error("without a bucket none was refused either")
	}
}

func TestSameSeedSameResult(t *testing.T) {
	for name, s := range map[string]Scenario{"herd": herd(), "outage": outage(), "quota": quota()} {
		for _, r := range Rules {
			one, two := result(t, s, r), result(t, s, r)
			one.Rule, two.Rule = Rule{}, Rule{}
			if !reflect.DeepEqual(one, two) {
				t.Errorf("%s, %s: two runs differ", name, r.Name)
			}
			s.Seed = 2
			other := result(t, s, r)
			other.Rule = Rule{}
			if s.Over > 0 && reflect.DeepEqual(one, other) {
				t.Errorf("%s, %s: two seeds give the same", name, r.Name)
			}
			s.Seed = 1
		}
	}
}

func TestCallsBeginAtTheSameInstantsUnderEveryRule(t *testing.T) {
	s := with(outage(), func(s *Scenario) { s.Opens, s.Closes, s.Capacity = 0, 0, Most })
	want := result(t, s, Rules[0]).Windows
	for _, r := range Rules[1:] {
		if r.bucket {
			continue
		}
		if got := result(t, s, r).Windows; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other instants", r.Name)
		}
	}
}

// The default jitter draws from a source that can't be seeded. What stands in
// for it must reach as far, and no further.
func TestJitterReachesAsFarAsTheDefault(t *testing.T) {
	outcome := func(p retryafter.Policy, hint int) time.Duration {
		a := retryafter.Attempt{Number: 1, StatusCode: http.StatusServiceUnavailable, Received: epoch}
		if hint > 0 {
			a.Header = http.Header{"Retry-After": {strconv.Itoa(hint)}}
		}
		return p.Decide(a, retryafter.Call{}).Jitter
	}
	s, zero := herd(), rule(t, "retryafter")
	ours := zero.policy(3, s.random(1))
	for _, hint := range []int{0, 1, 3, 4, 5, 60, 119, 120} {
		var most, mean [2]float64
		const n = 20000
		for range n {
			for i, p := range []retryafter.Policy{{}, ours} {
				x := outcome(p, hint).Seconds()
				most[i], mean[i] = max(most[i], x), mean[i]+x/n
			}
		}
		// n draws all miss the last hundredth once in 10^87 runs; the mean is off by
		// a fiftieth of the range (7 standard errors) once in 10^11.
		if most[0] < 0.99*most[1] || most[1] < 0.99*most[0] {
			t.Errorf("after %d s: up to %v, the default up to %v", hint, most[1], most[0])
		}
		if d := mean[0] - mean[1]; d > most[0]/50 || d < -most[0]/50 {
			t.Errorf("after %d s: %v on average, the default %v", hint, mean[1], mean[0])
		}
	}
}

// TestModelDoesWhatTransportsDo puts a fleet of real Transports through the same
// scenario, in a bubble. Their jitter is no matter of chance, but keeps them
// apart, for among those who come in one instant it is chance who is first.
func TestModelDoesWhatTransportsDo(t *testing.T) {
	ample := func(s *Scenario) { s.Clients, s.Capacity, s.Rate = 600, 1000, retryafter.PerSecond(1000) }
	for _, c := range []struct {
		name string
		s    Scenario
		rule Rule
	}{
		{"policy", with(outage(), func(s *Scenario) { s.Clients = 600 }), Rule{}},
		{"policy, no hint", with(outage(), func(s *Scenario) { s.Clients, s.NoHint = 600, true }), Rule{}},
		{"policy, wait too long", with(outage(), func(s *Scenario) { s.Clients, s.Delay = 600, 3*time.Minute }), Rule{}},
		{"gate", with(outage(), ample), Rule{gate: true}},
		{"gate, 20s", with(with(outage(), ample), func(s *Scenario) { s.Delay = 20 * time.Second }), Rule{gate: true}},
		{"gate, wait too long", with(with(outage(), ample), func(s *Scenario) { s.Delay = 3 * time.Minute }), Rule{gate: true}},
		{"gate, no hint", with(with(outage(), ample), func(s *Scenario) { s.NoHint = true }), Rule{gate: true}},
		{"budget", with(with(outage(), ample), func(s *Scenario) { s.NoHint, s.Processes, s.Clients = true, 2, 3000 }), Rule{budget: true}},
		{"budget, too much at all times", with(outage(), func(s *Scenario) {
			s.Opens, s.Capacity, s.Rate, s.Processes, s.NoHint = s.Closes, 5, retryafter.PerSecond(5), 2, true
		}), Rule{budget: true}},
		{"gate and budget", with(outage(), func(s *Scenario) { s.Processes = 2 }), Rule{gate: true, budget: true}},
		{"bucket", with(quota(), func(s *Scenario) { s.Clients, s.Capacity, s.Rate = 300, 60, retryafter.PerMinute(60) }), Rule{bucket: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := c.s.prepare(c.rule)
			model.policy.Jitter = settledJitter
			if err := model.play(t.Context(), func(int) {}); err != nil {
				t.Fatal(err)
			}
			if real := transports(t, c.s, c.rule); !reflect.DeepEqual(model.result, real) {
				t.Errorf("the model has %s\nTransports do %s", short(model.result), short(real))
			}
		})
	}
}

func settledJitter(wait time.Duration, _ bool) time.Duration {
	return wait*7919%(wait/4+1) + wait%997
}

func short(r *Result) string {
	return fmt.Sprintf("%d completed, %d gave up, %d of %d attempts first, settled after %v, worst %d, in %d windows",
		r.Completed, r.GaveUp, r.Firsts, r.Attempts, r.Settled, r.Worst, len(r.Windows))
}

// transports is Run with one real Transport a process.
func transports(t *testing.T, s Scenario, rule Rule) *Result {
	r := s.prepare(rule)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			r.at = time.Since(start)
			r.result.Attempts++
			if retryafter.AttemptNumber(req.Context()) == 1 {
				r.result.Firsts++
			}
			w := r.window()
			w.All++
			resp := &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}
			if wait := r.answer(r.at); wait > 0 {
				resp.StatusCode = s.Status
				if hint := r.hint(wait); hint > 0 {
					resp.Header = r.header(hint)
				}
			} else {
				w.Served++
			}
			return resp, nil
		})
		fleet := make([]*retryafter.Transport, s.Processes)
		for i := range fleet {
			fleet[i] = &retryafter.Transport{Base: base, Policy: r.policy}
			fleet[i].Policy.Jitter = settledJitter
			if rule.gate {
				fleet[i].Gate = &retryafter.Gate{}
			}
			if rule.budget {
				fleet[i].Budget = &retryafter.RetryBudget{}
			}
			if rule.bucket {
				fleet[i].Limiter = s.share()
			}
		}
		var calls sync.WaitGroup
		for _, e := range r.events {
			calls.Go(func() {
				time.Sleep(e.at)
				req, _ := http.NewRequest("GET", "http://server.example/", nil)
				resp, err := fleet[int(e.who)%len(fleet)].RoundTrip(req)
				mu.Lock()
				defer mu.Unlock()
				if now := time.Since(start); now > e.at || err != nil || resp.StatusCode != 200 {
					r.last = max(r.last, now)
				}
				if err == nil && resp.StatusCode == 200 {
					r.result.Completed++
				} else {
					r.result.GaveUp++
				}
			})
		}
		calls.Wait()
	})
	r.sumUp()
	return r.result
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := outage()
	if _, err := s.Run(ctx, Rules[0], func(int) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCheckNamesTheFieldAndItsValue(t *testing.T) {
	for want, change := range map[string]func(*Scenario){
		"":                                     func(*Scenario) {},
		"Clients 0 must be from 1 to 10000000": func(s *Scenario) { s.Clients = 0 },
		"Clients 10000001 must be from 1 to 10000000": func(s *Scenario) { s.Clients = Most + 1 },
		"Processes -1 must be from 1 to 1000000":      func(s *Scenario) { s.Processes = -1 },
		"Attempts 21 must be from 1 to 20":            func(s *Scenario) { s.Attempts = 21 },
		"Capacity 0 must be from 1 to 10000000":       func(s *Scenario) { s.Capacity = 0 },
		"Rate 0 must be from 1 to 10000000":           func(s *Scenario) { s.Rate.Tokens = 0 },
		"Over -1s must be from 0s to 1h0m0s":          func(s *Scenario) { s.Over = -time.Second },
		"Closes 1h0m0.1s must be from 0s to 1h0m0s":   func(s *Scenario) { s.Closes = time.Hour + Window },
		"Opens -1s must be from 0s to 1h0m0s":         func(s *Scenario) { s.Opens = s.Closes - time.Second },
		"Opens 1.05s must be a multiple of 100ms":     func(s *Scenario) { s.Opens = s.Closes + 1050*time.Millisecond },
		"Closes 10ms must be a multiple of 100ms":     func(s *Scenario) { s.Closes = 10 * time.Millisecond },
		"Delay 1.5s must be a multiple of 1s":         func(s *Scenario) { s.Delay = 1500 * time.Millisecond },
		"Delay -1s must be from 0s to 1h0m0s":         func(s *Scenario) { s.Delay = -time.Second },
	} {
		s := outage()
		change(&s)
		_, err := s.Run(t.Context(), Rules[0], nil)
		if got := fmt.Sprint(err); got != want && (want != "" || err != nil) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheLargestNumbersCanBeCounted(t *testing.T) {
	for _, per := range []time.Duration{time.Second, time.Minute} {
		for _, tokens := range []int64{1, 9_999_999, Most} {
			for _, processes := range []int{1, 7, MostProcesses} {
				s := Scenario{Clients: 1, Processes: processes, Attempts: 1, Capacity: tokens, Rate: retryafter.Rate{Tokens: tokens, Per: per}}
				server := retryafter.Bucket{Capacity: s.Capacity, Rate: s.Rate}
				for _, b := range []*retryafter.Bucket{&server, s.share()} {
					if _, err := b.DelayN(epoch, 1); err != nil {
						t.Errorf("%d processes, %v: %v", processes, s.Rate, err)
					}
				}
			}
		}
	}
}

func TestOnlyAsManyProcessesAsClients(t *testing.T) {
	for _, r := range Rules {
		s := with(quota(), func(s *Scenario) { s.Clients, s.Processes = 3, MostProcesses })
		if n := len(s.prepare(r).processes); n != 3 {
			t.Errorf("%s: %d processes for 3 clients", r.Name, n)
		}
	}
}

// The windows of a run are kept, and a Bucket can make it as long as it likes.
func TestTooLongARunIsRefused(t *testing.T) {
	s := with(quota(), func(s *Scenario) {
		s.Clients, s.Processes, s.Over, s.Capacity, s.Rate = 14_401, 1, 0, 1, retryafter.PerMinute(1)
	})
	bucket := rule(t, "retryafter+bucket")
	if got := result(t, s, bucket); got.Settled != LongestRun || got.Completed != s.Clients {
		t.Errorf("%d completed within %v", got.Completed, got.Settled)
	}
	for name, more := range map[string]func(*Scenario){
		"clients":   func(s *Scenario) { s.Clients++ },
		"time":      func(s *Scenario) { s.Rate.Per++ },
		"processes": func(s *Scenario) { s.Clients, s.Processes = 2, MostProcesses },
	} {
		s := with(s, more)
		r := s.prepare(bucket)
		err := r.play(t.Context(), func(int) {})
		if got := fmt.Sprint(err); got != "Rules retryafter+bucket takes more than 240h0m0s of virtual time" {
			t.Errorf("more %s: %v", name, err)
		}
		if most := int(LongestRun/Window) + 1; len(r.result.Windows) > most {
			t.Errorf("more %s: %d windows, more than %d", name, len(r.result.Windows), most)
		}
	}
}
