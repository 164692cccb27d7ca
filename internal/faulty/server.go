package faulty

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// What bounds whatever a client could wait for without end.
const (
	hold   = 150 * time.Millisecond // how long nothing comes
	tick   = time.Millisecond       // between two bytes of a body that drips
	flood  = 16 << 20               // bytes of a body without end
	wrong  = 5 * time.Second        // until reads and writes that should not block fail
	unread = 1 << 20                // bytes of a request's body that are read
)

// A Server speaks HTTP/1.1 by hand, for what net/http's does not do on request.
type Server struct {
	Plan
	TLS     *tls.Config
	Refuses func() bool // whether to reset a connection before its first request; nil: never

	mu    sync.Mutex
	addr  string
	ln    net.Listener
	conns map[*net.TCPConn]bool
	wg    sync.WaitGroup
}

// Listen begins to serve, on the same port as before if there was one.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == "" {
		s.addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	s.ln, s.addr = ln, ln.Addr().String()
	if s.conns == nil {
		s.conns = map[*net.TCPConn]bool{}
	}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.accept(ln, c.(*net.TCPConn))
		}
	})
	return nil
}

func (s *Server) accept(ln net.Listener, c *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ln != ln || s.Refuses != nil && s.Refuses() {
		reset(c)
		return
	}
	s.conns[c] = true
	s.wg.Go(func() {
		s.serve(c)
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// URL is where the server is.
func (s *Server) URL() string {
	if s.TLS != nil {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

// Conns is how many connections are open.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Kill ends the server as the end of its process would: connections are reset,
// new ones refused. Listen brings it back.
func (s *Server) Kill() {
	s.mu.Lock()
	s.ln.Close()
	s.ln = nil
	for c := range s.conns {
		reset(c)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// serve serves one connection.
func (s *Server) serve(raw *net.TCPConn) {
	var c net.Conn = raw
	if s.TLS != nil {
		c = tls.Server(raw, s.TLS)
	}
	r := bufio.NewReader(c)
	for first := true; ; first = false {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		a := s.Arrive(req.Header, req.Method, first)
		again := s.reply(a, raw, c, r, req)
		s.Over(a)
		if !again {
			return
		}
	}
}

// reply does a's step, and reports whether the connection can serve again.
func (s *Server) reply(a *Arrival, raw *net.TCPConn, c net.Conn, r *bufio.Reader, req *http.Request) bool {
	c.SetDeadline(time.Now().Add(wrong))
	defer c.SetDeadline(time.Time{})
	step := a.Step
	switch step.Fault {
	case Reset:
		reset(raw)
		return false
	case Early, EarlyClose:
		return early(a, c, req)
	}
	if req.Header.Get("Expect") != "" {
		fmt.Fprint(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if !a.read(req.Body) {
		return false
	}
	text := strings.Repeat("x", step.Body)
	if req.Method == http.MethodHead && step.Fault >= Short && step.Fault <= Endless {
		step.Fault = None // all of these are about the body
	}
	switch step.Fault {
	case None:
		return a.head(c, req, "", len(text), text)
	case Chunked:
		return a.head(c, req, "", -1, chunk(text)+"0\r\n\r\n")
	case Last:
		a.head(c, req, "Connection: close\r\n", len(text), text)
		return false
	case Interim:
		fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
		fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\nRetry-After: 0\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
		return a.head(c, req, "", len(text), text)
	case ClosesIdle:
		a.head(c, req, "", len(text), text)
		return false
	case Drip:
		if !a.head(c, req, "", len(text), "") || req.Method == http.MethodHead {
			return req.Method == http.MethodHead
		}
		for i := range len(text) {
			if !write(c, text[i:i+1]) {
				return false
			}
			time.Sleep(tick)
		}
		return true
	case ResetLater:
		reset(raw)
	case Close:
	case HalfHeader:
		a.Answered = time.Time{}
		fmt.Fprintf(c, "HTTP/1.1 %d Half\r\nRetry-After: 3600\r\nContent-", step.Status)
	case Short:
		a.head(c, req, "", len(text)+10, text)
	case Cut:
		a.head(c, req, "", -1, chunk(text+"x"))
	case Stall:
		a.head(c, req, "", len(text)+1, text)
		wait(c, r)
	case Endless:
		if a.head(c, req, "", -1, "") {
			block := chunk(strings.Repeat("x", 32<<10))
			for n := 0; n < flood && write(c, block); n += len(block) {
			}
		}
	case Silent:
		wait(c, r)
	case Garbage:
		fmt.Fprint(c, "SSH-2.0-OpenSSH_9.9\r\n\r\n")
	default:
		panic(step.Fault)
	}
	return false
}

// early answers while the request's body is on its way.
func early(a *Arrival, c net.Conn, req *http.Request) bool {
	text := strings.Repeat("x", a.Step.Body)
	if !a.head(c, req, "", len(text), text) {
		return false
	}
	if a.Step.Fault == EarlyClose {
		io.CopyN(io.Discard, req.Body, 1<<10)
		return false
	}
	if req.Header.Get("Expect") != "" {
		return false // whether the body comes is for the client to choose
	}
	time.Sleep(tick)
	return a.read(slow{req.Body})
}

type slow struct{ io.Reader }

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(tick / 4)
	return s.Reader.Read(p[:min(len(p), 8<<10)])
}

// read reads the request's body, and reports whether it is whole.
func (a *Arrival) read(body io.Reader) bool {
	var err error
	a.Body, err = io.ReadAll(io.LimitReader(body, unread+1))
	a.Whole = err == nil && len(a.Body) <= unread
	return a.Whole
}

// head writes the response's header, with a Content-Length unless that is
// negative, and what follows. It reports whether that went well.
func (a *Arrival) head(c net.Conn, req *http.Request, more string, length int, body string) bool {
	fields := a.Fields()
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", a.Step.Status, http.StatusText(a.Step.Status))
	fields.Write(&b)
	b.WriteString(more)
	if length < 0 {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", length)
	}
	if req.Method != http.MethodHead {
		b.WriteString(body)
	}
	return write(c, b.String())
}

func chunk(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(s), s)
}

func write(c net.Conn, s string) bool {
	_, err := io.WriteString(c, s)
	return err == nil
}

// wait lets time pass, unless the client is gone before.
func wait(c net.Conn, r *bufio.Reader) {
	c.SetReadDeadline(time.Now().Add(hold))
	r.Peek(1)
}

// ServeHTTP does what it can of the plan with the means of net/http's server,
// for HTTP/2. It sends no 1xx: net/http's HTTP/2 server may still read their
// header when it is written to for the response.
func (p *Plan) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	a := p.Arrive(req.Header, req.Method, false)
	defer p.Over(a)
	step := a.Step
	switch step.Fault {
	case Early, EarlyClose, Reset:
	default:
		a.read(req.Body)
	}
	switch step.Fault {
	case Reset, ResetLater, Close, HalfHeader, Garbage:
		panic(http.ErrAbortHandler)
	case Silent:
		pause(req, hold)
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), a.Fields())
	w.WriteHeader(step.Status)
	flusher := http.NewResponseController(w)
	text := strings.Repeat("x", step.Body)
	switch step.Fault {
	case Early, EarlyClose:
		flusher.Flush()
	case Drip:
		for i := range len(text) {
			io.WriteString(w, text[i:i+1])
			flusher.Flush()
			pause(req, tick)
		}
		return
	case Endless:
		block := make([]byte, 32<<10)
		for n := 0; n < flood; n += len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	io.WriteString(w, text)
	switch step.Fault {
	case Short, Cut, Endless:
		flusher.Flush()
		panic(http.ErrAbortHandler)
	case Stall:
		flusher.Flush()
		pause(req, hold)
		panic(http.ErrAbortHandler)
	case Early:
		if step.Status < 300 { // else net/http's client ends neither the body nor the stream
			a.read(req.Body)
		}
	}
}

func pause(req *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
	}
}
