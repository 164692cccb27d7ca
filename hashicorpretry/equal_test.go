package hashicorpretry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/fixtures"
	"github.com/retryafter-go/retryafter/hashicorpretry"
)

// failures are what RoundTrippers return, by the names of the fixtures.
var failures = map[string]error{
	"refused":        &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
	"unreachable":    &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)},
	"no-network":     &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)},
	"reset":          &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
	"eof":            io.EOF,
	"unexpected-eof": io.ErrUnexpectedEOF,
	"timeout":        retryafter.ErrAttemptTimeout,
	"dns-temporary":  &net.DNSError{Err: "server misbehaving", Name: "example.com", IsTemporary: true},
	"dns-not-found":  &net.DNSError{Err: "no such host", Name: "example.invalid", IsNotFound: true},
	"goaway":         errors.New("http2: server sent GOAWAY and closed the connection"),
	"refused-stream": errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer"),
	"closed-idle":    errors.New("http: server closed idle connection"),
	"canceled":       context.Canceled,
	"x509":           &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
	"scheme":         errors.New(`unsupported protocol scheme "ftp"`),
	"unknown":        errors.New("malformed HTTP response"),
}

// A reply is what a scripted server answers.
type reply struct {
	status int
	header http.Header
	err    error
	takes  time.Duration
}

// A script is a RoundTripper that gives one reply after the other, the last
// again and again, and keeps account.
type script struct {
	replies  []reply
	begin    time.Time
	attempts []attempt
	bodies   []*body
}

type attempt struct {
	At     time.Duration // since the call began
	Number int           // by AttemptNumber
	Method string
	URL    string
	Body   string
}

type body struct {
	io.Reader
	read   int
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *body) Close() error { b.closed = true; return nil }

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attempt{
		At: time.Since(s.begin), Number: retryafter.AttemptNumber(req.Context()), Method: req.Method, URL: req.URL.String(),
	}
	if req.Body != nil {
		sent, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body.Close()
		a.Body = string(sent)
	}
	s.attempts = append(s.attempts, a)
	r := s.replies[min(len(s.attempts), len(s.replies))-1]
	if r.takes > 0 {
		select {
		case <-time.After(r.takes):
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	b := &body{Reader: strings.NewReader(fmt.Sprint("body of reply ", len(s.attempts)))}
	s.bodies = append(s.bodies, b)
	return &http.Response{
		StatusCode: r.status, Status: fmt.Sprint(r.status), Header: r.header.Clone(), Body: b, ContentLength: -1, Request: req,
	}, nil
}

// An outcome is all that a caller and its server see of a call.
type outcome struct {
	Attempts []attempt
	Ended    time.Duration // since the call began
	Status   int
	Body     string
	Unread   bool // when the call returned
	Others   bool // all other responses' bodies were closed
	Stop     retryafter.Reason
	Report   string
	Decision string
	Error    string
	Typed    bool
}

// A scenario is a call, made anew for each way of making it.
type scenario struct {
	policy  func() retryafter.Policy
	request func(context.Context) *http.Request
	replies func() []reply
	begin   time.Time     // on the bubble's clock; zero: as it is
	left    time.Duration // until the deadline; 0: none
	cancel  time.Duration // when the caller cancels; 0: never
	cap     int           // WithMaxAttempts; 0: none
}

type sender func(t *testing.T, tr *retryafter.Transport, req *http.Request) (*http.Response, error)

// senders are the ways to make a call that must not differ.
var senders = map[string]sender{
	"Transport": func(t *testing.T, tr *retryafter.Transport, req *http.Request) (*http.Response, error) {
		return (&http.Client{Transport: tr}).Do(req)
	},
	"Do": func(t *testing.T, tr *retryafter.Transport, req *http.Request) (*http.Response, error) {
		wrapped, err := retryablehttp.FromRequest(req)
		if err != nil {
			t.Fatal(err)
		}
		return quiet(tr).Do(wrapped)
	},
	"StandardClient": func(t *testing.T, tr *retryafter.Transport, req *http.Request) (*http.Response, error) {
		return quiet(tr).StandardClient().Do(req)
	},
}

// quiet is a client with all its defaults but the Logger, whose base is that of
// tr.
func quiet(tr *retryafter.Transport) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient.Transport = tr.Base
	above := *tr
	above.Base = nil
	hashicorpretry.Use(c, &above)
	return c
}

