//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Transport is an http.RoundTripper that sends a request through Base and,
// where its Policy says so, sends it again. It reads Retry-After, waits, and
// gives up by the rules of the package documentation. The zero Transport
// works. It may be used by many goroutines at once; its fields must not change
// after the first use. To make a variant, copy it before that: t2 := *t.
//
// A deadline is the request's context's, or http.Client.Timeout, which covers
// all attempts and waits. A RoundTrip that stops with a response in hand
// returns it with its body unread and a nil error, and ReportOf tells why; one
// that stops without returns an *Error. A call that its first attempt settles
// returns just what Base returned, with an AttemptTimeout in a Body that ends it.
type Transport struct {
	// Base sends each attempt. nil means http.DefaultTransport. A Base that
	// repeats by itself multiplies the attempts.
	Base http.RoundTripper

	// Policy says whether and when to send again.
	Policy

	// AttemptTimeout bounds each attempt until its response header has
	// arrived, the sending of its body included; it never cuts a response body
	// that is being read. An attempt that exceeds it fails with
	// ErrAttemptTimeout, and what comes of it later is not looked at, a
	// Retry-After neither. 0 sets no bound; a negative one makes the calls fail
	// with a *ConfigError.
	AttemptTimeout time.Duration

	// Limiter is asked before every attempt, the first included, after any
	// other wait. Where it has a method DelayN as Bucket does, the time that it
	// will need counts before a wait begins. nil admits every attempt.
	// One that keeps a budget a key, as Keyed, is a RequestLimiter.
	Limiter Limiter

	// Gate is the cool-down that calls share: what one is told holds all of its
	// key. Every attempt passes it, before the Limiter. nil means that each call
	// minds its own.
	Gate *Gate

	// Budget bounds what retries add to an outage. nil sets no bound.
	Budget *RetryBudget

	// Trace tells what happens, as it happens. nil tells nothing.
	Trace *Trace
}

func (t *Transport) base() http.RoundTripper {
	switch {
	case t.Base != nil:
		return t.Base
	case http.DefaultTransport == http.RoundTripper(t):
		return ownBase{}
	}
	return http.DefaultTransport
}

// ownBase is the Base of a Transport that would send by itself, for ever.
type ownBase struct{}

func (ownBase) RoundTrip(req *http.Request) (*http.Response, error) {
	closeBody(req)
	return nil, &ConfigError{"Transport.Base", "nil", "must be set where http.DefaultTransport is the Transport itself"}
}

// CloseIdleConnections closes Base's, where it has such a method.
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// RoundTrip sends req as the rules of the package documentation say. It never
// writes to req, and req.Body is closed when it returns, or soon after. It
// returns a response or an error, never both. Waiting ends as soon as req's
// context is done or req.Cancel is closed, with the context's cause as error.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := call{t: t, req: req, opts: optionsOf(req.Context()), unsent: true}
	if len(req.Trailer) > 0 {
		c.trailer = req.Trailer.Clone()
	}
	if !c.plain() {
		return c.run(req)
	}
	resp, err := c.send(req)
	if c.settled(resp) {
		return resp, nil // and there is nobody to tell
	}
	return c.follow(resp, err)
}

// A call is one RoundTrip on its way.
type call struct {
	t          *Transport
	req        *http.Request // the caller's own
	opts       *options
	first      time.Time // when the first attempt was sent; zero where nobody asks
	backoff    backoff.BackOff
	latest     *attemptContext // of the newest attempt after the first
	limiter    Limiter
	limiterErr error // what it said when it was asked for its delay
	gateKey    Key
	trailer    http.Header // as it was before the first attempt
	report     Report
	unsent     bool // the body of the next attempt's request is not yet closed
	held       bool // nor is that of the newest attempt's response, nor handed on
}

// plain reports whether nothing but Base is concerned with the first attempt,
// so that nobody would see a clock that is read for it.
func (c *call) plain() bool {
	t := c.t
	if _, borrowed := c.req.Context().Value(attemptKey{}).(*attemptContext); borrowed {
		return false
	}
	return t.Limiter == nil && t.Gate == nil && t.Budget == nil && !c.traced() && t.Retry == nil && t.MaxElapsed <= 0 &&
		t.AttemptTimeout == 0 && t.Reserve >= 0 && c.opts.bad == nil && c.opts.cost >= 0 && c.req.Response == nil && canceled(c.req) == nil
}

// run makes a call that is not plain. req is what its first attempt sends.
func (c *call) run(req *http.Request) (resp *http.Response, err error) {
	defer func() { c.drop(req, resp) }()
	if err := c.begin(); err != nil {
		return nil, err
	}
	if _, ok := req.Context().Value(attemptKey{}).(*attemptContext); ok {
		// A context that another call's attempt has left, or is in.
		c.latest = &attemptContext{Context: callers(req), number: 1}
		req = req.WithContext(c.latest)
		c.latest.req = req
	}
	if resp, err = c.send(req); c.settled(resp) {
		return c.stop(Final, resp, nil)
	}
	return c.follow(resp, err)
}

