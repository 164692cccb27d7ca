package hints_test

import (
	"errors"
	"math"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/fixtures"
	"github.com/retryafter-go/retryafter/hints"
)

// The models read slowly and plainly, by regular expressions and exact
// fractions, and share no code with the readers.

var (
	plainDecimal   = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)
	plainDuration  = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?(?:h|ms|us|µs|μs|ns|m|s))+$`)
	durationPart   = regexp.MustCompile(`([0-9.]+)([a-zµμ]+)`)
	plainTimestamp = regexp.MustCompile(`^([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:)([0-9]{2})(\.[0-9]+)?([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$`)
)

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(s)
	}
	return r
}

// A model says what a member means: exact nanoseconds from the clock on or since
// 1970, in a number of parts that may each be rounded up.
func modelOf(m hints.Meaning, s string) (ns *big.Rat, instant bool, parts int) {
	ns = new(big.Rat)
	switch m {
	case hints.Duration:
		if !plainDuration.MatchString(s) {
			return nil, false, 0
		}
		unit := map[string]int64{"h": 3600e9, "m": 60e9, "s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "μs": 1e3, "ns": 1}
		for _, part := range durationPart.FindAllStringSubmatch(s, -1) {
			ns.Add(ns, new(big.Rat).Mul(rat(part[1]), big.NewRat(unit[part[2]], 1)))
			parts++
		}
		return ns, false, parts
	case hints.Timestamp:
		g := plainTimestamp.FindStringSubmatch(s)
		if g == nil {
			return nil, true, 0
		}
		t, err := time.Parse("2006-01-02t15:04:Z07:00", strings.ToLower(g[1])+strings.ToUpper(g[4]))
		seconds := rat(g[2] + g[3])
		if err != nil || seconds.Cmp(big.NewRat(61, 1)) >= 0 || t.UTC().Year() < 0 {
			return nil, true, 0
		}
		ns.Mul(seconds.Add(seconds, big.NewRat(t.Unix(), 1)), big.NewRat(1e9, 1))
		return ns, true, 1
	}
	if !plainDecimal.MatchString(s) {
		return nil, false, 0
	}
	unit := big.NewRat(1e9, 1)
	if m == hints.Milliseconds || m == hints.EpochMilliseconds {
		unit = big.NewRat(1e6, 1)
	}
	return ns.Mul(rat(s), unit), m == hints.EpochSeconds || m == hints.EpochMilliseconds, 1
}

func modelMembers(line string) []string {
	all := strings.Split(line, ",")
	for i := range all {
		all[i] = strings.Trim(all[i], " \t")
	}
	return all
}

func FuzzReset(f *testing.F) {
	for _, v := range fixtures.VendorFields() {
		if v.Field == "" || len(v.Header.Values(v.Field)) != 1 {
			continue
		}
		for m := hints.Seconds; m <= hints.Timestamp; m++ {
			f.Add(v.Header.Get(v.Field), v.Header.Get(v.Remaining), uint8(m), v.Received.Unix(), uint32(v.Received.Nanosecond()), noon.Unix(), uint8(len(v.Header)))
		}
	}
	f.Fuzz(func(t *testing.T, value, remaining string, meaning uint8, sec int64, nsec uint32, date int64, fields uint8) {
		if len(value)+len(remaining) > 512 {
			t.Skip("the model is slow")
		}
		m := hints.Seconds + hints.Meaning(meaning%6)
		received := time.Unix(sec%(1<<35), int64(nsec%1e9)) // within a thousand years of 1970
		clock := received
		h := http.Header{"X-Wait": {value}}
		r := hints.Reset{Field: "X-Wait", Meaning: m}
		if fields&1 != 0 {
			clock = time.Unix(date%(1<<35), 0)
			h["Date"] = []string{clock.UTC().Format(http.TimeFormat)}
		}
		if fields&2 != 0 {
			h["Age"] = []string{"1"}
			clock = received
		}
		left := ""
		if fields&4 != 0 {
			r.Remaining = "X-Left"
			h["X-Left"] = []string{remaining}
			left = "unreadable"
			for _, member := range modelMembers(remaining) {
				if plainDecimal.MatchString(member) {
					if rat(member).Sign() == 0 {
						left = ""
						break
					}
					left = "some"
				}
			}
		}
		var want *big.Rat
		parts := 0
		for _, member := range modelMembers(value) {
			ns, instant, n := modelOf(m, member)
			if ns == nil {
				continue
			}
			if instant {
				now := new(big.Rat).SetInt(new(big.Int).Add(new(big.Int).Mul(big.NewInt(clock.Unix()), big.NewInt(1e9)), big.NewInt(int64(clock.Nanosecond()))))
				ns.Sub(ns, now)
			}
			if want == nil || ns.Cmp(want) > 0 {
				want = ns
			}
			parts = max(parts, n)
		}

		hint, err := r.Hint(h, received)
		_, unreadable := errors.AsType[*hints.FieldError](err)
		switch {
		case hint.Delay < 0 || err != nil && hint != (retryafter.Hint{}):
			t.Fatalf("%q as %d: %+v, %v", value, m, hint, err)
		case left == "some":
			if err != retryafter.ErrNoHint {
				t.Fatalf("quota is left, but %+v, %v", hint, err)
			}
		case left == "unreadable" || want == nil:
			if !unreadable {
				t.Fatalf("%q as %d, %q left: %+v, %v", value, m, remaining, hint, err)
			}
		case err != nil:
			t.Fatalf("%q as %d: %v", value, m, err)
		default:
			got := new(big.Rat).SetInt64(int64(hint.Delay))
			if hint.Delay < math.MaxInt64 && got.Cmp(want) < 0 {
				t.Errorf("%q as %d: %v is early; %v was named", value, m, hint.Delay, want)
			}
			// An instant past the year 9999 counts as never, however far from now.
			if most := new(big.Rat).Add(want, big.NewRat(int64(parts)+1, 1)); got.Cmp(most) >= 0 && hint.Delay > 0 && !(hint.Delay == math.MaxInt64 && want.Cmp(big.NewRat(math.MaxInt64/2, 1)) > 0) {
				t.Errorf("%q as %d: %v is late; %v was named", value, m, hint.Delay, want)
			}
		}
	})
}

const (
	sfBare  = `(?:-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|"(?:[ !#-\[\]-~]|\\["\\])*"|[A-Za-z*][-!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:/]*|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*")`
	sfParam = `; *[a-z*][a-z0-9_.*-]*(?:=` + sfBare + `)?`
	sfItem  = `"(?:[ !#-\[\]-~]|\\["\\])*"(?:` + sfParam + `)*`
)

