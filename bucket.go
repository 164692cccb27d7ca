package retryafter

import (
	"container/list"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A Rate is an exact ratio: so many tokens in so much time. It is never
// rounded to tokens a second or to time a token.
type Rate struct {
	Tokens int64
	Per    time.Duration
}

// PerSecond is n tokens a second.
func PerSecond(n int64) Rate { return Rate{n, time.Second} }

// PerMinute is n tokens a minute.
func PerMinute(n int64) Rate { return Rate{n, time.Minute} }

// Every is one token in each d.
func Every(d time.Duration) Rate { return Rate{1, d} }

// String is the ratio as it was given, as in "10/1s".
func (r Rate) String() string {
	return strconv.FormatInt(r.Tokens, 10) + "/" + r.Per.String()
}

// A Bucket is a token bucket. It holds up to Capacity tokens, gains Rate, and
// admits work that finds its cost in tokens there, which it takes out. What it
// admits in any span of time t costs at most Capacity + Rate·t, exactly: there
// are no floats in it, and no rounding in the caller's favour.
//
// Capacity, Rate.Tokens and Rate.Per must be positive. Where one is not, or
// where Capacity and Rate together are too large to count exactly, every use
// reports a *[ConfigError] and admits nothing: no setting means "unlimited".
//
// [Bucket.Wait] suits most callers; [Bucket.Allow] and [Deny] are for those
// who would rather drop work than wait. A cost above Capacity could never be
// met: it is a *[CostError] at once, and so is a negative one. A cost of 0 is
// a look: it is always met, takes nothing and changes nothing.
//
// Those who wait are served in the order in which they came, each charged when
// served. While someone waits nobody overtakes: Allow and AllowN refuse.
//
// Refused work costs nothing. Time that seems to run backwards counts as no
// time, whatever the order in which goroutines bring their instants. Instants
// further than 292 years from the first use count as if they were that far.
//
// A Bucket may be used from many goroutines at once. It must not be copied or
// have its fields changed after the first use.
type Bucket struct {
	Capacity   int64 // the largest burst, in tokens
	Rate       Rate
	StartEmpty bool // start without tokens, filling from the first use on, be it a refused one; else start full

	mu    sync.Mutex
	base  time.Time // what instants are counted from; has a monotonic reading where possible
	meter meter     // zero before the first use
	level level
	queue list.List // of *waiter, the next to be served in front; while it isn't empty, level stays as it is
	stale bool      // the waiters' plans no longer hold
}

// Allow reports whether one token could be taken now, and took it if so.
func (b *Bucket) Allow() bool {
	b.mu.Lock()
	ok := b.open(nil) == nil && b.take(b.now(), 1)
	b.mu.Unlock()
	return ok
}

// AllowN reports whether n tokens could be taken at t, and took them if so.
//
// Instants from [time.Now] carry a monotonic reading and are immune to steps
// of the wall clock. An instant in the future may be given, but then nothing
// flows in until the clock has passed it.
func (b *Bucket) AllowN(t time.Time, n int) bool {
	b.mu.Lock()
	ok := b.open(&t) == nil && b.take(int64(t.Sub(b.base)), n)
	b.mu.Unlock()
	return ok
}

// DelayN returns the least wait after t at which n tokens could be taken, to
// the nanosecond: at that instant AllowN would admit n if nobody else took any
// in between, a nanosecond before it would not. Those who wait already are
// counted as served first. DelayN takes nothing.
//
// A delay beyond the largest Duration is cut to it. The error is a
// *[CostError] or a *[ConfigError].
func (b *Bucket) DelayN(t time.Time, n int) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, cost, err := b.ask(t, n)
	if err != nil {
		return 0, err
	}
	return b.delay(now, cost), nil
}

// TakeN takes n tokens at t and returns 0, or takes nothing and returns the wait
// of [Bucket.DelayN], which is then more than 0.
func (b *Bucket) TakeN(t time.Time, n int) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, cost, err := b.ask(t, n)
	if err != nil {
		return 0, err
	}
	if b.take(now, n) {
		return 0, nil
	}
	return max(b.delay(now, cost), 1), nil // those who wait come first, however soon
}

// Wait is WaitN for one token.
func (b *Bucket) Wait(ctx context.Context) error { return b.WaitN(ctx, 1) }

// WaitN waits until n tokens are there and it is this caller's turn, and takes
// them. Whoever gives up before that has paid nothing and holds up nobody.
//
// A wait that would not end before the deadline of ctx does not begin: WaitN
// returns a *[LimitError] at once. Where ctx is done, also before the call,
// the error matches both its Err and its cause. A *[CostError] or
// *[ConfigError] is returned at once too.
func (b *Bucket) WaitN(ctx context.Context, n int) error {
	e, err := b.enter(ctx, n)
	if e == nil {
		return err
	}
	timer := e.Value.(*waiter).timer
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-timer.C:
			if ctx.Err() == nil && b.serve(e) {
				return nil
			}
		case <-ctx.Done():
		}
	}
	b.leave(e)
	return contextError(ctx)
}

// A waiter is a caller of WaitN that has to wait.
type waiter struct {
	cost  uint64
	after level       // the plan: how the bucket stands once this waiter has been served
	timer *time.Timer // runs for the first in the queue only
}

