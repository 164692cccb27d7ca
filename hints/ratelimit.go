package hints

import (
	"net/http"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
)

// RateLimit is a [Reader] of the RateLimit field of the IETF draft,
//
//	RateLimit: "burst";r=0;t=2, "daily";r=417;t=3600
//
// (RateLimit header fields for HTTP, draft-ietf-httpapi-ratelimit-headers-11 of
// 23 May 2026, since its revision 08; package throttle sends it). r is the quota
// left and t the seconds until there is more. The longest t among the policies
// with nothing left counts.
//
// As the draft says (Client Behavior), a Retry-After that can be read takes
// precedence, a field on a response from a cache (with an Age) is ignored, and
// so is a malformed one, as a whole; it is told by a *[FieldError] all the same.
// RateLimit-Policy is informative, and not read.
//
// The field is a List of Structured Fields (RFC 9651), whose members must be
// Strings here, r an Integer that is not negative, and t another, or absent. Of
// other parameters only the syntax matters; Byte Sequences and Display Strings
// in them are not decoded. Fields of one line cost no allocation.
func RateLimit(h http.Header, received time.Time) (retryafter.Hint, error) {
	lines := h["Ratelimit"] // as http.Header spells it
	if len(lines) == 0 || len(h["Age"]) > 0 || readable(h, received) {
		return retryafter.Hint{}, retryafter.ErrNoHint
	}
	field := lines[0]
	if len(lines) > 1 {
		field = strings.Join(lines, ",")
	}
	delay, found, problem := exhaustedPolicies(field)
	switch {
	case problem != "":
		return retryafter.Hint{}, &FieldError{"RateLimit", field, problem}
	case !found:
		return retryafter.Hint{}, retryafter.ErrNoHint
	}
	return retryafter.Hint{Delay: delay}, nil
}

// exhaustedPolicies gives the longest t among the members of a RateLimit field
// with r=0.
func exhaustedPolicies(field string) (delay time.Duration, found bool, problem string) {
	f := structured{s: field}
	f.skip(" ")
	for f.s != "" {
		var r, t item
		if f.item().kind != sfString {
			return 0, false, "want a String for each policy"
		}
		for f.next(';') {
			f.skip(" ")
			switch name, value := f.parameter(); name {
			case "r":
				r = value
			case "t":
				t = value
			}
		}
		f.skip(" \t")
		if !f.bad && f.s != "" {
			f.bad = !f.next(',')
			f.skip(" \t")
			f.bad = f.bad || f.s == "" // a comma at the end
		}
		switch {
		case f.bad:
			return 0, false, "no List of a Structured Field"
		case !r.quantity():
			return 0, false, "want an Integer for r that is not negative"
		case t.kind != sfNone && !t.quantity():
			return 0, false, "want an Integer for t that is not negative"
		case r.number == 0 && t.kind != sfNone:
			found = true
			delay = max(delay, decimal{whole: uint64(t.number)}.times(time.Second))
		}
	}
	return delay, found, ""
}
