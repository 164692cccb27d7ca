package compare

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter/bench/internal/peers"
)

// A verdict is what a check found out about a contender.
type verdict struct {
	right bool
	none  bool   // there is nothing to be right or wrong about
	saw   string // in few words; "" where it is right and that is all
}

var right = verdict{right: true}

func wrong(format string, args ...any) verdict { return verdict{saw: fmt.Sprintf(format, args...)} }

func (v verdict) String() string {
	mark := "✗"
	switch {
	case v.none:
		mark = "n/a"
	case v.right:
		mark = "✓"
	}
	if v.saw == "" {
		return mark
	}
	return mark + " " + v.saw
}

// A run is one check of one contender.
type run struct {
	contender
	ctx    context.Context // ends with the check, and so does all that hangs on it
	server *server
	do     peers.Do
}

// verdict runs check in a bubble of its own. A contender that panics, or leaves
// goroutines that wait for ever, is wrong, and takes nothing else down.
func (c contender) verdict(t *testing.T, check func(*run) verdict) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			if v.right || v.saw == "" {
				v = wrong("%v", p)
			}
		}
	}()
	synctest.Test(t, func(*testing.T) {
		defer func() {
			if p := recover(); p != nil {
				v = wrong("panics: %v", p)
			}
		}()
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		v = check(&run{contender: c, ctx: ctx})
	})
	return v
}

// settings are what a check asks for unless it says otherwise.
var settings = peers.Settings{Attempts: 3, Backoff: time.Second}

// serve makes the contender, and a server that answers each path's attempt n by
// answer.
func (r *run) serve(s peers.Settings, answer func(n int, req *http.Request) (*http.Response, error)) {
	r.server = &server{began: time.Now(), answer: answer, paths: map[string][]arrival{}}
	r.do = r.Do(r.server, s)
}

// once makes the server busy at first, with the Retry-After fields, and well
// then.
func (r *run) once(s peers.Settings, retryAfter ...string) {
	r.serve(s, func(n int, _ *http.Request) (*http.Response, error) {
		if n == 1 {
			return r.busy(n, retryAfter...), nil
		}
		return response(200, "ok"), nil
	})
}

// A server is a RoundTripper that keeps what arrives.
type server struct {
	began  time.Time
	answer func(n int, req *http.Request) (*http.Response, error)

	mu    sync.Mutex
	paths map[string][]arrival
}

type arrival struct {
	at     time.Duration // since the server began
	header http.Header
	body   string
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	a := arrival{at: time.Since(s.began), header: req.Header.Clone()}
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		if req.ContentLength > 0 && int64(len(b)) != req.ContentLength { // as http.Transport
			return nil, fmt.Errorf("http: ContentLength=%d with Body length %d", req.ContentLength, len(b))
		}
		a.body = string(b)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.paths[req.URL.Path] = append(s.paths[req.URL.Path], a)
	n := len(s.paths[req.URL.Path])
	s.mu.Unlock()
	resp, err := s.answer(n, req)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

// arrived gives what arrived for path.
func (s *server) arrived(path string) []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[path]
}

// request is a request to path.
func (r *run) request(method, path string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(r.ctx, method, "http://stub.example"+path, body)
	if err != nil {
		panic(err)
	}
	return req
}

// send sends req, and drops what comes of it.
func (r *run) send(req *http.Request) {
	if resp, err := r.do(req); err == nil {
		resp.Body.Close()
	}
}

// get sends a GET, drops what comes of it, and tells what arrived.
func (r *run) get() []arrival {
	r.send(r.request("GET", "/", nil))
	return r.server.arrived("/")
}

// A network is a server in memory, and the http.Transport that leads to it.
type network struct {
	*http.Transport
	server http.Server
	accept chan net.Conn
	closed chan struct{}
	dials  int
}

func newNetwork(h http.HandlerFunc) *network {
	n := &network{accept: make(chan net.Conn), closed: make(chan struct{})}
	n.server.Handler = h
	n.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		n.dials++ // calls come one after the other
		client, server := net.Pipe()
		n.accept <- server
		return client, nil
	}}
	go n.server.Serve(n)
	return n
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { close(n.closed); return nil }
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) stop() {
	n.CloseIdleConnections()
	n.server.Close()
	synctest.Wait()
}
