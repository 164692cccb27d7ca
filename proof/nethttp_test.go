package proof

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	"golang.org/x/net/http2"
)

// These tests hold docs/roundtrippers.md, "What net/http repeats by itself",
// against net/http: a row each. Each call may make one attempt, so what arrives
// more than once is not ours.

// wire is an http.Transport to a server in memory.
func wire(dial func(n int, client net.Conn) net.Conn, serve func(n int, c net.Conn)) *http.Transport {
	var dials atomic.Int32
	return &http.Transport{
		MaxIdleConnsPerHost: 10,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			n := int(dials.Add(1))
			go serve(n, server)
			if dial != nil {
				client = dial(n, client)
			}
			return client, nil
		},
	}
}

// A repeat is a request and how often it arrives where net/http's rule is that
// it goes again.
type repeat struct {
	method string
	key    []string // of Idempotency-Key
	body   string   // "", "replayable" or "opaque"
}

func (r repeat) String() string { return fmt.Sprintf("%s key %q body %q", r.method, r.key, r.body) }

func (r repeat) request(url string) *http.Request {
	req, err := http.NewRequest(r.method, url, nil)
	switch r.body {
	case "replayable":
		req, err = http.NewRequest(r.method, url, strings.NewReader("hello"))
	case "opaque":
		req, err = http.NewRequest(r.method, url, io.NopCloser(strings.NewReader("hello")))
		req.ContentLength = 5
	}
	if err != nil {
		panic(err)
	}
	if r.key != nil {
		req.Header["Idempotency-Key"] = r.key
	}
	return req
}

// once makes r's call with a single attempt.
func (r repeat) once(t *testing.T, base http.RoundTripper) error {
	attempts := 0
	tr := &retryafter.Transport{Base: base, Trace: &retryafter.Trace{Done: func(_ *http.Request, report retryafter.Report) { attempts = report.Attempts }}}
	tr.MaxAttempts = 1
	resp, err := tr.RoundTrip(r.request("http://server.test/"))
	if attempts != 1 {
		t.Errorf("%d attempts", attempts)
	}
	if err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return err
}

// keep opens n connections that serve again. The server answers when open is
// closed, so that each request needs its own.
func keep(t *testing.T, base *http.Transport, n int, open chan struct{}) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, err := base.RoundTrip(repeat{method: "GET"}.request("http://server.test/"))
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	synctest.Wait()
	close(open)
	wg.Wait()
	synctest.Wait()
}

var errBroken = errors.New("broken by the test")

// brittle is a connection whose writes or reads may fail.
type brittle struct {
	net.Conn
	writes *atomic.Bool // fail before the first byte
	reads  bool         // fail where the other side has closed
}

func (b brittle) Write(p []byte) (int, error) {
	if b.writes != nil && b.writes.Load() {
		return 0, errBroken
	}
	return b.Conn.Write(p)
}

func (b brittle) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err == io.EOF && b.reads {
		err = errBroken
	}
	return n, err
}

// requests reads requests and calls reply with each, until that returns false.
func requests(c net.Conn, open chan struct{}, reply func(i int) bool) {
	defer c.Close()
	r := bufio.NewReader(c)
	for i := 1; ; i++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		io.Copy(io.Discard, req.Body)
		<-open
		if !reply(i) {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

func TestNetHTTPRepeatsAnythingThatAKeptConnectionDidNotCarry(t *testing.T) {
	for r, again := range map[*repeat]bool{
		{"GET", nil, ""}:                  true,
		{"PUT", nil, "replayable"}:        true,
		{"POST", nil, ""}:                 true,
		{"POST", nil, "replayable"}:       true,
		{"POST", nil, "opaque"}:           false,
		{"GET", nil, "opaque"}:            false,
		{"POST", []string{"k"}, "opaque"}: false,
	} {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := make(chan struct{})
				var broken atomic.Bool
				var arrived, dialled atomic.Int32
				base := wire(func(n int, c net.Conn) net.Conn {
					dialled.Add(1)
					if n > 3 {
						return c
					}
					return brittle{Conn: c, writes: &broken}
				}, func(n int, c net.Conn) {
					requests(c, open, func(int) bool { arrived.Add(1); return true })
				})
				defer base.CloseIdleConnections()
				keep(t, base, 3, open)
				arrived.Store(0)
				broken.Store(true)
				err := r.once(t, base)
				if (err == nil) != again || arrived.Load() != map[bool]int32{true: 1}[again] || dialled.Load() != map[bool]int32{true: 4, false: 3}[again] {
					t.Errorf("%v, %d arrived, %d connections", err, arrived.Load(), dialled.Load())
				}
			})
		})
	}
}

func TestNetHTTPRepeatsTheIdempotentThatAKeptConnectionDidNotAnswer(t *testing.T) {
	for r, again := range map[*repeat]bool{
		{"GET", nil, ""}:                       true,
		{"HEAD", nil, ""}:                      true,
		{"OPTIONS", nil, ""}:                   true,
		{"TRACE", nil, ""}:                     true,
		{"POST", []string{"k"}, ""}:            true,
		{"POST", []string{"k"}, "replayable"}:  true,
		{"POST", []string{}, "replayable"}:     true,
		{"PATCH", []string{"k"}, "replayable"}: true,
		{"OPTIONS", nil, "replayable"}:         true,
		{"POST", nil, ""}:                      false,
		{"POST", nil, "replayable"}:            false,
		{"PUT", nil, "replayable"}:             false,
		{"DELETE", nil, ""}:                    false,
		{"QUERY", nil, "replayable"}:           false,
		{"POST", []string{"k"}, "opaque"}:      false,
		{"OPTIONS", nil, "opaque"}:             false,
		{"DELETE", []string{"k"}, ""}:          true,
	} {
		for _, reads := range []bool{false, true} {
			t.Run(fmt.Sprint(r, " failing ", reads), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					open := make(chan struct{})
					var arrived atomic.Int32
					base := wire(func(n int, c net.Conn) net.Conn { return brittle{Conn: c, reads: reads} }, func(n int, c net.Conn) {
						requests(c, open, func(i int) bool { arrived.Add(1); return i == 1 })
					})
					defer base.CloseIdleConnections()
					keep(t, base, 3, open)
					arrived.Store(0)
					err := r.once(t, base)
					if want := map[bool]int32{true: 4, false: 1}[again]; (err == nil) != again || arrived.Load() != want {
						t.Errorf("%v, arrived %d times, want %d", err, arrived.Load(), want)
					}
				})
			})
		}
	}
}

