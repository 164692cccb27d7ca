package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/faulty"
	"golang.org/x/time/rate"
)

// A soak is what is asked for.
type soak struct {
	Time time.Duration
	Rate int   // calls that begin a second
	Heap int64 // MiB by which it may have grown in the end
	Seed uint64
	Log  io.Writer // progress
}

const (
	groups = 64   // of calls that the Gate holds together, and the Limiter counts together
	most   = 4096 // calls under way
	timers = 20   // bare ones, for comparison
)

// A result is what came of it.
type result struct {
	soak
	Calls, Attempts, Waits, Early int64
	Waited, Limited               time.Duration
	Ends                          map[end]int64
	Attempt, Bare                 *hdrhistogram.Histogram // lateness, ns
	Samples                       []sample                // the first before any call, the last after all
}

// An end is how a call may end.
type end struct {
	why      retryafter.Reason
	response bool
}

// A sample is what the process holds at an instant.
type sample struct {
	after      time.Duration
	heap       uint64 // bytes in use after a collection
	goroutines int
	underWay   int64
}

func take(begin time.Time, underWay int64) sample {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return sample{time.Since(begin), m.HeapAlloc, runtime.NumGoroutine(), underWay}
}

// step is what the server does with an attempt.
func (s *soak) step(call string, attempt int) faulty.Step {
	n, _ := strconv.ParseUint(call, 10, 64)
	r := rand.New(rand.NewPCG(s.Seed, n<<8|uint64(attempt)))
	step := faulty.Step{Status: 200, Delay: -1, Body: r.IntN(2000)}
	if n%1000 == 0 {
		return faulty.Step{Status: 429, Delay: time.Hour}
	}
	switch p := r.IntN(1000); {
	case n/500%5 == 2 && p < 700: // an outage, which the RetryBudget bounds
		step.Status = 503
	case p < 880:
		step.Fault = []faulty.Fault{faulty.None, faulty.Chunked, faulty.Interim}[r.IntN(3)]
	case p < 900:
		step.Fault = faulty.ClosesIdle
	case p < 955:
		step.Status = []int{429, 503}[r.IntN(2)]
		step.Delay = time.Duration(5+r.IntN(50)) * time.Millisecond
	case p < 960:
		step.Status, step.Delay = 503, time.Second
	default:
		step.Fault = faulty.Fault(r.IntN(faulty.Faults))
		step.Status = []int{200, 404, 500, 502, 504}[r.IntN(5)]
		step.Body = r.IntN(50)
	}
	return step
}

// A call is one call on its way. Its hooks and its attempts run one after the
// other.
type call struct {
	id    string
	until time.Time // when the next attempt may leave, where a wait was announced
	told  time.Time // when it may by what the server said
}

type callKey struct{}

// observer sees what is sent, and when.
type observer struct {
	base *http.Transport
	r    *result
	mu   *sync.Mutex
}

func (o observer) CloseIdleConnections() { o.base.CloseIdleConnections() }

func (o observer) RoundTrip(req *http.Request) (*http.Response, error) {
	now := time.Now()
	c := req.Context().Value(callKey{}).(*call)
	atomic.AddInt64(&o.r.Attempts, 1)
	if now.Before(c.until) || now.Before(c.told) {
		atomic.AddInt64(&o.r.Early, 1)
	}
	if !c.until.IsZero() {
		o.mu.Lock()
		o.r.Attempt.RecordValue(max(int64(now.Sub(c.until)), 0))
		o.mu.Unlock()
	}
	r := req.Clone(req.Context())
	r.Header.Set(faulty.CallField, c.id)
	r.Header.Set(faulty.AttemptField, strconv.Itoa(retryafter.AttemptNumber(req.Context())))
	return o.base.RoundTrip(r)
}

