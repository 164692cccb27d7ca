package retryafter

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Policy says whether and when a request is sent again. The zero Policy is
// the default that each field describes. It is a value: copy it, share it, use
// it from many goroutines at once.
type Policy struct {
	// MaxAttempts is how many attempts one call makes in all. 0 means 3, 1
	// never repeats, a negative number sets no cap.
	MaxAttempts int

	// MaxWait is the longest single wait, jitter aside. A longer one is not
	// cut: the call ends. 0 means 2 minutes, a negative value sets no cap. How
	// long the Limiter may take is for the deadline to bound, and for Deny.
	MaxWait time.Duration

	// MaxElapsed is the longest that a call may take from its first send to
	// the end of its last wait and Reserve, time on the wire included. 0 or
	// less sets no cap; the caller's deadline holds either way.
	MaxElapsed time.Duration

	// Reserve is the time that must be left before the deadline, and within
	// MaxElapsed, for the attempt that follows a wait. A negative Reserve, or
	// one that is not less than MaxElapsed, makes a Transport's calls fail with
	// a *ConfigError.
	Reserve time.Duration

	// Backoff makes the local backoff of one call, when the call first needs
	// it: return a new one each time, for a BackOff is not safe for concurrent
	// use. It is asked once for each outcome that is worth another attempt,
	// also where the server's delay is the larger, and taken as it is; Jitter
	// comes on top, so one that is random by itself goes with NoJitter.
	// backoff.Stop (any negative duration), like a nil BackOff, ends the call.
	// An ExponentialBackOff does both unless it is told otherwise: it is
	// random by a RandomizationFactor of 0.5, and stops after a MaxElapsedTime
	// of 15 minutes.
	// A nil Backoff means 100 ms doubling to 20 s, and at least 1 s after a 429
	// or 503 that gives no readable delay.
	Backoff func() backoff.BackOff

	// Jitter is drawn once a decision and added to the wait. nil means
	// Spread(0.25, time.Second, 30*time.Second) on a server's delay, and up to
	// as much again on a local one.
	Jitter Jitter

	// Retry says whether an attempt's outcome is worth another attempt. It is
	// asked once an attempt, and can not make an unsafe request safe. nil means
	// DefaultRetry.
	Retry func(Attempt) bool

	// Hint reads what else than Retry-After a response says about when to come
	// back; package hints has readers of what APIs send. It gets the response's
	// header and when that arrived, must depend on nothing else, and is asked
	// where the answer matters, be it twice. The later of the two counts: no
	// Hint brings a client back before a Retry-After that can be read. An error
	// means that there is no hint, and ErrNoHint that there is nothing amiss
	// with that. It is not asked about the 3xx of a redirect that is followed.
	// nil reads Retry-After alone.
	Hint func(h http.Header, received time.Time) (Hint, error)
}

const (
	defaultMaxAttempts   = 3
	defaultMaxWait       = 2 * time.Minute
	defaultBackoffFirst  = 100 * time.Millisecond
	defaultBackoffLast   = 20 * time.Second
	defaultBackoffRefuse = time.Second
)

// An Attempt is the outcome of one attempt. It is passed by value and has no
// body: looking at it can't eat the response.
type Attempt struct {
	Number     int           // 1 for the first
	Request    *http.Request // the caller's; not to be written to
	StatusCode int           // 0 where Err is set
	Header     http.Header   // of the response
	Err        error         // of the RoundTripper
	Received   time.Time     // when the header section or the error arrived; dates, deadlines and the wait count from it
	Elapsed    time.Duration // from the first send until Received
}

// A Call is what Decide has to know of a call beside its last attempt. The
// zero Call has no bounds of its own.
type Call struct {
	Deadline    time.Time // the caller's; the zero Time: none
	MaxAttempts int       // a cap that lowers Policy.MaxAttempts; 0 or less: none

	// Held is asked, at most once, how long from Attempt.Received on a Gate holds
	// the request's key. nil means no Gate.
	Held func(received time.Time) time.Duration

	// Limiter is asked, at most once, how long from Attempt.Received a limiter
	// will need to admit the next attempt. nil means no limiter.
	Limiter func(received time.Time) time.Duration

	// Denies says that the limiter does not wait for that, but refuses.
	Denies bool

	// Backoff is asked, at most once, for the local backoff. nil means a fresh
	// backoff of the Policy, advanced Attempt.Number times.
	Backoff func() time.Duration

	// Withdraw takes the next attempt from a retry budget and reports whether
	// it could. It is asked last, when nothing else stands against the attempt.
	// nil means no budget.
	Withdraw func() bool
}

