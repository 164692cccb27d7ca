package proof

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/model"
	"pgregory.net/rapid"
)

// drawReceived is an instant of any year that HTTP can name, on special days
// more often than not.
func drawReceived(t *rapid.T) time.Time {
	year := rapid.OneOf(rapid.IntRange(1995, 2105), rapid.IntRange(1, 9998)).Draw(t, "year")
	var at time.Time
	if rapid.Bool().Draw(t, "special") {
		day := rapid.SampledFrom([]string{"01-01", "02-28", "02-29", "03-01", "12-31"}).Draw(t, "day")
		clock := rapid.SampledFrom([]string{"00:00:00", "23:59:59", "12:00:00"}).Draw(t, "clock")
		at, _ = time.Parse("2006-01-02 15:04:05", fmt.Sprintf("%04d-%s %s", year, day, clock))
		if at.IsZero() {
			at = time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC)
		}
	} else {
		at = time.Date(year, 1, 1, 0, 0, rapid.IntRange(0, 366*86400).Draw(t, "second"), 0, time.UTC)
	}
	at = at.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 999_999_999, 500_000_000}).Draw(t, "ns")))
	east := rapid.SampledFrom([]int{0, 0, 14 * 3600, -12 * 3600, 5*3600 + 1800}).Draw(t, "zone")
	return at.In(time.FixedZone("", east))
}

var tokens = []string{" ", " ", " ", ",", ", ", "\t", ":", "-", "+", "GMT", "UTC", "Z", "+0000", "-2359", "+2400", "0", "1", "29", "30", "31", "60",
	"99", "00", "2024", "2100", "0000", "9999", "Mon", "tue", "WED", "Thursday", "FRIDAY", "Saturda", "Sun", "Jan", "feb", "APR", "Dec",
	"29-Feb-00", "31-Dec-99", "01-Jan-50", "12:00:00", "23:59:60", "24:00:00", "é", "\x00", "ſun", "\u212A", ";", "\"", "120", "9223372037"}

// drawValue is a field line: well-formed, damaged, or made of what dates are
// made of.
func drawValue(t *rapid.T, now time.Time) string {
	var parts []string
	for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "parts") {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0: // any two digits of a year
			at := now.UTC().AddDate(rapid.IntRange(-52, 102).Draw(t, "years"), 0, rapid.IntRange(-1, 1).Draw(t, "days")).
				Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "seconds")) * time.Second)
			zone := rapid.SampledFrom([]string{"GMT", "UTC", "+0000", "-2359", "+2359", "+0100"}).Draw(t, "zone")
			parts = append(parts, at.Format("Monday, 02-Jan-06 15:04:05 ")+zone)
		case 1:
			parts = append(parts, strings.Join(rapid.SliceOfN(rapid.SampledFrom(tokens), 0, 14).Draw(t, "tokens"), ""))
		default:
			m := drawMember(t)
			m.offset %= 1 << 20
			ref := now.UTC().Truncate(time.Second)
			if y := ref.Year(); y < 200 || y > 9700 {
				ref = start
			}
			parts = append(parts, m.write(ref, now))
		}
	}
	value := []byte(strings.Join(parts, rapid.SampledFrom([]string{",", ", ", " ,\t", " ", ""}).Draw(t, "between")))
	for range rapid.SampledFrom([]int{0, 0, 1, 1, 2, 5}).Draw(t, "damages") {
		if len(value) == 0 {
			break
		}
		i := rapid.IntRange(0, len(value)-1).Draw(t, "at")
		with := rapid.SampledFrom(tokens).Draw(t, "with")
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			value = append(value[:i:i], value[i+1:]...)
		case 1:
			value = append(value[:i:i], append([]byte(with), value[i:]...)...)
		case 2:
			value = append(value[:i:i], append([]byte(with), value[i+1:]...)...)
		case 3:
			value[i] ^= rapid.SampledFrom([]byte{0x20, 0x01, 0x80, 0x10}).Draw(t, "bits")
		}
	}
	return string(value)
}

func agree(t *rapid.T, what any, got retryafter.Hint, err error, want model.Reading, absent bool) {
	_, unreadable := errors.AsType[*retryafter.SyntaxError](err)
	switch {
	case absent:
		if err != retryafter.ErrNoHint {
			t.Fatalf("%q: %v, want ErrNoHint", what, err)
		}
	case want.Form == "":
		if !unreadable || got != (retryafter.Hint{}) {
			t.Fatalf("%q: %+v and %v, want a SyntaxError alone", what, got, err)
		}
		if e := err.(*retryafter.SyntaxError); e.Offset < 0 || e.Offset > len(e.Value) || e.Problem == "" {
			t.Fatalf("%q: %+v", what, e)
		}
	case err != nil || got.Form.String() != want.Form || got.Delay != want.Delay || !got.Date.Equal(want.Date):
		t.Fatalf("%q: %+v and %v, want %+v", what, got, err, want)
	case got.Date.Location() != time.UTC && !got.Date.IsZero():
		t.Fatalf("%q: in %v", what, got.Date.Location())
	}
}

func TestParseReadsAsTheSlowReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		received := drawReceived(t)
		value := drawValue(t, received)
		got, err := retryafter.Parse(value, received)
		agree(t, value, got, err, model.Parse(value, received), false)
	})
}

func TestFromHeaderReadsAsTheSlowReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		received := drawReceived(t)
		h := http.Header{}
		lines := func(name string, n int) {
			for range n {
				h[name] = append(h[name], drawValue(t, received))
			}
		}
		lines("Retry-After", rapid.SampledFrom([]int{1, 1, 2, 3, 0}).Draw(t, "lines"))
		switch n := rapid.SampledFrom([]int{0, 1, 1, 2, 3}).Draw(t, "dates"); n {
		case 3:
			lines("Date", 2)
		case 2:
			h["Date"] = []string{received.AddDate(rapid.IntRange(-60, 60).Draw(t, "skew"), 0, 0).UTC().Format("Monday, 02-Jan-06 15:04:05 GMT")}
		case 1:
			h["Date"] = []string{received.AddDate(rapid.IntRange(-60, 60).Draw(t, "skew"), 0, 0).UTC().Format(http.TimeFormat)}
		}
		if seldom(t, 4, "age") {
			h["Age"] = []string{rapid.SampledFrom([]string{"0", "", "junk", "60"}).Draw(t, "seconds")}
		}
		got, err := retryafter.FromHeader(h, received)
		agree(t, h, got, err, model.FromHeader(h, received), len(h["Retry-After"]) == 0)
	})
}

// TestHeadersMeanWhatTheyWereWrittenFor needs no second reader: it knows what
// it wrote.
func TestHeadersMeanWhatTheyWereWrittenFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t)
		written := start.Add(time.Duration(rapid.Int64Range(0, int64(100*365*24*time.Hour)).Draw(t, "written")))
		received := written.Add(rapid.SampledFrom([]time.Duration{0, 1, 1500 * time.Millisecond, time.Hour}).Draw(t, "wire"))
		h := s.write(written)
		got, err := retryafter.FromHeader(h, received)
		delay, told := s.means(written, received)
		if told != (err == nil) || got.Delay != delay {
			t.Fatalf("%q received at %v: %v and %v, want %v", h, received, got, err, delay)
		}
	})
}
