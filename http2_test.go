package retryafter_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

// HTTP/2, by net/http's server over TLS, and by frames written by hand for what
// that server doesn't do on request.

func netHTTP2(s *httptest.Server) { s.EnableHTTP2 = true }

func TestHTTP2OneConnectionServesAllAttempts(t *testing.T) {
	for name, reply := range map[string]func(w http.ResponseWriter, r *http.Request){
		"a short body": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503); fmt.Fprint(w, "busy") },
		"200 MiB": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			io.CopyN(w, netEndless{}, 200<<20)
		},
		"a stalled body": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				netGoroutines(t)
				var n atomic.Int32
				var protos netList[string]
				s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
					if b, _ := io.ReadAll(r.Body); string(b) != "hello" || r.ProtoMajor != 2 {
						protos.add(r.Proto + " " + string(b))
					}
					if n.Add(1)%2 == 1 {
						reply(w, r)
						return
					}
					fmt.Fprint(w, "ok")
				}, netHTTP2)
				c := &http.Client{Transport: &retryafter.Transport{Base: s.base, Policy: netAtOnce(), AttemptTimeout: timeout}}
				for range 5 {
					req, bodies := netPut(t.Context(), "PUT", s.URL, "hello")
					resp, err := c.Do(req)
					netWant(t, resp, err, 200, 2, retryafter.Final)
					if got := netRead(t, resp); got != "ok" {
						t.Errorf("body %q", got)
					}
					netEventually(t, "the bodies are closed", func() bool { return bodies.all[0].closed() > 0 && bodies.all[1].closed() > 0 })
					bodies.checkAtLeast(t, 1)
				}
				if wrong := protos.all(); len(wrong) > 0 || s.conns.Load() != 1 {
					t.Errorf("%d connections, want 1; and %q", s.conns.Load(), wrong)
				}
			})
		}
	}
}

// C102 over HTTP/2.
func TestHTTP2AnEarlyAnswerDoesNotMixBodies(t *testing.T) {
	netGoroutines(t)
	payload := make([]byte, 4<<20)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	var n atomic.Int32
	s := netServe(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) <= 2 {
			io.CopyN(io.Discard, r.Body, 1<<10)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(503)
			return
		}
		if b, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(b, payload) {
			w.WriteHeader(400)
		}
	}, netHTTP2)
	tr := &retryafter.Transport{Base: s.base, Policy: netAtOnce()}
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
	req, err := http.NewRequest("PUT", s.URL, own)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength, req.GetBody = int64(len(payload)), body
	resp, err := tr.RoundTrip(req)
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

// netFramer is the server's side of a connection that speaks HTTP/2 by hand.
type netFramer struct {
	c    net.Conn
	in   chan netFrame
	out  chan []byte // written by a goroutine: a connection in memory holds nothing
	body map[uint32]string
}

type netFrame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

const (
	netData, netHeaders, netReset, netSettings, netPing, netGoAway = 0, 1, 3, 4, 6, 7
	netEndStream, netEndHeaders, netAck                            = 1, 4, 1
)

func (f *netFramer) write(kind, flags byte, stream uint32, payload ...byte) {
	frame := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	frame = binary.BigEndian.AppendUint32(frame, stream)
	f.out <- append(frame, payload...)
}

// reply answers a stream; the fields stand in HPACK's static table.
func (f *netFramer) reply(stream uint32, status int, retryAfter, body string) {
	h := append([]byte{0x08, 3}, fmt.Sprint(status)...) // :status, by name
	if retryAfter != "" {
		h = append(append(h, 0x0f, 0x26, byte(len(retryAfter))), retryAfter...) // retry-after, by name
	}
	if body == "" {
		f.write(netHeaders, netEndStream|netEndHeaders, stream, h...)
		return
	}
	f.write(netHeaders, netEndHeaders, stream, h...)
	f.write(netData, netEndStream, stream, []byte(body)...)
}

func (f *netFramer) reset(stream, code uint32) {
	f.write(netReset, 0, stream, binary.BigEndian.AppendUint32(nil, code)...)
}

func (f *netFramer) goAway(last, code uint32) {
	f.write(netGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code)...)
}

// request returns the next stream whose request is complete, and its body; 0
// where the client is gone. Frames of other kinds are given to other.
func (f *netFramer) request(other func(netFrame)) (stream uint32, body string) {
	for fr := range f.in {
		switch fr.kind {
		case netHeaders, netData:
			if fr.kind == netData {
				f.body[fr.stream] += string(fr.payload)
			}
			if fr.flags&netEndStream != 0 {
				return fr.stream, f.body[fr.stream]
			}
		case netPing:
			if fr.flags&netAck == 0 {
				f.write(netPing, netAck, 0, fr.payload...)
			}
		default:
			if other != nil {
				other(fr)
			}
		}
	}
	return 0, ""
}

