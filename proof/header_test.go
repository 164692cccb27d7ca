package proof

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// A server is one response's worth of Retry-After: how it is spelled, and by
// what clock. What it means is known from what it was made of, so nothing here
// reads a header.
type server struct {
	lines [][]member    // of Retry-After; none: no such field
	skew  time.Duration // the server's clock less the client's
	date  string        // how Date is written: "", "imf", "asctime", "rfc850", "junk", "two"
	age   bool          // an Age says that a cache kept the response
}

// A member is one value among those of a field line.
type member struct {
	form    string // "seconds", "imf", "rfc850", "asctime", "junk"
	digits  string // of seconds, or the text of junk
	offset  int64  // seconds from the server's now to the instant of a date
	spelled spelling
}

// A spelling is one of the ways to write a date that must be read alike.
type spelling struct {
	letters int // 0: as in the RFC, 1: lower, 2: upper
	weekday int // days by which its name is wrong
	blank   string
	zone    string // GMT, UTC or an offset
	east    int    // that offset in seconds
	short   bool   // a one-digit day where it has one digit
	leap    bool   // second 60 in place of 00
}

var unreadable = []string{
	"", "soon", "-1", "+5", "1.5", "10s", `"60"`, "0x10", "１２０", "²", "1e3", "120 GMT", "Sep", "1_000", "60;q=1",
	"Tue, 08 Sep 2026 12:00:00 PST", "Tue, 32 Sep 2026 12:00:00 GMT", "Tue, 08 Sep 2026 12:00:00",
	"Tue, 08 Sep 2026 24:00:00 GMT", "Tue, 08 Sep 2026 12:00:00.5 GMT", "08 Sep 2026 12:00:00 GMT",
	"Tue, 29 Feb 2023 12:00:00 GMT", "2026-09-08T12:00:00Z", "Tue Sep  8 12:00:00 2026 GMT", "Tue, 8-Sep-26 12:00:00 GMT",
}

func drawMember(t *rapid.T) member {
	m := member{form: rapid.SampledFrom([]string{"seconds", "imf", "rfc850", "asctime", "seconds", "junk"}).Draw(t, "form")}
	switch m.form {
	case "seconds":
		n := rapid.OneOf(
			rapid.SampledFrom([]string{"0", "00", "1", "2", "3", "60", "119", "120", "121", "3600", "0000000000000000000000007",
				"9223372036", "9223372037", "9223372036854775808", "18446744073709551616", strings.Repeat("9", 60)}),
			rapid.StringMatching(`[0-9]{1,3}`),
		).Draw(t, "digits")
		m.digits = n
	case "junk":
		m.digits = rapid.SampledFrom(unreadable).Draw(t, "junk")
	default:
		m.offset = rapid.OneOf(
			rapid.Int64Range(-10, 300),
			rapid.SampledFrom([]int64{0, 1, 119, 120, 121, 86400, -86400 * 365 * 40, 86400 * 365 * 40, 86400 * 365 * 90}),
		).Draw(t, "offset")
		east := rapid.SampledFrom([]int{0, 0, 3600, 7200, -3600 * 5, 3600*5 + 1800, -86340, 86340}).Draw(t, "east")
		m.spelled = spelling{
			letters: rapid.IntRange(0, 2).Draw(t, "letters"),
			weekday: rapid.IntRange(0, 6).Draw(t, "weekday"),
			blank:   rapid.SampledFrom([]string{" ", "  ", "\t", " \t "}).Draw(t, "blank"),
			zone:    rapid.SampledFrom([]string{"GMT", "UTC"}).Draw(t, "zone"),
			short:   rapid.Bool().Draw(t, "short"),
			leap:    rapid.Bool().Draw(t, "leap"),
		}
		if east != 0 || rapid.IntRange(0, 9).Draw(t, "zero offset") == 0 {
			sign := '+'
			if east < 0 {
				sign = '-'
			}
			abs := max(east, -east)
			m.spelled.zone, m.spelled.east = fmt.Sprintf("%c%02d%02d", sign, abs/3600, abs/60%60), east
		}
	}
	return m
}

