package retryaftertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter/retryaftertest"
)

func TestServeKeepsItsConnections(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			from := map[string]bool{}
			tr := retryaftertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				addr, err := netip.ParseAddrPort(r.RemoteAddr)
				if err != nil || !addr.Addr().IsLoopback() || (r.ProtoMajor == 2) != http2 {
					t.Errorf("%s from %s", r.Proto, r.RemoteAddr)
				}
				from[r.RemoteAddr] = true
				io.Copy(w, r.Body)
			}))
			if http2 {
				tr.Protocols = new(http.Protocols)
				tr.Protocols.SetUnencryptedHTTP2(true)
			}
			begin := time.Now()
			for i := range 100 {
				if _, body := send(t, &http.Client{Transport: tr}, "POST", "http://example.com", fmt.Sprint(i)); body != fmt.Sprint(i) {
					t.Errorf("body %q", body)
				}
			}
			if len(from) != 1 || time.Since(begin) != 0 {
				t.Errorf("%d connections in %v", len(from), time.Since(begin))
			}
		})
	}
}

func TestServeHasManyConnectionsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var from [2]string
		var here atomic.Int32
		c := &http.Client{Transport: retryaftertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			from[here.Add(1)-1] = r.RemoteAddr
			time.Sleep(time.Second)
		}))}
		done := make(chan bool)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if i.Conn.RemoteAddr().String() != "127.0.0.1:80" {
				t.Errorf("connected to %v", i.Conn.RemoteAddr())
			}
		}})
		for _, host := range []string{"http://a.example", "http://b.example"} {
			go func() {
				resp, err := c.Do(request(t, "GET", host, "").WithContext(ctx))
				if err == nil {
					read(t, resp)
				}
				done <- err == nil
			}()
		}
		for range 2 {
			if !<-done {
				t.Error("not served")
			}
		}
		if from[0] == from[1] {
			t.Errorf("both from %v", from)
		}
	})
}

// A request that nobody ends doesn't keep the bubble.
func TestServeEndsWithTheTest(t *testing.T) {
	t.Run("a handler is waited for", func(t *testing.T) {
		w := &witness{TB: t}
		began, gone := make(chan bool), false
		c := &http.Client{Transport: retryaftertest.Serve(w, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
			time.Sleep(10 * time.Millisecond)
			gone = true
		}))}
		failed := make(chan error)
		go func() {
			_, err := c.Get("http://example.com")
			failed <- err
		}()
		<-began
		w.end()
		if !gone {
			t.Error("it is still there")
		}
		if err := <-failed; err == nil {
			t.Error("answered")
		}
		if _, err := c.Get("http://example.com"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
	t.Run("in a bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			script := retryaftertest.NewScript(t, retryaftertest.Response{Fault: retryaftertest.Hang}, retryaftertest.Response{Body: "ok"})
			c := &http.Client{Transport: retryaftertest.Serve(t, script)}
			go c.Get("http://example.com")
			synctest.Wait()
			send(t, c, "GET", "http://example.com", "") // and is kept alive
		})
	})
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("though its body was not read, HTTP/2 %v", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &witness{TB: t}
				gone := false
				tr := retryaftertest.Serve(w, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					time.Sleep(time.Second)
					gone = true
				}))
				tr.Protocols = new(http.Protocols)
				tr.Protocols.SetHTTP1(!http2)
				tr.Protocols.SetUnencryptedHTTP2(http2)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := tr.RoundTrip(request(t, "PUT", "http://example.com", "x").WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if w.end(); !gone {
					t.Error("it is still there")
				}
			})
		})
	}
	t.Run("what a handler took over is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &witness{TB: t}
			var read, left error
			tr := retryaftertest.Serve(w, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
				if r.URL.Path == "/leaves" { // it to another
					go func() { _, left = rw.ReadByte() }()
					return
				}
				_, read = rw.ReadByte()
				time.Sleep(time.Second)
			}))
			for _, path := range []string{"/", "/leaves"} {
				req := request(t, "GET", "http://example.com"+path, "")
				req.Header = http.Header{"Connection": {"upgrade"}, "Upgrade": {"x"}}
				if resp, err := tr.RoundTrip(req); err != nil || resp.StatusCode != 101 {
					t.Error(resp, err)
				}
			}
			begin := time.Now()
			w.end()
			synctest.Wait()
			if read == nil || left == nil || time.Since(begin) != time.Second {
				t.Errorf("%v and %v, after %v", read, left, time.Since(begin))
			}
		})
	})
	t.Run("what a handler takes over after the end is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &witness{TB: t}
			var read error
			tr := retryaftertest.Serve(w, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				time.Sleep(time.Second)
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, read = c.Read(make([]byte, 1))
			}))
			go tr.RoundTrip(request(t, "GET", "http://example.com", ""))
			synctest.Wait()
			if w.end(); read == nil {
				t.Error("read")
			}
		})
	})
	t.Run("unused", func(t *testing.T) {
		w := &witness{TB: t}
		for range 100 {
			retryaftertest.Serve(w, http.NotFoundHandler())
			w.end()
		}
	})
}

func TestADialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := retryaftertest.Serve(t, http.NotFoundHandler())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // either the server was there first, or
			if _, err := tr.DialContext(ctx, "tcp", "example.com:80"); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
		}
		t.Error("never ends")
	})
}

// What was sent before a reset may be lost, and a write fails by it too.
func TestAResetIsSeenByWhoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := retryaftertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			c.(interface{ SetLinger(int) error }).SetLinger(0)
			c.Close()
		}))
		c, err := tr.DialContext(t.Context(), "tcp", "example.com:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		if _, err := io.Copy(c, strings.NewReader("more")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write: %v", err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
	})
}
