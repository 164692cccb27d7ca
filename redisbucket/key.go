package redisbucket

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

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

// keyOf is the key of req: its context's, else what by says, else ByHost's.
func keyOf(req *http.Request, by func(*http.Request) retryafter.Key) retryafter.Key {
	switch key, ok := retryafter.ContextKey(req.Context()); {
	case ok:
		return key
	case by != nil:
		return by(req)
	}
	return retryafter.ByHost(req)
}