func (sc scenario) play(t *testing.T, send sender) (out outcome) {
	synctest.Test(t, func(t *testing.T) {
		if !sc.begin.IsZero() {
			time.Sleep(time.Until(sc.begin))
		}
		s := &script{replies: sc.replies(), begin: time.Now()}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		if sc.left != 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, sc.left)
			defer stop()
		}
		if sc.cancel > 0 {
			time.AfterFunc(sc.cancel, func() { cancel(errors.New("the caller is gone")) })
		}
		if sc.cap > 0 {
			ctx = retryafter.WithMaxAttempts(ctx, sc.cap)
		}
		resp, err := send(t, &retryafter.Transport{Base: s, Policy: sc.policy()}, sc.request(ctx))
		out.Ended = time.Since(s.begin)
		out.Attempts = s.attempts
		if err != nil {
			resp = nil // it is closed, where http.Client would not follow a redirect
		}
		report := retryafter.ReportOf(resp)
		if err != nil {
			out.Error = cause(err).Error()
			if e, ok := errors.AsType[*retryafter.Error](err); ok {
				report, out.Typed = e.Report, true
			}
		}
		last := len(s.bodies)
		if resp != nil {
			last--
			b := s.bodies[last]
			out.Unread = b.read == 0 && !b.closed
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			resp.Body.Close()
			if !b.closed {
				t.Error("closing the response's body does not close the base's")
			}
			out.Status, out.Body = resp.StatusCode, string(text)
		}
		out.Others = true
		for _, b := range s.bodies[:last] {
			out.Others = out.Others && b.closed
		}
		out.Stop, out.Report, out.Decision = report.Stop, report.String(), fmt.Sprintf("%+v", report.Decision)
	})
	return out
}

// cause is err without the URL: StandardClient's is the first, where redirects
// were followed.
func cause(err error) error {
	if u, ok := err.(*url.Error); ok {
		return u.Err
	}
	return err
}

// same plays sc in all ways, and returns what is the same.
func (sc scenario) same(t *testing.T) outcome {
	t.Helper()
	want := sc.play(t, senders["Transport"])
	for name, send := range senders {
		if diff := cmp.Diff(want, sc.play(t, send)); diff != "" {
			t.Errorf("%s differs from Transport (-Transport +%s):\n%s", name, name, diff)
		}
	}
	return want
}

// steps is a backoff that gives 0 n times, and d from then on.
type steps struct {
	n int
	d time.Duration
}

func (s *steps) NextBackOff() time.Duration {
	if s.n--; s.n >= 0 {
		return 0
	}
	return s.d
}

func (s *steps) Reset() {}

