package retryafter_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

// Over real sockets: what the operating system and net/http make of servers
// that behave badly. Instants are only tested for being too early.

func TestLoopbackAServersDelayIsKept(t *testing.T) {
	netGoroutines(t)
	var at netList[time.Time]
	s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
		if at.add(time.Now()) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		}
	})
	resp, err := (&http.Client{Transport: &retryafter.Transport{Base: s.base, Policy: netAtOnce()}}).Get(s.URL)
	netWant(t, resp, err, 200, 2, retryafter.Final)
	netRead(t, resp)
	// Server and client share a clock; the client counts from when it has the
	// header, which is after the server looked.
	if gap := at.all()[1].Sub(at.all()[0]); gap < time.Second {
		t.Errorf("C008 came back after %v", gap)
	}
}

func TestLoopbackEveryAttemptSendsTheWholeBody(t *testing.T) {
	// C093: with keep-alives net/http hides a body that is used up.
	for _, keepAlive := range []bool{true, false} {
		for name, body := range map[string]func() io.Reader{
			"bytes":   func() io.Reader { return bytes.NewReader([]byte("hello")) },
			"strings": func() io.Reader { return strings.NewReader("hello") },
			"buffer":  func() io.Reader { return bytes.NewBufferString("hello") },
		} {
			t.Run(fmt.Sprint("C093 ", name, " keep-alive ", keepAlive), func(t *testing.T) {
				netGoroutines(t)
				var got netList[string]
				s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					if got.add(fmt.Sprint(string(b), " ", r.ContentLength, " ", err)) < 4 {
						w.WriteHeader(503)
					}
				})
				s.base.DisableKeepAlives = !keepAlive
				tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce()}
				tr.MaxAttempts = 5
				req, err := http.NewRequest("PUT", s.URL, body())
				if err != nil {
					t.Fatal(err)
				}
				gets := 0
				getBody := req.GetBody
				req.GetBody = func() (io.ReadCloser, error) { gets++; return getBody() }
				resp, err := tr.RoundTrip(req)
				netWant(t, resp, err, 200, 4, retryafter.Final)
				netRead(t, resp)
				if diff := cmp.Diff([]string{"hello 5 <nil>", "hello 5 <nil>", "hello 5 <nil>", "hello 5 <nil>"}, got.all()); diff != "" {
					t.Errorf("the server got (-want +got):\n%s", diff)
				}
				if gets != 3 {
					t.Errorf("GetBody was called %d times, want once an extra attempt", gets)
				}
				if n := s.conns.Load(); (n == 4) == keepAlive {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

func TestLoopbackAnOpaqueBodyIsSentOnce(t *testing.T) {
	for _, method := range []string{"C094 PUT", "C100 GET"} {
		t.Run(method, func(t *testing.T) {
			netGoroutines(t)
			var got netList[string]
			s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				got.add(string(b))
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(503)
				fmt.Fprint(w, "busy")
			})
			tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce()}
			_, method, _ := strings.Cut(method, " ")
			req, err := http.NewRequest(method, s.URL, io.NopCloser(strings.NewReader("hello")))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			netWant(t, resp, err, 503, 1, retryafter.BodyNotReplayable)
			if b := netRead(t, resp); b != "busy" {
				t.Errorf("body %q", b)
			}
			if diff := cmp.Diff([]string{"hello"}, got.all()); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoopbackRedirectsCarryTheBody(t *testing.T) {
	for _, code := range []int{307, 308} {
		t.Run(fmt.Sprint("C097 ", code), func(t *testing.T) {
			netGoroutines(t)
			var got netList[string]
			s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				n := got.add(r.Method + " " + r.URL.Path + " " + string(b))
				switch {
				case r.URL.Path == "/a" && r.Method == "PUT" && n == 1:
					w.WriteHeader(503) // so that the redirect answers a clone
				case r.URL.Path == "/a":
					w.Header().Set("Location", "/b")
					w.WriteHeader(code)
				}
			})
			c := &http.Client{Transport: &retryafter.Transport{Base: s.base, Policy: netAtOnce()}}
			for _, method := range []string{"PUT", "POST"} {
				req, err := http.NewRequest(method, s.URL+"/a", strings.NewReader("hello"))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(req)
				netWant(t, resp, err, 200, 1, retryafter.Final)
				netRead(t, resp)
			}
			want := []string{"PUT /a hello", "PUT /a hello", "PUT /b hello", "POST /a hello", "POST /b hello"}
			if diff := cmp.Diff(want, got.all()); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
		})
	}
}

// C102: the server answers while 10 MiB are on their way, and reads on slowly.
// Under -race a body that two attempts share is found.
func TestLoopbackAnEarlyAnswerDoesNotMixBodies(t *testing.T) {
	netGoroutines(t)
	payload := make([]byte, 10<<20)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	url := netRaw(t, func(n int, c *net.TCPConn) {
		br := bufio.NewReader(c)
		netReadHead(br)
		if n <= 2 {
			io.CopyN(io.Discard, br, 1<<10)
			fmt.Fprint(c, "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy")
			for range 20 { // reads on, slowly
				if _, err := io.CopyN(io.Discard, br, 16<<10); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			return
		}
		got := make([]byte, len(payload))
		if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(got, payload) {
			fmt.Fprint(c, "HTTP/1.1 400 Spoilt\r\nContent-Length: 0\r\n\r\n")
			return
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	tr := &retryafter.Transport{Base: netFresh(t), Policy: netAtOnce()}
	var mu sync.Mutex
	var bodies []*netBody
	body := func() (io.ReadCloser, error) {
		b := &netBody{Reader: bytes.NewReader(payload)}
		mu.Lock()
		bodies = append(bodies, b)
		mu.Unlock()
		return b, nil
	}
	own, _ := body()
	req, err := http.NewRequest("PUT", url, own)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength, req.GetBody = int64(len(payload)), body
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	netWant(t, resp, err, 200, 3, retryafter.Final)
	netRead(t, resp)
	netEventually(t, "every body is closed", func() bool {
		for _, b := range bodies {
			if b.closed() == 0 {
				return false
			}
		}
		return len(bodies) == 3
	})
}

// netEventually waits for what happens in other goroutines.
func netEventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not so: %s", what)
			return
		}
	}
}

func TestLoopbackConnectionsServeAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reply func(w http.ResponseWriter)
		head  bool
	}{
		"C106 J6 a short body": {reply: func(w http.ResponseWriter) { w.WriteHeader(503); fmt.Fprint(w, "busy") }},
		"no body":              {reply: func(w http.ResponseWriter) { w.WriteHeader(503) }},
		"C120 HEAD":            {reply: func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1000000"); w.WriteHeader(503) }, head: true},
		"a chunked body":       {reply: func(w http.ResponseWriter) { w.WriteHeader(503); w.(http.Flusher).Flush(); fmt.Fprint(w, "busy") }},
		"just as much as drained": {reply: func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "65536")
			w.Header().Set("Content-Length", "65536")
			w.WriteHeader(503)
			w.Write(make([]byte, 64<<10))
		}},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				netGoroutines(t)
				var n atomic.Int32
				s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
					if n.Add(1)%2 == 1 {
						tc.reply(w)
						return
					}
					fmt.Fprint(w, "ok")
				})
				c := &http.Client{Transport: &retryafter.Transport{Base: s.base, Policy: netAtOnce(), AttemptTimeout: timeout}}
				for range 100 {
					method := map[bool]string{true: "HEAD", false: "GET"}[tc.head]
					resp, err := c.Do(netRequest(method, s.URL))
					netWant(t, resp, err, 200, 2, retryafter.Final)
					if got := netRead(t, resp); got != "ok" && !tc.head {
						t.Fatalf("body %q", got)
					}
				}
				// A machine that is busy for 50 ms may end a drain; see
				// TestOverConnectionsOneServesAHundredCalls for the exact number.
				if n := s.conns.Load(); n > 5 {
					t.Errorf("100 calls took %d connections, want 1", n)
				}
			})
		}
	}
}

