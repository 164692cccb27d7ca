// Package faulty is the server of the tests that look at calls from the other
// side of the wire: it answers, breaks off, stalls and lies as a plan says, on
// real sockets, and records what arrived and when.
package faulty

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Fault is what goes wrong with a request.
type Fault uint8

const (
	None       Fault = iota // a whole response; its connection serves again
	Chunked                 // the same, in chunks
	Last                    // the same, with Connection: close
	Interim                 // the same after a few 1xx
	ClosesIdle              // the same, and the connection ends where the next request may be on its way
	Early                   // a response before the request's body is read, which it is then, slowly
	EarlyClose              // the same, but the connection ends in the body
	Drip                    // a byte now and then
	Reset                   // a reset when the header is read
	ResetLater              // a reset when the body is read too
	Close                   // an orderly end in the place of a response
	HalfHeader              // an end in the response's header
	Short                   // an end before Content-Length is reached
	Cut                     // an end between chunks
	Stall                   // a response whose body does not come
	Endless                 // a response whose body does not end
	Silent                  // nothing, for a while
	Garbage                 // something that is not HTTP
	faults
)

var names = [faults]string{
	"None", "Chunked", "Last", "Interim", "ClosesIdle", "Early", "EarlyClose", "Drip", "Reset", "ResetLater",
	"Close", "HalfHeader", "Short", "Cut", "Stall", "Endless", "Silent", "Garbage",
}

// Faults is how many there are.
const Faults = int(faults)

func (f Fault) String() string { return names[f] }

// Answers reports whether a client that reads on gets a whole response.
func (f Fault) Answers() bool { return f <= Drip && f != EarlyClose }

// A Step is what is done with one request.
type Step struct {
	Fault  Fault
	Status int
	Delay  time.Duration // that the response asks for; negative: it asks for none
	Body   int           // bytes of the response's body
}

// The fields that a client writes into a request, and the server into a
// response.
const (
	CallField     = "Faulty-Call"
	AttemptField  = "Faulty-Attempt"
	AnsweredField = "Faulty-Answered"
	msField       = "Retry-After-Ms"
)

// An Arrival is one request whose header the server has read.
type Arrival struct {
	Call     string
	Attempt  int // as the client numbers it
	Method   string
	At       time.Time // when its header was read
	First    bool      // the first request of its connection
	Step     Step
	Body     []byte
	Whole    bool      // Body was read to its end
	Refused  bool      // the client was told that nothing was done with it
	Answered time.Time // just before the response's header was written; zero where it wasn't
}

// NotBefore is the instant that the response named, the zero Time where it
// named none.
func (a *Arrival) NotBefore() time.Time {
	if a.Answered.IsZero() || a.Step.Delay < 0 {
		return time.Time{}
	}
	return a.Answered.Add(a.Step.Delay)
}

// A Plan says what is done with an attempt of a call, and hears of it when that
// is over. Both are called concurrently.
type Plan struct {
	Step   func(call string, attempt int) Step
	Record func(Arrival) // may be nil
}

// Arrive begins the record of a request.
func (p *Plan) Arrive(h http.Header, method string, first bool) *Arrival {
	a := &Arrival{Call: h.Get(CallField), Method: method, At: time.Now(), First: first}
	a.Attempt, _ = strconv.Atoi(h.Get(AttemptField))
	a.Step = p.Step(a.Call, a.Attempt)
	return a
}

// Over ends it.
func (p *Plan) Over(a *Arrival) {
	if p.Record != nil {
		p.Record(*a)
	}
}

// Fields are the response's header fields, made just before they are written.
func (a *Arrival) Fields() http.Header {
	a.Answered = time.Now()
	h := http.Header{}
	h.Set(AnsweredField, strconv.FormatInt(int64(a.Answered.Sub(epoch)), 10))
	h.Set(CallField, a.Call)
	switch d := a.Step.Delay; {
	case d < 0:
	case d%time.Second == 0:
		h.Set("Retry-After", strconv.FormatInt(int64(d/time.Second), 10))
	default:
		h.Set(msField, strconv.FormatInt(d.Milliseconds(), 10))
	}
	return h
}

// epoch is what the instants in a response count from, on the clock that does
// not jump.
var epoch = time.Now()

// AnsweredAt is when the server, in this process, began to write h.
func AnsweredAt(h http.Header) (time.Time, error) {
	n, err := strconv.ParseInt(h.Get(AnsweredField), 10, 64)
	return epoch.Add(time.Duration(n)), err
}

// Hint is a Policy.Hint that reads delays of less than a second.
func Hint(h http.Header, _ time.Time) (retryafter.Hint, error) {
	v := h.Get(msField)
	if v == "" {
		return retryafter.Hint{}, retryafter.ErrNoHint
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return retryafter.Hint{}, errors.Join(fmt.Errorf("%s is %q", msField, v), err)
	}
	return retryafter.Hint{Delay: time.Duration(n) * time.Millisecond}, nil
}
