//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Rule 2 of a call: the Gate, then the Limiter.

// pass makes the waits that an attempt has to make whatever came before it: for
// what a Gate was told, for the 3xx that led to it, and for its token. Another
// call may be told something while this one waits for its token. Then it leaves
// the queue, waits its turn and begins anew: no token is kept through a wait.
func (c *call) pass(redirect *http.Response) error {
	for {
		if err := c.waitTurn(redirect); err != nil || c.limiter == nil {
			return err
		}
		redirect = nil
		if held, err := c.admit(); !held {
			return err
		}
	}
}

func (c *call) waitTurn(redirect *http.Response) error {
	for c.t.Gate != nil || redirect != nil {
		a := c.now()
		if redirect != nil {
			a.StatusCode, a.Header = redirect.StatusCode, redirect.Header
		}
		bounds := Call{Deadline: c.deadline(), Held: c.gate()}
		if c.limiter != nil {
			bounds.Limiter, bounds.Denies = c.limiterDelay, c.denies()
		}
		var d Decision
		if !c.t.Policy.enter(&d, &a, &bounds) {
			return nil
		}
		c.report.Decision = d
		switch {
		case c.limiterErr != nil: // it would refuse after the wait
			return c.refused(c.limiterErr)
		case !d.Retry:
			return c.fail(d.Reason, refusals[d.Reason])
		}
		if err := c.wait(&a, &d, nil); err != nil {
			return err
		}
		redirect = nil
	}
	return nil
}

// hold tells the Gate what a's response asks for, and returns what to ask how
// long it holds the call.
func (c *call) hold(a *Attempt) func(time.Time) time.Duration {
	if c.t.Gate != nil && c.t.Gate.concerns(a) {
		if hint, _ := c.t.hint(a); hint.Delay > 0 { // what can't be read has none
			held := c.t.Gate.told(c.req.Context(), c.gateKey, a.Received, hint.Delay)
			return func(time.Time) time.Duration { return held }
		}
	}
	return c.gate()
}

// gate is what to ask how long the Gate holds the call, nil where there is none.
func (c *call) gate() func(time.Time) time.Duration {
	if c.t.Gate == nil {
		return nil
	}
	gate, ctx, key := c.t.Gate, c.req.Context(), c.gateKey
	return func(from time.Time) time.Duration { return gate.held(ctx, key, from) }
}

func (c *call) withdraw() bool { return c.t.Budget.Withdraw(keyBy(c.req, c.t.Budget.Key)) }

// admit asks the Limiter for the next attempt, and reports whether it gave up
// waiting because the Gate moved. An error ends the call.
func (c *call) admit() (held bool, err error) {
	if gone := canceled(c.req); gone != nil {
		return false, c.fail(Canceled, gone)
	}
	if c.opts.cost == 0 {
		return false, nil
	}
	ctx, begin := c.req.Context(), time.Now()
	d, known, err := c.limiterTakes(begin)
	switch {
	case err != nil:
		c.report.Limited = add(c.report.Limited, time.Since(begin))
		return false, c.refused(err)
	case known && d == 0:
		if inMemory(c.limiter) {
			return false, nil
		}
		took := time.Since(begin)
		if held, err := c.meanwhile(took, false); held || err != nil || took < atOnce {
			return held, err
		}
		return false, c.recheck()
	}
	afterWait := c.report.Attempts > 0 || known // so that Reserve counts
	until, bounded := c.latestStart()
	if bounded && afterWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	if known && c.traced() && !c.denies() && fits(ctx, begin, d) {
		c.waiting(WaitInfo{Request: c.req, Attempt: c.report.Attempts + 1, Limiter: true, Wait: d, Until: begin.Add(d)})
	}
	if c.req.Cancel != nil {
		var cancel context.CancelFunc
		ctx, cancel = cancelWith(ctx, c.req.Cancel)
		defer cancel()
	}
	var moved <-chan struct{}
	if c.t.Gate != nil && !c.denies() {
		var cancel context.CancelFunc
		ctx, moved, cancel = c.t.Gate.watch(ctx, c.gateKey)
		defer cancel()
	}
	err = c.limiter.WaitN(ctx, c.opts.cost)
	took := time.Since(begin)
	if held, err := c.meanwhile(took, known); held || err != nil {
		return held, err
	}
	switch {
	case err == nil && !afterWait && took < atOnce:
		return false, nil
	case err == nil:
		return false, c.recheck()
	}
	select {
	case <-moved:
		return true, nil // a hold ended the wait, and is over by now
	default:
	}
	if bounded && !c.fitsDeadline(until) && errors.Is(err, context.DeadlineExceeded) {
		return false, c.fail(ElapsedTooLong, refusals[ElapsedTooLong])
	}
	return false, c.refused(err)
}