func TestLoopbackABigOrStalledErrorBodyIsLetGo(t *testing.T) {
	for name, reply := range map[string]func(w http.ResponseWriter, r *http.Request){
		"200 MiB": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(200<<20))
			w.WriteHeader(503)
			io.CopyN(w, netEndless{}, 200<<20)
		},
		"200 MiB, chunked": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			io.CopyN(w, netEndless{}, 200<<20)
		},
		"stalled": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(503)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			netGoroutines(t)
			var n atomic.Int32
			s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1)%2 == 1 {
					reply(w, r)
				}
			})
			var received atomic.Int64
			s.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &netMeter{c, &received}, err
			}
			c := &http.Client{Transport: &retryafter.Transport{Base: s.base, Policy: netAtOnce()}}
			start := time.Now()
			for range 3 {
				resp, err := c.Get(s.URL)
				netWant(t, resp, err, 200, 2, retryafter.Final)
				netRead(t, resp)
			}
			if n := received.Load(); n > 3*(64<<10+16<<10) {
				t.Errorf("%d bytes were received", n)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// C115: the server has closed a connection that the client takes for alive.
func TestLoopbackAStaleConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		method, header string
		reset          bool
		retried        bool
	}{
		"C115 PUT":             {method: "PUT", retried: true},
		"C115 PUT, reset":      {method: "PUT", reset: true, retried: true},
		"C115 GET":             {method: "GET", retried: true},
		"C115 DELETE":          {method: "DELETE", retried: true},
		"C115 POST":            {method: "POST"},
		"C115 POST, reset":     {method: "POST", reset: true},
		"C115 POST with a key": {method: "POST", header: "Idempotency-Key", retried: true},
		"C115 PATCH":           {method: "PATCH"},
	} {
		t.Run(name, func(t *testing.T) {
			netGoroutines(t)
			var got netList[string]
			url := netRaw(t, func(n int, c *net.TCPConn) {
				br := bufio.NewReader(c)
				for range 2 {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					b, _ := io.ReadAll(req.Body)
					if got.add(req.Method+" "+string(b)) == 2 {
						if tc.reset {
							c.SetLinger(0)
						}
						return // with its request read, and no answer
					}
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			tr := &retryafter.Transport{Base: netFresh(t), Policy: netAtOnce()}
			resp, err := tr.RoundTrip(netRequest("GET", url)) // opens the connection
			netWant(t, resp, err, 200, 1, retryafter.Final)
			req, err := http.NewRequest(tc.method, url, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if tc.header != "" {
				req.Header.Set(tc.header, "k")
			}
			resp, err = tr.RoundTrip(req)
			want := []string{"GET ", tc.method + " hello"}
			if tc.retried {
				want = append(want, tc.method+" hello")
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("response %v, error %v", resp, err)
				}
			} else {
				netWantError(t, resp, err, 1, retryafter.MethodNotIdempotent)
			}
			if diff := cmp.Diff(want, got.all()); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
		})
	}
}

// C104: the attempt counter and the body do not depend on what went wrong.
func TestLoopbackAFreshBodyFollowsAnError(t *testing.T) {
	netGoroutines(t)
	var got netList[string]
	url := netRaw(t, func(n int, c *net.TCPConn) {
		br := bufio.NewReader(c)
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		b, _ := io.ReadAll(req.Body)
		switch got.add(string(b)) {
		case 1:
			c.SetLinger(0)
		case 2:
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 1")
		case 3:
			fmt.Fprint(c, "HTTP/1.1 502 Bad\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		case 4:
		default:
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		}
	})
	tr := &retryafter.Transport{Base: netFresh(t), Policy: netAtOnce()}
	tr.MaxAttempts = 9
	req, bodies := netPut(t.Context(), "PUT", url, "hello")
	resp, err := tr.RoundTrip(req)
	netWant(t, resp, err, 200, 5, retryafter.Final)
	if diff := cmp.Diff([]string{"hello", "hello", "hello", "hello", "hello"}, got.all()); diff != "" {
		t.Errorf("the server got (-want +got):\n%s", diff)
	}
	netEventually(t, "every body is closed", func() bool {
		for _, b := range bodies.all {
			if b.closed() == 0 {
				return false
			}
		}
		return true
	})
	if n := bodies.gets(); n != 4 {
		t.Errorf("GetBody was called %d times, want 4", n)
	}
}

// C117: hooks of the context's httptrace fire once an attempt.
func TestLoopbackTraceHooksFireOnceAnAttempt(t *testing.T) {
	netGoroutines(t)
	var n, gotConn, wrote, first atomic.Int32
	s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) < 3 {
			w.WriteHeader(503)
		}
	})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { gotConn.Add(1) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { wrote.Add(1) },
		GotFirstResponseByte: func() { first.Add(1) },
	})
	tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce()}
	resp, err := tr.RoundTrip(netRequest("GET", s.URL).WithContext(ctx))
	netWant(t, resp, err, 200, 3, retryafter.Final)
	netRead(t, resp)
	if gotConn.Load() != 3 || wrote.Load() != 3 || first.Load() != 3 {
		t.Errorf("GotConn %d, WroteRequest %d, GotFirstResponseByte %d times; want 3 each", gotConn.Load(), wrote.Load(), first.Load())
	}
}

