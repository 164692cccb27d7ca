package proof

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter/internal/faulty"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is the server's side of a connection that speaks HTTP/2 by hand.
type frames struct {
	*http2.Framer
	conn net.Conn
	last uint32 // the newest stream
	done uint32 // the newest that is answered
	away bool   // GOAWAY was said: newer ones are ignored
}

// A stream is a request that is complete.
type stream struct {
	id     uint32
	method string
	header http.Header
	body   []byte
}

// serveFrames reads what a client sends, and calls request with each complete
// request, until that returns false or the client is gone.
func serveFrames(c net.Conn, request func(f *frames, s stream) bool) {
	defer c.Close()
	// A connection in memory holds nothing, and the client may write when the
	// server does.
	w := &queue{out: make(chan []byte, 10000)}
	var wg sync.WaitGroup
	defer func() {
		close(w.out)
		io.Copy(io.Discard, c) // until that is written, and c is closed
		wg.Wait()
	}()
	wg.Go(func() {
		var err error
		for b := range w.out {
			if err == nil {
				_, err = c.Write(b)
			}
		}
		c.Close()
	})
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := &frames{Framer: http2.NewFramer(w, c), conn: c}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 24})
	f.WriteWindowUpdate(0, 1<<30)
	open := map[uint32]*stream{}
	ended := func(id uint32) bool {
		s := open[id]
		delete(open, id)
		return s == nil || request(f, *s)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		id, again := frame.Header().StreamID, true
		switch fr := frame.(type) {
		case *http2.SettingsFrame:
			if !fr.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !fr.IsAck() {
				f.WritePing(true, fr.Data)
			}
		case *http2.MetaHeadersFrame:
			if f.away {
				break
			}
			s := &stream{id: id, method: fr.PseudoValue("method"), header: http.Header{}}
			for _, h := range fr.RegularFields() {
				s.header.Add(h.Name, h.Value)
			}
			f.last, open[id] = id, s
			if fr.StreamEnded() {
				again = ended(id)
			}
		case *http2.DataFrame:
			if s := open[id]; s != nil {
				s.body = append(s.body, fr.Data()...)
			}
			if fr.StreamEnded() {
				again = ended(id)
			}
		case *http2.RSTStreamFrame:
			delete(open, id)
		}
		if !again {
			return
		}
	}
}

// reply answers a stream, with a body that may lack its end.
func (f *frames) reply(id uint32, status int, h http.Header, body string, end bool) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: fmt.Sprint(status)})
	for name, values := range h {
		for _, v := range values {
			enc.WriteField(hpack.HeaderField{Name: strings.ToLower(name), Value: v})
		}
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end && body == ""})
	if body != "" {
		f.WriteData(id, end, []byte(body))
	}
}

// goAway tells the client that no stream after last is served.
func (f *frames) goAway(last uint32, code http2.ErrCode) {
	f.away = true
	f.WriteGoAway(last, code, nil)
}

// queue is a Writer that never waits.
type queue struct{ out chan []byte }

func (q *queue) Write(p []byte) (int, error) {
	q.out <- bytes.Clone(p)
	return len(p), nil
}

// A frameServer follows a plan by frames that net/http's server sends rarely or
// never.
type frameServer struct {
	plan    *faulty.Plan
	ln      net.Listener
	mu      sync.Mutex
	conns   map[net.Conn]bool
	refused map[string]bool // by call and attempt: once is enough, for net/http asks again
	wg      sync.WaitGroup
}

func listenFrames(t *testing.T, plan *faulty.Plan) *frameServer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &frameServer{plan: plan, ln: ln, conns: map[net.Conn]bool{}, refused: map[string]bool{}}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.wg.Go(func() {
				serveFrames(c, s.request)
				s.mu.Lock()
				delete(s.conns, c)
				s.mu.Unlock()
			})
		}
	})
	return s
}

func (s *frameServer) close() {
	s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *frameServer) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// once reports whether a may be refused.
func (s *frameServer) once(a *faulty.Arrival) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(a.Call, " ", a.Attempt)
	was := s.refused[key]
	s.refused[key] = true
	return !was
}

func (s *frameServer) request(f *frames, st stream) bool {
	a := s.plan.Arrive(st.header, st.method, false)
	defer s.plan.Over(a)
	a.Body, a.Whole = st.body, true
	step := a.Step
	if step.Fault == faulty.Reset || step.Fault == faulty.HalfHeader {
		if !s.once(a) {
			step.Fault = faulty.None
		}
	}
	body := strings.Repeat("x", step.Body)
	if st.method == http.MethodHead {
		if body = ""; step.Fault >= faulty.Short && step.Fault <= faulty.Endless {
			step.Fault = faulty.None // all of these are about the body
		}
	}
	if step.Fault == faulty.HalfHeader && f.done > st.id {
		step.Fault = faulty.Reset // a GOAWAY would deny what was done
	}
	switch step.Fault {
	case faulty.Reset:
		a.Refused = true
		f.WriteRSTStream(st.id, http2.ErrCodeRefusedStream)
		return true
	case faulty.HalfHeader: // a GOAWAY that excludes this request
		a.Refused = true
		f.goAway(f.done, http2.ErrCodeNo)
		return false
	case faulty.ClosesIdle: // one that does not, and the answer
		f.goAway(f.last, http2.ErrCodeNo)
		f.reply(st.id, step.Status, a.Fields(), body, true)
		time.AfterFunc(50*time.Millisecond, func() { f.conn.Close() }) // as servers do, for net/http keeps it open
	case faulty.Close: // one without the answer
		f.goAway(f.last, http2.ErrCodeNo)
		return false
	case faulty.ResetLater:
		f.WriteRSTStream(st.id, http2.ErrCodeInternal)
	case faulty.Garbage:
		f.WriteRSTStream(st.id, http2.ErrCodeEnhanceYourCalm)
	case faulty.Short, faulty.Cut, faulty.EarlyClose:
		f.reply(st.id, step.Status, a.Fields(), body, false)
		f.WriteRSTStream(st.id, http2.ErrCodeInternal)
	case faulty.Stall:
		f.reply(st.id, step.Status, a.Fields(), body, false)
		time.AfterFunc(50*time.Millisecond, func() { f.conn.Close() })
	case faulty.Endless:
		f.reply(st.id, step.Status, a.Fields(), strings.Repeat("x", 16<<10), false)
		for range 3 {
			f.WriteData(st.id, false, make([]byte, 16<<10))
		}
		f.WriteRSTStream(st.id, http2.ErrCodeNo)
	case faulty.Silent:
		time.AfterFunc(50*time.Millisecond, func() { f.conn.Close() })
	case faulty.Interim:
		f.reply(st.id, http.StatusEarlyHints, http.Header{"Link": {"</style.css>; rel=preload"}}, "", false)
		f.reply(st.id, http.StatusEarlyHints, http.Header{"Retry-After": {"0"}}, "", false)
		f.reply(st.id, step.Status, a.Fields(), body, true)
	default:
		f.reply(st.id, step.Status, a.Fields(), body, true)
	}
	f.done = max(f.done, st.id)
	return true
}
