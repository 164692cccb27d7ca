package throttle_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/throttle"
)

// pipes is a net.Listener whose connections are pipes, as synctest needs them.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }

// inMemory serves h without a network, within a bubble.
func inMemory(t *testing.T, h http.Handler) *http.Transport {
	p := pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: h}
	go server.Serve(p)
	client := &http.Transport{
		MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			here, there := net.Pipe()
			p.conns <- there
			return here, nil
		},
	}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		server.Close()
	})
	return client
}

// A ledger is what a server admitted, by its own record: between which two
// instants.
type ledger struct {
	Limiter
	mu       sync.Mutex
	from, to []time.Time
	refused  int
}

func (l *ledger) Take(ctx context.Context, k retryafter.Key, n int) (time.Duration, error) {
	from := time.Now()
	d, err := l.Limiter.Take(ctx, k, n)
	to := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if d == 0 && err == nil {
		l.from, l.to = append(l.from, from), append(l.to, to)
	} else {
		l.refused++
	}
	return d, err
}

// check fails t where more was admitted in any interval than a bucket may.
func (l *ledger) check(t *testing.T, capacity int, rate float64) {
	t.Helper()
	slices.SortFunc(l.from, time.Time.Compare)
	slices.SortFunc(l.to, time.Time.Compare)
	for i, from := range l.from {
		for j := i; j < len(l.to); j++ {
			if span := l.to[j].Sub(from); float64(j-i+1) > float64(capacity)+rate*span.Seconds()+1e-6 {
				t.Fatalf("%d admitted in %v", j-i+1, span)
			}
		}
	}
}

// callAtOnce makes n calls at once, and fails t unless all are served.
func callAtOnce(t *testing.T, n int, transport *retryafter.Transport) {
	t.Helper()
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			resp, err := client.Get("http://server.test/")
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || string(body) != "served" || err != nil {
				t.Errorf("%s %q %v: %v", resp.Status, body, err, retryafter.ReportOf(resp))
			}
		})
	}
	all.Wait()
}

func patient() retryafter.Policy {
	return retryafter.Policy{MaxAttempts: -1, Jitter: retryafter.Spread(0.1, 100*time.Millisecond, time.Second)}
}

func TestFiftyImpatientClientsAreAllServedWithinTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &ledger{Limiter: Keyed(&retryafter.Keyed{Capacity: 20, Rate: retryafter.PerSecond(10)})}
		base := inMemory(t, &Handler{Next: served, Limit: server})
		begin := time.Now()
		callAtOnce(t, 50, &retryafter.Transport{Base: base, Policy: patient()})
		server.check(t, 20, 10)
		if len(server.from) != 50 || server.refused == 0 || time.Since(begin) < 3*time.Second {
			t.Errorf("%d admitted and %d refused in %v", len(server.from), server.refused, time.Since(begin))
		}
	})
}

// A client that keeps to the same figures is never refused, where what it
// sends arrives as it was sent.
func TestAClientThatKeepsToTheQuotaIsNeverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &ledger{Limiter: Keyed(&retryafter.Keyed{Capacity: 20, Rate: retryafter.PerSecond(10)})}
		base := inMemory(t, &Handler{Next: served, Limit: server})
		callAtOnce(t, 200, &retryafter.Transport{
			Base: base, Policy: patient(),
			Limiter: &retryafter.Bucket{Capacity: 20, Rate: retryafter.PerSecond(10)},
		})
		if server.refused != 0 || len(server.from) != 200 {
			t.Errorf("%d admitted, %d refused", len(server.from), server.refused)
		}
	})
}

// stalled is a network that delivers nothing before an instant.
type stalled struct {
	http.RoundTripper
	until time.Time
}

func (s stalled) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Until(s.until))
	return s.RoundTripper.RoundTrip(req)
}

// What left over a span t may arrive within t less the spread of the delays on
// the way. So a client that will not be refused must have a burst that is
// smaller by what the rate gives in that spread: here 5 in half a second.
func TestASmallerBurstMakesUpForUnevenDelays(t *testing.T) {
	for capacity, refused := range map[int64]int{20: 5, 16: 1, 15: 0} {
		synctest.Test(t, func(t *testing.T) {
			server := &ledger{Limiter: Keyed(&retryafter.Keyed{Capacity: 20, Rate: retryafter.PerSecond(10)})}
			base := inMemory(t, &Handler{Next: served, Limit: server})
			callAtOnce(t, 200, &retryafter.Transport{
				Base: stalled{base, time.Now().Add(500 * time.Millisecond)}, Policy: patient(),
				Limiter: &retryafter.Bucket{Capacity: capacity, Rate: retryafter.PerSecond(10)},
			})
			if early := server.refused > 0; early != (refused > 0) || server.refused < refused {
				t.Errorf("a burst of %d: %d refused", capacity, server.refused)
			}
		})
	}
}

func TestFiftyClientsOverLoopback(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	keyed := &retryafter.Keyed{Capacity: 20, Rate: retryafter.PerSecond(50)}
	server := &ledger{Limiter: Keyed(keyed)}
	addr := &ClientAddr{}
	listening := httptest.NewServer(&Handler{Next: served, Limit: server, Key: addr.Key})
	defer listening.Close()
	base := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, listening.Listener.Addr().String())
	}}
	defer base.CloseIdleConnections()
	callAtOnce(t, 50, &retryafter.Transport{Base: base, Policy: patient()})
	server.check(t, 20, 50)
	if len(server.from) != 50 || keyed.Stats().Keys > 1 {
		t.Errorf("%d admitted, %+v", len(server.from), keyed.Stats())
	}
}

func TestARefusalOverHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(&Handler{Next: served, Limit: delaying(1500 * time.Millisecond)})
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, method := range []string{"GET", "HEAD", "POST"} {
		req, _ := http.NewRequest(method, server.URL, strings.NewReader(strings.Repeat("x", 1<<20)))
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		hint, _ := retryafter.FromHeader(resp.Header, time.Now())
		if resp.ProtoMajor != 2 || resp.StatusCode != 429 || hint.Delay != 2*time.Second || err != nil {
			t.Errorf("%s: %s %s, %v, %v", method, resp.Proto, resp.Status, hint, err)
		}
		if length := int64(len(body)); (length == 0) != (method == "HEAD") || resp.ContentLength <= 0 || length > 0 && length != resp.ContentLength {
			t.Errorf("%s: %d bytes of %d", method, length, resp.ContentLength)
		}
	}
}

func TestAnUploadThatWaitsIsRefusedUnsent(t *testing.T) {
	server := httptest.NewServer(&Handler{Next: served, Limit: delaying(time.Second)})
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 429 {
		t.Error(resp.Status)
	}
}
