package throttle

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
)

// The fields of draft-ietf-httpapi-ratelimit-headers-11, as lists of
// structured fields (RFC 9651):
//
//	RateLimit-Policy: "name";q=20;w=2
//	RateLimit: "name";r=7;t=1
//
// q is the capacity of a bucket, and w the seconds in which an empty one fills,
// rounded up. r is what is left, in whole tokens. t is the effective window,
// the seconds within which no more than r can be used: until one more token is
// there, rounded up. It is never later than the Retry-After beside it (section
// 6). There is no pk: the key is the server's own.
//
// Field lines of outer Handlers are kept, and so are those of inner ones.

const (
	policyField = "Ratelimit-Policy" // as http.Header spells it
	limitField  = "Ratelimit"
)

const largestInteger = 999_999_999_999_999 // of a structured field (RFC 9651, section 3.3.1)

// beginPolicy makes ready what doesn't change from one response to another.
func (h *Handler) beginPolicy() error {
	bad := func(field, value, problem string) error {
		return &retryafter.ConfigError{Field: "Handler." + field, Value: value, Problem: problem}
	}
	var ok bool
	if h.Policy == "" {
		return bad("QuotaUnit", strconv.Quote(h.QuotaUnit), "must not be set without Policy")
	}
	if h.item, ok = quote(h.Policy); !ok {
		return bad("Policy", strconv.Quote(h.Policy), "must be printable ASCII")
	}
	unit, ok := quote(h.QuotaUnit)
	if !ok {
		return bad("QuotaUnit", strconv.Quote(h.QuotaUnit), "must be printable ASCII")
	}
	quota, ok := h.Limit.(QuotaLimiter)
	if !ok {
		return bad("Limit", fmt.Sprintf("a %T", h.Limit), "must be a QuotaLimiter where Policy is set")
	}
	capacity, rate := quota.Quota()
	window, ok := fillTime(capacity, rate)
	if !ok {
		return bad("Limit", fmt.Sprintf("of capacity %d and rate %v", capacity, rate), "must have a quota that can be counted")
	}
	h.policy = h.item + ";q=" + strconv.FormatInt(min(capacity, largestInteger), 10)
	if h.QuotaUnit != "" {
		h.policy += ";qu=" + unit
	}
	h.policy += ";w=" + strconv.FormatInt(seconds(window), 10)
	h.quota = quota
	return nil
}

// left is l as a RateLimit field.
func (h *Handler) left(l Left) string {
	var buf [128]byte
	b := append(buf[:0], h.item...)
	b = strconv.AppendInt(append(b, ";r="...), min(max(l.Tokens, 0), largestInteger), 10)
	b = strconv.AppendInt(append(b, ";t="...), seconds(l.Next), 10)
	return string(b)
}

// fillTime is how long an empty bucket takes to fill, rounded up.
func fillTime(capacity int64, r retryafter.Rate) (time.Duration, bool) {
	if capacity <= 0 || r.Tokens <= 0 || r.Per <= 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(capacity), uint64(r.Per))
	if hi >= uint64(r.Tokens) {
		return 0, false
	}
	t, rest := bits.Div64(hi, lo, uint64(r.Tokens))
	if rest > 0 {
		t++
	}
	return time.Duration(t), int64(t) > 0
}

// quote is s as a String of a structured field (RFC 9651, section 4.1.6).
func quote(s string) (string, bool) {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~':
			return "", false
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String(), true
}