func drawServer(t *rapid.T) server {
	var s server
	for range rapid.SampledFrom([]int{1, 1, 1, 0, 2, 3}).Draw(t, "lines") {
		var line []member
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "members") {
			line = append(line, drawMember(t))
		}
		s.lines = append(s.lines, line)
	}
	const year = 365 * 24 * time.Hour
	s.skew = rapid.OneOf(
		rapid.SampledFrom([]time.Duration{0, 0, time.Second, -time.Second, time.Hour, -time.Hour, 60 * year, -60 * year}),
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(-int64(60*year), int64(60*year)).Draw(t, "ns"))
		}),
	).Draw(t, "skew")
	s.date = rapid.SampledFrom([]string{"", "imf", "imf", "asctime", "rfc850", "junk", "two"}).Draw(t, "date")
	s.age = rapid.IntRange(0, 4).Draw(t, "age") == 0
	return s
}

// now is what the server's clock shows at an instant of the client's, in the
// whole seconds that headers have.
func (s server) now(at time.Time) time.Time { return at.UTC().Add(s.skew).Truncate(time.Second) }

// reference is the instant that delays to a date count from.
func (s server) reference(written, received time.Time) time.Time {
	if s.age || s.date == "" || s.date == "junk" {
		return received
	}
	return s.now(written)
}

// near tells whether two digits of a year are enough to name t near ref.
func near(t, ref time.Time) bool {
	return t.After(ref.AddDate(-49, 0, 0)) && t.Before(ref.AddDate(49, 0, 0))
}

// write is the header that leaves the server at written.
func (s server) write(written time.Time) http.Header {
	h := http.Header{"Content-Type": {"text/plain"}}
	now := s.now(written)
	for _, line := range s.lines {
		var parts []string
		for _, m := range line {
			parts = append(parts, m.write(now, s.reference(written, written)))
		}
		h["Retry-After"] = append(h["Retry-After"], strings.Join(parts, ", "))
	}
	switch s.date {
	case "imf":
		h["Date"] = []string{now.Format(http.TimeFormat)}
	case "asctime":
		h["Date"] = []string{now.Format(time.ANSIC)}
	case "rfc850":
		h["Date"] = []string{now.Format("Monday, 02-Jan-06 15:04:05 GMT")}
		if !near(now, written) {
			h["Date"] = []string{now.Format(http.TimeFormat)}
		}
	case "junk":
		h["Date"] = []string{"yesterday"}
	case "two":
		h["Date"] = []string{now.Add(5 * time.Second).Format(http.TimeFormat), "tomorrow", now.Format(http.TimeFormat)}
	}
	if s.age {
		h["Age"] = []string{"0"}
	}
	return h
}

func (m member) write(now, ref time.Time) string {
	if m.form == "seconds" || m.form == "junk" {
		return m.digits
	}
	s, at := m.spelled, now.Add(time.Duration(m.offset)*time.Second)
	if now.Year() > 9800 || at.Year() > 9800 {
		panic("a date that four digits can't name")
	}
	east := s.east
	if m.form == "asctime" {
		east = 0
	}
	shown := at.Add(time.Duration(east) * time.Second)
	clock := shown.Format("15:04:05")
	if s.leap && shown.Second() == 0 {
		shown = shown.Add(-time.Second)
		clock = shown.Format("15:04:") + "60"
	}
	day := shown.Format("02")
	if s.short {
		day = shown.Format("2")
	}
	name := time.Weekday((int(shown.Weekday()) + s.weekday) % 7).String()
	mon := shown.Format("Jan")
	var words []string
	switch {
	case m.form == "asctime":
		words = []string{name[:3], mon, day, clock, shown.Format("2006")}
	case m.form == "rfc850" && near(at, ref):
		words = []string{name + ",", day + "-" + mon + "-" + shown.Format("06"), clock, s.zone}
	default:
		words = []string{name[:3] + ",", day, mon, shown.Format("2006"), clock, s.zone}
	}
	text := strings.Join(words, s.blank)
	switch s.letters {
	case 1:
		text = strings.ToLower(text)
	case 2:
		text = strings.ToUpper(text)
	}
	return text
}

// means is the delay that the header says, and whether it says one.
func (s server) means(written, received time.Time) (delay time.Duration, ok bool) {
	for _, line := range s.lines {
		for _, m := range line {
			d := time.Duration(0)
			switch m.form {
			case "junk":
				continue
			case "seconds":
				for _, c := range m.digits { // slow, and without overflow
					n := int64(c - '0')
					if d > (math.MaxInt64-time.Duration(n)*time.Second)/10 {
						d = math.MaxInt64
						break
					}
					d = d*10 + time.Duration(n)*time.Second
				}
			default:
				at := s.now(written).Add(time.Duration(m.offset) * time.Second)
				d = max(at.Sub(s.reference(written, received)), 0)
			}
			delay, ok = max(delay, d), true
		}
	}
	return delay, ok
}