// meanwhile looks at what may have happened while the Limiter took its time. held:
// the token, if there is one, is lost, for the key is held by now.
func (c *call) meanwhile(took time.Duration, waited bool) (held bool, err error) {
	if waited || took >= atOnce {
		c.report.Limited = add(c.report.Limited, took)
	}
	if gone := canceled(c.req); gone != nil {
		return false, c.fail(Canceled, gone)
	}
	holds := c.gate()
	return holds != nil && holds(time.Now()) > 0, nil
}

// inMemory reports whether nothing can happen while l gives what it has.
func inMemory(l Limiter) bool {
	switch l := l.(type) {
	case *Bucket, KeyedBucket:
		return true
	case denyTake:
		switch l.taker.(type) {
		case *Bucket, KeyedBucket:
			return true
		}
	}
	return false
}

// refused ends the call by an error of the Limiter.
func (c *call) refused(err error) error {
	if gone := canceled(c.req); gone != nil {
		return c.fail(Canceled, gone)
	}
	if _, bad := errors.AsType[*ConfigError](err); bad {
		return c.fail(Misconfigured, err)
	}
	if limit, ok := errors.AsType[*LimitError](err); ok {
		c.report.Decision.Limiter = max(c.report.Decision.Limiter, limit.Delay)
	}
	return c.fail(Limited, err)
}

// fitsDeadline reports whether it is for the caller's deadline, and not for
// MaxElapsed, that an attempt must not start later than until.
func (c *call) fitsDeadline(until time.Time) bool {
	deadline := c.deadline()
	return !deadline.IsZero() && !until.Before(deadline.Add(-c.t.Reserve))
}

// atOnce is what a Limiter may take that does not wait.
const atOnce = time.Millisecond

// denies reports whether the Limiter refuses where others wait.
func (c *call) denies() bool {
	_, ok := c.limiter.(interface{ denies() })
	return ok
}

// fits reports whether d from now on ends before ctx's deadline.
func fits(ctx context.Context, now time.Time, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || d < deadline.Sub(now)
}

// latestStart is when the Limiter must have admitted the next attempt, where
// that is before the caller's deadline.
func (c *call) latestStart() (time.Time, bool) {
	until := c.deadline()
	if c.t.MaxElapsed > 0 && !c.first.IsZero() {
		if end := c.first.Add(c.t.MaxElapsed); until.IsZero() || end.Before(until) {
			return end.Add(-c.t.Reserve), true
		}
	}
	return until.Add(-c.t.Reserve), !until.IsZero() && c.t.Reserve > 0
}

// limiterTakes takes the next attempt's tokens, or tells how long they need,
// where the Limiter can do either.
func (c *call) limiterTakes(now time.Time) (d time.Duration, known bool, err error) {
	switch l := c.limiter.(type) {
	case taker:
		d, err = l.TakeN(now, c.opts.cost)
		return d, true, err
	case tokens:
		d, err = takeTokens{l}.TakeN(now, c.opts.cost)
		return d, err == nil, nil // WaitN knows best what can never be
	case delayer:
		d, err = l.DelayN(now, c.opts.cost)
		return d, err == nil && d > 0, nil // nothing is taken by it
	}
	return 0, false, nil
}

// limiterDelay is how long the Limiter needs from now on, where it can tell.
func (c *call) limiterDelay(now time.Time) (d time.Duration) {
	if c.opts.cost == 0 {
		return 0
	}
	switch l := c.limiter.(type) {
	case delayer:
		d, c.limiterErr = l.DelayN(now, c.opts.cost)
	case tokensAt:
		d, c.limiterErr = delayOf(l, now, c.opts.cost)
	}
	return d
}