// enter admits n at once and returns nil, or queues it.
func (b *Bucket) enter(ctx context.Context, n int) (*list.Element, error) {
	done := contextError(ctx)
	deadline, hasDeadline := ctx.Deadline()

	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(nil); err != nil {
		return nil, err
	}
	cost, err := b.cost(n)
	switch {
	case err != nil:
		return nil, err
	case done != nil:
		return nil, done
	case cost == 0:
		return nil, nil
	}
	now := b.now()
	wait := b.delay(now, cost)
	if hasDeadline && later(now, wait) >= int64(deadline.Sub(b.base)) {
		return nil, &LimitError{Delay: wait, Err: context.DeadlineExceeded}
	}
	first := b.queue.Len() == 0
	if first && wait == 0 {
		b.level, _ = b.meter.take(b.level, now, cost)
		return nil, nil
	}
	w := &waiter{cost: cost, after: b.meter.served(b.tail(), cost), timer: time.NewTimer(wait)}
	if !first {
		w.timer.Stop()
	}
	return b.queue.PushBack(w), nil
}

// serve charges the first waiter, or sets its timer anew if that rang early.
func (b *Bucket) serve(e *list.Element) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, now := e.Value.(*waiter), b.now()
	l, ok := b.meter.take(b.level, now, w.cost)
	if !ok {
		w.timer.Reset(b.meter.wait(b.level, now, w.cost))
		return false
	}
	b.level = l
	b.stale = b.stale || l != b.meter.fill(w.after, now)
	b.remove(e)
	return true
}

// leave takes a waiter that gave up out of the queue.
func (b *Bucket) leave(e *list.Element) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale = true
	b.remove(e)
}

func (b *Bucket) remove(e *list.Element) {
	first := b.queue.Front() == e
	b.queue.Remove(e)
	if next := b.queue.Front(); first && next != nil {
		w := next.Value.(*waiter)
		w.timer.Reset(b.meter.wait(b.level, b.now(), w.cost))
	}
}

// open makes the bucket ready at its first use, at t or else now.
func (b *Bucket) open(t *time.Time) error {
	if b.meter.flow != 0 {
		return nil
	}
	return b.begin(t)
}

func (b *Bucket) begin(t *time.Time) error {
	m, err := newMeter("Bucket", b.Capacity, b.Rate)
	if err != nil {
		return err
	}
	b.meter, b.level = m, m.start(b.StartEmpty, 0)
	now := time.Now()
	if t == nil {
		t = &now
	}
	b.base = *t
	if *t == t.Round(0) { // no monotonic reading: give it one, unless it is too far away for that
		if same := now.Add(t.Sub(now)); same.Equal(*t) {
			b.base = same
		}
	}
	return nil
}

// ask makes the bucket ready, and gives t on its clock and n in units.
func (b *Bucket) ask(t time.Time, n int) (now int64, cost uint64, err error) {
	if err := b.open(&t); err != nil {
		return 0, 0, err
	}
	cost, err = b.cost(n)
	return int64(t.Sub(b.base)), cost, err
}

func (b *Bucket) now() int64 { return int64(time.Since(b.base)) }

func (b *Bucket) cost(n int) (uint64, error) {
	cost, ok := b.meter.cost(int64(n))
	if !ok {
		return 0, &CostError{Cost: int64(n), Capacity: b.Capacity}
	}
	return cost, nil
}

func (b *Bucket) take(now int64, n int) bool {
	cost, ok := b.meter.cost(int64(n))
	if !ok || cost == 0 || b.queue.Len() > 0 {
		return ok && cost == 0
	}
	l, ok := b.meter.take(b.level, now, cost)
	if ok {
		b.level = l
	}
	return ok
}

func (b *Bucket) delay(now int64, cost uint64) time.Duration {
	if cost == 0 || b.queue.Len() == 0 {
		return b.meter.wait(b.level, now, cost)
	}
	l := b.tail()
	return max(b.meter.wait(l, now, cost), since(l.last, now))
}

// tail is the level once everyone in the queue has been served. Each waiter's
// part is worked out in turn, since what overflows a full bucket between two
// of them is lost; no sum over the queue would show it.
func (b *Bucket) tail() level {
	l := b.level
	if b.stale {
		for e := b.queue.Front(); e != nil; e = e.Next() {
			w := e.Value.(*waiter)
			l = b.meter.served(l, w.cost)
			w.after = l
		}
		b.stale = false
	}
	if last := b.queue.Back(); last != nil {
		l = last.Value.(*waiter).after
	}
	return l
}

// A CostError is work that a limiter can never admit, however long it waits:
// it costs more than the limiter ever holds, or less than nothing.
type CostError struct {
	Cost     int64
	Capacity int64 // 0 where not known
}

func (e *CostError) Error() string {
	if e.Cost < 0 {
		return fmt.Sprintf("retryafter: a cost of %d is negative", e.Cost)
	}
	if e.Capacity == 0 {
		return fmt.Sprintf("retryafter: a cost of %d can never fit", e.Cost)
	}
	return fmt.Sprintf("retryafter: a cost of %d can never fit a capacity of %d", e.Cost, e.Capacity)
}