// C113 over sockets: one Transport, 100 concurrent calls, each failing once.
func TestLoopbackConcurrentCalls(t *testing.T) {
	netGoroutines(t)
	var failed sync.Map
	s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
		if _, again := failed.LoadOrStore(r.URL.Path, true); !again {
			w.WriteHeader(503)
		}
		fmt.Fprint(w, r.URL.Path)
	})
	c := &http.Client{Transport: &retryafter.Transport{Base: s.base, Policy: netAtOnce(), AttemptTimeout: time.Minute}, Timeout: time.Minute}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			path := fmt.Sprint("/", i)
			resp, err := c.Get(s.URL + path)
			if err != nil || resp.StatusCode != 200 || retryafter.ReportOf(resp).Attempts != 2 {
				t.Errorf("%s: %v %v", path, resp, err)
				return
			}
			if got := netRead(t, resp); got != path {
				t.Errorf("%s got the body of %s", path, got)
			}
		})
	}
	wg.Wait()
}

func TestLoopbackCancelledCallsLeaveNothingBehind(t *testing.T) {
	netGoroutines(t)
	s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(503)
	})
	s.base.MaxConnsPerHost = 8
	tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce(), AttemptTimeout: time.Minute}
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, cancel)
			resp, err := tr.RoundTrip(netRequest("GET", s.URL).WithContext(ctx))
			if resp != nil {
				// The cancel came with the header just there.
				if r := retryafter.ReportOf(resp); r.Stop != retryafter.Canceled {
					t.Errorf("report %v", r)
				}
				resp.Body.Close()
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
	wg.Wait()
	s.base.CloseIdleConnections()
}

