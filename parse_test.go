package retryafter

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter/fixtures"
)

// noon is the reference instant of most vectors, a Tuesday.
var noon = time.Date(2026, 9, 8, 12, 0, 0, 0, time.UTC)

func header(v fixtures.HeaderValue) http.Header {
	h := http.Header{}
	for name, lines := range map[string][]string{"Retry-After": v.Lines, "Date": v.Date, "Age": v.Age} {
		for _, line := range lines {
			h.Add(name, line)
		}
	}
	return h
}

// alone tells whether Parse is to read v as FromHeader does.
func alone(v fixtures.HeaderValue) bool {
	return len(v.Lines) == 1 && (v.Date == nil || v.Age != nil)
}

// zones are places whose clocks differ from GMT, by whole hours and not, on
// both sides of the date line.
func zones(t *testing.T) []*time.Location {
	all := []*time.Location{time.UTC, time.FixedZone("odd", -7*3600-1234)}
	for _, name := range []string{"America/New_York", "America/Los_Angeles", "Asia/Jerusalem", "Asia/Kolkata", "Pacific/Kiritimati"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, zone)
	}
	return all
}

// check compares what was read with what v says must be.
func check(t *testing.T, v fixtures.HeaderValue, got Hint, err error) {
	t.Helper()
	var syntax *SyntaxError
	switch {
	case len(v.Lines) == 0:
		if err != ErrNoHint {
			t.Errorf("%q: error %v, want %v", v.Lines, err, ErrNoHint)
		}
	case v.Form == "none":
		if !errors.As(err, &syntax) {
			t.Errorf("%q: error %v, want a *SyntaxError", v.Lines, err)
		} else if syntax.Value != v.Lines[0] {
			t.Errorf("%q: the error is about %q", v.Lines, syntax.Value)
		}
	case err != nil:
		t.Errorf("%q: %v", v.Lines, err)
	}
	type hint struct {
		Delay time.Duration
		Date  time.Time
		Form  string
	}
	if diff := cmp.Diff(hint{v.Delay, v.Instant, v.Form}, hint{got.Delay, got.Date, got.Form.String()}); diff != "" {
		t.Errorf("%s: %q, %s (-want +got):\n%s", v.ID, v.Lines, v.Note, diff)
	}
}

func TestEveryVectorIsReadAsItSays(t *testing.T) {
	for _, v := range fixtures.HeaderValues() {
		t.Run(v.ID, func(t *testing.T) {
			hint, err := FromHeader(header(v), v.Received)
			check(t, v, hint, err)
			if alone(v) {
				hint, err := Parse(v.Lines[0], v.Received)
				check(t, v, hint, err)
			}
		})
	}
}

func TestNoTimeZonePlaysAPart(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	for _, zone := range zones(t) {
		time.Local = zone
		for _, v := range fixtures.HeaderValues() {
			hint, err := FromHeader(header(v), v.Received.In(zone))
			check(t, v, hint, err)
			if hint.Date.Location() != time.UTC {
				t.Errorf("%s: %v is not told in UTC", v.ID, hint.Date)
			}
		}
	}
}

func TestWhatCanBeReadAllocatesNothing(t *testing.T) {
	for _, v := range fixtures.HeaderValues() {
		if v.Form == "none" {
			continue
		}
		h := header(v)
		n := testing.AllocsPerRun(20, func() {
			if _, err := FromHeader(h, v.Received); err != nil {
				t.Fatal(err)
			}
		})
		if alone(v) {
			n += testing.AllocsPerRun(20, func() {
				if _, err := Parse(v.Lines[0], v.Received); err != nil {
					t.Fatal(err)
				}
			})
		}
		if n != 0 {
			t.Errorf("%s: %q: %v allocations", v.ID, v.Lines, n)
		}
	}
	if n := testing.AllocsPerRun(20, func() { FromHeader(http.Header{}, noon) }); n != 0 {
		t.Errorf("no field: %v allocations", n)
	}
}

