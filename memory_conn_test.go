//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

// The real http.Transport and http.Server over connections in memory, on a
// virtual clock: instants can be compared for equality.

// netMemory is a network in memory. It is made inside a bubble.
type netMemory struct {
	*http.Transport // the client's side
	start           time.Time
	dials           atomic.Int32
	received        atomic.Int64 // bytes that the client took from its connections
}

// netMemoryOver counts what goes through tr.
func netMemoryOver(tr *http.Transport) *netMemory {
	m := &netMemory{Transport: tr, start: time.Now()}
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		m.dials.Add(1)
		c, err := dial(ctx, network, addr)
		return &netMeter{c, &m.received}, err
	}
	return m
}

// netMemoryOf makes a network whose connections go to serve, one goroutine
// each, numbered from 1.
func netMemoryOf(t *testing.T, serve func(n int, c net.Conn)) *netMemory {
	var dials atomic.Int32
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		n := int(dials.Add(1))
		go func() {
			defer server.Close()
			serve(n, server)
		}()
		return client, nil
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return netMemoryOver(tr)
}

// netMemoryServer makes a network with an http.Server in it.
func netMemoryServer(t *testing.T, h http.HandlerFunc) *netMemory {
	return netMemoryOver(retryaftertest.Serve(t, h))
}

// since is the time since the network was made.
func (m *netMemory) since() time.Duration { return time.Since(m.start) }

type netMeter struct {
	net.Conn
	received *atomic.Int64
}

func (c *netMeter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

func TestOverConnectionsTheWaitCountsFromTheHeader(t *testing.T) {
	for name, tc := range map[string]struct {
		header string // after the status line
		told   time.Duration
		at     time.Duration // of the second attempt, after the header
		reuse  bool
	}{
		"C074 a body that comes slowly":           {"Retry-After: 5\r\nContent-Length: 30\r\n\r\n", 5 * time.Second, 5 * time.Second, false},
		"a chunked body that comes slowly":        {"Retry-After: 5\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n", 5 * time.Second, 5 * time.Second, false},
		"a stalled body without a wait":           {"Retry-After: 0\r\nContent-Length: 30\r\n\r\n", 0, 10 * time.Millisecond, false},
		"a stalled chunked body without a wait":   {"Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n", 0, 10 * time.Millisecond, false},
		"a body whose end is the connection's":    {"Connection: close\r\n\r\nsome", 0, 10 * time.Millisecond, false},
		"a body that is there":                    {"Content-Length: 4\r\n\r\nsome", 0, 0, true},
		"no body":                                 {"Content-Length: 0\r\n\r\n", 0, 0, true},
		"a body whose length says it is too long": {"Content-Length: 209715200\r\n\r\nsome", 0, 0, false},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var at netList[time.Duration]
					var m *netMemory
					m = netMemoryOf(t, func(n int, c net.Conn) {
						br := bufio.NewReader(c)
						for netReadHead(br) != "" {
							if at.add(m.since()) > 1 {
								fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
								continue
							}
							time.Sleep(3 * time.Second) // the header is slow, too
							fmt.Fprint(c, "HTTP/1.1 503 Busy\r\n"+tc.header)
							if !tc.reuse {
								io.Copy(io.Discard, br) // until the client is gone
								return
							}
						}
					})
					tr := &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: timeout}
					resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
					netWant(t, resp, err, 200, 2, retryafter.Final)
					if diff := cmp.Diff([]time.Duration{0, 3*time.Second + tc.at}, at.all()); diff != "" {
						t.Errorf("attempts arrived at (-want +got):\n%s", diff)
					}
					if r := retryafter.ReportOf(resp); r.Waited != tc.told {
						t.Errorf("Waited is %v, want %v", r.Waited, tc.told)
					}
					netRead(t, resp)
					if want := map[bool]int32{true: 1, false: 2}[tc.reuse]; m.dials.Load() != want {
						t.Errorf("%d connections, want %d", m.dials.Load(), want)
					}
				})
			})
		}
	}
}