// An Upgrade by a real server, hijacked.
func TestLoopbackAnUpgradedConnection(t *testing.T) {
	for _, timeout := range []time.Duration{0, 20 * time.Millisecond} {
		netGoroutines(t)
		var n atomic.Int32
		s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				w.WriteHeader(503)
				return
			}
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(101)
			c, brw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			io.Copy(c, brw)
		})
		tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce()}
		if timeout > 0 {
			tr.AttemptTimeout = time.Second
		}
		req := netRequest("GET", s.URL)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := tr.RoundTrip(req)
		netWant(t, resp, err, 101, 2, retryafter.Final)
		rw := resp.Body.(io.ReadWriteCloser)
		got := make([]byte, 5)
		for range 2 {
			fmt.Fprint(rw, "hello")
			if _, err := io.ReadFull(rw, got); err != nil || string(got) != "hello" {
				t.Errorf("read %q, %v", got, err)
			}
		}
		rw.Close()
	}
}

// netDNS answers every question over UDP with a response code; code -1 does
// not answer.
func netDNS(t *testing.T, code int) *net.Resolver {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if code < 0 {
				continue
			}
			// The question with its header's answer bit and code set, and without
			// the additional record that Go sends.
			end := 12
			for end < n && buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			reply := bytes.Clone(buf[:min(n, end+5)])
			binary.BigEndian.PutUint16(reply[2:], 0x8180|uint16(code))
			clear(reply[6:12])
			c.WriteTo(reply, from)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		q, err := (&net.Dialer{}).DialContext(ctx, "udp", c.LocalAddr().String())
		if err == nil {
			context.AfterFunc(ctx, func() { q.Close() }) // else package net reads on for 5 s
		}
		return q, err
	}}
}

