package redisserver

import (
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
)

// A Proxy stands before a server. It passes everything on, but for the replies
// that it is told to lose.
type Proxy struct {
	Socket string

	// Lose is how many replies are lost from now on: where one would be passed
	// on, the connection is closed instead. The command has been carried out.
	Lose atomic.Int64
	Lost atomic.Int64

	server string
	listen net.Listener
}

// TestProxy starts a proxy before the socket of s, that ends with the test.
func TestProxy(t T, s *Server) *Proxy {
	t.Helper()
	p := &Proxy{Socket: filepath.Join(s.dir, "proxy"), server: s.Socket}
	var err error
	if p.listen, err = net.Listen("unix", p.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.listen.Close() })
	go func() {
		for {
			c, err := p.listen.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *Proxy) serve(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		io.Copy(s, c)
		s.Close()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := s.Read(buf)
		if err != nil {
			return
		}
		if p.Lose.Load() > 0 && p.Lose.Add(-1) >= 0 {
			p.Lost.Add(1)
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}