func TestNetHTTPDoesNotRepeatWhatANewConnectionDidNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		close(open)
		var arrived atomic.Int32
		base := wire(nil, func(n int, c net.Conn) {
			requests(c, open, func(int) bool { arrived.Add(1); return false })
		})
		if err := (repeat{method: "GET"}).once(t, base); err == nil || arrived.Load() != 1 {
			t.Errorf("%v, arrived %d times", err, arrived.Load())
		}
	})
}

func TestNetHTTPRepeatsWhatHTTP2SaysWasNotDone(t *testing.T) {
	refused := func(code http2.ErrCode) func(f *frames, s stream) bool {
		return func(f *frames, s stream) bool { f.WriteRSTStream(s.id, code); return true }
	}
	for name, tc := range map[string]struct {
		refuse func(f *frames, s stream) bool
		again  bool
	}{
		"REFUSED_STREAM": {refused(http2.ErrCodeRefusedStream), true},
		"GOAWAY that does not": {func(f *frames, s stream) bool {
			f.goAway(s.id, http2.ErrCodeNo)
			return false
		}, false},
		"INTERNAL_ERROR":      {refused(http2.ErrCodeInternal), false},
		"CANCEL":              {refused(http2.ErrCodeCancel), false},
		"ENHANCE_YOUR_CALM":   {refused(http2.ErrCodeEnhanceYourCalm), false},
		"the connection ends": {func(*frames, stream) bool { return false }, false},
	} {
		for _, r := range []repeat{
			{"GET", nil, ""}, {"PUT", nil, "replayable"}, {"POST", nil, ""}, {"POST", nil, "replayable"}, {"POST", nil, "opaque"}, {"POST", []string{"k"}, "replayable"},
		} {
			t.Run(fmt.Sprint(name, " ", r), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var at []time.Duration
					start := time.Now()
					base := wire(nil, func(n int, c net.Conn) {
						serveFrames(c, func(f *frames, s stream) bool {
							mu.Lock()
							defer mu.Unlock()
							if want := map[bool]string{true: "hello"}[r.body != ""]; string(s.body) != want {
								t.Errorf("arrived with %q", s.body)
							}
							at = append(at, time.Since(start))
							return tc.refuse(f, s)
						})
					})
					base.Protocols = new(http.Protocols)
					base.Protocols.SetUnencryptedHTTP2(true)
					err := r.once(t, base)
					synctest.Wait()
					base.CloseIdleConnections()
					synctest.Wait()
					if err == nil {
						t.Error("nobody answered, and there is a response")
					}
					want := 1
					if tc.again && r.body != "opaque" {
						want = 8 // 7 times again
					}
					if len(at) != want {
						t.Fatalf("arrived at %v, want %d times", at, want)
					}
					for i := 1; i < len(at); i++ {
						gap, least := at[i]-at[i-1], time.Duration(0)
						if i > 1 {
							least = time.Second << (i - 2)
						}
						if gap < least || gap > least+least/5 {
							t.Errorf("time %d after %v, want %v", i+1, gap, least)
						}
					}
				})
			})
		}
	}
}

// What ends these is a new connection that does not do so too, or a deadline.
func TestNetHTTPRepeatsAtOnceOnANewHTTP2Connection(t *testing.T) {
	for name, refuse := range map[string]func(f *frames, s stream) bool{
		"GOAWAY that excludes it": func(f *frames, s stream) bool {
			f.goAway(0, http2.ErrCodeNo)
			return false
		},
		"PROTOCOL_ERROR": func(f *frames, s stream) bool { f.WriteRSTStream(s.id, http2.ErrCodeProtocol); return false },
	} {
		for r, want := range map[*repeat]int32{
			{"GET", nil, ""}: 31, {"POST", nil, ""}: 31, {"POST", nil, "replayable"}: 31, {"POST", nil, "opaque"}: 1,
		} {
			t.Run(fmt.Sprint(name, " ", r), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					var arrived, dialled atomic.Int32
					base := wire(func(n int, c net.Conn) net.Conn { dialled.Add(1); return c }, func(n int, c net.Conn) {
						serveFrames(c, func(f *frames, s stream) bool {
							if arrived.Add(1) > 30 {
								f.reply(s.id, 200, nil, "", true)
								return true
							}
							return refuse(f, s)
						})
					})
					base.Protocols = new(http.Protocols)
					base.Protocols.SetUnencryptedHTTP2(true)
					err := r.once(t, base)
					synctest.Wait()
					base.CloseIdleConnections()
					synctest.Wait()
					if arrived.Load() != want || dialled.Load() < want || (err == nil) != (want > 1) || time.Since(start) != 0 {
						t.Errorf("%v, arrived %d times on %d connections in %v, want %d", err, arrived.Load(), dialled.Load(), time.Since(start), want)
					}
				})
			})
		}
	}
}
