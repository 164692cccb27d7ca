package retryafter

import (
	"context"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
)

// A Key says whose budget work is charged to. Make one of what the caller has
// verified, as a tenant and an account, never of what a peer claims to be, and
// never of a secret: keys may be printed.
type Key string

// String is the key in quotes, for keys are not made of printable text alone.
func (k Key) String() string { return strconv.Quote(string(k)) }

// NewKey makes one Key of several parts. Different lists of parts give
// different keys, whatever the parts contain.
func NewKey(parts ...string) Key {
	size := 0
	for _, p := range parts {
		size += len(p) + 2
	}
	key := make([]byte, 0, size)
	for _, p := range parts {
		key = binary.AppendUvarint(key, uint64(len(p)))
		key = append(key, p...)
	}
	return Key(key)
}

// ByHost is the key of the server that a client's req goes to: scheme, host and
// port of its URL. Letter case is folded, and a scheme's default port is the same as
// none (RFC 3986, section 6.2.3). It is NewKey of the three, as in
// NewKey("https", "example.com", "443"), and not a URL's text.
func ByHost(req *http.Request) Key {
	if req == nil || req.URL == nil {
		return ""
	}
	scheme, host, port := strings.ToLower(req.URL.Scheme), strings.ToLower(req.URL.Hostname()), req.URL.Port()
	switch {
	case port != "":
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	}
	return NewKey(scheme, host, port)
}

// WithKey returns a context whose attempts are charged to k by a Limiter that
// keeps a budget a key. It holds over the Limiter's own Key function. A [Gate]
// and a [RetryBudget] go by their own Key functions, which may ask ContextKey:
// they are about the server, and not about who asks it.
func WithKey(ctx context.Context, k Key) context.Context {
	o := *optionsOf(ctx)
	o.key = &k
	return context.WithValue(ctx, optionsKey{}, &o)
}

// ContextKey is the key that WithKey gave ctx, and whether it did.
func ContextKey(ctx context.Context) (k Key, ok bool) {
	if key := optionsOf(ctx).key; key != nil {
		return *key, true
	}
	return "", false
}

// keyBy is what by says of req, and ByHost's where it is nil.
func keyBy(req *http.Request, by func(*http.Request) Key) Key {
	if by == nil {
		by = ByHost
	}
	return by(req)
}