// A Decision is what follows an attempt, with the parts it was made of.
type Decision struct {
	Retry   bool
	Reason  Reason        // why not, where Retry is false
	Wait    time.Duration // max(Server, Local) + Jitter, from Attempt.Received; where refused: what it would have been
	Server  time.Duration // the server's delay, or where it is longer what a Gate was told; 0 where there is none
	Local   time.Duration // the local backoff; 0 where it stopped
	Jitter  time.Duration
	Limiter time.Duration // what the limiter needs, from Attempt.Received, where it was asked
	Hint    Hint
	// HintErr is why there is no Hint: ErrNoHint, the *SyntaxError of a
	// Retry-After that can't be read, or an error of Policy.Hint. Beside such
	// a Retry-After there may be a Hint all the same, that of Policy.Hint.
	HintErr error
}

// Decide says what follows attempt a of call c, by rules 4 to 11 of the
// package documentation. It has no clock, does not sleep, and touches no body;
// beyond what Policy's own functions do, equal arguments give equal decisions.
// Transport and everything else that repeats requests decide by it alone.
//
// The parts of a wait are filled in for every decision but Final and that of a
// cancelled attempt, which have none.
func (p Policy) Decide(a Attempt, c Call) Decision {
	var d Decision
	p.decide(&d, &a, &c)
	return d
}

func (p *Policy) decide(d *Decision, a *Attempt, c *Call) {
	*d = Decision{}
	gone := a.Request != nil && canceled(a.Request) != nil
	switch {
	case gone && a.Err != nil:
		d.Reason = Canceled
		return
	case !p.worthwhile(a):
		d.Reason = Final
		return
	}
	d.Hint, d.HintErr = p.hint(a)
	local := p.backoff(a, c, d.HintErr == nil || d.Hint.Delay > 0)
	p.wait(d, a, c, local)
	p.jitter(d)
	switch {
	case gone:
		d.Reason = Canceled
	case !idempotent(a.Request):
		d.Reason = MethodNotIdempotent
	case !replayable(a.Request):
		d.Reason = BodyNotReplayable
	case p.exhausted(a.Number, c.MaxAttempts):
		d.Reason = AttemptsUsed
	case local < 0:
		d.Reason = BackoffStopped
	default:
		d.Reason = p.misfit(d, a, c)
	}
	if d.Reason == 0 && c.Withdraw != nil && !c.Withdraw() {
		d.Reason = BudgetSpent
	}
	d.Retry = d.Reason == 0
}

// enter decides the wait before an attempt that follows no other, by rules 8 to
// 10: for what a Gate was told, and for the 3xx that led to it (RFC 9110,
// section 10.2.3). It reports whether there is anything to wait for.
func (p *Policy) enter(d *Decision, a *Attempt, c *Call) bool {
	*d = Decision{HintErr: ErrNoHint}
	if a.StatusCode/100 == 3 {
		d.Hint, d.HintErr = FromHeader(a.Header, a.Received)
	}
	p.wait(d, a, c, 0)
	if d.HintErr != nil && d.Server == 0 {
		return false
	}
	p.jitter(d)
	d.Reason = p.misfit(d, a, c)
	d.Retry = d.Reason == 0
	return true
}

func (p *Policy) worthwhile(a *Attempt) bool {
	if p.Retry != nil {
		return p.Retry(*a)
	}
	return DefaultRetry(*a)
}

// hint is what a's response says about when to come back.
func (p *Policy) hint(a *Attempt) (Hint, error) {
	hint, err := FromHeader(a.Header, a.Received)
	if p.Hint == nil || a.Err != nil {
		return hint, err
	}
	other, otherErr := p.Hint(a.Header, a.Received)
	other.Delay = max(other.Delay, 0)
	if err == ErrNoHint {
		err = otherErr
	}
	if otherErr == nil && (hint.Form == 0 || other.Delay > hint.Delay) {
		hint = other
	}
	return hint, err
}

func (p *Policy) exhausted(number, limit int) bool {
	n := p.MaxAttempts
	if n == 0 {
		n = defaultMaxAttempts
	}
	return n > 0 && number >= n || limit > 0 && number >= limit
}