// netFrames makes a network in memory whose servers speak HTTP/2 by hand.
func netFrames(t *testing.T, serve func(n int, f *netFramer)) *netMemory {
	m := netMemoryOf(t, func(n int, c net.Conn) {
		f := &netFramer{c: c, in: make(chan netFrame, 1000), out: make(chan []byte, 1000), body: map[uint32]string{}}
		var wg sync.WaitGroup
		wg.Go(func() {
			for b := range f.out {
				if _, err := c.Write(b); err != nil {
					continue
				}
			}
			c.Close()
		})
		wg.Go(func() {
			defer close(f.in)
			if _, err := io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
				return
			}
			for {
				var h [9]byte
				if _, err := io.ReadFull(c, h[:]); err != nil {
					return
				}
				fr := netFrame{h[3], h[4], binary.BigEndian.Uint32(h[5:]) & (1<<31 - 1), make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))}
				if _, err := io.ReadFull(c, fr.payload); err != nil {
					return
				}
				f.in <- fr
			}
		})
		f.write(netSettings, 0, 0)
		f.write(netSettings, netAck, 0)
		serve(n, f)
		close(f.out)
		wg.Wait()
	})
	m.Protocols = new(http.Protocols)
	m.Protocols.SetUnencryptedHTTP2(true)
	return m
}

const (
	netInternalError    = 2
	netFlowControlError = 3
	netRefusedStream    = 7
	netCancel           = 8
	netEnhanceYouCalm   = 11
)

