package retryafter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/retryafter-go/retryafter"
)

// busyServer refuses the first so many requests with the given Retry-After.
func busyServer(refusals int, retryAfter string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusals--; refusals >= 0 {
			w.Header().Set("Retry-After", retryAfter)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "hello")
	}))
}

// Wrap a client's transport, and its Timeout is the deadline of all attempts
// and waits of a call.
func Example() {
	server := busyServer(1, "1")
	defer server.Close()

	client := &http.Client{Transport: &retryafter.Transport{}, Timeout: time.Minute}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", retryafter.ReportOf(resp).Attempts, "attempts")
	// Output: 200 OK after 2 attempts
}

// A call that can't wait as long as the server asks ends at once, with the
// server's own response and the reason.
func Example_deadlineAndCap() {
	server := busyServer(9, "30")
	defer server.Close()
	client := &http.Client{Transport: &retryafter.Transport{}}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = retryafter.WithMaxAttempts(ctx, 2)
	req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()

	report := retryafter.ReportOf(resp)
	fmt.Println(resp.Status)
	fmt.Println(report.Stop, "- the server asked for", report.Decision.Server)
	// Output:
	// 503 Service Unavailable
	// DeadlineTooNear - the server asked for 30s
}

// A POST is repeated only where its request says that this is safe. The key
// is the same in every attempt, so that the server can tell them for one.
func Example_idempotencyKey() {
	server := busyServer(2, "0")
	defer server.Close()
	client := &http.Client{Transport: &retryafter.Transport{}, Timeout: time.Minute}

	for _, key := range []string{"", "order-4711"} {
		req, _ := http.NewRequest("POST", server.URL, strings.NewReader(`{"item": 1}`))
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		report := retryafter.ReportOf(resp)
		fmt.Println(resp.StatusCode, report.Attempts, report.Stop)
	}
	// Output:
	// 503 1 MethodNotIdempotent
	// 200 2 Final
}

// A Bucket holds all calls of a client to a budget: at most ten at once, and
// five a second. Every attempt pays, so retries can't exceed it either.
func Example_bucket() {
	server := busyServer(0, "")
	defer server.Close()

	client := &http.Client{Transport: &retryafter.Transport{
		Limiter: &retryafter.Bucket{Capacity: 10, Rate: retryafter.PerSecond(5)},
	}}
	// This upload counts as three.
	ctx := retryafter.WithCost(context.Background(), 3)
	req, _ := http.NewRequestWithContext(ctx, "PUT", server.URL, strings.NewReader("data"))
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

// Deny drops work instead of waiting for its turn, and says when there would
// have been one.
func ExampleDeny() {
	bucket := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Hour)}
	client := &http.Client{Transport: &retryafter.Transport{Limiter: retryafter.Deny(bucket)}}
	bucket.Allow() // somebody else took the last token

	_, err := client.Get("http://localhost/")
	if limit, ok := errors.AsType[*retryafter.LimitError](err); ok {
		fmt.Println("not sent; try again in", limit.Delay.Round(time.Minute))
	}
	// Output: not sent; try again in 1h0m0s
}

// Hooks tell what happens while it happens; a Report is a slog.LogValuer.
func Example_slog() {
	server := busyServer(1, "1")
	defer server.Close()

	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // for the sake of the output below
			}
			return a
		},
	}))
	client := &http.Client{Transport: &retryafter.Transport{
		Policy: retryafter.Policy{Jitter: retryafter.NoJitter},
		Trace: &retryafter.Trace{
			Waiting: func(w retryafter.WaitInfo) {
				log.Info("waiting", "host", w.Request.URL.Hostname(), "status", w.StatusCode, "wait", w.Wait)
			},
			Done: func(req *http.Request, r retryafter.Report) {
				log.Info("done", "call", r)
			},
		},
	}}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	// Output:
	// level=INFO msg=waiting host=127.0.0.1 status=503 wait=1s
	// level=INFO msg=done call.attempts=2 call.waited=1s call.stop=Final
}