// backoff is the local backoff after a, or a negative duration.
func (p *Policy) backoff(a *Attempt, c *Call, hinted bool) time.Duration {
	if c.Backoff != nil {
		return c.Backoff()
	}
	if p.Backoff != nil {
		b := p.Backoff()
		if b == nil {
			return backoff.Stop
		}
		local := b.NextBackOff()
		for n := 1; n < a.Number && local >= 0; n++ {
			local = b.NextBackOff()
		}
		return local
	}
	return defaultBackoff(a, hinted)
}

func defaultBackoff(a *Attempt, hinted bool) time.Duration {
	local := defaultBackoffFirst
	for n := 1; n < a.Number && local < defaultBackoffLast; n++ {
		local *= 2
	}
	local = min(local, defaultBackoffLast)
	if !hinted && (a.StatusCode == http.StatusTooManyRequests || a.StatusCode == http.StatusServiceUnavailable) {
		local = max(local, defaultBackoffRefuse)
	}
	return local
}

// wait puts the floor of a wait together.
func (p *Policy) wait(d *Decision, a *Attempt, c *Call, local time.Duration) {
	d.Server, d.Local = d.Hint.Delay, max(local, 0)
	if c.Held != nil {
		d.Server = max(d.Server, c.Held(a.Received))
	}
}

// jitter comes after the larger of the two, and nothing comes after it.
func (p *Policy) jitter(d *Decision) {
	floor := max(d.Server, d.Local)
	jitter := p.Jitter
	if jitter == nil {
		jitter = defaultJitter
	}
	d.Jitter = max(jitter(floor, d.Server > 0 && d.Server >= d.Local), 0)
	d.Wait = add(floor, d.Jitter)
}

// misfit is why d's wait can't be made, or 0.
func (p *Policy) misfit(d *Decision, a *Attempt, c *Call) Reason {
	longest := p.MaxWait
	if longest == 0 {
		longest = defaultMaxWait
	}
	if longest > 0 && max(d.Server, d.Local) > longest {
		return WaitTooLong
	}
	// The limiter fills while the call waits: the longer of the two counts.
	if c.Limiter != nil {
		d.Limiter = c.Limiter(a.Received)
	}
	if c.Denies && d.Limiter > d.Wait {
		return Limited
	}
	need := max(d.Wait, d.Limiter)
	return p.overrun(add(need, max(p.Reserve, 0)), a, c.Deadline)
}

// overrun is the bound that need does not end before, counted from a, or 0.
// MaxElapsed begins with the first attempt.
func (p *Policy) overrun(need time.Duration, a *Attempt, deadline time.Time) Reason {
	switch {
	case !deadline.IsZero() && need >= deadline.Sub(a.Received):
		return DeadlineTooNear
	case p.MaxElapsed > 0 && a.Number > 0 && add(a.Elapsed, need) >= p.MaxElapsed:
		return ElapsedTooLong
	}
	return 0
}

// DefaultRetry reports whether another attempt may cure a's outcome.
//
// Of the statuses: 408, 425, 429, 500, 502, 503 and 504; 413 with a readable
// Retry-After (RFC 9110, section 15.5.14); 409 where the request carries an
// Idempotency-Key or X-Idempotency-Key, so that the conflict is with an earlier
// attempt. A Retry-After makes no other status worth another attempt.
//
// Of the errors: a connection that could not be made or broke before the
// response header was complete; an HTTP/2 GOAWAY, or a stream that the server
// ended by REFUSED_STREAM, INTERNAL_ERROR or CANCEL; a timeout that is not the
// caller's; and a DNS failure that is not final. Not the caller's cancellation,
// a failed TLS verification, a host that does not exist, a proxy's answer to
// CONNECT, which net/http makes an error of, or any error that is not known to
// be transient.
func DefaultRetry(a Attempt) bool {
	if a.Err != nil {
		return transient(a.Err) && (a.Request == nil || canceled(a.Request) == nil)
	}
	switch a.StatusCode {
	case http.StatusRequestEntityTooLarge:
		_, err := FromHeader(a.Header, a.Received)
		return err == nil
	case http.StatusConflict:
		return a.Request != nil && (keyIn(a.Request.Header, "Idempotency-Key") != "" || keyIn(a.Request.Header, "X-Idempotency-Key") != "")
	}
	return retryStatus(a.StatusCode)
}

