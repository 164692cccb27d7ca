package retryafter

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Form is a way in which a server may write Retry-After (RFC 9110, 10.2.3
// and 5.6.7). The zero Form means that there is no readable value, or in a Hint
// that something else than Retry-After gave the delay.
type Form uint8

const (
	Seconds     Form = iota + 1 // delay-seconds, as in 120
	IMFFixdate                  // IMF-fixdate, as in Tue, 08 Sep 2026 12:02:00 GMT
	RFC850Date                  // rfc850-date, as in Tuesday, 08-Sep-26 12:02:00 GMT
	AsctimeDate                 // asctime-date, as in Tue Sep  8 12:02:00 2026
)

// String gives the name that the grammar has for f, or "none" for the zero
// Form.
func (f Form) String() string {
	switch f {
	case 0:
		return "none"
	case Seconds:
		return "delay-seconds"
	case IMFFixdate:
		return "IMF-fixdate"
	case RFC850Date:
		return "rfc850-date"
	case AsctimeDate:
		return "asctime-date"
	}
	return "Form(" + strconv.Itoa(int(f)) + ")"
}

// A Hint is what a server says about when to come back.
type Hint struct {
	// Delay counts from the receipt of the response. It is never negative: an
	// instant gone by gives 0. What exceeds a Duration gives the largest one,
	// some 292 years.
	Delay time.Duration
	// Date is the instant that was named, in UTC; zero where a delay was.
	Date time.Time
	// Form tells how the value was written.
	Form Form
}

// ErrNoHint is what FromHeader returns where the response has no Retry-After
// field at all.
var ErrNoHint = errors.New("retryafter: no Retry-After field")

// A SyntaxError reports a Retry-After that can't be read. Such a value says
// nothing; above all, it does not say "now".
type SyntaxError struct {
	Value   string // the field line, uncut
	Offset  int    // the byte of Value from which on its first member can't be read
	Problem string // what is wrong there
}

// Error quotes at most 64 bytes of the value.
func (e *SyntaxError) Error() string {
	const most = 64
	quoted := strconv.Quote(e.Value[:min(len(e.Value), most)])
	if len(e.Value) > most {
		quoted += "..."
	}
	return "retryafter: Retry-After " + quoted + ": " + e.Problem + " at byte " + strconv.Itoa(e.Offset)
}

// Parse reads the value of one Retry-After field line: delay-seconds or any of
// the three forms of an HTTP-date. The error is a *SyntaxError. Readable values
// cost no allocation, and the machine's time zone and locale play no part.
//
// Dates are measured against received, the client's wall clock when the header
// section arrived. A two-digit year is the latest one with these digits that
// does not put the instant more than 50 calendar years after received; the
// weekday has no say in it. Second 60 is the second after :59.
//
// Parse also reads what the grammar forbids although the instant is plain,
// since dropping it would bring the client back early: other letter case, a
// weekday that doesn't match the date, a one-digit day of the month, runs of
// spaces and tabs in place of one space, and UTC or an offset such as +0200 in
// place of GMT. Nothing else is read: no sign, fraction or unit, no other zone
// or none, no day or time that doesn't exist.
//
// Where an intermediary has merged several values into one line, with commas
// between them, the longest readable delay counts; among equals, the first.
func Parse(value string, received time.Time) (Hint, error) {
	r, offset, problem := longest(value, received)
	if r.form == 0 {
		return Hint{}, &SyntaxError{value, offset, problem}
	}
	return Hint{r.delay, r.date(), r.form}, nil
}

// FromHeader reads the Retry-After of a response header that arrived at
// received. Each of its field lines is read as by [Parse], and the longest
// readable delay counts. The error is [ErrNoHint] where there is no such field,
// and the *SyntaxError of the first line where none can be read.
//
// Dates are measured on the server's own clock where the response gives it,
// that is where Date can be read (the earliest, where several were sent) and no
// Age tells that a cache has held the response for a while. A client whose
// clock is wrong by years then still waits as long as it was told. Otherwise
// they are measured against received. The same clock settles two-digit years.
func FromHeader(h http.Header, received time.Time) (Hint, error) {
	lines := h["Retry-After"]
	if len(lines) == 0 {
		return Hint{}, ErrNoHint
	}
	now := received
	if len(h["Age"]) == 0 {
		now = earliest(h["Date"], received)
	}
	var best reading
	for _, line := range lines {
		r, _, _ := longest(line, now)
		if best.form == 0 || r.delay > best.delay {
			best = r
		}
	}
	if best.form == 0 {
		return Parse(lines[0], now)
	}
	return Hint{best.delay, best.date(), best.form}, nil
}

// A reading is what one member of a field line says. It is a Hint that fits into
// registers.
type reading struct {
	delay time.Duration
	unix  int64 // the instant named, in seconds since 1970; for dates only
	form  Form
}

func (r reading) date() time.Time {
	if r.form <= Seconds {
		return time.Time{}
	}
	return time.Unix(r.unix, 0).UTC()
}

// longest gives the longest delay among the members of line. Its form is zero
// where none can be read; problem tells what is wrong with the first unreadable
// one, from the byte at offset on.
func longest(line string, now time.Time) (best reading, offset int, problem string) {
	for i := 0; i <= len(line); i++ {
		r, end, wrong := member(line, i, now)
		switch {
		case wrong != "":
			if problem == "" {
				offset, problem = end, wrong
			}
			end = commaFrom(line, i)
		case best.form == 0 || r.delay > best.delay:
			best = r
		}
		i = end
	}
	return best, offset, problem
}

// earliest gives the earliest instant among the dates in lines, or received
// where there is none.
func earliest(lines []string, received time.Time) time.Time {
	var first reading
	for _, line := range lines {
		for i := 0; i <= len(line); i++ {
			r, end, wrong := member(line, i, received)
			switch {
			case wrong != "":
				end = commaFrom(line, i)
			case r.form > Seconds && (first.form == 0 || r.unix < first.unix):
				first = r
			}
			i = end
		}
	}
	if first.form == 0 {
		return received
	}
	return first.date()
}

// commaFrom gives the offset of the first comma at or after i, or the length of
// s.
func commaFrom(s string, i int) int {
	if n := strings.IndexByte(s[i:], ','); n >= 0 {
		return i + n
	}
	return len(s)
}

// member reads the member of s that begins at i. It gives the offset of the
// comma behind it, or the length of s; with a problem, the offset of what can't
// be read. A comma within a readable date is part of it, any other separates.
// However long s is, only blanks are looked at more than once, and only twice.
func member(s string, i int, now time.Time) (r reading, end int, problem string) {
	i = skip(s, i)
	if digit(s, i) {
		r, i = seconds(s, i)
	} else if r, i, problem = date(s, i, now); problem != "" {
		return r, i, problem
	}
	if i = skip(s, i); i < len(s) && s[i] != ',' {
		return r, i, "trailing text"
	}
	return r, i, ""
}

// skip passes over spaces and tabs.
func skip(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i
}

// digit tells whether s has a digit at i.
func digit(s string, i int) bool { return i < len(s) && s[i]-'0' <= 9 }

// seconds reads digits, however many.
func seconds(s string, i int) (reading, int) {
	const over = math.MaxInt64/int64(time.Second) + 1 // the least that no Duration can hold
	var n int64
	for ; digit(s, i); i++ {
		if n < over {
			n = n*10 + int64(s[i]-'0')
		}
	}
	if n >= over {
		return reading{delay: math.MaxInt64, form: Seconds}, i
	}
	return reading{delay: time.Duration(n) * time.Second, form: Seconds}, i
}

// date reads an HTTP-date (RFC 9110, 5.6.7) and measures it against now.
func date(s string, i int, now time.Time) (r reading, end int, problem string) {
	c := cursor{s: s, i: i}
	form, ok := c.weekday()
	switch form {
	case IMFFixdate:
		ok = c.comma() && c.blanks() && c.dayOfMonth() && c.blanks() && c.monthName() && c.blanks() && c.year4() &&
			c.blanks() && c.timeOfDay() && c.blanks() && c.zone()
	case RFC850Date:
		ok = c.comma() && c.blanks() && c.dayOfMonth() && c.dash() && c.monthName() && c.dash() && c.year2() &&
			c.blanks() && c.timeOfDay() && c.blanks() && c.zone()
		if ok {
			c.century(now)
		}
	case AsctimeDate:
		ok = c.blanks() && c.monthName() && c.blanks() && c.dayOfMonth() && c.blanks() && c.timeOfDay() &&
			c.blanks() && c.year4()
	}
	if !ok || !c.exists() {
		return reading{}, c.i, c.problem
	}
	at := c.unix()
	return reading{until(at, now), at, form}, c.i, ""
}

// until gives the time from now to an instant in seconds since 1970, within the
// bounds that a Hint promises. It spares nearby instants the care that Sub takes.
func until(unix int64, now time.Time) time.Duration {
	if s := unix - now.Unix(); 0 < s && s < 1<<32 {
		return time.Duration(s)*time.Second - time.Duration(now.Nanosecond())
	}
	return max(0, time.Unix(unix, 0).Sub(now))
}

// A cursor reads a date. Each of its methods that read an element of the grammar
// moves i behind it, or leaves i there, names the problem and gives false.
type cursor struct {
	s       string
	i       int
	problem string

	year, month, day int
	dayAt            int // where the day of the month stands
	second           int // since midnight, on the clock of the zone
	east             int // seconds that the zone is ahead of GMT
}

func (c *cursor) fail(problem string) bool {
	c.problem = problem
	return false
}

func (c *cursor) pass(n int) bool {
	c.i += n
	return true
}

// unix gives the instant that was read, in seconds since 1970.
func (c *cursor) unix() int64 {
	return days(c.year, c.month, c.day)*86400 + int64(c.second-c.east)
}

// century completes a two-digit year. A zone can carry the first hours of a year
// into the one before, so that the year after that of the limit is possible too.
// The average year finds the current one but for one or two; only a year near
// the limit is worth an exact comparison.
func (c *cursor) century(now time.Time) {
	const year = 31556952 // seconds
	last := 1970 + int(now.Unix()/year) + 52
	c.year += last / 100 * 100
	for c.year > last || c.year > last-10 && time.Unix(c.unix(), 0).After(now.UTC().AddDate(50, 0, 0)) {
		c.year -= 100
	}
}

// exists tells whether the month has the day.
func (c *cursor) exists() bool {
	if c.day < 29 || days(c.year, c.month, c.day) < days(c.year, c.month+1, 1) {
		return true
	}
	c.i = c.dayAt
	return c.fail("no such day in that month")
}

// days counts from 1970-01-01 to a day of the proleptic Gregorian calendar. Days
// beyond the end of a month run on into the next, and month 13 into the next
// year. Years begin in March here, so that the leap day comes last, and make
// eras of 400, all of one length.
func days(year, month, day int) int64 {
	month -= 3
	if month < 0 {
		month += 12
		year--
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	year -= era * 400
	return int64(era)*146097 + int64(year*365+year/4-year/100+(153*month+2)/5+day-1) - 719468
}

var (
	weekdays = [...]uint32{name("mon", 0), name("tue", 0), name("wed", 0), name("thu", 0), name("fri", 0), name("sat", 0), name("sun", 0)}
	endings  = [...]string{"day", "sday", "nesday", "rsday", "day", "urday", "day"}
	months   = [...]uint32{name("jan", 0), name("feb", 0), name("mar", 0), name("apr", 0), name("may", 0), name("jun", 0),
		name("jul", 0), name("aug", 0), name("sep", 0), name("oct", 0), name("nov", 0), name("dec", 0)}
	gmt, utc = name("gmt", 0), name("utc", 0)
)

// name packs the three letters at i, in lower case; 0 where s ends before. Bit 5
// makes letters of letters only.
func name(s string, i int) uint32 {
	if i+3 > len(s) {
		return 0
	}
	s = s[i : i+3]
	return uint32(s[0]|0x20)<<16 | uint32(s[1]|0x20)<<8 | uint32(s[2]|0x20)
}

// begins tells whether s begins with word, which is in lower case.
func begins(s, word string) bool {
	if len(s) < len(word) {
		return false
	}
	for i := range len(word) {
		if s[i]|0x20 != word[i] {
			return false
		}
	}
	return true
}

// two gives the number that two digits at i make, or 100 where there are none.
func two(s string, i int) int {
	if !digit(s, i) || !digit(s, i+1) {
		return 100
	}
	return int(s[i]-'0')*10 + int(s[i+1]-'0')
}

// weekday reads the name of a day. Its length, and what follows, tell the form.
func (c *cursor) weekday() (Form, bool) {
	key := name(c.s, c.i)
	for n, day := range weekdays {
		if key != day {
			continue
		}
		rest := c.s[c.i+3:]
		if rest != "" && rest[0] == ',' {
			return IMFFixdate, c.pass(3)
		}
		if begins(rest, endings[n]) {
			return RFC850Date, c.pass(3 + len(endings[n]))
		}
		return AsctimeDate, c.pass(3)
	}
	if c.i == len(c.s) || c.s[c.i] == ',' {
		return 0, c.fail("nothing to read")
	}
	return 0, c.fail("want digits or the name of a day")
}

// monthName reads the three letters of a month.
func (c *cursor) monthName() bool {
	key := name(c.s, c.i)
	for n := range months {
		if key == months[n] {
			c.month = n + 1
			c.i += 3
			return true
		}
	}
	return c.fail("want the name of a month")
}

// dayOfMonth reads one digit or two.
func (c *cursor) dayOfMonth() bool {
	c.dayAt = c.i
	width := 2
	if c.day = two(c.s, c.i); c.day == 100 && digit(c.s, c.i) {
		c.day = int(c.s[c.i] - '0')
		width = 1
	}
	if c.day < 1 || c.day > 31 {
		return c.fail("want a day of the month")
	}
	return c.pass(width)
}

func (c *cursor) year2() bool {
	if c.year = two(c.s, c.i); c.year > 99 {
		return c.fail("want a year of two digits")
	}
	return c.pass(2)
}

func (c *cursor) year4() bool {
	high, low := two(c.s, c.i), two(c.s, c.i+2)
	if high > 99 || low > 99 {
		return c.fail("want a year of four digits")
	}
	c.year = high*100 + low
	return c.pass(4)
}

// timeOfDay reads hh:mm:ss. Any minute may have a second 60.
func (c *cursor) timeOfDay() bool {
	t := c.s[c.i:min(c.i+8, len(c.s))]
	h, m, s := two(t, 0), two(t, 3), two(t, 6)
	if h > 23 || m > 59 || s > 60 || t[2] != ':' || t[5] != ':' {
		return c.fail("want a time of day such as 08:49:37")
	}
	c.second = h*3600 + m*60 + s
	return c.pass(8)
}

// zone reads GMT, UTC or an offset.
func (c *cursor) zone() bool {
	if key := name(c.s, c.i); key == gmt || key == utc {
		return c.pass(3)
	}
	h, m := two(c.s, c.i+1), two(c.s, c.i+3)
	if h > 23 || m > 59 || c.s[c.i] != '+' && c.s[c.i] != '-' {
		return c.fail("want GMT, UTC or an offset such as +0200")
	}
	c.east = h*3600 + m*60
	if c.s[c.i] == '-' {
		c.east = -c.east
	}
	return c.pass(5)
}

func (c *cursor) comma() bool { return c.mark(',', "want a comma") }
func (c *cursor) dash() bool  { return c.mark('-', "want a dash") }

func (c *cursor) mark(b byte, problem string) bool {
	if c.i < len(c.s) && c.s[c.i] == b {
		return c.pass(1)
	}
	return c.fail(problem)
}

// blanks reads spaces and tabs, at least one.
func (c *cursor) blanks() bool {
	start := c.i
	c.i = skip(c.s, c.i)
	return c.i > start || c.fail("want a space")
}