func TestSyntaxErrorTellsWhatAndWhere(t *testing.T) {
	for _, test := range []struct {
		value   string
		offset  int
		problem string
	}{
		{"", 0, "nothing to read"},
		{" \t", 2, "nothing to read"},
		{",", 0, "nothing to read"},
		{" , soon", 1, "nothing to read"},
		{"soon", 0, "want digits or the name of a day"},
		{" -1", 1, "want digits or the name of a day"},
		{"Mo", 0, "want digits or the name of a day"},
		{"1.5", 1, "trailing text"},
		{"30s, Tue", 2, "trailing text"},
		{"120 s", 4, "trailing text"},
		{"Tue", 3, "want a space"},
		{"Tues, 08 Sep 2026 12:00:30 GMT", 3, "want a space"},
		{"Tue,08 Sep 2026 12:00:30 GMT", 4, "want a space"},
		{"Tuesday 08-Sep-26 12:00:30 GMT", 7, "want a comma"},
		{"Tuesday, 08 Sep 2026 12:00:30 GMT", 11, "want a dash"},
		{"Tuesday, 08-Sep 26 12:00:30 GMT", 15, "want a dash"},
		{"Tue, x8 Sep 2026 12:00:30 GMT", 5, "want a day of the month"},
		{"Tue, 00 Sep 2026 12:00:30 GMT", 5, "want a day of the month"},
		{"Tue, 32 Sep 2026 12:00:30 GMT", 5, "want a day of the month"},
		{"Tue,  31 Sep 2026 12:00:30 GMT", 6, "no such day in that month"},
		{"Tue Feb 29 12:00:30 2026", 8, "no such day in that month"},
		{"Tue, 08 aaa 2026 12:00:30 GMT", 8, "want the name of a month"},
		{"Tue, 08 S", 8, "want the name of a month"},
		{"Tue, 08 Sep 26 12:00:30 GMT", 12, "want a year of four digits"},
		{"Tue Sep  8 12:00:30 202", 20, "want a year of four digits"},
		{"Tuesday, 08-Sep-2 12:00:30 GMT", 16, "want a year of two digits"},
		{"Tuesday, 08-Sep-2026 12:00:30 GMT", 18, "want a space"},
		{"Tue, 08 Sep 2026 24:00:30 GMT", 17, "want a time of day such as 08:49:37"},
		{"Tue, 08 Sep 2026 8:00:30 GMT", 17, "want a time of day such as 08:49:37"},
		{"Tue, 08 Sep 2026 12:00", 17, "want a time of day such as 08:49:37"},
		{"Tue, 08 Sep 2026 12:00:30.5 GMT", 25, "want a space"},
		{"Tue, 08 Sep 2026 12:00:30", 25, "want a space"},
		{"Tue, 08 Sep 2026 12:00:30 PST", 26, "want GMT, UTC or an offset such as +0200"},
		{"Tue, 08 Sep 2026 12:00:30 ", 26, "want GMT, UTC or an offset such as +0200"},
		{"Tue, 08 Sep 2026 12:00:30 GMT+3", 29, "trailing text"},
		{"Tue Sep  8 12:00:30 2026 GMT", 25, "trailing text"},
	} {
		_, err := Parse(test.value, noon)
		want := &SyntaxError{test.value, test.offset, test.problem}
		if got, _ := err.(*SyntaxError); got == nil || *got != *want {
			t.Errorf("%q: got %#v, want %#v", test.value, err, want)
		}
	}
}

func TestSyntaxErrorQuotesAtMost64Bytes(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, test := range []struct{ value, message string }{
		{"30s", `retryafter: Retry-After "30s": trailing text at byte 2`},
		{"1\x00\xff\"\n", `retryafter: Retry-After "1\x00\xff\"\n": trailing text at byte 1`},
		{long, `retryafter: Retry-After "` + long + `": want digits or the name of a day at byte 0`},
		{long + "y", `retryafter: Retry-After "` + long + `"...: want digits or the name of a day at byte 0`},
		{strings.Repeat("1", 1e6) + "y", `retryafter: Retry-After "` + strings.Repeat("1", 64) + `"...: trailing text at byte 1000000`},
	} {
		if _, err := Parse(test.value, noon); err == nil || err.Error() != test.message {
			t.Errorf("got  %v\nwant %s", err, test.message)
		}
	}
}

func TestFirstUnreadableLineIsReported(t *testing.T) {
	h := http.Header{"Retry-After": {"soon", "30s"}}
	_, err := FromHeader(h, noon)
	if got, _ := err.(*SyntaxError); got == nil || got.Value != "soon" {
		t.Errorf("got %v", err)
	}
	h["Retry-After"] = []string{"later, 30s", "soon"}
	_, err = FromHeader(h, noon)
	if got, _ := err.(*SyntaxError); got == nil || got.Value != "later, 30s" || got.Offset != 0 {
		t.Errorf("got %v", err)
	}
}

