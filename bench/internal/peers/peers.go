// Package peers sets other retrying clients up as their documentation says, and
// this one beside them, so that they can be measured and compared.
//
// Where a peer has an option for what it gets wrong by itself, that option is
// set, unless its price is something else that it then gets wrong.
package peers

import (
	"net/http"
	"time"
)

// A Do sends a request and whatever its client makes of it. It has the contract
// of http.Client.Do.
type Do func(*http.Request) (*http.Response, error)

// RoundTrip calls d.
func (d Do) RoundTrip(req *http.Request) (*http.Response, error) { return d(req) }

// Settings are what every peer is asked for. What it can't be told is left as it
// comes.
type Settings struct {
	Attempts       int           // at most, in all
	Backoff        time.Duration // the local wait before each further attempt; 0: none
	Jitter         bool          // with the jitter on a server's wait, where it is the user's to choose
	Timeout        time.Duration // of a call; 0: none
	AttemptTimeout time.Duration // of an attempt; 0: none
	MaxElapsed     time.Duration // that a call may go on retrying; 0: no limit of its own
}

// A Peer is a client that repeats requests.
type Peer struct {
	Name   string
	Module string
	SetUp  string // in words, for who reads a comparison

	// Transport makes what its users put into an http.Client. It is nil where
	// the peer is a client by itself.
	Transport func(base http.RoundTripper, s Settings) http.RoundTripper

	// Client makes a client around base. It is nil where Transport is set.
	Client func(base http.RoundTripper, s Settings) Do
}

// Do makes p as its users call it.
func (p Peer) Do(base http.RoundTripper, s Settings) Do {
	if p.Transport == nil {
		return p.Client(base, s)
	}
	return (&http.Client{Transport: p.Transport(base, s), Timeout: s.Timeout}).Do
}

// RoundTripper makes p as a RoundTripper, whatever it is.
func (p Peer) RoundTripper(base http.RoundTripper, s Settings) http.RoundTripper {
	if p.Transport == nil {
		return p.Client(base, s)
	}
	return p.Transport(base, s)
}

// worthAnother are the statuses that are repeated where a peer leaves the choice to
// its user.
var worthAnother = []int{
	http.StatusTooManyRequests,
	http.StatusInternalServerError,
	http.StatusBadGateway,
	http.StatusServiceUnavailable,
	http.StatusGatewayTimeout,
}
