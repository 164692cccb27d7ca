package redisbucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
)

func prefixOf(owner, prefix, otherwise string) (string, error) {
	if strings.ContainsAny(prefix, "{}") {
		return "", &retryafter.ConfigError{Field: owner + ".Prefix", Value: prefix, Problem: "must not contain braces"}
	}
	if prefix == "" {
		prefix = otherwise
	}
	return prefix, nil
}

// nameOf is the key in Redis that belongs to key. What stands in the braces
// alone decides on the cluster slot.
func nameOf(prefix string, key retryafter.Key) string {
	const half = sha256.Size / 2
	sum := sha256.Sum256([]byte(key))
	name := make([]byte, 0, len(prefix)+2*half+2)
	name = append(append(name, prefix...), '{')
	name = hex.AppendEncode(name, sum[:half])
	return string(append(name, '}'))
}

// keyOf is the key of req: its context's, else what by says, else ByHost's. The
// root module keeps to itself what the key of a context is. It tells the
// memory of a Gate, though, and that before anything else is done with a
// request; so a memory that goes no further than that gets to know it.
func keyOf(req *http.Request, by func(*http.Request) retryafter.Key) (key retryafter.Key) {
	if by == nil {
		by = retryafter.ByHost
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case toldKey:
			key = retryafter.Key(p)
		default:
			panic(p)
		}
	}()
	asker := retryafter.Transport{Gate: &retryafter.Gate{
		Key:    func(*http.Request) retryafter.Key { return by(req) },
		Shared: keyTeller{},
	}}
	if _, err := asker.RoundTrip((&http.Request{}).WithContext(req.Context())); err == nil {
		panic("redisbucket: a request passed a Gate that was not asked")
	}
	return by(req) // the call is misconfigured and will go nowhere
}

type toldKey retryafter.Key

type keyTeller struct{}

func (keyTeller) Held(_ context.Context, key retryafter.Key) (time.Duration, error) {
	panic(toldKey(key))
}
func (keyTeller) Hold(context.Context, retryafter.Key, time.Duration) error { return nil }
