package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/bench/internal/peers"
)

// The contenders, each around base and set to try again at once after a 503.
// All of them may make three attempts in all.

func bare(base http.RoundTripper) http.RoundTripper { return base }

func ours(base http.RoundTripper) http.RoundTripper {
	return &retryafter.Transport{Base: base, Policy: atOnce()}
}

func atOnce() retryafter.Policy { return waiting(&backoff.ZeroBackOff{}) }

func waiting(b backoff.BackOff) retryafter.Policy {
	return retryafter.Policy{
		Backoff: func() backoff.BackOff { return b },
		Jitter:  retryafter.NoJitter,
	}
}

// others are the peers that are measured beside retryafter.
func others() []peers.Peer {
	return []peers.Peer{
		peers.Rehttp, peers.Hashicorp, peers.Httpretry, peers.Retryhttp, peers.Failsafe,
		peers.Heimdall, peers.Pester, peers.Resty2, peers.Resty3, peers.Req, peers.Azcore,
	}
}

// without are the others but for some.
func without(some ...peers.Peer) []peers.Peer {
	return slices.DeleteFunc(others(), func(p peers.Peer) bool {
		return slices.ContainsFunc(some, func(s peers.Peer) bool { return s.Name == p.Name })
	})
}

// peerAtOnce is p, however it is called.
func peerAtOnce(p peers.Peer) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return p.RoundTripper(base, peers.Settings{Attempts: 3})
	}
}

// withPeers puts a row a peer behind rows.
func withPeers(rows []row, peerRow func(name string, contender func(http.RoundTripper) http.RoundTripper) row, all ...peers.Peer) []row {
	for _, p := range all {
		rows = append(rows, peerRow(p.Name, peerAtOnce(p)))
	}
	return rows
}

// between is a RoundTripper that sends each request twice without a look at the
// first response, and does something in between.
type between struct {
	http.RoundTripper
	do func(*http.Request) *http.Request
}

func (b between) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	return b.RoundTripper.RoundTrip(b.do(req))
}

// least is what no retry can do without that counts its wait from the response
// and sends a clone.
func least(base http.RoundTripper) http.RoundTripper {
	return between{base, func(req *http.Request) *http.Request {
		sinkTime = time.Now()
		return req.Clone(req.Context())
	}}
}

// A stub is a RoundTripper that does nothing as fast as it can be done: of each
// period of requests it answers the last with 200 and the others with 503.
type stub struct {
	period int // 1: 200 each time
	calls  int
	bytes  int64 // of request bodies that it read
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	s.calls++
	if req.Body != nil && req.Body != http.NoBody {
		n, err := io.Copy(io.Discard, req.Body)
		if err != nil {
			return nil, err
		}
		s.bytes += n
		req.Body.Close()
	}
	code := http.StatusOK
	if s.period > 1 && s.calls%s.period != 0 {
		code = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: code, Body: http.NoBody, Request: req}, nil
}

func get(ctx context.Context, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

// sends is the work of sending req by rt, which must bring the statuses of want
// in turn. Every contender gets the same kind of request, and the same one each
// time.
func sends(rt http.RoundTripper, req *http.Request, want ...int) func(n int) error {
	return func(n int) error {
		for range n {
			for _, status := range want {
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return err
				}
				resp.Body.Close()
				if resp.StatusCode != status {
					return fmt.Errorf("status %d, want %d", resp.StatusCode, status)
				}
			}
		}
		return nil
	}
}

// asBase makes r a row that others are set against.
func asBase(r row) row {
	r.base = true
	return r
}

// onStub is a row of GETs, each of which takes period attempts at a stub.
func onStub(name string, period int, contender func(http.RoundTripper) http.RoundTripper, want ...int) row {
	return row{name: name, start: func() work {
		return stubWork(context.Background(), period, contender, want...)
	}}
}

func stubWork(ctx context.Context, period int, contender func(http.RoundTripper) http.RoundTripper, want ...int) work {
	s := &stub{period: period}
	return work{
		do: sends(contender(s), get(ctx, "http://stub.example/"), want...),
		check: func(n int) error {
			if s.calls != period*n {
				return fmt.Errorf("%d attempts at the stub for %d calls, want %d", s.calls, n, period*n)
			}
			return nil
		},
	}
}

