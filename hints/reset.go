package hints

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Meaning is what the value of a field says, by its provider's documents.
// Numbers are ASCII digits, and may have a fraction; a sign, an exponent or
// anything else makes them unreadable.
type Meaning uint8

const (
	Seconds           Meaning = iota + 1 // a delay, as in 0.5
	Milliseconds                         // a delay, as in 500
	Duration                             // a delay in the units that package time writes, from h to ns, as in 6m0s or 20ms
	EpochSeconds                         // an instant, in seconds since 1970 in UTC, as in 1789646400
	EpochMilliseconds                    // an instant, in milliseconds since then
	Timestamp                            // an instant as in RFC 3339, as in 2026-09-08T12:00:00Z; t and z, and a second 60, are read too
)

// A Reset is a field that says when to come back. Its method Hint is a [Reader].
//
// For instance, Discord sends seconds with a fraction until a bucket resets
// (Rate Limits, https://docs.discord.com/developers/topics/rate-limits):
//
//	hints.Reset{Field: "X-RateLimit-Reset-After", Meaning: hints.Seconds, Remaining: "X-RateLimit-Remaining"}
//
// and servers that follow the IETF draft up to its revision 06 send whole
// seconds in a field of its own:
//
//	hints.Reset{Field: "RateLimit-Reset", Meaning: hints.Seconds, Remaining: "RateLimit-Remaining"}
type Reset struct {
	// Field is the name of the field, in any case.
	Field string

	// Meaning is what its value says. There is no default: the same name is an
	// instant with one provider and a delay with another.
	Meaning Meaning

	// Remaining is the name of a field that tells how much quota is left. Then
	// Field counts only where that can be read and is 0. Empty means that Field
	// counts always.
	Remaining string
}

// Hint reads the field. The error is [retryafter.ErrNoHint] where it, or
// Remaining, is absent or quota is left, a *[FieldError] where no member of
// either can be read, and a *[retryafter.ConfigError] where r makes no sense. A
// delay costs no allocation where the names are as [http.CanonicalHeaderKey]
// gives them.
func (r Reset) Hint(h http.Header, received time.Time) (retryafter.Hint, error) {
	if r.Field == "" {
		return retryafter.Hint{}, &retryafter.ConfigError{Field: "Reset.Field", Value: `""`, Problem: "must name a field"}
	}
	if r.Meaning < Seconds || r.Meaning > Timestamp {
		return retryafter.Hint{}, &retryafter.ConfigError{Field: "Reset.Meaning", Value: strconv.Itoa(int(r.Meaning)), Problem: "must be one of the constants"}
	}
	lines := h.Values(r.Field)
	if len(lines) == 0 {
		return retryafter.Hint{}, retryafter.ErrNoHint
	}
	if err := r.exhausted(h); err != nil {
		return retryafter.Hint{}, err
	}
	var latest retryafter.Hint
	found := false
	for _, line := range lines {
		for member := range members(line) {
			hint, ok := r.Meaning.read(member, h, received)
			if ok && (!found || hint.Delay > latest.Delay || hint.Delay == latest.Delay && hint.Date.After(latest.Date)) {
				latest, found = hint, true
			}
		}
	}
	if !found {
		return retryafter.Hint{}, &FieldError{r.Field, lines[0], "want " + wanted[r.Meaning]}
	}
	return latest, nil
}

// exhausted gives nil where no quota is left, or where none is told of.
func (r Reset) exhausted(h http.Header) error {
	if r.Remaining == "" {
		return nil
	}
	lines := h.Values(r.Remaining)
	if len(lines) == 0 {
		return retryafter.ErrNoHint
	}
	found := false
	for _, line := range lines {
		for member := range members(line) {
			d, rest, ok := readDecimal(member)
			if !ok || rest != "" {
				continue
			}
			if d == (decimal{}) {
				return nil
			}
			found = true
		}
	}
	if !found {
		return &FieldError{r.Remaining, lines[0], "want a number"}
	}
	return retryafter.ErrNoHint
}

