package retryafter_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/fixtures"
)

var noon = time.Date(2026, time.September, 8, 12, 0, 0, 0, time.UTC)

// failures are what RoundTrippers return, by the names of the fixtures.
var failures = map[string]error{
	"refused":        &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
	"unreachable":    &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)},
	"no-network":     &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)},
	"reset":          &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
	"eof":            io.EOF,
	"unexpected-eof": fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", io.ErrUnexpectedEOF),
	"timeout":        retryafter.ErrAttemptTimeout,
	"dns-temporary":  &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "example.com", IsTemporary: true}},
	"dns-not-found":  &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "example.invalid", IsNotFound: true}},
	"goaway":         errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""`),
	"refused-stream": errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer"),
	"closed-by-peer": &net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}, // found closed while the body was written
	"h2-unsendable":  errors.New("http2: Transport: cannot retry err [stream error: stream ID 1; REFUSED_STREAM; received from peer] after Request.Body was written; define Request.GetBody to avoid this error"),
	"joined":         errors.Join(errors.New("proxy"), fmt.Errorf("%w: %w", errors.New("dialed twice"), errors.New("http2: client connection lost"))),
	"closed-idle":    errors.New("http: server closed idle connection"),
	"canceled":       context.Canceled,
	"x509":           &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
	"scheme":         errors.New(`unsupported protocol scheme "ftp"`),
	"unknown":        errors.New("malformed HTTP response"),
}

// decisionCase turns a row of the fixtures into what it describes.
func decisionCase(t *testing.T, row fixtures.Decision) (retryafter.Policy, retryafter.Attempt, retryafter.Call) {
	t.Helper()
	req := row.Request()
	a := retryafter.Attempt{Number: row.Attempt, Request: req, StatusCode: row.Status, Received: noon, Elapsed: row.Elapsed}
	if row.Error != "" {
		var ok bool
		if a.Err, ok = failures[row.Error]; !ok {
			t.Fatalf("no such failure: %q", row.Error)
		}
	} else {
		a.Header = http.Header{}
		for name, value := range map[string]string{"Retry-After": row.RetryAfter, "Date": row.Date, "Age": row.Age} {
			if value != "" {
				a.Header.Set(name, value)
			}
		}
	}
	p := retryafter.Policy{
		MaxAttempts: row.MaxAttempts, MaxWait: row.MaxWait, MaxElapsed: row.MaxElapsed, Reserve: row.Reserve,
		Jitter: func(time.Duration, bool) time.Duration { return row.Jitter },
	}
	if !row.DefaultBackoff {
		p.Backoff = func() backoff.BackOff { return backoff.NewConstantBackOff(row.Backoff) }
	}
	c := retryafter.Call{MaxAttempts: row.Cap}
	if row.Left != nil {
		c.Deadline = noon.Add(*row.Left)
	}
	if row.Limiter > 0 {
		c.Limiter = func(time.Time) time.Duration { return row.Limiter }
	}
	return p, a, c
}

func TestDecideAgreesWithTheFixtures(t *testing.T) {
	for _, row := range fixtures.Decisions() {
		t.Run(row.ID, func(t *testing.T) {
			p, a, c := decisionCase(t, row)
			d := p.Decide(a, c)
			got := fmt.Sprintf("retry %v, reason %v, wait %v, server %v, local %v", d.Retry, d.Reason, d.Wait, d.Server, d.Local)
			want := fmt.Sprintf("retry %v, reason %v, wait %v, server %v, local %v", row.Retry, row.Reason, row.Wait, row.Server, row.Local)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.Note, diff)
			}
			if again := p.Decide(a, c); !cmp.Equal(d, again, cmp.Comparer(func(x, y error) bool { return fmt.Sprint(x) == fmt.Sprint(y) })) {
				t.Errorf("decided %+v, then %+v", d, again)
			}
		})
	}
}

// A fleet of clients plans on an injected clock that reads 100 s when a
// response arrives; 3 s, a date 7 s ahead, and 1 s of local backoff.
func TestPlansForRealResponses(t *testing.T) {
	responses := map[string]func(http.Header) int{
		"/seconds": func(h http.Header) int { h.Set("Retry-After", "3"); return 429 },
		"/date": func(h http.Header) int {
			h.Set("Retry-After", noon.Add(7*time.Second).Format(http.TimeFormat))
			return 503
		},
		"/invalid":  func(h http.Header) int { h.Set("Retry-After", "later"); return 503 },
		"/missing":  func(h http.Header) int { return 503 },
		"/redirect": func(h http.Header) int { h.Set("Retry-After", "3"); h.Set("Location", "/ready"); return 307 },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", noon.Format(http.TimeFormat))
		w.WriteHeader(responses[r.URL.Path](w.Header()))
	}))
	defer server.Close()

	offset := 250 * time.Millisecond
	p := retryafter.Policy{
		Backoff: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0))
		},
		Jitter: func(time.Duration, bool) time.Duration { return offset },
	}
	plan := func(path string) (float64, retryafter.Decision) {
		resp, err := http.DefaultTransport.RoundTrip(httptest.NewRequest("GET", server.URL+path, nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		d := p.Decide(retryafter.Attempt{Number: 1, Request: resp.Request, StatusCode: resp.StatusCode, Header: resp.Header, Received: noon},
			retryafter.Call{Deadline: noon.Add(10 * time.Second)})
		return 100 + d.Wait.Seconds(), d
	}
	for path, want := range map[string]float64{"/seconds": 103.25, "/date": 107.25, "/invalid": 101.25, "/missing": 101.25} {
		if got, d := plan(path); got != want || !d.Retry {
			t.Errorf("%s: planned for %v (%v), want %v", path, got, d.Reason, want)
		}
	}
	if _, d := plan("/redirect"); d.Retry || d.Reason != retryafter.Final {
		t.Errorf("/redirect: %+v, want Final", d)
	}

	same, spread := map[float64]bool{}, map[float64]bool{}
	for _, tenths := range []int{1, 2, 3, 4} {
		offset = 0
		at, _ := plan("/seconds")
		same[at] = true
		offset = time.Duration(tenths) * 100 * time.Millisecond
		at, _ = plan("/seconds")
		spread[at] = true
	}
	if diff := cmp.Diff(map[float64]bool{103: true}, same); diff != "" {
		t.Error("without jitter (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(map[float64]bool{103.1: true, 103.2: true, 103.3: true, 103.4: true}, spread); diff != "" {
		t.Error("with jitter (-want +got):\n" + diff)
	}
}

func TestDecideStepsAFreshBackoffToTheAttempt(t *testing.T) {
	p := retryafter.Policy{
		MaxAttempts: -1, Jitter: retryafter.NoJitter,
		Backoff: func() backoff.BackOff {
			return backoff.WithMaxRetries(backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0)), 3)
		},
	}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second} {
		if d := p.Decide(retryafter.Attempt{Number: n, StatusCode: 503}, retryafter.Call{}); !d.Retry || d.Wait != want {
			t.Errorf("attempt %d: %+v, want a wait of %v", n, d, want)
		}
	}
	if d := p.Decide(retryafter.Attempt{Number: 4, StatusCode: 503}, retryafter.Call{}); d.Reason != retryafter.BackoffStopped {
		t.Errorf("attempt 4: %v, want BackoffStopped", d.Reason)
	}
	p.Backoff = func() backoff.BackOff { return nil }
	if d := p.Decide(retryafter.Attempt{Number: 1, StatusCode: 503}, retryafter.Call{}); d.Reason != retryafter.BackoffStopped {
		t.Errorf("a nil BackOff: %v, want BackoffStopped", d.Reason)
	}
}

func TestDefaultBackoffIsMonotoneAndBounded(t *testing.T) {
	p := retryafter.Policy{MaxAttempts: -1, Jitter: retryafter.NoJitter}
	last := time.Duration(0)
	for n := 1; n <= 1_000_000; n += 1 + n/3 {
		d := p.Decide(retryafter.Attempt{Number: n, StatusCode: 500}, retryafter.Call{})
		if d.Local < last || d.Local > 20*time.Second {
			t.Fatalf("attempt %d: %v after %v", n, d.Local, last)
		}
		last = d.Local
	}
	if last != 20*time.Second {
		t.Errorf("ends at %v, want 20s", last)
	}
}

func TestACustomRetryDecidesWhatIsWorthItButNotWhatIsSafe(t *testing.T) {
	asked := 0
	p := retryafter.Policy{Retry: func(a retryafter.Attempt) bool { asked++; return a.StatusCode == 403 }}
	get, _ := http.NewRequest("GET", "http://example.com", nil)
	post, _ := http.NewRequest("POST", "http://example.com", nil)
	for _, tc := range []struct {
		req    *http.Request
		status int
		want   retryafter.Reason
	}{{get, 403, 0}, {post, 403, retryafter.MethodNotIdempotent}, {get, 503, retryafter.Final}} {
		asked = 0
		d := p.Decide(retryafter.Attempt{Number: 1, Request: tc.req, StatusCode: tc.status, Received: noon}, retryafter.Call{})
		if d.Reason != tc.want || asked != 1 {
			t.Errorf("%s %d: %v after asking %d times, want %v after once", tc.req.Method, tc.status, d.Reason, asked, tc.want)
		}
	}
}

func TestAHintOfOnesOwnCountsBesideRetryAfter(t *testing.T) {
	odd := errors.New("odd")
	_, unread := retryafter.Parse("soon", noon)
	for _, tc := range []struct {
		name       string
		retryAfter string // "": no such field
		hint       time.Duration
		err        error // of the Hint
		want       time.Duration
		wantErr    error
	}{
		{"the later holds: the Hint", "5", 9 * time.Second, nil, 9 * time.Second, nil},
		{"the later holds: Retry-After", "9", 5 * time.Second, nil, 9 * time.Second, nil},
		{"alone", "", 9 * time.Second, nil, 9 * time.Second, nil},
		{"of nothing", "", 0, nil, 0, nil},
		{"of an instant gone by", "", -9 * time.Second, nil, 0, nil},
		{"beside what can't be read", "soon", 9 * time.Second, nil, 9 * time.Second, unread},
		{"a short one beside what can't be read", "soon", time.Millisecond, nil, time.Millisecond, unread},
		{"of an instant gone by, beside what can't be read", "soon", -9 * time.Second, nil, 0, unread},
		{"that can't be read itself, beside a delay", "5", 9 * time.Second, odd, 5 * time.Second, nil},
		{"that can't be read itself", "", 9 * time.Second, odd, 0, odd},
		{"that isn't there, beside what can't be read", "soon", 0, retryafter.ErrNoHint, 0, unread},
		{"that can't be read either", "soon", 9 * time.Second, odd, 0, unread},
		{"that isn't there", "", 9 * time.Second, retryafter.ErrNoHint, 0, retryafter.ErrNoHint},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header := http.Header{"X-Own": {"1"}}
			if tc.retryAfter != "" {
				header.Set("Retry-After", tc.retryAfter)
			}
			p := retryafter.Policy{Jitter: retryafter.NoJitter, Hint: func(h http.Header, received time.Time) (retryafter.Hint, error) {
				if h.Get("X-Own") != "1" || !received.Equal(noon) {
					t.Errorf("asked about %v at %v", h, received)
				}
				return retryafter.Hint{Delay: tc.hint, Form: retryafter.Seconds, Date: noon.Add(tc.hint)}, tc.err
			}}
			d := p.Decide(retryafter.Attempt{Number: 1, StatusCode: 503, Header: header, Received: noon}, retryafter.Call{})
			floor := 100 * time.Millisecond
			if tc.wantErr != nil && tc.want == 0 {
				floor = time.Second
			}
			if own := tc.err == nil && (tc.retryAfter == "" || tc.retryAfter == "soon" || tc.hint > 5*time.Second); own == d.Hint.Date.IsZero() {
				t.Errorf("the Hint is %+v", d.Hint)
			}
			if !d.Retry || d.Server != tc.want || !reflect.DeepEqual(d.HintErr, tc.wantErr) || d.Wait != max(tc.want, floor) {
				t.Errorf("%+v, want %v and %v", d, tc.want, tc.wantErr)
			}
		})
	}
	p := retryafter.Policy{Hint: func(http.Header, time.Time) (retryafter.Hint, error) {
		t.Error("asked without a response")
		return retryafter.Hint{}, nil
	}}
	if d := p.Decide(retryafter.Attempt{Number: 1, Err: io.EOF, Received: noon}, retryafter.Call{}); !d.Retry || d.HintErr != retryafter.ErrNoHint {
		t.Errorf("%+v", d)
	}
}

func TestNothingIsDecidedForACallerWhoLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com", nil)
	var p retryafter.Policy
	for _, tc := range []struct {
		a    retryafter.Attempt
		want retryafter.Reason
	}{
		{retryafter.Attempt{StatusCode: 503}, retryafter.Canceled},
		{retryafter.Attempt{Err: io.EOF}, retryafter.Canceled},
		{retryafter.Attempt{StatusCode: 200}, retryafter.Final},
	} {
		tc.a.Number, tc.a.Request = 1, req
		d := p.Decide(tc.a, retryafter.Call{})
		if d.Reason != tc.want || d.Retry {
			t.Errorf("%d %v: %v, want %v", tc.a.StatusCode, tc.a.Err, d.Reason, tc.want)
		}
		if bare := d == (retryafter.Decision{Reason: tc.want}); bare != (tc.a.StatusCode != 503) {
			t.Errorf("%d %v: %+v; only the 503 has parts of a wait", tc.a.StatusCode, tc.a.Err, d)
		}
	}
}

// A BackOff is asked until it stops, whatever it would say after that, and a
// delay of 0 is none of its stops.
func TestAFreshBackoffIsSteppedUntilItStops(t *testing.T) {
	for _, tc := range []struct {
		delays []time.Duration
		number int
		want   time.Duration // -1: it stopped
	}{
		{[]time.Duration{time.Second, backoff.Stop, 3 * time.Second}, 3, -1},
		{[]time.Duration{0, 0, 3 * time.Second}, 3, 3 * time.Second},
	} {
		asked := 0
		p := retryafter.Policy{MaxAttempts: -1, Jitter: retryafter.NoJitter, Backoff: func() backoff.BackOff {
			return delays(func() time.Duration { asked++; return tc.delays[asked-1] })
		}}
		d := p.Decide(retryafter.Attempt{Number: tc.number, StatusCode: 503}, retryafter.Call{})
		if stopped := d.Reason == retryafter.BackoffStopped; stopped != (tc.want < 0) || d.Local != max(tc.want, 0) {
			t.Errorf("%v, attempt %d: %+v", tc.delays, tc.number, d)
		}
	}
}

// delays is a BackOff by one function.
type delays func() time.Duration

func (delays) Reset()                       {}
func (d delays) NextBackOff() time.Duration { return d() }

func TestJitterIsToldWhoseDelayItIsFor(t *testing.T) {
	for _, tc := range []struct {
		server, local time.Duration
		want          bool
	}{
		{0, 0, false},
		{0, time.Second, false},
		{time.Second, 2 * time.Second, false},
		{2 * time.Second, 2 * time.Second, true},
		{2 * time.Second, time.Second, true},
		{time.Second, 0, true},
	} {
		p := retryafter.Policy{
			Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(tc.local) },
			Jitter: func(wait time.Duration, fromServer bool) time.Duration {
				if wait != max(tc.server, tc.local) || fromServer != tc.want {
					t.Errorf("%v from the server, %v from here: told of %v, from the server: %v", tc.server, tc.local, wait, fromServer)
				}
				return 0
			},
		}
		header := http.Header{"Retry-After": {fmt.Sprint(int(tc.server.Seconds()))}}
		p.Decide(retryafter.Attempt{Number: 1, StatusCode: 503, Header: header, Received: noon}, retryafter.Call{})
	}
}

// Of two that say the same, Retry-After is the one that is told.
func TestAHintOfOnesOwnThatSaysTheSameGivesWay(t *testing.T) {
	p := retryafter.Policy{Hint: func(http.Header, time.Time) (retryafter.Hint, error) {
		return retryafter.Hint{Delay: 5 * time.Second, Form: retryafter.IMFFixdate}, nil
	}}
	header := http.Header{"Retry-After": {"5"}}
	d := p.Decide(retryafter.Attempt{Number: 1, StatusCode: 503, Header: header, Received: noon}, retryafter.Call{})
	if want := (retryafter.Hint{Delay: 5 * time.Second, Form: retryafter.Seconds}); d.Hint != want {
		t.Errorf("%+v, want %+v", d.Hint, want)
	}
}

func TestUnknownErrorsAreFinalAndWrappedOnesAreKnown(t *testing.T) {
	for name, err := range failures {
		for _, wrapped := range []error{err, fmt.Errorf("proxy: %w", err), &url.Error{Op: "Get", URL: "http://example.com", Err: err}} {
			plain := retryafter.DefaultRetry(retryafter.Attempt{Number: 1, Err: err})
			if got := retryafter.DefaultRetry(retryafter.Attempt{Number: 1, Err: wrapped}); got != plain {
				t.Errorf("%s as %T: %v, plain: %v", name, wrapped, got, plain)
			}
		}
	}
	// A body reader's own error is not the connection's.
	if retryafter.DefaultRetry(retryafter.Attempt{Number: 1, Err: &os.PathError{Op: "read", Path: "x", Err: syscall.EISDIR}}) {
		t.Error("an unreadable file is retried")
	}
	if retryafter.DefaultRetry(retryafter.Attempt{Number: 1, Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}}) {
		t.Error("a forbidden connection is retried")
	}
}

func TestSpreadStaysWithinItsBounds(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for _, tc := range []struct {
		fraction          float64
		least, most, wait time.Duration
		upTo              time.Duration
	}{
		{0.25, time.Second, 30 * time.Second, 60 * time.Second, 15 * time.Second},
		{0.25, time.Second, 30 * time.Second, time.Second, time.Second},
		{0.25, time.Second, 30 * time.Second, time.Hour, 30 * time.Second},
		{1, 0, most, 100 * time.Millisecond, 100 * time.Millisecond},
		{1, 0, most, 0, 0},
		{0, 0, 0, time.Hour, 0},
		{1, 0, most, most, most},
		{1e300, 0, time.Second, most, time.Second},
		{math.MaxFloat64, 0, most, most, most},
	} {
		jitter := retryafter.Spread(tc.fraction, tc.least, tc.most)
		var lowest, highest = most, time.Duration(0)
		for range 2000 {
			x := jitter(tc.wait, true)
			if x < 0 || x > tc.upTo {
				t.Fatalf("%+v: %v", tc, x)
			}
			lowest, highest = min(lowest, x), max(highest, x)
		}
		// Each bound is missed by 2000 uniform draws with probability 0.95^2000.
		if lowest > tc.upTo/20 || highest < tc.upTo-tc.upTo/20 {
			t.Errorf("%+v: drew from %v to %v only", tc, lowest, highest)
		}
	}
}

func TestSpreadRefusesWhatMakesNoSense(t *testing.T) {
	for _, tc := range []struct {
		fraction    float64
		least, most time.Duration
		says        string
	}{
		{math.NaN(), 0, 1, "fraction NaN"},
		{-0.1, 0, 1, "fraction -0.1"},
		{math.Inf(1), 0, 1, "fraction +Inf"},
		{1, -1, 1, "least -1ns"},
		{1, 2, 1, "most 1ns is less than least 2ns"},
	} {
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, tc.says) {
					t.Errorf("Spread(%v, %v, %v): %s, want it to say %q", tc.fraction, tc.least, tc.most, r, tc.says)
				}
			}()
			retryafter.Spread(tc.fraction, tc.least, tc.most)
		}()
	}
}

func TestTheDefaultJitterSpreadsAHerd(t *testing.T) {
	var p retryafter.Policy
	worst := func() int {
		returns := map[time.Duration]int{}
		most := 0
		for range 1000 {
			d := p.Decide(retryafter.Attempt{Number: 1, StatusCode: 429, Header: http.Header{"Retry-After": {"60"}}, Received: noon}, retryafter.Call{})
			if d.Wait < time.Minute || d.Wait > 75*time.Second {
				t.Fatalf("a wait of %v", d.Wait)
			}
			slot := d.Wait / (100 * time.Millisecond)
			returns[slot]++
			most = max(most, returns[slot])
		}
		return most
	}
	// 1000 over 150 slots: 6.7 on average; 30 in one has a chance of about 1e-9.
	if n := worst(); n > 30 {
		t.Errorf("%d of 1000 came back in the same 100 ms", n)
	}
	p.Jitter = retryafter.NoJitter
	if n := worst(); n != 1000 {
		t.Errorf("without jitter %d came back together, want all", n)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("GET", 503, "120", 1, int64(time.Second), int64(time.Second), int64(time.Minute), int64(0))
	f.Add("POST", 429, "Tue, 08 Sep 2026 12:00:07 GMT", 2, int64(-1), int64(-5), int64(-1), int64(time.Hour))
	f.Add("PUT", 413, "9223372037", 3, int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, method string, status int, value string, number int, local, jitter, left, reserve int64) {
		number = number % 1000
		req := &http.Request{Method: method, Header: http.Header{}}
		p := retryafter.Policy{
			Reserve: time.Duration(reserve),
			Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Duration(local)) },
			Jitter:  func(time.Duration, bool) time.Duration { return time.Duration(jitter) },
		}
		a := retryafter.Attempt{Number: number, Request: req, StatusCode: status, Header: http.Header{"Retry-After": {value}}, Received: noon}
		c := retryafter.Call{Deadline: noon.Add(time.Duration(left))}
		d := p.Decide(a, c)
		if d.Retry != (d.Reason == 0) {
			t.Fatalf("retry %v with reason %v", d.Retry, d.Reason)
		}
		if d.Reason == retryafter.Final {
			return
		}
		hint, err := retryafter.FromHeader(a.Header, noon)
		if err == nil && d.Server != hint.Delay || err != nil && d.Server != 0 {
			t.Fatalf("server %v for %v, %v", d.Server, hint, err)
		}
		if d.Wait < d.Server || d.Wait < time.Duration(local) || d.Jitter < 0 {
			t.Fatalf("early: %+v with local %v", d, local)
		}
		if d.Retry && (d.Wait >= time.Duration(left) || !retryafter.Replayable(req) || number >= 3 || max(d.Server, d.Local) > 2*time.Minute) {
			t.Fatalf("retried: %+v", d)
		}
	})
}

// A limiter that refuses is asked in time: what it needs may end with the wait,
// not later.
func TestALimiterThatDeniesMustBeReadyWhenTheWaitIsOver(t *testing.T) {
	p := retryafter.Policy{Jitter: retryafter.NoJitter}
	header := http.Header{"Retry-After": {"5"}}
	for _, tc := range []struct {
		needs time.Duration
		deny  bool
		want  retryafter.Reason
	}{
		{5 * time.Second, true, 0},
		{5*time.Second + 1, true, retryafter.Limited},
		{5*time.Second + 1, false, 0},
	} {
		d := p.Decide(retryafter.Attempt{Number: 1, StatusCode: 503, Header: header, Received: noon}, retryafter.Call{
			Limiter: func(time.Time) time.Duration { return tc.needs }, Denies: tc.deny,
		})
		if d.Reason != tc.want || d.Wait != 5*time.Second || d.Limiter != tc.needs {
			t.Errorf("%v, denies: %v: %+v, want %v", tc.needs, tc.deny, d, tc.want)
		}
	}
}

func TestWhatMayBeSentAgain(t *testing.T) {
	opaque := io.NopCloser(strings.NewReader("x"))
	again := func() (io.ReadCloser, error) { return opaque, nil }
	for _, tc := range []struct {
		req  http.Request
		want bool
	}{
		{http.Request{Method: "GET"}, true},
		{http.Request{Method: "POST"}, false},
		{http.Request{Method: "PUT", Body: opaque}, false},
		{http.Request{Method: "PUT", Body: opaque, GetBody: again}, true},
		{http.Request{Method: "POST", Body: opaque, GetBody: again}, false},
		{http.Request{Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}}, Body: opaque, GetBody: again}, true},
		{http.Request{Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}}, Body: opaque}, false},
	} {
		if got := retryafter.Replayable(&tc.req); got != tc.want {
			t.Errorf("%s, body: %v, GetBody: %v: %v", tc.req.Method, tc.req.Body != nil, tc.req.GetBody != nil, got)
		}
	}
}

func TestOfSeveralErrorsInOneTheFinalOneCounts(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	left, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com", nil)
	for name, tc := range map[string]struct {
		a    retryafter.Attempt
		want bool
	}{
		"a cancel beside a lost connection":     {retryafter.Attempt{Err: errors.Join(io.EOF, context.Canceled)}, false},
		"a certificate that could not be read":  {retryafter.Attempt{Err: &tls.CertificateVerificationError{Err: io.ErrUnexpectedEOF}}, false},
		"a host that does not exist for now":    {retryafter.Attempt{Err: &net.DNSError{IsNotFound: true, IsTemporary: true}}, false},
		"a lookup that failed":                  {retryafter.Attempt{Err: &net.DNSError{}}, false},
		"a lookup that took too long":           {retryafter.Attempt{Err: &net.DNSError{IsTimeout: true}}, true},
		"what only ends as a refused stream":    {retryafter.Attempt{Err: errors.New("oops; REFUSED_STREAM")}, false},
		"a lost connection":                     {retryafter.Attempt{Err: io.EOF}, true},
		"that, of a caller who left":            {retryafter.Attempt{Err: io.EOF, Request: left}, false},
		"a conflict of a request nobody shows":  {retryafter.Attempt{StatusCode: 409}, false},
		"a conflict with another's request":     {retryafter.Attempt{StatusCode: 409, Request: &http.Request{}}, false},
		"a conflict with what was sent already": {retryafter.Attempt{StatusCode: 409, Request: &http.Request{Header: http.Header{"X-Idempotency-Key": {"k"}}}}, true},
	} {
		if got := retryafter.DefaultRetry(tc.a); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheDefaultJitterOfALocalWaitIsAtMostThat(t *testing.T) {
	most := time.Duration(0)
	for range 1000 {
		d := retryafter.Policy{}.Decide(retryafter.Attempt{Number: 1, StatusCode: 500}, retryafter.Call{})
		if d.Jitter > d.Local {
			t.Fatalf("a jitter of %v on %v", d.Jitter, d.Local)
		}
		most = max(most, d.Jitter)
	}
	if most < 50*time.Millisecond {
		t.Errorf("of 1000 draws up to 100ms the largest is %v", most)
	}
}