func noRetry() table {
	around := func(t retryafter.Transport) func(http.RoundTripper) http.RoundTripper {
		return func(base http.RoundTripper) http.RoundTripper {
			t.Base = base
			return &t
		}
	}
	plenty := &retryafter.Bucket{Capacity: 1 << 30, Rate: retryafter.PerSecond(1e9)}
	elapsed := atOnce()
	elapsed.MaxElapsed = time.Hour
	return table{
		name:  "no-retry",
		procs: 1,
		about: "GET through a stub that answers 200: what a client costs that has nothing to do.",
		aim: aim{
			text:  "retryafter within 30 ns of bare, and no allocation beyond it",
			about: begins("retryafter"),
			met: func(l, bare line, _ []line) bool {
				return l.figure("beyond, ns") <= 30 && l.figure("allocations") <= bare.figure("allocations")
			},
		},
		unit: nanoseconds,
		rows: withPeers([]row{
			asBase(onStub("bare", 1, bare, 200)),
			onStub("retryafter", 1, ours, 200),
			onStub("retryafter, zero Transport", 1, around(retryafter.Transport{}), 200),
			{name: "retryafter, deadline in the context", start: func() work {
				ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
				w := stubWork(ctx, 1, ours, 200)
				w.stop = cancel
				return w
			}},
			onStub("retryafter, MaxElapsed", 1, around(retryafter.Transport{Policy: elapsed}), 200),
			onStub("retryafter, Limiter that admits at once", 1,
				around(retryafter.Transport{Policy: atOnce(), Limiter: plenty}), 200),
		}, func(name string, contender func(http.RoundTripper) http.RoundTripper) row {
			return onStub(name, 1, contender, 200)
		}, others()...),
	}
}

func retry() table {
	return table{
		name:  "503-200",
		procs: 1,
		about: "GET through a stub that answers 503, then 200, with no wait between them. Bare is called twice.",
		aim: aim{
			text:  "retryafter ahead of every peer with the same request, though none that is as cheap clones it",
			about: func(name string) bool { return !begins("bare")(name) && !begins("retryafter")(name) },
			met: func(l, _ line, all []line) bool {
				ours := "retryafter"
				if strings.Contains(l.name(), ", three header fields") {
					ours = "retryafter, three header fields to clone"
				}
				return l.figure("ratio") > named(all, ours).figure("ratio")
			},
		},
		unit: nanoseconds,
		rows: withPeers([]row{
			asBase(onStub("bare, twice", 2, bare, 503, 200)),
			onStub("bare, twice, with time.Now and Request.Clone between", 2, least, 200),
			onStub("retryafter", 2, ours, 200),
			onStub("retryafter, three header fields to clone", 2, withFields(ours), 200),
			onStub("rehttp, three header fields not cloned", 2, withFields(peerAtOnce(peers.Rehttp)), 200),
		}, func(name string, contender func(http.RoundTripper) http.RoundTripper) row {
			return onStub(name, 2, contender, 200)
		}, others()...),
	}
}

// withFields has contender get a request with a header, as most are.
func withFields(contender func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return headed{contender(base), http.Header{
			"Accept":        {"application/json"},
			"Authorization": {"Bearer 0123456789"},
			"User-Agent":    {"bench"},
		}}
	}
}

type headed struct {
	http.RoundTripper
	header http.Header
}

func (h headed) RoundTrip(req *http.Request) (*http.Response, error) {
	req.Header = h.header
	return h.RoundTripper.RoundTrip(req)
}

func timer() table {
	const wait = 20 * time.Microsecond // not over before it begins, so that it needs a timer
	return table{
		name:  "503-wait-200",
		procs: 1,
		about: "The same with a wait of " + wait.String() + ". Waking up takes most of the time; what counts is the allocations.",
		aim: aim{
			text:  "retryafter at most 6 allocations beyond bare",
			about: begins("retryafter"),
			met: func(l, bare line, _ []line) bool {
				return l.figure("allocations") <= bare.figure("allocations")+6
			},
		},
		unit: microseconds,
		rows: []row{
			asBase(onStub("bare, twice, with time.Sleep between", 2, func(base http.RoundTripper) http.RoundTripper {
				return between{base, func(req *http.Request) *http.Request {
					time.Sleep(wait)
					return req
				}}
			}, 200)),
			onStub("retryafter", 2, func(base http.RoundTripper) http.RoundTripper {
				return &retryafter.Transport{Base: base, Policy: waiting(backoff.NewConstantBackOff(wait))}
			}, 200),
		},
	}
}