func TestOverConnectionsLittleIsReadOfAnErrorBody(t *testing.T) {
	const head = 8 << 10 // what net/http may have read ahead, and the header
	for name, tc := range map[string]struct {
		length string
		most   int64
	}{
		"200 MiB, known":   {fmt.Sprint(200 << 20), head},
		"200 MiB, chunked": {"", 64<<10 + head},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries atomic.Int32
				m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
					if tries.Add(1) > 1 {
						return
					}
					if tc.length != "" {
						w.Header().Set("Content-Length", tc.length)
					}
					w.WriteHeader(503)
					io.CopyN(w, netEndless{}, 200<<20)
				})
				tr := &retryafter.Transport{Base: m, Policy: netAtOnce()}
				resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
				netWant(t, resp, err, 200, 2, retryafter.Final)
				if n := m.received.Load(); n > tc.most+1000 {
					t.Errorf("%d bytes were received, want at most %d", n, tc.most)
				}
				if m.since() != 0 {
					t.Errorf("took %v", m.since())
				}
			})
		})
	}
}

func TestOverConnectionsOneServesAHundredCalls(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int32
			m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				switch n.Add(1) % 4 {
				case 1:
					w.WriteHeader(503)
					fmt.Fprint(w, "busy")
				case 2:
					w.WriteHeader(503)
					w.(http.Flusher).Flush()
					io.CopyN(w, netEndless{}, 60<<10)
				case 3:
					w.WriteHeader(503)
				}
			})
			c := &http.Client{Transport: &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: timeout}}
			c.Transport.(*retryafter.Transport).MaxAttempts = 4
			for range 100 {
				req, bodies := netPut(t.Context(), "PUT", "http://example.com/", "hello")
				resp, err := c.Do(req)
				netWant(t, resp, err, 200, 4, retryafter.Final)
				netRead(t, resp)
				bodies.checkAtLeast(t, 3)
			}
			if m.dials.Load() != 1 || m.since() != 0 {
				t.Errorf("C106 J6 %d connections in %v, want one at once", m.dials.Load(), m.since())
			}
		})
	}
}

// net/http unzips what it asked for zipped; the drain and Close meet in there.
func TestOverConnectionsAStalledZippedBodyIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
			if tries.Add(1) > 1 {
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(503)
			z := gzip.NewWriter(w)
			fmt.Fprint(z, strings.Repeat("busy ", 1000))
			z.Flush()
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		tr := &retryafter.Transport{Base: m, Policy: netAtOnce()}
		resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
		netWant(t, resp, err, 200, 2, retryafter.Final)
		if m.since() > 50*time.Millisecond {
			t.Errorf("took %v", m.since())
		}
	})
}

func TestOverConnectionsARefusalTakesNoTimeAndKeepsTheBody(t *testing.T) {
	for name, tc := range map[string]struct {
		retryAfter string
		ctx        time.Duration
		client     time.Duration
		why        retryafter.Reason
	}{
		"C052 too long":                  {"7200", 0, 0, retryafter.WaitTooLong},
		"C009 past the deadline":         {"55", 30 * time.Second, 0, retryafter.DeadlineTooNear},
		"C083 past the client's timeout": {"55", 0, 30 * time.Second, retryafter.DeadlineTooNear},
		"D3 just at the deadline":        {"30", 30 * time.Second, 0, retryafter.DeadlineTooNear},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var tries atomic.Int32
					m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
						tries.Add(1)
						w.Header().Set("Retry-After", tc.retryAfter)
						w.WriteHeader(429)
						for range 10 {
							fmt.Fprint(w, "slowly ")
							w.(http.Flusher).Flush()
							time.Sleep(time.Second)
						}
					})
					c := &http.Client{Timeout: tc.client, Transport: &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: timeout}}
					ctx := t.Context()
					if tc.ctx > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tc.ctx)
						defer cancel()
					}
					resp, err := c.Do(netRequest("GET", "http://example.com/").WithContext(ctx))
					netWant(t, resp, err, 429, 1, tc.why)
					if m.since() != 0 || tries.Load() != 1 {
						t.Errorf("took %v and %d attempts", m.since(), tries.Load())
					}
					if w := retryafter.ReportOf(resp).Decision.Wait; fmt.Sprint(int(w.Seconds())) != tc.retryAfter {
						t.Errorf("Wait is %v, want %s s, uncut", w, tc.retryAfter)
					}
					if got := netRead(t, resp); got != strings.Repeat("slowly ", 10) {
						t.Errorf("body %q", got)
					}
				})
			})
		}
	}
}

