package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A server answers each scene as its script says, and keeps its own record of
// when attempts arrive.
type server struct {
	URL      string
	timeline *timeline
	http     http.Server

	mu      sync.Mutex
	scenes  map[string]*record
	closest *time.Duration // of all returns, to the instant named
}

// An answer is one line of a script.
type answer struct {
	status   int
	back     naming // nil: without a Retry-After
	location string
}

// A naming says when to come back: the value of Retry-After and the instant
// that it names, for an answer that is given now.
type naming func(now time.Time) (value string, named time.Time)

func inSeconds(n int) naming {
	return func(now time.Time) (string, time.Time) {
		return strconv.Itoa(n), now.Add(time.Duration(n) * time.Second)
	}
}

// onDate names the whole second that lies up to ahead from now. It keeps to
// now's monotonic clock, so that a step of the wall clock during the demo does
// no harm.
func onDate(layout string, ahead time.Duration) naming {
	return func(now time.Time) (string, time.Time) {
		date := now.UTC().Truncate(time.Second).Add(ahead)
		return date.Format(layout), now.Add(date.Sub(now))
	}
}

// rfc850 is the layout of an rfc850-date.
const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

// A record is what the server knows of one scene.
type record struct {
	answers  []answer // in turn; the last one stays
	arrivals []time.Time
	keys     []string  // the Idempotency-Key of each arrival
	named    time.Time // the latest instant that an answer has named
	until    time.Time // the end of the wait that the client has announced
}

// serve starts a server on the loopback interface.
func serve(t *timeline) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{URL: "http://" + l.Addr().String(), timeline: t, scenes: make(map[string]*record)}
	s.http.Handler = s
	go s.http.Serve(l)
	return s, nil
}

func (s *server) Close() error { return s.http.Close() }

// script sets a scene.
func (s *server) script(scene string, answers []answer) *record {
	r := &record{answers: answers}
	s.mu.Lock()
	s.scenes[scene] = r
	s.mu.Unlock()
	return r
}

// announced notes that the client says it will be away until then.
func (s *server) announced(r *record, until time.Time) {
	s.mu.Lock()
	r.until = until
	s.mu.Unlock()
}

// seen gives a copy of r as it is now.
func (s *server) seen(r *record) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *r
}

// closestReturn is by how much the closest of all returns came after the
// instant named, where there was one.
func (s *server) closestReturn() (after time.Duration, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closest == nil {
		return 0, false
	}
	return *s.closest, true
}

// ServeHTTP answers an attempt. The first element of its path is the scene.
func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	scene, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	s.mu.Lock()
	r := s.scenes[scene]
	if r == nil {
		s.mu.Unlock()
		http.NotFound(w, req)
		return
	}
	a, after, broken := r.arrive(now)
	r.keys = append(r.keys, req.Header.Get("Idempotency-Key"))
	e := event{
		Scene: scene, Event: "arrival", Number: len(r.arrivals), Method: req.Method, Path: req.URL.Path, Status: a.status,
		who: "server", text: fmt.Sprintf("got %s %s", req.Method, req.URL.Path),
	}
	if after != nil {
		e.After = (*seconds)(after)
		if s.closest == nil || *after < *s.closest {
			s.closest = after
		}
		if *after < 0 {
			e.text += fmt.Sprintf(", %s BEFORE the instant named", short(-*after))
		} else {
			e.text += fmt.Sprintf(", %s after the instant named", short(*after))
		}
	}
	e.text += fmt.Sprintf("; said %d", a.status)
	if a.back != nil {
		value, named := a.back(now)
		r.named = latest(r.named, named)
		w.Header().Set("Retry-After", value)
		e.RetryAfter = value
		e.NotBefore = new(seconds(named.Sub(s.timeline.start)))
		e.text += fmt.Sprintf(", Retry-After: %s, so not before %s", value, s.timeline.clock(named))
	}
	s.mu.Unlock()

	s.timeline.add(now, e)
	for _, problem := range broken {
		s.timeline.broken(scene, "%s", problem)
	}
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	if a.location != "" {
		w.Header().Set("Location", a.location)
	}
	w.WriteHeader(a.status)
	io.WriteString(w, bodyOf(a.status))
}

// bodyOf is the whole body of an answer.
func bodyOf(status int) string {
	return fmt.Sprintf("%d %s, and nothing of this may be lost\n", status, http.StatusText(status))
}

// arrive enters an attempt that arrived at now, and gives the answer to it, how
// long after the instant named it came, where there was one, and what promise
// it broke.
func (r *record) arrive(now time.Time) (a answer, after *time.Duration, broken []string) {
	a = r.answers[min(len(r.arrivals), len(r.answers)-1)]
	r.arrivals = append(r.arrivals, now)
	if !r.named.IsZero() {
		d := now.Sub(r.named)
		after = &d
		if d < 0 {
			broken = append(broken, fmt.Sprintf("EARLY: attempt %d came %v before the instant that the server named", len(r.arrivals), -d))
		}
	}
	if d := now.Sub(r.until); d < 0 {
		broken = append(broken, fmt.Sprintf("EARLY: attempt %d came %v before the end of the wait that was announced", len(r.arrivals), -d))
	}
	return a, after, broken
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
