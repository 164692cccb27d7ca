package retryafter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter/internal/redact"
)

// A Reason says why a call ended. Its String is the name of the constant.
type Reason uint8

// The reasons, in the order of the rules (see the package documentation).
const (
	_ Reason = iota // the zero Reason: not stopped

	// Final: the last attempt's outcome is not worth another attempt. A
	// success is Final.
	Final
	// MethodNotIdempotent: repeating could do the work twice.
	MethodNotIdempotent
	// BodyNotReplayable: the request has a body and no GetBody.
	BodyNotReplayable
	// AttemptsUsed: Policy.MaxAttempts or the context's cap is reached.
	AttemptsUsed
	// BackoffStopped: the local backoff returned backoff.Stop.
	BackoffStopped
	// WaitTooLong: the wait is longer than Policy.MaxWait.
	WaitTooLong
	// DeadlineTooNear: the wait, and Policy.Reserve after it, do not end
	// before the caller's deadline.
	DeadlineTooNear
	// ElapsedTooLong: they do not end within Policy.MaxElapsed.
	ElapsedTooLong
	// BudgetSpent: the RetryBudget has no retry left.
	BudgetSpent
	// GetBodyFailed: no body could be had for the next attempt.
	GetBodyFailed
	// Canceled: the caller's context is done, or Request.Cancel closed.
	Canceled
	// Limited: the Limiter refused the attempt.
	Limited
	// Misconfigured: a setting makes no sense; nothing was sent.
	Misconfigured
)

var reasonNames = [...]string{
	"none", "Final", "MethodNotIdempotent", "BodyNotReplayable", "AttemptsUsed",
	"BackoffStopped", "WaitTooLong", "DeadlineTooNear", "ElapsedTooLong",
	"BudgetSpent", "GetBodyFailed", "Canceled", "Limited", "Misconfigured",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// A Report tells what happened to one call, which is one RoundTrip: a
// redirect that http.Client follows is a call of its own.
type Report struct {
	Attempts int           // how many were sent; 0 where the call was refused before the first
	Waited   time.Duration // spent in waits between attempts, for a Gate, and before redirect hops
	Limited  time.Duration // spent waiting for the Limiter
	Stop     Reason        // why the call ended
	Decision Decision      // the last one: the delay that was asked for, uncut, also where it was refused
	Err      error         // what failed beside the attempts, as GetBody or the Limiter; else nil
}

// LogValue makes a Report readable in log/slog. It holds no URL's userinfo or
// query, and of header fields at most 64 bytes of a Retry-After that can't be
// read.
func (r Report) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs,
		slog.Int("attempts", r.Attempts),
		slog.Duration("waited", r.Waited),
		slog.String("stop", r.Stop.String()))
	if r.Limited > 0 {
		attrs = append(attrs, slog.Duration("limited", r.Limited))
	}
	if d := r.Decision; d.Wait > 0 {
		attrs = d.appendServer(append(attrs, slog.Duration("wait", d.Wait)))
	}
	if d := r.Decision.Limiter; d > 0 {
		attrs = append(attrs, slog.Duration("limiter", d))
	}
	if err := r.Decision.HintErr; err != nil && !errors.Is(err, ErrNoHint) {
		attrs = append(attrs, slog.String("hint_error", redact.Error(err)))
	}
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", redact.Error(r.Err)))
	}
	return slog.GroupValue(attrs...)
}

// appendServer appends what the server asked for, where it did.
func (d Decision) appendServer(attrs []slog.Attr) []slog.Attr {
	if d.Server > 0 || d.Hint.Form != 0 {
		attrs = append(attrs, slog.Duration("server", d.Server))
	}
	return attrs
}

// String is the report in one line, as it stands in an Error.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v after %d attempt", r.Stop, r.Attempts)
	if r.Attempts != 1 {
		b.WriteByte('s')
	}
	switch d := r.Decision; {
	case d.Limiter > d.Wait:
		fmt.Fprintf(&b, ", the limiter needs %v", d.Limiter)
	case d.Server > 0 && d.Server >= d.Local:
		fmt.Fprintf(&b, ", the server asked for %v", d.Server)
		if d.Wait > d.Server && (r.Stop == DeadlineTooNear || r.Stop == ElapsedTooLong) {
			fmt.Fprintf(&b, ", with jitter the wait is %v", add(d.Wait, time.Millisecond-1).Truncate(time.Millisecond))
		}
	case d.Wait > 0 && (d.Reason == 0 || d.Reason >= WaitTooLong): // else there was none to come
		fmt.Fprintf(&b, ", the next would have followed after %v", d.Wait)
	}
	if r.Err != nil {
		b.WriteString(": " + cause(r.Err))
	}
	return b.String()
}

// ReportOf returns what happened to the call that ended in resp. It is kept
// in resp.Request's context, so it survives RoundTrippers that wrap a
// Transport, or are wrapped by one, where they leave resp.Request as it is. A
// response that no Transport returned, and one that settled its call at the
// first attempt without a wait, report one attempt and Final. A nil resp gives
// the zero Report: the error tells, see Error.
func ReportOf(resp *http.Response) Report {
	if resp == nil {
		return Report{}
	}
	if resp.Request != nil {
		a, _ := resp.Request.Context().Value(attemptKey{}).(*attemptContext)
		// A context that was borrowed for a later call is not this call's.
		if a != nil && a.req == resp.Request && a.report.Attempts > 0 {
			return a.report
		}
	}
	return Report{Attempts: 1, Stop: Final}
}

// An Error ends a call that has no response to hand back, unless its first
// attempt settled it: then Base's own error is returned. http.Client wraps an
// Error in a *url.Error, where errors.As finds it. Only where
// http.Client.Timeout passes during an attempt or a wait does net/http replace
// all errors by one of its own; a deadline in the context keeps them, and
// Trace.Done tells either way.
type Error struct {
	Report Report
	Err    error // the last attempt's error, the context's cause, or what refused the call
}

func (e *Error) Error() string {
	text := "retryafter: " + e.Report.String()
	switch {
	case e.Report.Err != nil: // told by the report
	case e.Err != nil:
		text += ": " + cause(e.Err)
	default:
		text += ": no cause"
	}
	return text
}

// cause is err's text behind one that says already who speaks.
func cause(err error) string { return strings.TrimPrefix(redact.Error(err), "retryafter: ") }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout. http.Client asks for it.
func (e *Error) Timeout() bool {
	t, ok := errors.AsType[timeouter](e.Err)
	return ok && t.Timeout()
}

// A ConfigError reports a setting that makes no sense. It is returned by the
// first use of what was configured, before anything is sent, charged or slept.
// One that a Policy.Hint returns is told as a Decision's HintErr.
type ConfigError struct {
	Field   string // the setting, as in "Bucket.Capacity"
	Value   string // what it was set to
	Problem string // what it must be, as in "must be positive"
}

func (e *ConfigError) Error() string {
	return "retryafter: " + e.Field + " is " + e.Value + ": " + e.Problem
}

// refused is the cause of an Error that no failed attempt caused.
type refused string

func (r refused) Error() string { return string(r) }

// contextError is why ctx is done, or nil. Both what ctx.Err and what
// context.Cause return are found in it.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