// run makes the calls.
func (s *soak) run() (*result, error) {
	if s.Time <= 0 || s.Rate < 1 || s.Heap < 0 {
		return nil, fmt.Errorf("-time %v and -rate %d must be positive, -heap %d must not be negative", s.Time, s.Rate, s.Heap)
	}
	r := &result{soak: *s, Ends: map[end]int64{}, Attempt: histogram(), Bare: histogram()}
	begin := time.Now()
	r.Samples = append(r.Samples, take(begin, 0))
	var mu sync.Mutex // of Ends and Attempt, and the durations
	server := &faulty.Server{Plan: faulty.Plan{Step: s.step}}
	if err := server.Listen(); err != nil {
		return nil, err
	}
	base := &http.Transport{MaxIdleConnsPerHost: 500}
	byPath := func(req *http.Request) retryafter.Key { return retryafter.Key(req.URL.Path) }
	tr := &retryafter.Transport{
		Base:           observer{base, r, &mu},
		AttemptTimeout: time.Second,
		Gate:           &retryafter.Gate{Key: byPath},
		Limiter:        &retryafter.Keyed{Key: byPath, Capacity: 20, Rate: retryafter.Rate{Tokens: 3 * int64(s.Rate), Per: 2 * groups * time.Second}},
		Budget:         &retryafter.RetryBudget{},
		Trace:          r.trace(&mu, s),
	}
	tr.Hint = faulty.Hint
	tr.Jitter = retryafter.Spread(0.25, time.Millisecond, 30*time.Second)
	client := &http.Client{Transport: tr}

	ctx, cancel := context.WithTimeout(context.Background(), s.Time)
	defer cancel()
	var bare, calls sync.WaitGroup
	for range timers {
		bare.Go(func() { r.bareTimer(ctx, &mu) })
	}
	var underWay atomic.Int64
	bare.Go(func() {
		tick := time.NewTicker(s.Time / 8)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				x := take(begin, underWay.Load())
				fmt.Fprintf(s.Log, "%8v: %d calls under way, %d goroutines, heap %d KiB\n", x.after.Round(time.Millisecond), x.underWay, x.goroutines, x.heap>>10)
				r.Samples = append(r.Samples, x)
			case <-ctx.Done():
				return
			}
		}
	})
	pace, room := rate.NewLimiter(rate.Limit(s.Rate), s.Rate/20+1), make(chan struct{}, most)
	for i := uint64(1); pace.Wait(ctx) == nil; i++ {
		room <- struct{}{}
		underWay.Add(1)
		calls.Go(func() {
			defer func() { underWay.Add(-1); <-room }()
			s.call(client, server.URL(), i)
		})
		r.Calls++
	}
	<-ctx.Done() // Wait ends before
	calls.Wait()
	bare.Wait()
	for end := time.Now().Add(10 * time.Second); server.Conns() > 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		client.CloseIdleConnections()
	}
	conns := server.Conns()
	server.Kill()
	if conns > 0 {
		return nil, fmt.Errorf("%d connections are open when all calls are over", conns)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > r.Samples[0].goroutines && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	r.Samples = append(r.Samples, take(begin, underWay.Load()))
	runtime.KeepAlive(tr) // what the Gate, the Limiter and the RetryBudget hold counts
	return r, nil
}

// call makes call number i.
func (s *soak) call(client *http.Client, url string, i uint64) {
	c := &call{id: strconv.FormatUint(i, 10)}
	rng := rand.New(rand.NewPCG(s.Seed, i|1<<63))
	ctx := context.WithValue(context.Background(), callKey{}, c)
	switch rng.IntN(20) {
	case 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(200))*time.Millisecond)
		defer cancel()
	case 1:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(time.Duration(rng.IntN(100))*time.Millisecond, cancel).Stop()
	}
	path := fmt.Sprintf("%s/%d", url, rng.IntN(groups))
	if i%1000 == 0 {
		path = fmt.Sprintf("%s/later/%d", url, rng.IntN(8)) // so that an hour's hold is theirs alone
	}
	method := []string{"GET", "GET", "GET", "PUT", "POST"}[rng.IntN(5)]
	var body io.Reader
	if method != "GET" {
		body = strings.NewReader(strings.Repeat("x", rng.IntN(5000)))
	}
	req, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return // Trace.Done has counted it
	}
	io.CopyN(io.Discard, resp.Body, 10_000)
	resp.Body.Close()
}