// Some servers answer a poll with 200 or 202 and say by Retry-After when to
// ask again. That is not a retry, so a Transport leaves it to the caller.
func ExampleFromHeader() {
	polls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if polls++; polls < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer server.Close()

	for {
		resp, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			fmt.Println("ready after", polls, "polls")
			return
		}
		pause := 10 * time.Millisecond // what the poller would wait by itself
		if hint, err := retryafter.FromHeader(resp.Header, time.Now()); err == nil {
			pause = max(pause, hint.Delay)
		}
		time.Sleep(pause)
	}
	// Output: ready after 3 polls
}

// All three forms of a date are read, as is what exceeds a Duration.
func ExampleParse() {
	received := time.Date(2026, time.September, 8, 12, 0, 0, 0, time.UTC)
	for _, value := range []string{
		"120",
		"Tue, 08 Sep 2026 12:02:00 GMT",
		"Tuesday, 08-Sep-26 12:02:00 GMT",
		"Tue Sep  8 12:02:00 2026",
		"99999999999999999999",
		"1.5",
	} {
		hint, err := retryafter.Parse(value, received)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(hint.Delay, hint.Form)
	}
	// Output:
	// 2m0s delay-seconds
	// 2m0s IMF-fixdate
	// 2m0s rfc850-date
	// 2m0s asctime-date
	// 2562047h47m16.854775807s delay-seconds
	// retryafter: Retry-After "1.5": trailing text at byte 1
}

// Any BackOff of github.com/cenkalti/backoff/v4 serves as the local backoff,
// which holds where the server asks for less.
func ExamplePolicy_backoff() {
	client := &http.Client{Transport: &retryafter.Transport{
		Policy: retryafter.Policy{
			MaxAttempts: 5,
			MaxWait:     30 * time.Second,
			Backoff: func() backoff.BackOff {
				return backoff.NewExponentialBackOff(
					backoff.WithInitialInterval(200*time.Millisecond),
					backoff.WithRandomizationFactor(0), // the jitter is the Policy's
					backoff.WithMaxElapsedTime(0))      // and so is the end
			},
		},
	}}
	_ = client
}

// Policy.Decide is the whole of the reasoning, without a clock or a network.
func ExamplePolicy_Decide() {
	policy := retryafter.Policy{Jitter: retryafter.NoJitter}
	req, _ := http.NewRequest("GET", "https://example.com/", nil)
	now := time.Now()
	for _, value := range []string{"30", "3600"} {
		decision := policy.Decide(retryafter.Attempt{
			Number: 1, Request: req, Received: now,
			StatusCode: http.StatusTooManyRequests,
			Header:     http.Header{"Retry-After": {value}},
		}, retryafter.Call{Deadline: now.Add(time.Minute)})
		fmt.Println(decision.Retry, decision.Wait, decision.Reason)
	}
	// Output:
	// true 30s none
	// false 1h0m0s WaitTooLong
}

// A test of one's own client against a loopback server: short waits come from
// the Policy, for the server's are whole seconds.
func Example_loopback() {
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if attempts++; attempts < 3 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer server.Close()

	client := server.Client()
	client.Transport = &retryafter.Transport{
		Base: client.Transport,
		Policy: retryafter.Policy{
			Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) },
			Jitter:  retryafter.NoJitter,
		},
	}
	req, _ := http.NewRequest("PUT", server.URL, strings.NewReader("data"))
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, attempts, retryafter.ReportOf(resp).Stop)
	// Output: 200 3 Final
}

// A Keyed has a bucket for each of many tenants; the context says whose it is.
func ExampleKeyed() {
	server := busyServer(0, "")
	defer server.Close()
	client := &http.Client{Transport: &retryafter.Transport{
		Limiter: retryafter.Deny(&retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1)}),
	}}
	for _, tenant := range []string{"north", "south", "north"} {
		ctx := retryafter.WithKey(context.Background(), retryafter.NewKey("tenant", tenant))
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		resp, err := client.Do(req)
		if e, ok := errors.AsType[*retryafter.Error](err); ok {
			fmt.Println(tenant, e.Report.Stop)
			continue
		}
		fmt.Println(tenant, resp.Status)
		resp.Body.Close()
	}
	// Output:
	// north 200 OK
	// south 200 OK
	// north Limited
}

