package retryafter

import (
	"context"
	"encoding/binary"
	"net/http"
	"strings"
)

// A Key says whose budget work is charged to. Make one of what the caller has
// verified, as a tenant and an account, never of what a peer claims to be, and
// never of a secret: keys may be printed, with %q.
type Key string

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
// none (RFC 3986, section 6.2.3).
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

// WithKey returns a context whose calls are charged to k, by whatever a
// Transport keeps a budget a key with. It holds over Key functions in their
// configuration.
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

// keyOf is the key of req: its context's, else what by says, else ByHost's.
func keyOf(req *http.Request, by func(*http.Request) Key) Key {
	switch key, ok := ContextKey(req.Context()); {
	case ok:
		return key
	case by != nil:
		return by(req)
	}
	return ByHost(req)
}
