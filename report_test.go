package retryafter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

func TestAReportSaysInOneLineWhatThereIsToSay(t *testing.T) {
	type decision = retryafter.Decision
	for _, tc := range []struct {
		report retryafter.Report
		want   string
	}{
		{retryafter.Report{}, "none after 0 attempts"},
		{retryafter.Report{Attempts: 1, Stop: retryafter.Final}, "Final after 1 attempt"},
		{retryafter.Report{Attempts: 2, Stop: retryafter.Limited, Decision: decision{Wait: 2, Limiter: 3}},
			"Limited after 2 attempts, the limiter needs 3ns"},
		{retryafter.Report{Attempts: 2, Stop: retryafter.Canceled, Decision: decision{Wait: 3, Local: 3, Limiter: 3}},
			"Canceled after 2 attempts, the next would have followed after 3ns"},
		{retryafter.Report{Stop: retryafter.AttemptsUsed, Decision: decision{Server: 2, Local: 2, Wait: 3, Reason: retryafter.AttemptsUsed}},
			"AttemptsUsed after 0 attempts, the server asked for 2ns"},
		{retryafter.Report{Stop: retryafter.AttemptsUsed, Decision: decision{Server: 1, Local: 2, Wait: 3, Reason: retryafter.AttemptsUsed}},
			"AttemptsUsed after 0 attempts"},
		{retryafter.Report{Stop: retryafter.BackoffStopped, Decision: decision{Wait: 3, Reason: retryafter.BackoffStopped}},
			"BackoffStopped after 0 attempts"},
		{retryafter.Report{Stop: retryafter.WaitTooLong, Decision: decision{Server: 1, Local: 2, Wait: 3, Reason: retryafter.WaitTooLong}},
			"WaitTooLong after 0 attempts, the next would have followed after 3ns"},
		{retryafter.Report{Stop: retryafter.GetBodyFailed, Decision: decision{Reason: retryafter.GetBodyFailed}, Err: io.EOF},
			"GetBodyFailed after 0 attempts: EOF"},
	} {
		if got := tc.report.String(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	if got := (retryafter.Misconfigured + 1).String(); got != "Reason(14)" {
		t.Errorf("a Reason that there isn't is called %q", got)
	}
}

func TestALoggedReportHasWhatThereIsToTell(t *testing.T) {
	attrs := func(r retryafter.Report) (keys []string) {
		for _, a := range r.LogValue().Group() {
			keys = append(keys, a.String())
		}
		return keys
	}
	plain := []string{"attempts=2", "waited=1ns", "stop=Limited"}
	for _, tc := range []struct {
		report retryafter.Report
		want   []string
	}{
		{retryafter.Report{}, nil},
		{retryafter.Report{Limited: 3}, []string{"limited=3ns"}},
		{retryafter.Report{Decision: retryafter.Decision{Wait: 3, Server: 2}}, []string{"wait=3ns", "server=2ns"}},
		{retryafter.Report{Decision: retryafter.Decision{Limiter: 3}}, []string{"limiter=3ns"}},
		{retryafter.Report{Decision: retryafter.Decision{HintErr: errors.New("odd")}}, []string{"hint_error=odd"}},
		{retryafter.Report{Decision: retryafter.Decision{HintErr: retryafter.ErrNoHint}}, nil},
		{retryafter.Report{Err: io.EOF}, []string{"error=EOF"}},
	} {
		tc.report.Attempts, tc.report.Waited, tc.report.Stop = 2, 1, retryafter.Limited
		if diff := cmp.Diff(append(plain[:3:3], tc.want...), attrs(tc.report)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tc.report, diff)
		}
	}
	// Of a WaitInfo, too.
	for _, tc := range []struct {
		info retryafter.WaitInfo
		want []string
	}{
		{retryafter.WaitInfo{}, nil},
		{retryafter.WaitInfo{Limiter: true}, []string{"limiter=true"}},
		{retryafter.WaitInfo{Err: io.EOF}, []string{"error=EOF"}},
		{retryafter.WaitInfo{StatusCode: 503, Decision: retryafter.Decision{Server: 2}}, []string{"status=503", "server=2ns"}},
	} {
		var got []string
		for _, a := range tc.info.LogValue().Group()[3:] {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tc.info, diff)
		}
	}
}