// TestDecidesLikeTransportOnTheFixtures plays each row as a whole call: so many
// attempts that fail at once, and then the row's.
func TestDecidesLikeTransportOnTheFixtures(t *testing.T) {
	noon := time.Date(2026, time.September, 8, 12, 0, 0, 0, time.UTC)
	played := 0
	for _, row := range fixtures.Decisions() {
		switch {
		case row.Limiter > 0:
			continue // not a row about a Policy alone
		case row.Attempt > 1 && (row.DefaultBackoff || row.Key == "" && row.Method == "POST" || row.Body == "opaque"):
			continue // there are no attempts before the row's
		case row.Left != nil && *row.Left <= 0:
			continue // no server answers after the deadline
		case row.MaxElapsed > 0 && row.Elapsed >= row.MaxElapsed && row.Attempt > 1:
			continue // the attempts before end the call
		case row.Retry && row.Wait > 1000*time.Hour:
			continue // no clock goes that far
		}
		played++
		t.Run(row.ID, func(t *testing.T) {
			left := time.Duration(0)
			if row.Left != nil {
				left = row.Elapsed + *row.Left
			}
			sc := scenario{
				policy: func() retryafter.Policy {
					jitters := &steps{row.Attempt - 1, row.Jitter}
					p := retryafter.Policy{
						MaxAttempts: row.MaxAttempts, MaxWait: row.MaxWait, MaxElapsed: row.MaxElapsed, Reserve: row.Reserve,
						Jitter: func(time.Duration, bool) time.Duration { return jitters.NextBackOff() },
					}
					if !row.DefaultBackoff {
						p.Backoff = func() backoff.BackOff { return &steps{row.Attempt - 1, row.Backoff} }
					}
					return p
				},
				request: func(ctx context.Context) *http.Request { return row.Request().WithContext(ctx) },
				replies: func() []reply {
					replies := make([]reply, 0, row.Attempt+1)
					for range row.Attempt - 1 {
						replies = append(replies, reply{status: 503})
					}
					its := reply{status: row.Status, takes: row.Elapsed, header: http.Header{}, err: failures[row.Error]}
					for name, value := range map[string]string{"Retry-After": row.RetryAfter, "Date": row.Date, "Age": row.Age} {
						if value != "" {
							its.header.Set(name, value)
						}
					}
					if row.Error != "" && its.err == nil {
						t.Fatalf("no such failure: %q", row.Error)
					}
					return append(replies, its, reply{status: 200})
				},
				begin: noon.Add(-row.Elapsed),
				left:  left,
				cap:   row.Cap,
			}
			got := sc.same(t)
			if row.Retry {
				last := got.Attempts[len(got.Attempts)-1].At
				if len(got.Attempts) != row.Attempt+1 || last != row.Elapsed+row.Wait {
					t.Errorf("%d attempts, the last after %v; want one more than %d, after %v", len(got.Attempts), last, row.Attempt, row.Elapsed+row.Wait)
				}
				return
			}
			stop := got.Stop.String()
			if got.Error != "" && !got.Typed {
				stop = "Final" // the base's own error
			}
			if len(got.Attempts) != row.Attempt || stop != row.Reason {
				t.Errorf("%d attempts, %s; want %d, %s", len(got.Attempts), stop, row.Attempt, row.Reason)
			}
		})
	}
	if played < 100 {
		t.Errorf("only %d rows were played", played)
	}
}