const putSize = 1 << 20

func put() table {
	body := make([]byte, putSize)
	puts := func(name string, contender func(http.RoundTripper) http.RoundTripper) row {
		return row{name: name, start: func() work {
			s := &stub{period: 1}
			rt := contender(s)
			return work{
				do: func(n int) error {
					for range n {
						req, err := http.NewRequest(http.MethodPut, "http://stub.example/", bytes.NewReader(body))
						if err != nil {
							return err
						}
						resp, err := rt.RoundTrip(req)
						if err != nil {
							return err
						}
						resp.Body.Close()
						if resp.StatusCode != 200 {
							return fmt.Errorf("status %d, want 200", resp.StatusCode)
						}
					}
					return nil
				},
				check: func(n int) error {
					if s.calls != n || s.bytes != int64(n)*putSize {
						return fmt.Errorf("%d attempts and %d bytes at the stub for %d calls", s.calls, s.bytes, n)
					}
					return nil
				},
			}
		}}
	}
	return table{
		name:  "put",
		procs: 1,
		about: "PUT of 1 MiB with GetBody through a stub that reads the body to nowhere and answers 200; the request is made anew each time. Those to which one gives a body in another way are left out: resty, req and azcore.",
		aim: aim{
			text:  "no copy of the body by retryafter",
			about: begins("retryafter"),
			met:   func(l, bare line, _ []line) bool { return l.figure("B") < bare.figure("B")+putSize },
		},
		unit: nanoseconds,
		rows: withPeers([]row{
			asBase(puts("bare", bare)),
			puts("retryafter", ours),
		}, puts, without(peers.Resty2, peers.Resty3, peers.Req, peers.Azcore)...),
	}
}

// onLoopback is a row of GETs to a server of its own, each of which takes period
// attempts: the last brings 200, the others 503 with Retry-After: 0.
func onLoopback(name string, period int64, contender func(http.RoundTripper) http.RoundTripper, want ...int) row {
	return row{name: name, start: func() work {
		var requests, connections atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1)%period != 0 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			connections.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
		return work{
			do: sends(contender(base), get(context.Background(), server.URL), want...),
			check: func(n int) error {
				if got := requests.Load(); got != period*int64(n) {
					return fmt.Errorf("%d requests at the server for %d calls, want %d", got, n, period*int64(n))
				}
				if got := connections.Load(); got != 1 {
					return fmt.Errorf("%d connections, want one that is kept alive", got)
				}
				return nil
			},
			stop: func() {
				base.CloseIdleConnections()
				server.Close()
			},
		}
	}}
}

func loopback() table {
	return table{
		name:  "loopback-200",
		about: "GET to a server in the same process over a connection that is kept alive. Allocations are those of client and server together.",
		unit:  microseconds,
		rows: withPeers([]row{
			asBase(onLoopback("bare", 1, bare, 200)),
			onLoopback("retryafter", 1, ours, 200),
		}, func(name string, contender func(http.RoundTripper) http.RoundTripper) row {
			return onLoopback(name, 1, contender, 200)
		}, others()...),
	}
}

func loopbackRetry() table {
	return table{
		name:  "loopback-503-200",
		about: "The same to a server that answers 503 with `Retry-After: 0`, then 200. Bare is called twice. Those that open a connection for each call are left out: failsafehttp, heimdall and pester.",
		unit:  microseconds,
		rows: withPeers([]row{
			asBase(onLoopback("bare, twice", 2, bare, 503, 200)),
			onLoopback("retryafter", 2, ours, 200),
		}, func(name string, contender func(http.RoundTripper) http.RoundTripper) row {
			return onLoopback(name, 2, contender, 200)
		}, without(peers.Failsafe, peers.Heimdall, peers.Pester)...),
	}
}