func TestAnErrorSaysItsCauseOnceAndNoSecret(t *testing.T) {
	secret := &url.Error{Op: "Get", URL: "http://user:secret@example.com/p?token=secret", Err: io.EOF}
	for _, tc := range []struct {
		err  retryafter.Error
		want string
	}{
		{retryafter.Error{}, "retryafter: none after 0 attempts: no cause"},
		{retryafter.Error{Err: io.EOF}, "retryafter: none after 0 attempts: EOF"},
		{retryafter.Error{Err: io.EOF, Report: retryafter.Report{Err: io.EOF}}, "retryafter: none after 0 attempts: EOF"},
		{retryafter.Error{Err: secret}, `retryafter: none after 0 attempts: Get "http://example.com/p": EOF`},
		{retryafter.Error{Err: bare{secret}}, `retryafter: none after 0 attempts: could not reach http://example.com/p`},
		{retryafter.Error{Err: errors.Join(io.EOF, secret)}, "retryafter: none after 0 attempts: EOF\nGet \"http://example.com/p\": EOF"},
		{retryafter.Error{Err: fmt.Errorf("%w", &url.Error{Op: "Get", URL: "http://secret@example.com/%zz", Err: io.EOF})},
			`retryafter: none after 0 attempts: Get "(unreadable URL)": EOF`},
		{retryafter.Error{Err: hollow{}}, "retryafter: none after 0 attempts: hollow"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// bare is an error that shows the URL of the one in it as it is.
type bare struct{ of *url.Error }

func (b bare) Error() string { return "could not reach " + b.of.URL }
func (b bare) Unwrap() error { return b.of }

// hollow could wrap something.
type hollow struct{}

func (hollow) Error() string { return "hollow" }
func (hollow) Unwrap() error { return nil }

func TestAnErrorIsATimeoutWhereItsCauseIs(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.EOF, false},
		{&net.OpError{Op: "dial", Err: io.EOF}, false}, // has the method, and says no
		{&net.DNSError{IsTimeout: true}, true},
		{fmt.Errorf("late: %w", context.DeadlineExceeded), true},
		{retryafter.ErrAttemptTimeout, true},
	} {
		if e := (&retryafter.Error{Err: tc.err}); e.Timeout() != tc.want || e.Unwrap() != tc.err {
			t.Errorf("%v: a timeout: %v", tc.err, e.Timeout())
		}
	}
}

// A wait that does not fit because of its jitter is told, or the server's delay
// would seem to fit.
func TestAReportTellsTheWaitThatWasRefused(t *testing.T) {
	for _, tc := range []struct {
		why          retryafter.Reason
		server, wait time.Duration
		want         string
	}{
		{retryafter.DeadlineTooNear, 2 * time.Second, 2 * time.Second, "the server asked for 2s"},
		{retryafter.DeadlineTooNear, 2 * time.Second, 2*time.Second + 1, "the server asked for 2s, with jitter the wait is 2.001s"},
		{retryafter.WaitTooLong, 2 * time.Second, 2500 * time.Millisecond, "the server asked for 2s"},
		{retryafter.ElapsedTooLong, 2 * time.Second, 2500 * time.Millisecond, "the server asked for 2s, with jitter the wait is 2.5s"},
		{retryafter.ElapsedTooLong, math.MaxInt64 - 1, math.MaxInt64, "the server asked for 2562047h47m16.854775806s, with jitter the wait is 2562047h47m16.854s"},
		{retryafter.AttemptsUsed, 2 * time.Second, 2500 * time.Millisecond, "the server asked for 2s"},
		{retryafter.BudgetSpent, 2 * time.Second, 2500 * time.Millisecond, "the server asked for 2s"},
		{retryafter.BudgetSpent, 0, 2500 * time.Millisecond, "the next would have followed after 2.5s"},
	} {
		r := retryafter.Report{Attempts: 1, Stop: tc.why, Decision: retryafter.Decision{Reason: tc.why, Server: tc.server, Wait: tc.wait}}
		if got, want := r.String(), tc.why.String()+" after 1 attempt, "+tc.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