var wanted = [...]string{
	Seconds:           "seconds",
	Milliseconds:      "milliseconds",
	Duration:          "a duration such as 6m0s",
	EpochSeconds:      "seconds since 1970",
	EpochMilliseconds: "milliseconds since 1970",
	Timestamp:         "an instant such as 2026-09-08T12:00:00Z",
}

// read reads one member of a field line.
func (m Meaning) read(s string, h http.Header, received time.Time) (retryafter.Hint, bool) {
	switch m {
	case Duration:
		d, ok := readDuration(s)
		return retryafter.Hint{Delay: d}, ok
	case Timestamp:
		t, ok := readTimestamp(s)
		if !ok {
			return retryafter.Hint{}, false
		}
		return until(t, h, received)
	}
	d, rest, ok := readDecimal(s)
	if !ok || rest != "" {
		return retryafter.Hint{}, false
	}
	switch m {
	case Seconds:
		return retryafter.Hint{Delay: d.times(time.Second)}, true
	case Milliseconds:
		return retryafter.Hint{Delay: d.times(time.Millisecond)}, true
	case EpochMilliseconds:
		part := decimal{d.whole % 1000, d.fraction}.times(time.Millisecond)
		return until(time.Unix(int64(d.whole/1000), int64(part)), h, received)
	default:
		const year10000 = 253402300800
		part := decimal{0, d.fraction}.times(time.Second)
		return until(time.Unix(int64(min(d.whole, year10000)), int64(part)), h, received)
	}
}

// units are those of package time, with both its letters for micro.
var units = [...]struct {
	name string
	unit time.Duration
}{
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"μs", time.Microsecond}, {"ns", time.Nanosecond},
	{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
}

// readDuration reads what time.ParseDuration does, without a sign, rounded up
// and never out of range.
func readDuration(s string) (time.Duration, bool) {
	var sum time.Duration
	for first := true; first || s != ""; first = false {
		d, rest, ok := readDecimal(s)
		if !ok {
			return 0, false
		}
		known := false
		for _, u := range units {
			if s, known = strings.CutPrefix(rest, u.name); known {
				if sum += d.times(u.unit); sum < 0 {
					sum = math.MaxInt64
				}
				break
			}
		}
		if !known {
			return 0, false
		}
	}
	return sum, true
}

// readTimestamp reads an instant of RFC 3339, rounded up to nanoseconds. As in a
// Retry-After, any minute may have a second 60: the second after :59.
func readTimestamp(s string) (time.Time, bool) {
	const hour, second = len("2006-01-02T"), len("2006-01-02T15:04:")
	s = strings.ToUpper(s)
	leap := time.Duration(0)
	if len(s) > second && strings.HasPrefix(s[second:], "60") {
		s, leap = s[:second]+"59"+s[second+2:], time.Second
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || s[hour+1] == ':' { // an hour of one digit
		return time.Time{}, false
	}
	if zone := s[len(s)-len("hh:mm"):]; s[len(s)-1] != 'Z' && (zone[:2] > "23" || zone[3:] > "59") {
		return time.Time{}, false // package time takes +24:60
	}
	t = t.Add(leap)
	if _, fraction, ok := strings.Cut(s, "."); ok && len(fraction) > 9 {
		if end := strings.IndexAny(fraction, "Z+-"); end > 9 && strings.Trim(fraction[9:end], "0") != "" {
			t = t.Add(1)
		}
	}
	return t, true
}

// until measures an instant as FromHeader measures a date, which has whole
// seconds: it is given the next one, and what that is too late is taken off.
func until(t time.Time, h http.Header, received time.Time) (retryafter.Hint, bool) {
	t = t.UTC()
	late := (time.Second - time.Duration(t.Nanosecond())) % time.Second
	hint, err := retryafter.FromHeader(http.Header{
		"Retry-After": {t.Add(late).Format(http.TimeFormat)},
		"Date":        h["Date"],
		"Age":         h["Age"],
	}, received)
	if err != nil { // a year that no HTTP-date can name: 10000, or the one before 0
		return retryafter.Hint{Delay: math.MaxInt64}, t.Year() > 0
	}
	if hint.Delay < math.MaxInt64 {
		hint.Delay = max(0, hint.Delay-late)
	}
	return retryafter.Hint{Delay: hint.Delay, Date: t}, true
}