func TestNoFieldIsNotAnUnreadableOne(t *testing.T) {
	for _, h := range []http.Header{nil, {}, {"Retry-After": {}}, {"Retry-After-Ms": {"5"}, "X-Retry-After": {"5"}}} {
		if hint, err := FromHeader(h, noon); err != ErrNoHint || hint != (Hint{}) {
			t.Errorf("%v: got %v, %v", h, hint, err)
		}
	}
	if _, err := FromHeader(http.Header{"Retry-After": {""}}, noon); err == nil || errors.Is(err, ErrNoHint) {
		t.Errorf("empty field: got %v", err)
	}
}

func TestFieldNamesOnTheWireHaveAnyCase(t *testing.T) {
	const wire = "HTTP/1.1 503 Service Unavailable\r\n" +
		"DATE: Tue, 08 Sep 2026 12:00:00 GMT\r\nretry-after: 5\r\nRETRY-AFTER: \tTue, 08 Sep 2026 12:01:00 GMT \r\nContent-Length: 0\r\n\r\n"
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(wire)), nil)
	if err != nil {
		t.Fatal(err)
	}
	hint, err := FromHeader(resp.Header, noon.AddDate(-3, 0, 0))
	if want := (Hint{time.Minute, noon.Add(time.Minute), IMFFixdate}); err != nil || hint != want {
		t.Errorf("got %v, %v", hint, err)
	}
}

func TestBytesThatNoGrammarKnowsAreUnreadable(t *testing.T) {
	const date = "Tue, 08 Sep 2026 12:00:30 GMT"
	for b := range 256 {
		if b == ' ' || b == '\t' || b == ',' {
			continue
		}
		for i := range len(date) {
			value := date[:i] + string([]byte{byte(b)}) + date[i:]
			if _, err := Parse(value, noon); err == nil && value != strings.Replace(value, date, "", 1) {
				t.Errorf("%q was read", value)
			}
		}
		if '0' <= b && b <= '9' {
			continue
		}
		for _, value := range []string{string([]byte{byte(b)}), string([]byte{byte(b), '5'}), string([]byte{'5', byte(b)})} {
			if hint, err := Parse(value, noon); err == nil {
				t.Errorf("%q was read as %v", value, hint)
			}
		}
	}
}

// Of several Date lines, or members of one, the earliest that can be read is the
// server's clock, for that makes the longest wait.
func TestTheEarliestDateIsTheServersClock(t *testing.T) {
	const early, late, from = "Tue, 08 Sep 2026 12:00:00 GMT", "Tue, 08 Sep 2026 12:00:10 GMT", "Tue, 08 Sep 2026 12:01:00 GMT"
	for _, tc := range []struct {
		dates []string
		want  time.Duration
	}{
		{[]string{late}, 50 * time.Second},
		{[]string{early, late}, time.Minute},
		{[]string{late, early}, time.Minute},
		{[]string{early + ", " + late}, time.Minute},
		{[]string{late + ", " + early}, time.Minute},
		{[]string{late, early, late}, time.Minute},
		{[]string{"soon, " + early}, time.Minute},
		{[]string{"Tue, 08 Sep, " + early}, time.Minute},
		{[]string{late + ", soon"}, 50 * time.Second},
		{[]string{"xTue, 08 Sep 2026 11:00:00 GMT, " + early}, time.Minute}, // what is in the unreadable is not read
		{[]string{"soon Tue, 08 Sep 2026 11:00:00 GMT, " + early}, time.Minute},
		{[]string{"5, " + late + ", 5"}, 50 * time.Second},
		{[]string{"5", "soon", ""}, 30 * time.Second},
	} {
		h := http.Header{"Retry-After": {from}, "Date": tc.dates}
		if hint, err := FromHeader(h, noon.Add(30*time.Second)); err != nil || hint.Delay != tc.want {
			t.Errorf("Date %q: %v, %v; want %v", tc.dates, hint, err, tc.want)
		}
	}
}

