package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/fixtures"
	"github.com/retryafter-go/retryafter/internal/faulty"
)

// refusals is a server in memory that answers each request but the last with
// 503 and the given lines, and notes when requests arrive.
func refusals(at *[]time.Time, last int, lines string) *http.Transport {
	open := make(chan struct{})
	close(open)
	return wire(nil, func(n int, c net.Conn) {
		requests(c, open, func(int) bool {
			if *at = append(*at, time.Now()); len(*at) < last {
				io.WriteString(c, "HTTP/1.1 503 Busy\r\n"+lines+"Connection: close\r\nContent-Length: 4\r\n\r\nbusy")
				return false
			}
			return true
		})
	})
}

// Every vector is written to the wire as it stands, at its own instant.
func TestEveryVectorIsKeptAcrossTheWire(t *testing.T) {
	kept, refused := 0, 0
	for _, v := range fixtures.HeaderValues() {
		var lines strings.Builder
		for name, values := range map[string][]string{"Retry-After": v.Lines, "Date": v.Date, "Age": v.Age} {
			for _, value := range values {
				fmt.Fprintf(&lines, "%s: %s\r\n", name, value)
			}
		}
		if strings.ContainsAny(strings.Join(v.Lines, ""), "\x00\r\n\v\f\x7f") {
			continue // no field value (RFC 9110, section 5.5)
		}
		t.Run(v.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if ahead := time.Until(v.Received); ahead < 0 {
					t.Skip("a bubble's clock begins later")
				} else {
					time.Sleep(ahead)
				}
				var at []time.Time
				base := refusals(&at, 2, lines.String())
				tr := &retryafter.Transport{Base: base, Policy: retryafter.Policy{Backoff: fast, Jitter: retryafter.NoJitter}}
				resp, err := tr.RoundTrip(repeat{method: "GET"}.request("http://server.test/"))
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(v.Received)
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				report := retryafter.ReportOf(resp)
				switch {
				case v.Delay > 2*time.Minute:
					refused++
					if len(at) != 1 || took != 0 || string(body) != "busy" || err != nil || report.Stop != retryafter.WaitTooLong || report.Decision.Server != v.Delay {
						t.Errorf("%d arrived, after %v: %q, %v, %v", len(at), took, body, err, report)
					}
				default:
					kept++
					if want := max(v.Delay, time.Millisecond); len(at) != 2 || at[1].Sub(v.Received) != want {
						t.Errorf("arrived at %v, told at %v to wait for %v", at, v.Received, v.Delay)
					}
				}
				synctest.Wait()
				base.CloseIdleConnections()
			})
		})
	}
	if kept < 100 || refused < 20 {
		t.Errorf("%d vectors were kept and %d refused", kept, refused)
	}
}