// retryStatus holds the statuses of DefaultRetry that no condition is tied to.
func retryStatus(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// settles reports whether DefaultRetry says no to a response by its status
// alone.
func settles(code int) bool {
	return !retryStatus(code) && code != http.StatusRequestEntityTooLarge && code != http.StatusConflict
}

// Replayable reports whether req may be sent more than once: its method is
// idempotent (RFC 9110, section 9.2.2) or QUERY, or its caller says so by an
// Idempotency-Key or X-Idempotency-Key header, as in net/http.Transport; and
// it has no body, or GetBody to have it again. A header with an empty value
// slice says so without being sent; one with an empty value does not say so.
//
// What GetBody returns must not share a position with what it returned before,
// as two readers of one *os.File would: an attempt that failed may still be
// reading when the next body is asked for. The same goes for a Trailer that the
// body fills in as it is read.
func Replayable(req *http.Request) bool {
	return idempotent(req) && replayable(req)
}

func idempotent(req *http.Request) bool {
	if req == nil {
		return true
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		http.MethodPut, http.MethodDelete, "QUERY":
		return true
	}
	return keyed(req.Header, "Idempotency-Key") || keyed(req.Header, "X-Idempotency-Key")
}

// keyed reports whether h has a key under name, or the empty slice that stands
// for one. An empty key tells no server that two requests are one.
func keyed(h http.Header, name string) bool {
	values, ok := h[name]
	return ok && (len(values) == 0 || keyIn(h, name) != "")
}

// keyIn is the key that h has under name, as it is sent.
func keyIn(h http.Header, name string) string { return textproto.TrimString(h.Get(name)) }

func replayable(req *http.Request) bool {
	return req == nil || !hasBody(req) || req.GetBody != nil
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// transient reports whether err is one that another attempt may cure. What it
// does not know is final.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return !dns.IsNotFound && (dns.IsTemporary || dns.IsTimeout)
	}
	is := func(broken error) bool { return errors.Is(err, broken) }
	if slices.ContainsFunc(brokenOff, is) || slices.ContainsFunc(brokenConnection, is) {
		return true
	}
	// Package syscall does not name all of Windows' numbers.
	if _, ok := errors.AsType[*os.SyscallError](err); ok && runtime.GOOS == "windows" && !errors.Is(err, fs.ErrPermission) {
		return true
	}
	if t, ok := errors.AsType[timeouter](err); ok && t.Timeout() {
		return true
	}
	return lostConnection(err)
}

// brokenOff is what net, net/http and those who speak for them say of a
// connection that ended under them.
var brokenOff = []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed}

type timeouter interface {
	error
	Timeout() bool
}

// lostConnections begin the texts of net/http's errors for a connection that
// ended under a request, and for which it exports neither value nor type.
var lostConnections = []string{
	"http: server closed idle connection",
	"http2: server sent GOAWAY",
	"http2: Transport received GOAWAY",
	"http2: Transport received Server's graceful shutdown GOAWAY",
	"http2: client connection lost",
	"http2: client conn is closed",
	"http2: client conn not usable",
	"http2: client conn could not be established",
	"http2: Transport: cannot retry err [", // of these, or of a refused stream, for want of GetBody
}

// lostStreams are the HTTP/2 error codes by which a server ends a stream where
// with HTTP/1 it would close the connection (RFC 9113, section 7).
var lostStreams = []string{"; REFUSED_STREAM", "; INTERNAL_ERROR; received from peer", "; CANCEL; received from peer"}

func lostConnection(err error) bool {
	switch wrapped := err.(type) {
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(wrapped.Unwrap(), lostConnection)
	case interface{ Unwrap() error }:
		if inner := wrapped.Unwrap(); inner != nil && lostConnection(inner) {
			return true
		}
	}
	if _, ok := err.(*net.OpError); ok {
		return false // its text begins otherwise, and costs an allocation
	}
	text := err.Error()
	if strings.HasPrefix(text, "stream error: ") {
		return slices.ContainsFunc(lostStreams, func(code string) bool { return strings.Contains(text, code) })
	}
	return slices.ContainsFunc(lostConnections, func(lost string) bool { return strings.HasPrefix(text, lost) }) || halfALine(text)
}

// halfALine reports whether text says that net/http took for a whole line what
// can be the begin of one, where the connection ended in the header.
func halfALine(text string) bool {
	what, quoted, _ := strings.Cut(text, ` "`)
	begun, _ := strconv.Unquote(`"` + quoted)
	switch what {
	case "malformed HTTP response":
		return begun != "" && (strings.HasPrefix("HTTP/1.1", begun) || begun == "HTTP/1.0")
	case "malformed HTTP status code":
		return len(begun) < 3 && strings.Trim(begun, "0123456789") == ""
	case "malformed MIME header: missing colon:":
		return true
	}
	return strings.HasPrefix(text, "malformed MIME header line: ")
}