var (
	sfList      = regexp.MustCompile(`^ *(?:` + sfItem + `(?:[ \t]*,[ \t]*` + sfItem + `)*[ \t]*)?$`)
	sfFirst     = regexp.MustCompile(`^[ \t,]*("(?:[ !#-\[\]-~]|\\["\\])*")((?:` + sfParam + `)*)[ \t]*`)
	sfFirstPart = regexp.MustCompile(`^; *([a-z*][a-z0-9_.*-]*)(?:=(` + sfBare + `))?`)
	sfQuantity  = regexp.MustCompile(`^(?:[0-9]{1,15}|-0{1,15})$`)
)

// modelRateLimit gives the seconds of a RateLimit field, and whether there are
// any, and whether the field can be read.
func modelRateLimit(field string) (longest *big.Int, found, ok bool) {
	longest = new(big.Int)
	if !sfList.MatchString(field) {
		return longest, false, false
	}
	for field != "" {
		g := sfFirst.FindStringSubmatch(field)
		if g == nil {
			return longest, found, strings.Trim(field, " ") == ""
		}
		field = field[len(g[0]):]
		values := map[string]string{}
		for params := g[2]; params != ""; {
			p := sfFirstPart.FindStringSubmatch(params)
			params = params[len(p[0]):]
			values[p[1]] = p[2]
		}
		r, hasR := values["r"]
		s, hasT := values["t"]
		if !hasR || !sfQuantity.MatchString(r) || hasT && !sfQuantity.MatchString(s) {
			return longest, false, false
		}
		if n, _ := new(big.Int).SetString(r, 10); n.Sign() == 0 && hasT {
			found = true
			if n, _ := new(big.Int).SetString(s, 10); n.Cmp(longest) > 0 {
				longest = n
			}
		}
	}
	return longest, found, true
}