// What one call is told holds the others: they don't even ask.
func ExampleGate() {
	server := busyServer(9, "3600")
	defer server.Close()
	client := &http.Client{Transport: &retryafter.Transport{Gate: &retryafter.Gate{}}}

	resp, err := client.Post(server.URL, "text/plain", strings.NewReader("data"))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, retryafter.ReportOf(resp).Stop)

	_, err = client.Get(server.URL)
	if e, ok := errors.AsType[*retryafter.Error](err); ok {
		fmt.Println("not sent:", e.Report.Stop)
	}
	// Output:
	// 503 MethodNotIdempotent
	// not sent: WaitTooLong
}

// roundTripper plays the server without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// In an outage a budget keeps retries from adding much to the load.
func ExampleRetryBudget() {
	attempts := 0
	client := &http.Client{Transport: &retryafter.Transport{
		Budget: &retryafter.RetryBudget{Retries: 5},
		Policy: retryafter.Policy{
			Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) },
			Jitter:  retryafter.NoJitter,
		},
		Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			attempts++
			return &http.Response{StatusCode: http.StatusBadGateway, Body: http.NoBody, Request: req}, nil
		}),
	}}
	for range 100 {
		resp, err := client.Get("http://example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	fmt.Println(attempts, "attempts for 100 calls")
	// Output: 105 attempts for 100 calls
}

// Some servers refuse with 403 and say when to come back. Only a Retry function
// of one's own takes that for something to repeat.
func ExamplePolicy_retry() {
	policy := retryafter.Policy{
		Jitter: retryafter.NoJitter,
		Retry: func(a retryafter.Attempt) bool {
			if a.StatusCode == http.StatusForbidden {
				_, err := retryafter.FromHeader(a.Header, a.Received)
				return err == nil
			}
			return retryafter.DefaultRetry(a)
		},
	}
	for _, header := range []http.Header{{"Retry-After": {"60"}}, {}} {
		d := policy.Decide(retryafter.Attempt{Number: 1, StatusCode: 403, Header: header, Received: time.Now()}, retryafter.Call{})
		fmt.Println(d.Retry, d.Wait, d.Reason)
	}
	// Output:
	// true 1m0s none
	// false 0s Final
}

// A call that ends without a response ends in an *Error, which tells what was
// done.
func ExampleError() {
	client := &http.Client{Transport: &retryafter.Transport{
		Policy: retryafter.Policy{
			Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) },
			Jitter:  retryafter.NoJitter,
		},
		Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }),
	}}
	_, err := client.Get("http://example.com/")
	fmt.Println(err)
	if e, ok := errors.AsType[*retryafter.Error](err); ok {
		fmt.Println(e.Report.Attempts, e.Report.Waited, e.Report.Stop, errors.Is(err, io.ErrUnexpectedEOF))
	}
	// Output:
	// Get "http://example.com/": retryafter: AttemptsUsed after 3 attempts: unexpected EOF
	// 3 2ms AttemptsUsed true
}

// A file is sent again where GetBody can open it again; http.NewRequest sets it
// for a bytes.Buffer, a bytes.Reader and a strings.Reader only.
func Example_upload() {
	server := busyServer(1, "0")
	defer server.Close()
	client := &http.Client{Transport: &retryafter.Transport{}}

	open := func() (io.ReadCloser, error) { return os.Open("testdata/upload.txt") }
	body, err := open()
	if err != nil {
		fmt.Println(err)
		return
	}
	req, _ := http.NewRequest("PUT", server.URL, body)
	req.GetBody = open
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, retryafter.ReportOf(resp).Attempts)
	// Output: 200 2
}