// TestCallsLikeTransport crosses what calls are made of.
func TestCallsLikeTransport(t *testing.T) {
	requests := map[string]func(context.Context) *http.Request{
		"GET":          request("GET", "", nil),
		"PUT":          request("PUT", "text", nil),
		"PUT opaque":   request("PUT", "opaque", nil),
		"POST":         request("POST", "text", nil),
		"POST keyed":   request("POST", "text", http.Header{"Idempotency-Key": {"k"}}),
		"POST waived":  request("POST", "text", http.Header{"Idempotency-Key": {}}),
		"PATCH opaque": request("PATCH", "opaque", http.Header{"Idempotency-Key": {"k"}}),
	}
	answers := map[string][]reply{
		"final":                   {{status: 404}},
		"seconds":                 {{status: 429, header: told("7")}, {status: 200}},
		"date":                    {{status: 503, header: told("Sat, 01 Jan 2000 00:00:09 GMT")}, {status: 200}},
		"obsolete date":           {{status: 503, header: told("Saturday, 01-Jan-00 00:00:09 GMT")}, {status: 200}},
		"several":                 {{status: 503, header: told("2", "11", "junk")}, {status: 200}},
		"unreadable":              {{status: 503, header: told("1.5")}, {status: 200}},
		"zero":                    {{status: 503, header: told("0")}, {status: 200}},
		"too long":                {{status: 503, header: told("3600")}},
		"beyond any clock":        {{status: 503, header: told("99999999999999999999")}},
		"slow server":             {{status: 503, header: told("5"), takes: 4 * time.Second}, {status: 200, takes: time.Second}},
		"never well":              {{status: 500}},
		"refused after":           {{status: 503, header: told("1")}, {status: 503, header: told("600")}},
		"broken":                  {{err: io.EOF}, {err: failures["reset"]}, {status: 200}},
		"broken for good":         {{err: failures["refused"]}},
		"not to be cured":         {{err: failures["x509"]}},
		"told, then broken":       {{status: 503, header: told("3")}, {err: failures["unknown"]}},
		"redirect":                {{status: 303, header: http.Header{"Location": {"/there"}}}, {status: 503, header: told("2")}, {status: 200}},
		"redirect told":           {{status: 307, header: http.Header{"Location": {"/there"}, "Retry-After": {"6"}}}, {status: 200}},
		"redirect told too late":  {{status: 301, header: http.Header{"Location": {"/there"}, "Retry-After": {"3600"}}}, {status: 200}},
		"told, then redirected":   {{status: 429, header: told("2")}, {status: 308, header: http.Header{"Location": {"/there"}}}, {status: 200}},
		"redirect without an end": {{status: 302, header: http.Header{"Location": {"/again"}}}},
		"conflict":                {{status: 409}, {status: 200}},
		"too large for now":       {{status: 413, header: told("2")}, {status: 200}},
	}
	type bounds struct {
		attempts, cap        int
		left, cancel, budget time.Duration
	}
	limits := map[string]bounds{
		"":                       {},
		"no cap":                 {attempts: -1, left: 40 * time.Second},
		"one attempt":            {attempts: 1},
		"one attempt by context": {cap: 1},
		"deadline":               {left: 5 * time.Second},
		"deadline on the wait":   {left: 7 * time.Second},
		"elapsed":                {budget: 6 * time.Second},
		"canceled in the wait":   {cancel: 1500 * time.Millisecond},
	}
	log.SetOutput(io.Discard) // net/http has something to say of a redirect that was not followed
	defer log.SetOutput(os.Stderr)
	stops := map[retryafter.Reason]int{}
	for requestName, newRequest := range requests {
		for answer, replies := range answers {
			for limit, b := range limits {
				t.Run(requestName+"/"+answer+"/"+limit, func(t *testing.T) {
					out := scenario{
						policy: func() retryafter.Policy {
							return retryafter.Policy{
								MaxAttempts: b.attempts, MaxElapsed: b.budget,
								Backoff: func() backoff.BackOff {
									return backoff.NewExponentialBackOff(backoff.WithRandomizationFactor(0), backoff.WithInitialInterval(time.Second))
								},
								Jitter: func(wait time.Duration, server bool) time.Duration { return wait / 8 },
							}
						},
						request: newRequest,
						replies: func() []reply { return replies },
						left:    b.left, cancel: b.cancel, cap: b.cap,
					}.same(t)
					stops[out.Stop]++
				})
			}
		}
	}
	for _, why := range []retryafter.Reason{
		retryafter.Final, retryafter.MethodNotIdempotent, retryafter.BodyNotReplayable, retryafter.AttemptsUsed,
		retryafter.WaitTooLong, retryafter.DeadlineTooNear, retryafter.ElapsedTooLong, retryafter.Canceled,
	} {
		if stops[why] == 0 {
			t.Errorf("no call ended with %v", why)
		}
	}
}

func told(values ...string) http.Header { return http.Header{"Retry-After": values} }

// request makes requests whose body is text, or can't be had twice if opaque.
func request(method, text string, h http.Header) func(context.Context) *http.Request {
	return func(ctx context.Context) *http.Request {
		var b io.Reader
		if text != "" {
			b = strings.NewReader(text)
		}
		req, err := http.NewRequestWithContext(ctx, method, "http://example.com/here?q=1", b)
		if err != nil {
			panic(err)
		}
		if text == "opaque" {
			req.GetBody = nil
		}
		for name, values := range h {
			req.Header[name] = values
		}
		return req
	}
}