func TestOverConnectionsAttemptTimeoutNeverCutsABody(t *testing.T) {
	// C084: a header at once, and a body of 1 MiB that takes ten times as long.
	for _, retried := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var tries atomic.Int32
			m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
				if tries.Add(1) == 1 && retried {
					w.WriteHeader(503)
					return
				}
				w.(http.Flusher).Flush()
				for range 64 {
					time.Sleep(time.Second)
					io.CopyN(w, netEndless{}, 16<<10)
					w.(http.Flusher).Flush()
				}
			})
			tr := &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: 6 * time.Second}
			resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(netRead(t, resp)); n != 1<<20 || m.since() != 64*time.Second {
				t.Errorf("%d bytes in %v", n, m.since())
			}
			if m.dials.Load() != 1 {
				t.Errorf("%d connections", m.dials.Load())
			}
		})
	}
}

func TestOverConnectionsAttemptTimeoutEndsAnAttempt(t *testing.T) {
	for method, attempts := range map[string]int{"C085 GET": 2, "C065 POST": 1} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries, aborted atomic.Int32
				var m *netMemory
				m = netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
					if tries.Add(1) == 1 {
						<-r.Context().Done()
						if m.since() == time.Second {
							aborted.Add(1)
						}
					}
				})
				tr := &retryafter.Transport{Base: m, Policy: netBackoff(time.Second), AttemptTimeout: time.Second}
				_, method, _ := strings.Cut(method, " ")
				resp, err := tr.RoundTrip(netRequest(method, "http://example.com/"))
				if attempts == 2 {
					netWant(t, resp, err, 200, 2, retryafter.Final)
				} else {
					netWantError(t, resp, err, 1, retryafter.MethodNotIdempotent)
					if !errors.Is(err, retryafter.ErrAttemptTimeout) {
						t.Errorf("error %v", err)
					}
				}
				if want := time.Duration(2*attempts-1) * time.Second; attempts == 2 && m.since() != 2*time.Second || attempts == 1 && m.since() != time.Second {
					t.Errorf("took %v, want %v", m.since(), want)
				}
				synctest.Wait()
				if aborted.Load() != 1 {
					t.Error("the server did not see the attempt end with its time")
				}
			})
		})
	}
}

func TestOverConnectionsACancelEndsWhatIsGoingOn(t *testing.T) {
	errShutdown := errors.New("shutting down")
	for name, handler := range map[string]http.HandlerFunc{
		"during a wait":     func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Retry-After", "60"); w.WriteHeader(503) },
		"during an attempt": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"during a wait, body open": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(503)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			for _, byChannel := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", timeout, " ", byChannel), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
							io.Copy(io.Discard, r.Body) // only then the server sees the client go
							handler(w, r)
						})
						tr := &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: timeout}
						req, bodies := netPut(t.Context(), "PUT", "http://example.com/", "hello")
						if byChannel {
							cancel := make(chan struct{})
							req.Cancel = cancel
							time.AfterFunc(time.Second, func() { close(cancel) })
						} else {
							ctx, cancel := context.WithCancelCause(req.Context())
							req = req.WithContext(ctx)
							time.AfterFunc(time.Second, func() { cancel(errShutdown) })
						}
						resp, err := tr.RoundTrip(req)
						netWantError(t, resp, err, 1, retryafter.Canceled)
						if m.since() != time.Second {
							t.Errorf("took %v", m.since())
						}
						if !byChannel && !(errors.Is(err, errShutdown) && errors.Is(err, context.Canceled)) {
							t.Errorf("error %v", err)
						}
						synctest.Wait()
						bodies.checkAtLeast(t, map[bool]int{true: 0, false: 1}[name == "during an attempt"])
					})
				})
			}
		}
	}
}

func TestOverConnectionsRedirectsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// C060, F20: five hops of 2 s.
		var at netList[time.Duration]
		var m *netMemory
		m = netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
			if at.add(m.since()) <= 5 {
				w.Header().Set("Retry-After", "2")
				http.Redirect(w, r, "/same", http.StatusSeeOther)
			}
		})
		resp, err := (&http.Client{Transport: &retryafter.Transport{Base: m, Policy: netAtOnce()}}).Get("http://example.com/")
		netWant(t, resp, err, 200, 1, retryafter.Final)
		if diff := cmp.Diff([]time.Duration{0, 2e9, 4e9, 6e9, 8e9, 10e9}, at.all()); diff != "" {
			t.Errorf("attempts arrived at (-want +got):\n%s", diff)
		}
		if m.dials.Load() != 1 {
			t.Errorf("%d connections", m.dials.Load())
		}
	})
}

func TestOverConnectionsTraceHooksFireOnceAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// C117
		var tries atomic.Int32
		m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			if tries.Add(1) < 3 {
				w.WriteHeader(503)
			}
		})
		var mu sync.Mutex
		got := map[string]int{}
		count := func(what string) {
			mu.Lock()
			got[what]++
			mu.Unlock()
		}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GetConn:              func(string) { count("GetConn") },
			GotConn:              func(httptrace.GotConnInfo) { count("GotConn") },
			WroteHeaders:         func() { count("WroteHeaders") },
			WroteRequest:         func(httptrace.WroteRequestInfo) { count("WroteRequest") },
			GotFirstResponseByte: func() { count("GotFirstResponseByte") },
			PutIdleConn:          func(error) { count("PutIdleConn") },
		})
		tr := &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: time.Minute}
		resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
		netWant(t, resp, err, 200, 3, retryafter.Final)
		netRead(t, resp)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]int{"GetConn": 3, "GotConn": 3, "WroteHeaders": 3, "WroteRequest": 3, "GotFirstResponseByte": 3, "PutIdleConn": 3}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hooks fired (-want +got):\n%s", diff)
		}
	})
}

// An Upgrade hands the connection over; neither the attempt's timeout nor its
// context may hold on to it.
func TestOverConnectionsAnUpgradedConnectionStaysUsable(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint("AttemptTimeout ", timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := netMemoryOf(t, func(n int, c net.Conn) {
					br := bufio.NewReader(c)
					netReadHead(br)
					if n == 1 {
						fmt.Fprint(c, "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
						return
					}
					fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhi:")
					io.Copy(c, br)
				})
				tr := &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: timeout}
				req := netRequest("GET", "http://example.com/")
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", "echo")
				resp, err := tr.RoundTrip(req)
				netWant(t, resp, err, 101, 2, retryafter.Final)
				rw, ok := resp.Body.(io.ReadWriteCloser)
				if !ok {
					t.Fatalf("the body is a %T", resp.Body)
				}
				got := make([]byte, 3)
				io.ReadFull(rw, got)
				if string(got) != "hi:" {
					t.Errorf("read %q", got)
				}
				for range 3 {
					time.Sleep(10 * time.Second) // long after AttemptTimeout
					if _, err := fmt.Fprint(rw, "abc"); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(rw, got); err != nil || string(got) != "abc" {
						t.Fatalf("read %q, %v", got, err)
					}
				}
				rw.Close()
			})
		})
	}
}

