package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/retryafter-go/retryafter"
)

// The burst: so many requests at once, through a Bucket.
const (
	burstRequests = 8
	burstCapacity = 3
	burstRate     = 10 // a second
)

// burst sends it, and holds what arrived against what the Bucket may admit.
func (d *demo) burst(ctx context.Context) error {
	const scene = "burst"
	record := d.server.script(scene, []answer{{status: 200}})
	t := &retryafter.Transport{
		Base:    &d.base,
		Policy:  policy(),
		Limiter: &retryafter.Bucket{Capacity: burstCapacity, Rate: retryafter.PerSecond(burstRate)},
	}
	start := time.Now()
	failed := make([]error, burstRequests)
	var calls sync.WaitGroup
	for i := range burstRequests {
		calls.Go(func() { failed[i] = d.one(ctx, t, scene, i+1) })
	}
	calls.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	seen := d.server.seen(record)
	d.calls += burstRequests
	d.sent += len(seen.arrivals)
	for i, err := range failed {
		if err != nil {
			d.timeline.broken(scene, "request %d failed: %v", i+1, err)
		}
	}
	if n := len(seen.arrivals); n != burstRequests {
		d.timeline.broken(scene, "%d requests arrived, want %d", n, burstRequests)
	}
	margin, broken := withinBudget(start, seen.arrivals, burstCapacity, retryafter.PerSecond(burstRate))
	if broken != "" {
		d.timeline.broken(scene, "%s", broken)
		return nil
	}
	d.timeline.add(time.Now(), event{
		Scene: scene, Event: "budget", Margin: (*seconds)(&margin),
		who: "server", text: fmt.Sprintf("got none before %d + %d/s allowed it; the closest came %s after that",
			burstCapacity, burstRate, short(margin)),
	})
	return nil
}

// one sends the nth request.
func (d *demo) one(ctx context.Context, t *retryafter.Transport, scene string, n int) error {
	path := "/" + scene + "/" + strconv.Itoa(n)
	ctx = retryafter.WithTrace(ctx, &retryafter.Trace{
		Waiting: func(w retryafter.WaitInfo) {
			d.timeline.add(time.Now(), event{
				Scene: scene, Event: "wait", Path: path, Attempt: w.Attempt, Token: (*seconds)(&w.Wait),
				who: "client", text: fmt.Sprintf("waits %s for a token for %s", short(w.Wait), path),
			})
		},
		Done: func(_ *http.Request, r retryafter.Report) {
			d.timeline.add(time.Now(), event{
				Scene: scene, Event: "stop", Path: path, Sent: &r.Attempts, Reason: r.Stop.String(), Token: (*seconds)(&r.Limited),
			})
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.server.URL+path, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: d.client(t)}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// withinBudget tells by how much the closest of the arrivals that had to wait
// came after a bucket could admit it, or which one broke the bound. The bucket
// was full and unused at start. On its way an admitted request may be slow but
// never fast, so that only the bound from start on is certain at this end: by t
// no more than capacity + rate·(t-start) can have arrived.
func withinBudget(start time.Time, arrivals []time.Time, capacity int, rate retryafter.Rate) (margin time.Duration, broken string) {
	sorted := slices.SortedFunc(slices.Values(arrivals), time.Time.Compare)
	for i := capacity; i < len(sorted); i++ {
		need := time.Duration(int64(i+1-capacity) * int64(rate.Per) / rate.Tokens)
		after := sorted[i].Sub(start) - need
		if after < 0 {
			return after, fmt.Sprintf("OVER BUDGET: arrival %d came %v before %d + %v allows it", i+1, -after, capacity, rate)
		}
		if i == capacity || after < margin {
			margin = after
		}
	}
	return margin, ""
}