func TestAHeaderOfAMegabyteCostsLittle(t *testing.T) {
	const mega = 1 << 20
	for name, tc := range map[string]struct {
		lines string
		wait  time.Duration
		bad   bool
	}{
		"digits":            {"Retry-After: " + strings.Repeat("9", mega) + "\r\n", math.MaxInt64, false},
		"zeros before 7":    {"Retry-After: " + strings.Repeat("0", mega) + "7\r\n", 7 * time.Second, false},
		"not a number":      {"Retry-After: " + strings.Repeat("x", mega) + "\r\n", 0, true},
		"commas":            {"Retry-After: 7" + strings.Repeat(",", mega) + "\r\n", 7 * time.Second, false},
		"10000 lines":       {strings.Repeat("Retry-After: 7\r\n", 10_000), 7 * time.Second, false},
		"10000 unreadable":  {strings.Repeat("Retry-After: x\r\n", 10_000) + "Retry-After: 7\r\n", 7 * time.Second, false},
		"10000 other dates": {strings.Repeat("Date: Tue, 08 Sep 2026 12:00:00 GMT\r\n", 10_000) + "Retry-After: 7\r\n", 7 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				base := refusals(&at, 2, tc.lines)
				var log bytes.Buffer
				logger := slog.New(slog.NewJSONHandler(&log, nil))
				var header http.Header
				tr := &retryafter.Transport{Base: base, Policy: retryafter.Policy{Backoff: fast, Jitter: retryafter.NoJitter}, Trace: &retryafter.Trace{
					AttemptDone: func(a retryafter.Attempt) {
						if a.Number == 1 {
							header = a.Header
						}
						logger.Info("", "a", a)
					},
					Waiting: func(w retryafter.WaitInfo) { logger.Info("", "w", w) },
					Done:    func(_ *http.Request, r retryafter.Report) { logger.Info("", "r", r) },
				}}
				resp, err := tr.RoundTrip(repeat{method: "GET"}.request("http://server.test/"))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				report := retryafter.ReportOf(resp)
				switch {
				case tc.wait > 2*time.Minute:
					if len(at) != 1 || report.Decision.Server != tc.wait {
						t.Errorf("%d arrived: %v", len(at), report)
					}
				case len(at) != 2 || at[1].Sub(at[0]) != max(tc.wait, time.Millisecond):
					t.Errorf("arrived at %v, want %v between", at, tc.wait)
				}
				if log.Len() > 2000 || len(report.String()) > 500 {
					t.Errorf("%d bytes of log, %d of report", log.Len(), len(report.String()))
				}
				_, hintErr := retryafter.FromHeader(header, time.Now())
				if (hintErr != nil) != tc.bad {
					t.Error(hintErr)
				}
				if allocs := testing.AllocsPerRun(5, func() { retryafter.FromHeader(header, at[0]) }); allocs > map[bool]float64{true: 1}[tc.bad] && !strings.Contains(name, "unreadable") || allocs > 2 {
					t.Errorf("reading it allocates %v times", allocs)
				}
				synctest.Wait()
				base.CloseIdleConnections()
			})
		})
	}
}

func TestAHeaderBeyondTheTransportsBoundIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		base := refusals(&at, 2, strings.Repeat("Retry-After: 7\r\n", 10_000))
		base.MaxResponseHeaderBytes = 100_000
		resp, err := (&retryafter.Transport{Base: base}).RoundTrip(repeat{method: "GET"}.request("http://server.test/"))
		if err == nil || resp != nil || len(at) != 1 || len(err.Error()) > 500 {
			t.Errorf("%v, %v, %d arrived", resp, err, len(at))
		}
		synctest.Wait()
		base.CloseIdleConnections()
	})
}

// leaky is a Base whose errors tell of the URL, as an http.Client's do.
type leaky struct{ base http.RoundTripper }

func (l leaky) RoundTrip(req *http.Request) (*http.Response, error) {
	r := req.Clone(req.Context())
	r.Header.Set(faulty.CallField, "1")
	r.Header.Set(faulty.AttemptField, strconv.Itoa(retryafter.AttemptNumber(req.Context())))
	resp, err := l.base.RoundTrip(r)
	if err != nil {
		err = &url.Error{Op: req.Method, URL: req.URL.String(), Err: err}
	}
	return resp, err
}