func FuzzRateLimit(f *testing.F) {
	for _, v := range fixtures.VendorFields() {
		if lines := v.Header.Values("RateLimit"); lines != nil {
			f.Add(lines[0], strings.Join(lines[1:], ""), len(lines) > 1)
		}
	}
	f.Fuzz(func(t *testing.T, first, second string, two bool) {
		if len(first)+len(second) > 256 {
			t.Skip("the model is slow")
		}
		h := http.Header{"Ratelimit": {first}}
		field := first
		if two {
			h.Add("RateLimit", second)
			field += "," + second
		}
		seconds, found, ok := modelRateLimit(field)
		hint, err := hints.RateLimit(h, noon)
		_, unreadable := errors.AsType[*hints.FieldError](err)
		want := new(big.Int).Mul(seconds, big.NewInt(1e9))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		switch {
		case unreadable == ok:
			t.Errorf("%q: error %v, but readable is %v", field, err, ok)
		case ok && found != (err == nil):
			t.Errorf("%q: error %v, but a delay is there: %v", field, err, found)
		case found && want.Int64() != int64(hint.Delay):
			t.Errorf("%q: %v, want %v", field, hint.Delay, want)
		}
	})
}

func FuzzProfiles(f *testing.F) {
	for _, v := range fixtures.VendorFields() {
		for name := range v.Header {
			f.Add(name, v.Header.Get(name), v.Header.Get("Date"), v.Header.Get("Retry-After"), 429)
		}
	}
	readers := []hints.Reader{hints.GitHub{}.Hint, hints.OpenAI{}.Hint, hints.Anthropic{}.Hint, hints.Azure{}.Hint}
	retries := []func(retryafter.Attempt) bool{hints.GitHub{}.Retry, hints.OpenAI{}.Retry, hints.Anthropic{}.Retry, nil}
	f.Fuzz(func(t *testing.T, name, value, date, retryAfter string, status int) {
		h := http.Header{}
		for field, v := range map[string]string{
			name: value, "Date": date, "Retry-After": retryAfter,
			"X-Ratelimit-Remaining": "0", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Remaining-Tokens": "0",
			"Anthropic-Ratelimit-Requests-Remaining": "0", "Anthropic-Ratelimit-Tokens-Remaining": "0",
		} {
			if v != "" {
				h.Add(field, v)
			}
		}
		told, toldErr := retryafter.FromHeader(h, noon)
		a := retryafter.Attempt{Number: 1, StatusCode: status, Header: h, Received: noon}
		for i, read := range readers {
			hint, err := read(h, noon)
			if hint.Delay < 0 || err != nil && hint != (retryafter.Hint{}) {
				t.Errorf("reader %d: %+v, %v", i, hint, err)
			}
			d := retryafter.Policy{Hint: read, Retry: retries[i], MaxWait: -1}.Decide(a, retryafter.Call{})
			if d.Retry && (toldErr == nil && d.Wait < told.Delay || err == nil && d.Wait < hint.Delay) {
				t.Errorf("reader %d: %v is early; %v and %v were named", i, d.Wait, told.Delay, hint.Delay)
			}
		}
	})
}