// begin does what comes before the first attempt: rules 1 and 2.
func (c *call) begin() error {
	if err := c.misconfigured(); err != nil {
		return c.fail(Misconfigured, err)
	}
	if gone := canceled(c.req); gone != nil {
		return c.fail(Canceled, gone)
	}
	c.limiter = c.t.Limiter
	if l, ok := c.limiter.(RequestLimiter); ok {
		c.limiter = l.ForRequest(c.req)
	}
	if c.t.Gate != nil {
		c.gateKey = keyBy(c.req, c.t.Gate.Key)
	}
	if err := c.pass(c.req.Response); err != nil {
		return err
	}
	c.first = time.Now()
	return nil
}

func (c *call) misconfigured() error {
	switch t := c.t; {
	case c.opts.bad != nil:
		return c.opts.bad
	case t.AttemptTimeout < 0:
		return &ConfigError{"Transport.AttemptTimeout", t.AttemptTimeout.String(), "must not be negative"}
	case t.Reserve < 0:
		return &ConfigError{"Policy.Reserve", t.Reserve.String(), "must not be negative"}
	case t.MaxElapsed > 0 && t.Reserve >= t.MaxElapsed:
		return &ConfigError{"Policy.Reserve", t.Reserve.String(), "must be less than MaxElapsed, " + t.MaxElapsed.String()}
	case c.opts.cost < 0:
		return &ConfigError{"WithCost", strconv.Itoa(c.opts.cost), "must not be negative"}
	case t.Budget != nil:
		return t.Budget.open()
	}
	return nil
}

// follow takes the outcome of the first attempt, and goes on until a decision
// or an interruption ends the call: rules 3 to 14.
func (c *call) follow(resp *http.Response, err error) (*http.Response, error) {
	var next *http.Request
	defer func() { c.drop(next, resp) }()
	for {
		a := c.now()
		a.Err = err
		if resp != nil {
			a.StatusCode, a.Header = resp.StatusCode, resp.Header
		}
		if c.traced() {
			c.attemptDone(a)
		}
		bounds := Call{Deadline: c.deadline(), MaxAttempts: c.opts.maxAttempts, Held: c.hold(&a)}
		if c.limiter != nil {
			bounds.Limiter, bounds.Denies = c.limiterDelay, c.denies()
		}
		if c.t.Policy.Backoff != nil {
			bounds.Backoff = c.nextBackoff
		}
		if c.t.Budget != nil {
			bounds.Withdraw = c.withdraw
		}
		d := &c.report.Decision
		c.t.Policy.decide(d, &a, &bounds)
		if d.Retry && c.limiterErr != nil {
			c.report.Err = c.limiterErr
			return c.stop(Limited, resp, err)
		}
		if !d.Retry {
			return c.stop(d.Reason, resp, err)
		}
		next, c.report.Err = c.next()
		c.unsent = next != nil
		switch {
		case !c.unsent:
			return c.stop(GetBodyFailed, resp, err)
		case canceled(c.req) != nil: // while it was decided
			return c.stop(Canceled, resp, err)
		}
		if err := c.resume(&a, d, resp); err != nil {
			return nil, err
		}
		if resp, err = c.send(next); c.settled(resp) {
			return c.stop(Final, resp, nil)
		}
	}
}

// settled reports whether resp ends the call whatever else there is to know
// of it, so that nothing else has to be found out.
func (c *call) settled(resp *http.Response) bool {
	return resp != nil && c.t.Retry == nil && settles(resp.StatusCode) && !c.traced() && (c.t.Gate == nil || c.t.Gate.When == nil)
}

// resume makes the wait before an attempt that follows another, and lets go of
// the other's response.
func (c *call) resume(a *Attempt, d *Decision, resp *http.Response) error {
	if err := c.wait(a, d, resp); err != nil {
		return err
	}
	return c.pass(nil)
}

// wait announces d's wait, lets go of resp, if there is one, and makes the wait.
// What it returns ends the call.
func (c *call) wait(a *Attempt, d *Decision, resp *http.Response) error {
	if c.traced() {
		c.waiting(WaitInfo{
			Request: c.req, Attempt: c.report.Attempts + 1,
			StatusCode: a.StatusCode, Err: a.Err,
			Wait: d.Wait, Until: a.Received.Add(d.Wait), Decision: *d,
		})
	}
	c.held = false
	release(resp, c.req, a.Received, d.Wait)
	if err := sleepUntil(c.req, a.Received, d.Wait); err != nil {
		c.report.Waited = add(c.report.Waited, min(time.Since(a.Received), d.Wait))
		return c.fail(Canceled, err)
	}
	c.report.Waited = add(c.report.Waited, d.Wait)
	return c.recheck()
}

// recheck ends a call that a wait, or what delayed its end, left without time.
func (c *call) recheck() error {
	if c.t.MaxElapsed <= 0 && c.deadline().IsZero() {
		return nil
	}
	a := c.now()
	if why := c.t.overrun(c.t.Reserve, &a, c.deadline()); why != 0 {
		return c.fail(why, refusals[why])
	}
	return nil
}