// Whatever goes wrong, nothing that the library writes holds what the caller or
// the server would not have read by others.
func TestNothingThatIsWrittenTellsASecret(t *testing.T) {
	const secret = "hunter2"
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	tell := func(v any) {
		logger.Info("told", "v", v)
		fmt.Fprintf(&log, "%v %+v\n", slog.AnyValue(v).Resolve(), slog.AnyValue(v).Resolve())
		if s, ok := v.(fmt.Stringer); ok {
			fmt.Fprintln(&log, s)
		}
	}
	var step atomic.Pointer[faulty.Step]
	server := &faulty.Server{Plan: faulty.Plan{Step: func(string, int) faulty.Step { return *step.Load() }}}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	stops := map[retryafter.Reason]bool{}
	call := func(change func(tr *retryafter.Transport, req *http.Request) *http.Request) {
		base := new(http.Transport)
		defer base.CloseIdleConnections()
		tr := &retryafter.Transport{Base: leaky{base}, AttemptTimeout: 50 * time.Millisecond, Policy: retryafter.Policy{
			Backoff: fast, Jitter: retryafter.NoJitter, MaxAttempts: 2, Hint: faulty.Hint, MaxWait: 20 * time.Millisecond,
		}}
		tr.Trace = &retryafter.Trace{
			AttemptDone: func(a retryafter.Attempt) { tell(a) },
			Waiting:     func(w retryafter.WaitInfo) { tell(w) },
			Done:        func(_ *http.Request, r retryafter.Report) { tell(r); stops[r.Stop] = true },
		}
		address := strings.Replace(server.URL(), "http://", "http://"+secret+":"+secret+"@", 1) + "/?token=" + secret + "&q=\"" + secret + "#" + secret
		req := repeat{method: "POST", key: []string{secret}}.request(address)
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set("Cookie", "session="+secret)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(secret)), nil }
		req.Body, _ = req.GetBody()
		req.ContentLength = int64(len(secret))
		req = req.WithContext(retryafter.WithKey(req.Context(), retryafter.NewKey("tenant", secret)))
		if change != nil {
			req = change(tr, req)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			if _, ours := errors.AsType[*retryafter.Error](err); ours {
				tell(err.Error())
				tell(err)
			}
			return
		}
		tell(retryafter.ReportOf(resp))
		resp.Body.Close()
	}
	for f := range faulty.Faults {
		for _, status := range []int{200, 503} {
			for _, delay := range []time.Duration{-1, time.Millisecond, time.Hour} {
				step.Store(&faulty.Step{Fault: faulty.Fault(f), Status: status, Delay: delay, Body: 10})
				call(nil)
			}
		}
	}
	step.Store(&faulty.Step{Status: 503, Delay: time.Millisecond})
	for _, change := range []func(tr *retryafter.Transport, req *http.Request) *http.Request{
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			tr.Limiter = retryafter.Deny(&retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1)})
			return req
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			tr.Limiter = &retryafter.Keyed{Capacity: 1}
			return req
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			tr.Gate = &retryafter.Gate{Key: func(*http.Request) retryafter.Key { return secret }}
			tr.Gate.Hold(req.Context(), secret, time.Now().Add(time.Hour))
			return req
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			tr.Budget = &retryafter.RetryBudget{Retries: 1, Key: func(*http.Request) retryafter.Key { return secret }}
			tr.Budget.Withdraw(secret)
			return req
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			req.GetBody = func() (io.ReadCloser, error) {
				return nil, &url.Error{Op: "open", URL: "https://files.test/?" + secret, Err: io.EOF}
			}
			return req
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			req.Header.Del("Idempotency-Key")
			return req
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			req.GetBody = nil
			return req
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			return req.WithContext(retryafter.WithCost(req.Context(), -1))
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			cancel()
			return req.WithContext(ctx)
		},
		func(tr *retryafter.Transport, req *http.Request) *http.Request {
			tr.MaxElapsed = time.Millisecond
			tr.AttemptTimeout = 0
			return req
		},
	} {
		call(change)
	}
	for _, why := range []retryafter.Reason{
		retryafter.Final, retryafter.MethodNotIdempotent, retryafter.BodyNotReplayable, retryafter.AttemptsUsed, retryafter.WaitTooLong,
		retryafter.ElapsedTooLong, retryafter.BudgetSpent, retryafter.GetBodyFailed, retryafter.Canceled, retryafter.Limited, retryafter.Misconfigured,
	} {
		if !stops[why] {
			t.Errorf("no call ended by %v", why)
		}
	}
	for _, line := range strings.Split(log.String(), "\n") {
		if strings.Contains(line, secret) {
			t.Errorf("told: %s", line)
		}
	}
}