func TestEveryByteOfADateCounts(t *testing.T) {
	for _, good := range []string{"Tue, 08 Sep 2026 12:01:00 GMT", "Tuesday, 08-Sep-26 12:01:00 GMT", "Tue Sep 08 12:01:00 2026"} {
		if hint, err := Parse(good, noon); err != nil || hint.Delay != time.Minute {
			t.Errorf("%q: %v, %v", good, hint, err)
		}
		for i := range good {
			for _, c := range []string{"x", "/", ";", "\x00", "\xff", ""} {
				bad := good[:i] + c + good[i+1:]
				if _, zero := strings.CutPrefix(good[i:], "08"); zero && c == "" {
					continue // a day of one digit
				}
				if hint, err := Parse(bad, noon); err == nil {
					t.Errorf("%q is read as %v", bad, hint)
				}
			}
		}
		for i := range len(good) - 1 { // two at a time
			if hint, err := Parse(good[:i]+"xx"+good[i+2:], noon); err == nil {
				t.Errorf("%q is read as %v", good[:i]+"xx"+good[i+2:], hint)
			}
		}
	}
}

func TestEveryDayOfEightCenturies(t *testing.T) {
	layouts := map[Form]string{IMFFixdate: http.TimeFormat, RFC850Date: "Monday, 02-Jan-06 15:04:05 GMT", AsctimeDate: time.ANSIC}
	for d := time.Date(1600, 1, 1, 23, 59, 58, 0, time.UTC); d.Year() < 2400; d = d.AddDate(0, 0, 1) {
		for form, layout := range layouts {
			received := d.Add(-17 * time.Second)
			hint, err := Parse(d.Format(layout), received)
			if want := (Hint{17 * time.Second, d, form}); err != nil || hint != want {
				t.Fatalf("%s: got %v, %v", d.Format(layout), hint, err)
			}
		}
	}
}

func TestDaysThatDoNotExistAreUnreadable(t *testing.T) {
	for year := 1896; year <= 2104; year++ {
		for m := time.January; m <= time.December; m++ {
			for day := 28; day <= 31; day++ {
				exists := time.Date(year, m, day, 0, 0, 0, 0, time.UTC).Month() == m
				value := fmt.Sprintf("Sun, %02d %s %04d 00:00:00 GMT", day, m.String()[:3], year)
				if _, err := Parse(value, noon); (err == nil) != exists {
					t.Errorf("%s: %v", value, err)
				}
			}
		}
	}
}

// A year of two digits is the latest that is not too far, so that a date at most
// 50 years ahead, and less than 50 behind, comes back as itself.
func TestTwoDigitYearsFollowTheClock(t *testing.T) {
	for year := 1950; year <= 2150; year++ {
		for _, received := range []time.Time{
			time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(year, 2, 28, 23, 59, 59, 999999999, time.UTC),
			time.Date(year, 12, 31, 23, 59, 59, 0, time.UTC),
		} {
			limit := received.AddDate(50, 0, 0)
			for _, zone := range []string{"GMT", "+1400", "-1200"} {
				east := map[string]int{"+1400": 14 * 3600, "-1200": -12 * 3600}[zone]
				for ahead := -2; ahead <= 2; ahead++ {
					date := limit.Truncate(time.Second).Add(time.Duration(ahead) * time.Second)
					local := date.In(time.FixedZone("", east))
					value := local.Format("Monday, 02-Jan-06 15:04:05 ") + zone
					hint, err := Parse(value, received)
					if date.After(limit) {
						earlier := local.AddDate(-100, 0, 0)
						if earlier.Day() != local.Day() { // 29 February, 100 years before a leap year
							if err == nil {
								t.Errorf("%s at %v: got %v", value, received, hint.Date)
							}
							continue
						}
						date = earlier
					}
					if err != nil || !hint.Date.Equal(date) {
						t.Errorf("%s at %v: got %v, %v; want %v", value, received, hint.Date, err, date)
					}
				}
			}
		}
	}
}