// trace counts, and tells the attempts what they are held against.
func (r *result) trace(mu *sync.Mutex, s *soak) *retryafter.Trace {
	of := func(req *http.Request) *call { return req.Context().Value(callKey{}).(*call) }
	return &retryafter.Trace{
		AttemptDone: func(a retryafter.Attempt) {
			c := of(a.Request)
			c.until, c.told = time.Time{}, time.Time{}
			if step := s.step(c.id, a.Number); a.Err == nil && step.Delay >= 0 {
				if at, err := faulty.AnsweredAt(a.Header); err == nil {
					c.told = at.Add(step.Delay)
				}
			}
		},
		Waiting: func(w retryafter.WaitInfo) {
			atomic.AddInt64(&r.Waits, 1)
			if of(w.Request).until = w.Until; w.Limiter {
				of(w.Request).until = time.Time{} // others may come before, or leave
			}
		},
		Done: func(req *http.Request, report retryafter.Report) {
			mu.Lock()
			defer mu.Unlock()
			r.Waited += report.Waited
			r.Limited += report.Limited
			r.Ends[end{report.Stop, report.Err == nil}]++
		},
	}
}

// bareTimer measures how late a timer is that does nothing else.
func (r *result) bareTimer(ctx context.Context, mu *sync.Mutex) {
	for {
		d := time.Duration(5+rand.IntN(50)) * time.Millisecond
		until := time.Now().Add(d)
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		late := max(int64(time.Since(until)), 0)
		mu.Lock()
		r.Bare.RecordValue(late)
		mu.Unlock()
	}
}

func histogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Minute), 3)
}

// verdict is what must not have happened, and did.
func (r *result) verdict() error {
	first, last := r.Samples[0], r.Samples[len(r.Samples)-1]
	var errs []error
	if r.Early > 0 {
		errs = append(errs, fmt.Errorf("%d attempts were early", r.Early))
	}
	if last.heap > first.heap+uint64(r.Heap)<<20 {
		errs = append(errs, fmt.Errorf("the heap grew from %d to %d KiB, which is more than %d MiB", first.heap>>10, last.heap>>10, r.Heap))
	}
	if left := last.goroutines - first.goroutines; left > 0 {
		errs = append(errs, fmt.Errorf("%d goroutines are left", left))
	}
	ended := int64(0)
	for _, n := range r.Ends {
		ended += n
	}
	if ended != r.Calls {
		errs = append(errs, fmt.Errorf("%d calls were made, and %d ended", r.Calls, ended))
	}
	return errors.Join(errs...)
}

func (r *result) write(w io.Writer) {
	fmt.Fprintf(w, "%s, %s/%s, GOMAXPROCS=%d: %d calls a second for %v, -seed %d.\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), r.Rate, r.Time, r.Seed)
	fmt.Fprintf(w, "\n| calls | attempts | early | waits | waited, s | waited for the Limiter, s |\n|--:|--:|--:|--:|--:|--:|\n| %d | %d | %d | %d | %.0f | %.0f |\n",
		r.Calls, r.Attempts, r.Early, r.Waits, r.Waited.Seconds(), r.Limited.Seconds())
	fmt.Fprint(w, "\n## How calls ended\n\nBy the Reason of their Report, and whether that names an error beside the attempts'.\n\n| reason | none | with an error |\n|---|--:|--:|\n")
	for why := retryafter.Final; why <= retryafter.Misconfigured; why++ {
		if with, without := r.Ends[end{why, false}], r.Ends[end{why, true}]; with+without > 0 {
			fmt.Fprintf(w, "| %v | %d | %d |\n", why, without, with)
		}
	}
	fmt.Fprint(w, "\n## How late attempts left\n\nAfter the instant that Trace.Waiting announced, in µs, beside timers of the same process that do nothing else.\n\n")
	fmt.Fprint(w, "| | number | p50 | p90 | p99 | p99.9 | max |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, h := range []struct {
		name string
		of   *hdrhistogram.Histogram
	}{{"attempts", r.Attempt}, {"bare timers", r.Bare}} {
		fmt.Fprintf(w, "| %s | %d |", h.name, h.of.TotalCount())
		for _, p := range []float64{50, 90, 99, 99.9, 100} {
			fmt.Fprintf(w, " %d |", h.of.ValueAtQuantile(p)/1000)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\n## What the process holds\n\nThe heap is what is in use after a collection. The last row, all calls over, may be %d MiB above the first.\n\n", r.Heap)
	fmt.Fprint(w, "| after, s | heap, KiB | goroutines | calls under way |\n|--:|--:|--:|--:|\n")
	for _, x := range r.Samples {
		fmt.Fprintf(w, "| %.1f | %d | %d | %d |\n", x.after.Seconds(), x.heap>>10, x.goroutines, x.underWay)
	}
}