// now is the newest attempt, seen from this instant.
func (c *call) now() Attempt {
	a := Attempt{Number: c.report.Attempts, Request: c.req, Received: time.Now()}
	if !c.first.IsZero() {
		a.Elapsed = a.Received.Sub(c.first)
	}
	return a
}

func (c *call) deadline() time.Time {
	deadline, _ := c.req.Context().Deadline()
	return deadline
}

// nextBackoff steps the call's own backoff, which is made when it is first
// asked for.
func (c *call) nextBackoff() time.Duration {
	if c.backoff == nil {
		if c.backoff = c.t.Policy.Backoff(); c.backoff == nil {
			c.backoff = &backoff.StopBackOff{}
		}
	}
	return c.backoff.NextBackOff()
}

var errNoBody = errors.New("GetBody returned neither a body nor an error")

// next makes the request of the next attempt: a deep clone of the caller's,
// with a body of its own.
func (c *call) next() (*http.Request, error) {
	body := c.req.Body
	if hasBody(c.req) {
		var err error
		if body, err = c.req.GetBody(); err != nil {
			return nil, err
		}
		if body == nil {
			return nil, errNoBody
		}
	}
	a := &attemptContext{Context: callers(c.req), number: c.report.Attempts + 1}
	a.req = a.clone(c.req, c.trailer)
	a.req.Body = body
	if hasBody(c.req) && len(a.req.Trailer) > 0 {
		a.req.Body = &trailedBody{body, c.req.Trailer, a.req.Trailer}
	}
	c.latest = a
	return a.req, nil
}

// send makes one attempt.
func (c *call) send(req *http.Request) (resp *http.Response, err error) {
	c.report.Attempts++
	c.unsent = false // Base closes it
	if c.t.AttemptTimeout > 0 {
		resp, err = one(roundTripWithin(c.t.AttemptTimeout, c.t.base(), req))
	} else {
		resp, err = one(c.t.base().RoundTrip(req))
	}
	c.held = resp != nil
	return resp, err
}

// drop closes what the call has not sent, or where a function of the caller's
// panics not handed on.
func (c *call) drop(next *http.Request, resp *http.Response) {
	if c.unsent {
		c.unsent = false
		closeBody(next)
	}
	if c.held {
		if c.held = false; resp.Body != nil {
			resp.Body.Close()
		}
	}
}

// stop ends the call with what its last attempt brought.
func (c *call) stop(why Reason, resp *http.Response, err error) (*http.Response, error) {
	if why == Final {
		c.report.Decision = Decision{Reason: Final}
	}
	if b := c.t.Budget; b != nil {
		switch key := keyBy(c.req, b.Key); {
		case c.report.Decision.Retry:
			b.Refund(key) // the attempt that was paid for is not made
		case why != Final || resp == nil || resp.StatusCode >= 500:
		case c.report.Attempts == 1:
			b.Deposit(key)
		default:
			b.Refund(key)
		}
	}
	c.conclude(why)
	c.done()
	c.held = false
	switch {
	case why == Final && c.report.Attempts == 1 && (resp == nil || c.report.Waited == 0 && c.report.Limited == 0):
		return resp, err
	case resp != nil:
		c.attach(resp)
		return resp, nil
	case why == Canceled:
		ctx := c.req.Context()
		if !errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx)) {
			why := canceled(c.req)
			if errors.Is(err, context.Cause(ctx)) {
				why = ctx.Err() // the cause is told by err
			}
			err = fmt.Errorf("%w: %w", why, err)
		}
	}
	return nil, &Error{Report: c.report, Err: err}
}

// conclude says why the call ends, also where it was decided to go on.
func (c *call) conclude(why Reason) {
	c.report.Stop = why
	if d := &c.report.Decision; d.Retry {
		d.Retry, d.Reason = false, why
	}
}

// fail ends the call without a response.
func (c *call) fail(why Reason, err error) error {
	if b := c.t.Budget; b != nil && c.report.Attempts > 0 {
		b.Refund(keyBy(c.req, b.Key)) // as in stop
	}
	c.conclude(why)
	c.report.Err = err
	c.done()
	return &Error{Report: c.report, Err: err}
}

// refusals are the causes of an Error by a wait that could not be made.
var refusals = map[Reason]error{
	WaitTooLong:     refused("the wait is longer than MaxWait"),
	DeadlineTooNear: fmt.Errorf("the wait would not end before the deadline: %w", context.DeadlineExceeded),
	ElapsedTooLong:  refused("the wait would not end within MaxElapsed"),
	Limited:         refused("the limiter would have to wait, and refuses"),
}

// attach hangs the report on resp, without writing to a request that others
// hold.
func (c *call) attach(resp *http.Response) {
	if c.latest == nil || c.latest.req != resp.Request {
		req := resp.Request
		if req == nil {
			req = c.req
		}
		c.latest = &attemptContext{Context: callers(req), number: c.report.Attempts}
		c.latest.req = req.WithContext(c.latest)
		resp.Request = c.latest.req
	}
	c.latest.report = c.report
}