func TestDelaysNeitherWrapNorTurnNegative(t *testing.T) {
	for _, zeros := range []int{0, 1, 5000} {
		for _, test := range []struct {
			digits string
			want   time.Duration
		}{
			{"0", 0},
			{"1", time.Second},
			{"9223372036", 9223372036 * time.Second},
			{"9223372037", math.MaxInt64},
			{"18446744073", math.MaxInt64},   // 2^64 ns
			{"18446744074", math.MaxInt64},   // and a little more
			{"4294967296000", math.MaxInt64}, // 2^32 · 1000
			{"9223372036854775807", math.MaxInt64},
			{"9223372036854775808", math.MaxInt64},
			{"18446744073709551616", math.MaxInt64},
			{"18446744073709551621", math.MaxInt64},
			{"1" + strings.Repeat("0", 5000), math.MaxInt64},
		} {
			value := strings.Repeat("0", zeros) + test.digits
			if hint, err := Parse(value, noon); err != nil || hint != (Hint{Delay: test.want, Form: Seconds}) {
				t.Errorf("%.40s: got %v, %v; want %v", value, hint, err, test.want)
			}
		}
	}
	const last = "Fri, 31 Dec 9999 23:59:59 GMT"
	end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, received := range []time.Time{
		{}, noon, time.Unix(-1<<60, 0), time.Unix(1<<60, 0), end, end.Add(1),
		end.Add(-1), end.Add(math.MinInt64), end.Add(math.MinInt64 + 1), end.Add(math.MinInt64 + 2),
		end.Add(-1 << 32 * time.Second), end.Add(-1<<32*time.Second - 1), end.Add(-1<<32*time.Second + 1),
	} {
		hint, err := Parse(last, received)
		if want := max(0, end.Sub(received)); err != nil || hint.Delay != want {
			t.Errorf("at %v: got %v, %v; want %v", received, hint.Delay, err, want)
		}
		if hint, err := Parse("Friday, 31-Dec-99 23:59:59 GMT", received); err != nil || hint.Delay < 0 {
			t.Errorf("at %v: got %v, %v", received, hint, err)
		}
	}
}

func TestMonotonicReadingsPlayNoPart(t *testing.T) {
	received := time.Now() // with one
	value := received.Add(time.Hour).UTC().Format(http.TimeFormat)
	got, err := Parse(value, received)
	want, _ := Parse(value, received.Round(0))
	if err != nil || got != want || got.Delay <= time.Hour-time.Second || got.Delay > time.Hour {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// Reading these would never end if each member, or each blank, were looked at
// once for every other.
func TestHostileValuesTakeLinearTime(t *testing.T) {
	const n = 1 << 20
	for _, piece := range []string{" ", ",", "\t,", "Tue,", "Tue, ", "Tuesday, 08-", "Tue, 08 Sep 2026 ", "1", "1,", "1 ", "a", "\x00", "\xff", "Tue, 08 Sep 2026 12:00:30 GMT,"} {
		many := strings.Repeat(piece, n/len(piece))
		for _, value := range []string{many, "Tue," + many, "1" + many, "Tue,   " + many + ",Tue," + many, many + "5"} {
			hint, err := Parse(value, noon)
			if hint.Delay < 0 || (err == nil) != (hint.Form != 0) {
				t.Errorf("%q repeated: got %v, %v", piece, hint, err)
			}
		}
	}
}

func TestFormsHaveTheNamesOfTheGrammar(t *testing.T) {
	for form, want := range map[Form]string{
		0: "none", Seconds: "delay-seconds", IMFFixdate: "IMF-fixdate", RFC850Date: "rfc850-date", AsctimeDate: "asctime-date", 9: "Form(9)",
	} {
		if got := form.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

var spellings = []struct{ name, value string }{
	{"seconds", "120"},
	{"IMF-fixdate", "Tue, 08 Sep 2026 12:02:00 GMT"},
	{"rfc850-date", "Tuesday, 08-Sep-26 12:02:00 GMT"},
	{"asctime-date", "Tue Sep  8 12:02:00 2026"},
	{"tolerated", "tue,  8 SEP 2026  14:02:00 +0200"},
	{"merged", "60, Tue, 08 Sep 2026 12:02:00 GMT"},
}

func BenchmarkParse(b *testing.B) {
	for _, s := range spellings {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(s.value, noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFromHeader(b *testing.B) {
	for _, s := range spellings {
		b.Run(s.name, func(b *testing.B) {
			h := http.Header{"Retry-After": {s.value}, "Date": {"Tue, 08 Sep 2026 12:00:00 GMT"}, "Content-Type": {"text/plain"}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := FromHeader(h, noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkParseTime is the yardstick: net/http reads the dates alone.
func BenchmarkParseTime(b *testing.B) {
	for _, s := range spellings[1:4] {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := http.ParseTime(s.value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