// Errors as the system, the resolver, crypto/tls and net/http make them, each
// with what DefaultRetry says of it.
func TestLoopbackDefaultRetryByError(t *testing.T) {
	netGoroutines(t)
	answer := func(text string) func(*testing.T) (http.RoundTripper, string) {
		return func(t *testing.T) (http.RoundTripper, string) {
			return netFresh(t), netRaw(t, func(_ int, c *net.TCPConn) {
				netReadHead(bufio.NewReader(c))
				io.WriteString(c, text)
			})
		}
	}
	resolved := func(code int) func(*testing.T) (http.RoundTripper, string) {
		return func(t *testing.T) (http.RoundTripper, string) {
			tr := netFresh(t)
			d := &net.Dialer{Resolver: netDNS(t, code)}
			if code < 0 {
				d.Timeout = 100 * time.Millisecond
			}
			tr.DialContext = d.DialContext
			return tr, "http://host.invalid/"
		}
	}
	secure := func(change func(*tls.Config)) func(*testing.T) (http.RoundTripper, string) {
		return func(t *testing.T) (http.RoundTripper, string) {
			s := netServe(t, func(http.ResponseWriter, *http.Request) {}, func(s *httptest.Server) { s.TLS = &tls.Config{} })
			tr := netFresh(t)
			tr.TLSClientConfig = s.base.TLSClientConfig.Clone()
			change(tr.TLSClientConfig)
			return tr, s.URL
		}
	}
	for name, tc := range map[string]struct {
		base   func(*testing.T) (http.RoundTripper, string)
		method string
		change func(*http.Request)
		want   bool
		is     error
		text   string
	}{
		"G2 refused": {base: func(t *testing.T) (http.RoundTripper, string) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			return netFresh(t), "http://" + l.Addr().String()
		}, want: true, is: syscall.ECONNREFUSED},
		"G3 reset": {base: func(t *testing.T) (http.RoundTripper, string) {
			return netFresh(t), netRaw(t, func(_ int, c *net.TCPConn) {
				netReadHead(bufio.NewReader(c))
				c.SetLinger(0)
			})
		}, want: true, is: syscall.ECONNRESET},
		"closed without a word":     {base: answer(""), want: true, is: io.EOF},
		"closed in the header":      {base: answer("HTTP/1.1 200 OK\r\n"), want: true, is: io.ErrUnexpectedEOF},
		"closed in a field's value": {base: answer("HTTP/1.1 200 OK\r\nContent-Length: 1"), want: true, is: io.ErrUnexpectedEOF},
		// net/http takes half a name for a whole line, so that nobody can tell these two apart.
		"closed in a field's name":   {base: answer("HTTP/1.1 200 OK\r\nContent-Le"), want: true, text: "malformed MIME header"},
		"malformed field":            {base: answer("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n"), want: true, text: "malformed MIME header"},
		"malformed status":           {base: answer("nonsense\r\n\r\n"), want: false, text: "malformed HTTP response"},
		"closed in an older version": {base: answer("HTTP/1.0"), want: true, text: "malformed HTTP response"},
		"closed in the status":       {base: answer("HTTP/1.1 20"), want: true, text: "malformed HTTP status code"},
		"a status of four digits":    {base: answer("HTTP/1.1 2000 OK\r\n\r\n"), want: false, text: "malformed HTTP status code"},
		"a status of letters":        {base: answer("HTTP/1.1 OK\r\n\r\n"), want: false, text: "malformed HTTP status code"},
		"a status below none":        {base: answer("HTTP/1.1 -20 OK\r\n\r\n"), want: false, text: "malformed HTTP status code"},
		"a mail server":              {base: answer("220 smtp.example.com\r\n"), want: false, text: "malformed HTTP"},
		"a field that begins blank":  {base: answer("HTTP/1.1 200 OK\r\n X: y\r\n\r\n"), want: false, text: "malformed MIME header initial line"},
		"a pipe that was closed": {base: func(t *testing.T) (http.RoundTripper, string) {
			tr := netFresh(t)
			tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { netReadHead(bufio.NewReader(theirs)); theirs.Close() }()
				return ours, nil
			}
			return tr, "http://127.0.0.1/"
		}, method: "PUT", change: func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20))), nil }
			r.Body, _ = r.GetBody()
			r.ContentLength = 1 << 20
		}, want: true, is: io.ErrClosedPipe},
		"an empty line":               {base: answer("\r\n\r\n"), want: false, text: "malformed HTTP response"},
		"an alert of TLS":             {base: answer("\x15\x03\x01\x00\x02\x02\x16"), want: false, text: "malformed HTTP response"},
		"another protocol's greeting": {base: answer("SSH-2.0-OpenSSH_9\r\n"), want: false, text: "malformed HTTP"},
		"no header in time": {base: func(t *testing.T) (http.RoundTripper, string) {
			tr := netFresh(t)
			tr.ResponseHeaderTimeout = 20 * time.Millisecond
			return tr, netRaw(t, func(_ int, c *net.TCPConn) { io.Copy(io.Discard, c) })
		}, want: true, text: "timeout awaiting response headers"},
		"no connection in time": {base: func(t *testing.T) (http.RoundTripper, string) {
			tr := netFresh(t)
			tr.DialContext = (&net.Dialer{Timeout: time.Nanosecond}).DialContext
			return tr, "http://127.0.0.1:1"
		}, want: true, text: "i/o timeout"},
		"G2 NXDOMAIN":                     {base: resolved(3), want: false, text: "no such host"},
		"SERVFAIL":                        {base: resolved(2), want: true, text: "server misbehaving"},
		"a resolver that is away":         {base: resolved(-1), want: true, text: "i/o timeout"},
		"C119 unknown authority":          {base: secure(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }), want: false, text: "unknown authority"},
		"C119 another host's certificate": {base: secure(func(c *tls.Config) { c.ServerName = "other.invalid" }), want: false, text: "not other.invalid"},
		"C119 a caller's own check fails": {base: secure(func(c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { return errors.New("pin does not match") }
		}), want: false, text: "pin does not match"},
		"G1 no common version": {base: func(t *testing.T) (http.RoundTripper, string) {
			s := netServe(t, func(http.ResponseWriter, *http.Request) {}, func(s *httptest.Server) { s.TLS = &tls.Config{MinVersion: tls.VersionTLS13} })
			tr := netFresh(t)
			tr.TLSClientConfig = s.base.TLSClientConfig.Clone()
			tr.TLSClientConfig.MaxVersion = tls.VersionTLS12
			return tr, s.URL
		}, want: false, text: "protocol version not supported"},
		"G1 TLS to a plain server": {base: func(t *testing.T) (http.RoundTripper, string) {
			s := netServe(t, func(http.ResponseWriter, *http.Request) {})
			return netFresh(t), strings.Replace(s.URL, "http:", "https:", 1)
		}, want: false, text: "first record does not look like a TLS handshake"},
		"closed in the TLS handshake": {base: func(t *testing.T) (http.RoundTripper, string) {
			return netFresh(t), strings.Replace(netRaw(t, func(_ int, c *net.TCPConn) { c.Read(make([]byte, 1<<10)) }), "http:", "https:", 1)
		}, want: true},
		"no TLS handshake in time": {base: func(t *testing.T) (http.RoundTripper, string) {
			tr := netFresh(t)
			tr.TLSHandshakeTimeout = 20 * time.Millisecond
			return tr, strings.Replace(netRaw(t, func(_ int, c *net.TCPConn) { io.Copy(io.Discard, c) }), "http:", "https:", 1)
		}, want: true, text: "TLS handshake timeout"},
		"C119 unsupported scheme": {base: func(t *testing.T) (http.RoundTripper, string) { return netFresh(t), "gopher://127.0.0.1/" }, want: false, text: "unsupported protocol scheme"},
		"no host":                 {base: func(t *testing.T) (http.RoundTripper, string) { return netFresh(t), "http:///path" }, want: false, text: "no Host in request URL"},
		"a port that is none":     {base: func(t *testing.T) (http.RoundTripper, string) { return netFresh(t), "http://127.0.0.1:99999/" }, want: false, text: "invalid port"},
		"an invalid header field": {base: answer(""), change: func(r *http.Request) { r.Header["bad name"] = []string{"x"} }, want: false, text: "invalid header field name"},
		"an invalid method":       {base: answer(""), change: func(r *http.Request) { r.Header["Idempotency-Key"] = nil; r.Method = "BAD METHOD" }, want: false, text: "invalid method"},
		"a body that can't be read": {base: answer(""), method: "PUT", change: func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(netBroken{}), 5
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(netBroken{}), nil }
		}, want: false, text: "broken"},
		"a proxy that refuses": {base: func(t *testing.T) (http.RoundTripper, string) {
			tr := netFresh(t)
			proxy, err := url.Parse(netRaw(t, func(_ int, c *net.TCPConn) {
				netReadHead(bufio.NewReader(c))
				io.WriteString(c, "HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
			}))
			if err != nil {
				t.Fatal(err)
			}
			tr.Proxy = http.ProxyURL(proxy)
			return tr, "https://host.invalid/"
		}, want: false, text: "Who are you"},
		"too many redirects": {base: func(t *testing.T) (http.RoundTripper, string) {
			s := netServe(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) })
			c := &http.Client{Transport: s.base}
			return netFunc(func(r *http.Request) (*http.Response, error) {
				resp, err := c.Do(&http.Request{Method: r.Method, URL: r.URL})
				if err != nil && resp != nil {
					resp.Body.Close()
				}
				return nil, err
			}), s.URL
		}, want: false, text: "stopped after 10 redirects"},
		"a client's own timeout below": {base: func(t *testing.T) (http.RoundTripper, string) {
			c := &http.Client{Transport: netFresh(t), Timeout: 20 * time.Millisecond}
			return netFunc(func(r *http.Request) (*http.Response, error) {
					return c.Do(&http.Request{Method: r.Method, URL: r.URL})
				}),
				netRaw(t, func(_ int, c *net.TCPConn) { io.Copy(io.Discard, c) })
		}, want: true, is: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			base, target := tc.base(t)
			var attempts int
			var last error
			tr := &retryafter.Transport{Base: base, Policy: netAtOnce(), Trace: &retryafter.Trace{AttemptDone: func(a retryafter.Attempt) {
				attempts, last = a.Number, a.Err
				if a.StatusCode != 0 || a.Err == nil {
					t.Errorf("attempt %d: status %d, error %v", a.Number, a.StatusCode, a.Err)
				}
			}}}
			method := tc.method
			if method == "" {
				method = "GET"
			}
			u, err := url.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			req := (&http.Request{Method: method, URL: u, Header: http.Header{}}).WithContext(t.Context())
			if tc.change != nil {
				tc.change(req)
			}
			resp, err := tr.RoundTrip(req)
			if resp != nil || err == nil {
				t.Fatalf("response %v, error %v", resp, err)
			}
			if tc.want {
				netWantError(t, resp, err, 3, retryafter.AttemptsUsed)
			} else if _, ok := errors.AsType[*retryafter.Error](err); ok || attempts != 1 || err != last {
				t.Errorf("%d attempts and %T %v, want one attempt and its own error", attempts, err, err)
			}
			if got := retryafter.DefaultRetry(retryafter.Attempt{Number: 1, Request: req, Err: last, Received: time.Now()}); got != tc.want {
				t.Errorf("DefaultRetry says %v", got)
			}
			if tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("error %v, want %v %s", err, tc.is, tc.text)
			}
		})
	}
}

// http.Client looks at the error's type itself, unwrapped.
func TestLoopbackClientStillKnowsASchemeMismatch(t *testing.T) {
	netGoroutines(t)
	s := netServe(t, func(http.ResponseWriter, *http.Request) {})
	_, err := (&http.Client{Transport: &retryafter.Transport{Base: netFresh(t)}}).Get(strings.Replace(s.URL, "http:", "https:", 1))
	if !errors.Is(err, http.ErrSchemeMismatch) {
		t.Errorf("error %v, want %v", err, http.ErrSchemeMismatch)
	}
}

func TestLoopbackTheZeroTransportUsesTheDefaultOne(t *testing.T) {
	// C152
	netGoroutines(t)
	s := netServe(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") })
	before := http.DefaultTransport
	c := &http.Client{Transport: &retryafter.Transport{}}
	resp, err := c.Get(s.URL)
	netWant(t, resp, err, 200, 1, retryafter.Final)
	netRead(t, resp)
	c.CloseIdleConnections()
	if http.DefaultTransport != before {
		t.Error("http.DefaultTransport was replaced")
	}
	netEventually(t, "the idle connection is closed", func() bool { return s.open.Load() == 0 })
}
