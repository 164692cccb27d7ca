package retryaftertest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// Serve serves h until the test ends, in memory, and returns the transport
// whose connections lead there, whatever host a request is for. There is an
// http.Server at the other end, and each connection is a net.Pipe: in a bubble
// of testing/synctest, time passes while both ends wait.
//
// The transport may be changed before its first use. It speaks HTTP/1.1 and has
// no TLS; the server also understands HTTP/2 in the clear, for a transport whose
// Protocols say so.
//
// At the end of the test connections are closed, those that handlers took over
// included, and handlers are waited for, whose requests' contexts are then done.
func Serve(t testing.TB, h http.Handler) *http.Transport {
	if h == nil {
		h = http.DefaultServeMux // as http.Server
	}
	l := &listener{accept: make(chan net.Conn), closed: make(chan struct{})}
	serving, end := context.WithCancel(context.Background())
	use := &use{handler: h}
	server := &http.Server{
		Handler:     use,
		Protocols:   new(http.Protocols),
		BaseContext: func(net.Listener) context.Context { return serving },
		ConnState:   use.connection,
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	use.running.Go(func() { server.Serve(l) })
	t.Cleanup(func() {
		server.Close()
		end()
		use.end()
	})
	return &http.Transport{DialContext: l.dial}
}

// A use keeps account of what a server does for a test.
type use struct {
	handler http.Handler
	running sync.WaitGroup // connections, and handlers: HTTP/2 leaves them behind

	mu       sync.Mutex
	ended    bool
	hijacked []net.Conn
}

// end closes what http.Server does not close, and waits for what still runs.
func (u *use) end() {
	u.mu.Lock()
	u.ended = true
	for _, c := range u.hijacked {
		c.Close()
	}
	u.mu.Unlock()
	u.running.Wait()
}

// ServeHTTP serves by the handler until the end.
func (u *use) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	u.mu.Lock()
	if u.ended {
		u.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	u.running.Add(1)
	u.mu.Unlock()
	defer u.running.Done()
	u.handler.ServeHTTP(w, req)
}

func (u *use) connection(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		u.running.Add(1)
	case http.StateClosed:
		u.running.Done()
	case http.StateHijacked:
		u.mu.Lock()
		if u.hijacked = append(u.hijacked, c); u.ended {
			c.Close()
		}
		u.mu.Unlock()
		u.running.Done()
	}
}

// A listener accepts what is dialed.
type listener struct {
	accept chan net.Conn
	closed chan struct{}
	dialed atomic.Int32
}

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	broken := new(atomic.Bool)
	from := &net.TCPAddr{IP: loopback, Port: 1024 + int(l.dialed.Add(1))}
	select {
	case l.accept <- &conn{server, broken, l.Addr(), from}:
		return &conn{client, broken, from, l.Addr()}, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l.Addr(), Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is called once, by http.Server.
func (l *listener) Close() error {
	close(l.closed)
	return nil
}

var loopback = net.IPv4(127, 0, 0, 1)

func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: loopback, Port: 80} }

// A conn is one end of a net.Pipe that looks more like TCP.
type conn struct {
	net.Conn
	broken        *atomic.Bool // of both ends
	local, remote net.Addr
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetLinger is net.TCPConn's: with 0, Close resets the connection.
func (c *conn) SetLinger(sec int) error {
	c.broken.Store(sec == 0)
	return nil
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.mended("read", err, io.EOF)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.mended("write", err, io.ErrClosedPipe)
}

// mended is err, or what it is on a connection that was reset.
func (c *conn) mended(op string, err, end error) error {
	if errors.Is(err, end) && c.broken.Load() {
		return resetError(op)
	}
	return err
}

func resetError(op string) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, errReset)}
}