// C105: the server says 503 instead of 100, so no body is sent. It is to be
// sent with the attempt that follows.
func TestOverConnectionsExpectContinue(t *testing.T) {
	for name, opaque := range map[string]bool{"C105 with GetBody": false, "C105 without": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at netList[time.Duration]
				var got netList[string]
				var m *netMemory
				m = netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) {
					if at.add(m.since()) == 1 {
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(503)
						return
					}
					b, _ := io.ReadAll(r.Body)
					got.add(string(b))
				})
				m.ExpectContinueTimeout = 10 * time.Second
				tr := &retryafter.Transport{Base: m, Policy: netAtOnce()}
				req, bodies := netPut(t.Context(), "PUT", "http://example.com/", "hello")
				req.Header.Set("Expect", "100-continue")
				if opaque {
					req.GetBody, req.ContentLength = nil, -1
				}
				resp, err := tr.RoundTrip(req)
				if opaque {
					netWant(t, resp, err, 503, 1, retryafter.BodyNotReplayable)
				} else {
					netWant(t, resp, err, 200, 2, retryafter.Final)
					if diff := cmp.Diff([]time.Duration{0, time.Second}, at.all()); diff != "" {
						t.Error(diff)
					}
					if diff := cmp.Diff([]string{"hello"}, got.all()); diff != "" {
						t.Error(diff)
					}
				}
				netRead(t, resp)
				synctest.Wait()
				bodies.checkAtLeast(t, map[bool]int{true: 0, false: 1}[opaque])
				if n := bodies.all[0].read(); n != 0 {
					t.Errorf("%d bytes were sent unasked", n)
				}
			})
		})
	}
}

// A server that is down, slow, and up again, seen through http.Client: the
// sum of everything in one go.
func TestOverConnectionsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *netMemory
		var at netList[time.Duration]
		m = netMemoryOf(t, func(n int, c net.Conn) {
			br := bufio.NewReader(c)
			for netReadHead(br) != "" {
				switch at.add(m.since()) {
				case 1: // gone before the header
					return
				case 2: // gone within it
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 1")
					return
				case 3: // too slow
					time.Sleep(time.Hour)
					return
				case 4: // busy
					fmt.Fprint(c, "HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy")
				default:
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}
		})
		tr := &retryafter.Transport{Base: m, Policy: netBackoff(time.Second), AttemptTimeout: 2 * time.Second}
		tr.MaxAttempts = 10
		resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get("http://example.com/")
		netWant(t, resp, err, 200, 5, retryafter.Final)
		want := []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second, 12 * time.Second}
		if diff := cmp.Diff(want, at.all()); diff != "" {
			t.Errorf("attempts arrived at (-want +got):\n%s", diff)
		}
		if got := netRead(t, resp); got != "ok" {
			t.Errorf("body %q", got)
		}
		time.Sleep(time.Hour) // the slow server's goroutine
	})
}

// The error of a deadline that comes during an attempt says so to whoever asks.
func TestOverConnectionsAClientTimeoutDuringAnAttempt(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := netMemoryServer(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			c := &http.Client{Timeout: 3 * time.Second, Transport: &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: timeout}}
			_, err := c.Get("http://example.com/")
			ue, ok := err.(*url.Error)
			if !ok || !ue.Timeout() || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, retryafter.ErrAttemptTimeout) || m.since() != 3*time.Second {
				t.Errorf("after %v: %v", m.since(), err)
			}
		})
	}
}

type netHalf struct {
	net.Conn
	closed *netList[string]
}

func (c netHalf) CloseWrite() error { c.closed.add("write"); return nil }

// net/http's own body of a 101 has CloseWrite; httputil.ReverseProxy calls it.
func TestOverConnectionsAnUpgradedOneCanBeHalfClosed(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := netMemoryOf(t, func(n int, c net.Conn) {
				br := bufio.NewReader(c)
				netReadHead(br)
				fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				io.Copy(io.Discard, br)
			})
			var closed netList[string]
			dial := m.DialContext
			m.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				return netHalf{c, &closed}, err
			}
			tr := &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: timeout}
			req := netRequest("GET", "http://example.com/")
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "echo")
			resp, err := tr.RoundTrip(req)
			netWant(t, resp, err, 101, 1, retryafter.Final)
			if cw, ok := resp.Body.(interface{ CloseWrite() error }); !ok || cw.CloseWrite() != nil || len(closed.all()) != 1 {
				t.Errorf("AttemptTimeout %v: the body, a %T, can't be half closed", timeout, resp.Body)
			}
			resp.Body.Close()
		})
	}
}
