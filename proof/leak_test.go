package proof

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"go.uber.org/goleak"
)

// A handler serves attempt n of a call.
type handler func(w http.ResponseWriter, r *http.Request, n int)

// A loopback is a real server and a Transport that talks to it.
type loopback struct {
	*retryafter.Transport
	url    string
	client *http.Client
}

// numbered writes the attempt's number where the server finds it.
type numbered struct{ base *http.Transport }

func (b numbered) RoundTrip(req *http.Request) (*http.Response, error) {
	r := req.Clone(req.Context())
	r.Header.Set("Attempt", fmt.Sprint(retryafter.AttemptNumber(req.Context())))
	return b.base.RoundTrip(r)
}

func (b numbered) CloseIdleConnections() { b.base.CloseIdleConnections() }

func fast() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) }

// nothingStays runs calls over HTTP/1 and HTTP/2 and looks for what is left
// when client and server have closed.
func nothingStays(t *testing.T, h handler, calls func(t *testing.T, l *loopback)) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			old := goleak.IgnoreCurrent()
			over := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != protocol {
					t.Errorf("served by %s", r.Proto)
				}
				var n int
				fmt.Sscan(r.Header.Get("Attempt"), &n)
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				go func() { // handlers that hang end with the test at the latest
					select {
					case <-over:
						cancel()
					case <-ctx.Done():
					}
				}()
				h(w, r.WithContext(ctx), n)
			}))
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			base := server.Client().Transport.(*http.Transport)
			l := &loopback{url: server.URL, Transport: &retryafter.Transport{
				Base:   numbered{base},
				Policy: retryafter.Policy{Backoff: fast, Jitter: retryafter.NoJitter},
			}}
			l.client = &http.Client{Transport: l.Transport}
			calls(t, l)
			close(over)
			l.client.CloseIdleConnections()
			server.Close()
			if err := goleak.Find(old); err != nil {
				t.Error(err)
			}
		})
	}
}

func (l *loopback) get(t *testing.T, ctx context.Context) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", l.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l.client.Do(req)
}

// finish reads the rest of resp.
func finish(t *testing.T, resp *http.Response, err error, status int) string {
	t.Helper()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Errorf("%s, %v, want %d", resp.Status, err, status)
	}
	return string(b)
}

func stall(w http.ResponseWriter, r *http.Request) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	<-r.Context().Done()
}

func TestNothingStaysOfACallThatSucceedsAtLast(t *testing.T) {
	nothingStays(t, func(w http.ResponseWriter, r *http.Request, n int) {
		body, _ := io.ReadAll(r.Body)
		if n < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(503)
			io.WriteString(w, strings.Repeat("busy", 5000*n))
			return
		}
		fmt.Fprintf(w, "%d: %s", n, body)
	}, func(t *testing.T, l *loopback) {
		for range 3 {
			req, _ := http.NewRequest("PUT", l.url, strings.NewReader("hello"))
			resp, err := l.client.Do(req)
			if text := finish(t, resp, err, 200); text != "3: hello" {
				t.Errorf("%q", text)
			}
			if r := retryafter.ReportOf(resp); r.Attempts != 3 || r.Stop != retryafter.Final {
				t.Errorf("%v", r)
			}
		}
	})
}