func TestHTTP2ByFrames(t *testing.T) {
	// What each answers a complete request with; false closes the connection.
	type answer func(f *netFramer, stream uint32) bool
	ok := func(f *netFramer, stream uint32) bool { f.reply(stream, 200, "", "ok"); return true }
	busy := func(f *netFramer, stream uint32) bool { f.reply(stream, 503, "5", "busy"); return true }
	refuse := func(f *netFramer, stream uint32) bool { f.reset(stream, netRefusedStream); return true }
	for name, tc := range map[string]struct {
		method   string
		answers  []answer // the last for ever
		attempts int
		status   int  // 0: an error
		own      bool // which is Base's own
		why      retryafter.Reason
		conns    int32
		text     string
	}{
		"503, then 200": {"PUT", []answer{busy, ok}, 2, 200, false, retryafter.Final, 1, ""},
		"a POST's 503":  {"POST", []answer{busy, ok}, 1, 503, false, retryafter.MethodNotIdempotent, 1, ""},
		"C098 G7 REFUSED_STREAM once: net/http's": {"POST", []answer{refuse, ok}, 1, 200, false, retryafter.Final, 1, ""},
		"C098 REFUSED_STREAM for good":            {"PUT", []answer{refuse}, 3, 0, false, retryafter.AttemptsUsed, 1, "REFUSED_STREAM"},
		"REFUSED_STREAM to a POST for good":       {"POST", []answer{refuse}, 1, 0, false, retryafter.MethodNotIdempotent, 1, "REFUSED_STREAM"},
		"C098 GOAWAY before the request: net/http's": {"POST", []answer{func(f *netFramer, stream uint32) bool {
			f.goAway(0, 0)
			return false
		}, ok}, 1, 200, false, retryafter.Final, 2, ""},
		"C098 GOAWAY after the request": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.goAway(stream, 0)
			return false
		}, ok}, 2, 200, false, retryafter.Final, 2, ""},
		"GOAWAY after a POST": {"POST", []answer{func(f *netFramer, stream uint32) bool {
			f.goAway(stream, 0)
			return false
		}, ok}, 1, 0, false, retryafter.MethodNotIdempotent, 1, "GOAWAY"},
		"GOAWAY with an error code": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.goAway(stream, netEnhanceYouCalm)
			return false
		}, ok}, 2, 200, false, retryafter.Final, 2, ""},
		"GOAWAY, and the answer all the same": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.goAway(stream, 0)
			f.reply(stream, 503, "5", "busy")
			return true
		}, ok}, 2, 200, false, retryafter.Final, 2, ""},
		"the connection ends":            {"PUT", []answer{func(*netFramer, uint32) bool { return false }, ok}, 2, 200, false, retryafter.Final, 2, ""},
		"the connection ends for a POST": {"POST", []answer{func(*netFramer, uint32) bool { return false }, ok}, 1, 0, false, retryafter.MethodNotIdempotent, 1, "EOF"},
		// As a handler's panic does it, or a proxy that lost its backend.
		"INTERNAL_ERROR": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.reset(stream, netInternalError)
			return true
		}, ok}, 2, 200, false, retryafter.Final, 1, ""},
		"INTERNAL_ERROR for a POST": {"POST", []answer{func(f *netFramer, stream uint32) bool {
			f.reset(stream, netInternalError)
			return true
		}, ok}, 1, 0, false, retryafter.MethodNotIdempotent, 1, "INTERNAL_ERROR"},
		"CANCEL": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.reset(stream, netCancel)
			return true
		}, ok}, 2, 200, false, retryafter.Final, 1, ""},
		"FLOW_CONTROL_ERROR is the client's fault": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.reset(stream, netFlowControlError)
			return true
		}, ok}, 1, 0, true, 0, 1, "FLOW_CONTROL_ERROR"},
		"no HTTP/2 at all": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.out <- []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
			return true
		}}, 1, 0, true, 0, 1, ""},
		"an answer with half its body": {"PUT", []answer{func(f *netFramer, stream uint32) bool {
			f.write(netHeaders, netEndHeaders, stream, append([]byte{0x08, 3}, "503"...)...)
			f.write(netData, 0, stream, []byte("half")...)
			return true
		}, ok}, 2, 200, false, retryafter.Final, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got netList[string]
				m := netFrames(t, func(n int, f *netFramer) {
					for {
						stream, body := f.request(nil)
						if stream == 0 {
							return
						}
						n := got.add(body)
						if !tc.answers[min(n, len(tc.answers))-1](f, stream) {
							return
						}
					}
				})
				start := time.Now()
				tr := &retryafter.Transport{Base: m, Policy: netAtOnce()}
				req, bodies := netPut(t.Context(), tc.method, "http://example.com/", "hello")
				resp, err := tr.RoundTrip(req)
				switch {
				case tc.status != 0:
					netWant(t, resp, err, tc.status, tc.attempts, tc.why)
					netRead(t, resp)
				case tc.own:
					if _, ok := errors.AsType[*retryafter.Error](err); ok || resp != nil || err == nil {
						t.Errorf("response %v, error %v; want Base's own error", resp, err)
					}
				default:
					netWantError(t, resp, err, tc.attempts, tc.why)
				}
				if err != nil && !strings.Contains(err.Error(), tc.text) {
					t.Errorf("error %v, want %s", err, tc.text)
				}
				for i, body := range got.all() {
					if body != "hello" {
						t.Errorf("request %d had the body %q", i+1, body)
					}
				}
				if m.dials.Load() != tc.conns {
					t.Errorf("%d connections, want %d", m.dials.Load(), tc.conns)
				}
				if name == "503, then 200" && time.Since(start) != 5*time.Second {
					t.Errorf("took %v", time.Since(start))
				}
				m.CloseIdleConnections()
				synctest.Wait()
				if !strings.Contains(name, "GOAWAY before") {
					// There net/http, without us too, asks GetBody twice and forgets the first.
					bodies.checkAtLeast(t, len(got.all())-1)
				}
			})
		})
	}
}

// A timed-out or cancelled attempt ends its stream, not the connection.
func TestHTTP2AnEndedAttemptEndsItsStream(t *testing.T) {
	for name, cancelled := range map[string]bool{"C085 AttemptTimeout": false, "a cancel": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var resets netList[uint32]
				var n atomic.Int32
				m := netFrames(t, func(_ int, f *netFramer) {
					for {
						stream, _ := f.request(func(fr netFrame) {
							if fr.kind == netReset {
								resets.add(fr.stream)
							}
						})
						if stream == 0 {
							return
						}
						if n.Add(1) > 1 {
							f.reply(stream, 200, "", "ok")
						}
					}
				})
				start := time.Now()
				tr := &retryafter.Transport{Base: m, Policy: netAtOnce(), AttemptTimeout: time.Second}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if cancelled {
					time.AfterFunc(time.Second/2, cancel)
				}
				resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
				if cancelled {
					netWantError(t, resp, err, 1, retryafter.Canceled)
				} else {
					netWant(t, resp, err, 200, 2, retryafter.Final)
					netRead(t, resp)
				}
				if took, want := time.Since(start), map[bool]time.Duration{true: time.Second / 2, false: time.Second}[cancelled]; took != want {
					t.Errorf("took %v, want %v", took, want)
				}
				m.CloseIdleConnections()
				synctest.Wait()
				if diff := cmp.Diff([]uint32{1}, resets.all()); diff != "" || m.dials.Load() != 1 {
					t.Errorf("%d connections; streams reset (-want +got):\n%s", m.dials.Load(), diff)
				}
			})
		})
	}
}