func TestNothingStaysOfACancelledWait(t *testing.T) {
	nothingStays(t, func(w http.ResponseWriter, r *http.Request, n int) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(429)
	}, func(t *testing.T, l *loopback) {
		for _, cause := range []error{nil, errCause} {
			ctx, cancel := context.WithCancelCause(t.Context())
			ctx = retryafter.WithTrace(ctx, &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { go cancel(cause) }})
			_, err := l.get(t, ctx)
			e, ok := errors.AsType[*retryafter.Error](err)
			if !ok || e.Report.Stop != retryafter.Canceled || !errors.Is(err, context.Canceled) || cause != nil && !errors.Is(err, cause) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestNothingStaysOfACallThatIsRefused(t *testing.T) {
	nothingStays(t, func(w http.ResponseWriter, r *http.Request, n int) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
		io.WriteString(w, strings.Repeat("later", 50000))
	}, func(t *testing.T, l *loopback) {
		resp, err := l.get(t, t.Context())
		if text := finish(t, resp, err, 429); len(text) != 250000 {
			t.Errorf("%d bytes", len(text))
		}
		if r := retryafter.ReportOf(resp); r.Stop != retryafter.WaitTooLong || r.Decision.Server != time.Hour {
			t.Errorf("%v", r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l.MaxWait = -1
		resp, err = l.get(t, ctx)
		if r := retryafter.ReportOf(resp); err != nil || r.Stop != retryafter.DeadlineTooNear {
			t.Errorf("%v, %v", r, err)
		} else {
			resp.Body.Close() // unread
		}
	})
}

func TestNothingStaysOfAttemptsThatTimeOut(t *testing.T) {
	nothingStays(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 {
			<-r.Context().Done()
			return
		}
		w.(http.Flusher).Flush()
		time.Sleep(60 * time.Millisecond) // the body may take longer than AttemptTimeout
		fmt.Fprint(w, n)
	}, func(t *testing.T, l *loopback) {
		l.AttemptTimeout = 50 * time.Millisecond
		resp, err := l.get(t, t.Context())
		if text := finish(t, resp, err, 200); text != "2" {
			t.Errorf("%q", text)
		}
	})
}

func TestNothingStaysOfBodiesThatStall(t *testing.T) {
	for _, zip := range []bool{false, true} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(zip, timeout), func(t *testing.T) {
				nothingStays(t, func(w http.ResponseWriter, r *http.Request, n int) {
					w.Header().Set("Retry-After", "0")
					var to io.Writer = w
					if zip {
						w.Header().Set("Content-Encoding", "gzip")
						z := gzip.NewWriter(w)
						to = z
						defer z.Close()
					}
					if n == 2 {
						fmt.Fprint(to, "ready")
						return
					}
					w.WriteHeader(503)
					fmt.Fprint(to, "busy")
					if z, ok := to.(*gzip.Writer); ok {
						z.Flush()
					}
					stall(w, r)
				}, func(t *testing.T, l *loopback) {
					l.AttemptTimeout = timeout
					resp, err := l.get(t, t.Context())
					if text := finish(t, resp, err, 200); text != "ready" {
						t.Errorf("%q", text)
					}
				})
			})
		}
	}
}

func TestNothingStaysOfABodyThatIsNotRead(t *testing.T) {
	nothingStays(t, func(w http.ResponseWriter, r *http.Request, n int) {
		// The request's body is left unread, and it is long.
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(503)
	}, func(t *testing.T, l *loopback) {
		long := strings.Repeat("x", 4<<20)
		req, _ := http.NewRequest("PUT", l.url, strings.NewReader(long))
		resp, err := l.client.Do(req)
		if err == nil {
			finish(t, resp, err, 503)
		}
		pr, pw := io.Pipe()
		defer pw.Close()
		req, _ = http.NewRequest("PUT", l.url, pr) // opaque
		go func() {
			for {
				if _, err := pw.Write(make([]byte, 1000)); err != nil {
					return
				}
			}
		}()
		resp, err = l.client.Do(req)
		if err == nil {
			finish(t, resp, err, 503)
		}
		pr.Close()
	})
}

func TestNothingStaysOfAnUpgrade(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint(timeout), func(t *testing.T) {
			old := goleak.IgnoreCurrent()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Attempt") == "1" {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(503)
					return
				}
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
				rw.Flush()
				line, err := rw.ReadString('\n')
				if err != nil {
					t.Error(err)
				}
				fmt.Fprint(rw, "echo "+line)
				rw.Flush()
			}))
			client := &http.Client{Transport: &retryafter.Transport{
				Base: numbered{new(http.Transport)}, AttemptTimeout: timeout, Policy: retryafter.Policy{Backoff: fast},
			}}
			req, _ := http.NewRequest("GET", server.URL, nil)
			req.Header.Set("Connection", "upgrade")
			req.Header.Set("Upgrade", "echo")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			rw, ok := resp.Body.(io.ReadWriteCloser)
			if resp.StatusCode != 101 || !ok {
				t.Fatalf("%s with a body of %T", resp.Status, resp.Body)
			}
			fmt.Fprintln(rw, "hello")
			if line, err := bufio.NewReader(rw).ReadString('\n'); err != nil || line != "echo hello\n" {
				t.Errorf("%q, %v", line, err)
			}
			rw.Close()
			client.CloseIdleConnections()
			server.Close()
			if err := goleak.Find(old); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingStaysOfALimitedCall(t *testing.T) {
	nothingStays(t, func(w http.ResponseWriter, r *http.Request, n int) {}, func(t *testing.T, l *loopback) {
		l.Limiter = &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)}
		resp, err := l.get(t, t.Context())
		finish(t, resp, err, 200)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := l.get(t, ctx); err == nil {
			t.Error("admitted")
		}
		ctx, cancel = context.WithCancel(t.Context())
		ctx = retryafter.WithTrace(ctx, &retryafter.Trace{Waiting: func(retryafter.WaitInfo) { go cancel() }})
		if _, err := l.get(t, ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
