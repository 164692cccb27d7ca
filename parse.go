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
// and 5.6.7). The zero Form means that there is no readable value.
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
	// Date is the instant that a date form names, in UTC; zero for Seconds.
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
	Offset  int    // the byte of Value at which reading its first member failed
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
// the three forms of an HTTP-date. The error is a *SyntaxError. Valid values
// cost no allocation, and neither the machine's time zone nor its locale
// plays a part.
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
	return r.hint(), nil
}

// FromHeader reads the Retry-After of a response header that arrived at
// received. Each of its field lines is read as by [Parse], and the longest
// readable delay counts. The error is [ErrNoHint] where there is no such field,
// else the *SyntaxError of the first line where none can be read.
//
// Dates are measured on the server's own clock where the response gives it,
// that is where Date can be read (the earliest, where several are sent) and no
// Age shows that a cache has kept the response for a while. A client whose
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
	return best.hint(), nil
}

// A reading is what one member of a field says: a delay and, in the date forms,
// an instant in seconds since 1970.
type reading struct {
	delay time.Duration
	unix  int64
	form  Form
}

func (r reading) hint() Hint {
	if r.form == Seconds {
		return Hint{Delay: r.delay, Form: Seconds}
	}
	return Hint{Delay: r.delay, Date: time.Unix(r.unix, 0).UTC(), Form: r.form}
}

// longest gives the longest delay among the members of value. Where it can read
// none, its form is zero, and problem tells what is wrong with the first one, at
// the byte offset of value.
func longest(value string, now time.Time) (best reading, offset int, problem string) {
	for i := 0; i <= len(value); i++ {
		r, at, wrong := member(value, i, now)
		switch {
		case wrong != "":
			if problem == "" {
				offset, problem = at, wrong
			}
			at = comma(value, i)
		case best.form == 0 || r.delay > best.delay:
			best = r
		}
		i = at
	}
	return best, offset, problem
}

// earliest gives the earliest instant named in the lines of a Date field, or
// received where they name none.
func earliest(lines []string, received time.Time) time.Time {
	var first reading
	for _, line := range lines {
		for i := 0; i <= len(line); i++ {
			r, at, wrong := member(line, i, received)
			switch {
			case wrong != "":
				at = comma(line, i)
			case r.form != Seconds && (first.form == 0 || r.unix < first.unix):
				first = r
			}
			i = at
		}
	}
	if first.form == 0 {
		return received
	}
	return time.Unix(first.unix, 0)
}

// comma gives the offset of the next comma at or after i, or the length of s.
func comma(s string, i int) int {
	if n := strings.IndexByte(s[i:], ','); n >= 0 {
		return i + n
	}
	return len(s)
}

// member reads the member of s that begins at i. It gives the offset of the
// comma or end of s behind it, or, with the problem, that of the byte that can't
// be read. A comma inside a readable date is part of it; any other separates.
func member(s string, i int, now time.Time) (r reading, end int, problem string) {
	i = skip(s, i)
	if digit(s, i) {
		r, i = seconds(s, i)
	} else if r, i, problem = date(s, i, now); problem != "" {
		return r, i, problem
	}
	if i = skip(s, i); i < len(s) && s[i] != ',' {
		return r, i, "want nothing more"
	}
	return r, i, ""
}

// skip passes over spaces and tabs, if there are any.
func skip(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i
}

// digit tells whether s has a digit at i.
func digit(s string, i int) bool { return i < len(s) && s[i]-'0' <= 9 }

// seconds reads digits, however many they are.
func seconds(s string, i int) (reading, int) {
	const over = math.MaxInt64/int64(time.Second) + 1 // the least number too large for a Duration
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

// date reads an HTTP-date, and measures it against now.
func date(s string, i int, now time.Time) (reading, int, string) {
	c := cursor{s: s, i: i}
	form, ok := c.weekday()
	switch form {
	case IMFFixdate:
		ok = c.mark(',') && c.blanks() && c.monthDay() && c.blanks() && c.monthName() && c.blanks() && c.year4() &&
			c.blanks() && c.readClock() && c.blanks() && c.readZone()
	case RFC850Date:
		ok = c.mark(',') && c.blanks() && c.monthDay() && c.mark('-') && c.monthName() && c.mark('-') && c.year2() &&
			c.blanks() && c.readClock() && c.blanks() && c.readZone()
		if ok {
			c.century(now)
		}
	case AsctimeDate:
		ok = c.blanks() && c.monthName() && c.blanks() && c.monthDay() && c.blanks() && c.readClock() && c.blanks() && c.year4()
	}
	if !ok || !c.exists() {
		return reading{}, c.i, c.problem
	}
	at := c.unix()
	return reading{max(0, time.Unix(at, 0).Sub(now)), at, form}, c.i, ""
}

// A cursor reads a date. Its methods that return a bool each read one element of
// the grammar and move i behind it, or leave i at what they can't read and name
// the problem.
type cursor struct {
	s       string
	i       int
	problem string

	year, month, day int
	dayAt            int // where the day of the month stands
	clock            int // seconds since midnight
	zone             int // seconds east of Greenwich
}

// century completes a two-digit year. An offset can carry the first hours of a
// year into the one before, so that a year beyond the limit's own is possible.
func (c *cursor) century(now time.Time) {
	y, m, d := now.UTC().Date()
	limit := now.Unix() + 86400*(days(y+50, int(m), d)-days(y, int(m), d))
	last := y + 51
	c.year = last - ((last-c.year)%100+100)%100
	if c.unix() > limit {
		c.year -= 100
	}
}

// exists tells whether the month has the day.
func (c *cursor) exists() bool {
	if c.day < 29 || days(c.year, c.month, c.day) < days(c.year, c.month+1, 1) {
		return true
	}
	return c.fail(c.dayAt, "no such day in this month")
}

// unix gives the instant that was read, in seconds since 1970.
func (c *cursor) unix() int64 {
	return days(c.year, c.month, c.day)*86400 + int64(c.clock-c.zone)
}

// days counts from 1970-01-01 to a day of the proleptic Gregorian calendar.
// A day beyond the end of its month runs on into the next month, and so does
// month 13 into the next year. Years begin in March here, so that the leap day
// comes last, and fall into eras of 400, all of one length.
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
	weekdays = [...]uint32{name("mon"), name("tue"), name("wed"), name("thu"), name("fri"), name("sat"), name("sun")}
	endings  = [...]string{"day", "sday", "nesday", "rsday", "day", "urday", "day"}
	months   = [...]uint32{name("jan"), name("feb"), name("mar"), name("apr"), name("may"), name("jun"),
		name("jul"), name("aug"), name("sep"), name("oct"), name("nov"), name("dec")}
	gmt, utc = name("gmt"), name("utc")
)

// name packs the first three letters of s, in lower case; 0 where s is shorter.
// Only letters become letters by setting bit 5.
func name(s string) uint32 {
	if len(s) < 3 {
		return 0
	}
	return uint32(s[0]|0x20)<<16 | uint32(s[1]|0x20)<<8 | uint32(s[2]|0x20)
}

func (c *cursor) fail(at int, problem string) bool {
	c.i, c.problem = at, problem
	return false
}

// weekday reads the name of a day, and tells by its length and by what follows
// which form it opens.
func (c *cursor) weekday() (Form, bool) {
	key := name(c.s[c.i:])
	for n, day := range weekdays {
		if key != day {
			continue
		}
		c.i += 3
		rest := c.s[c.i:]
		if end := len(endings[n]); len(rest) >= end && strings.EqualFold(rest[:end], endings[n]) {
			c.i += end
			return RFC850Date, true
		}
		if rest != "" && rest[0] == ',' {
			return IMFFixdate, true
		}
		return AsctimeDate, true
	}
	if c.i == len(c.s) || c.s[c.i] == ',' {
		return 0, c.fail(c.i, "nothing to read")
	}
	return 0, c.fail(c.i, "want digits or the name of a day")
}

// monthName reads the three letters of a month.
func (c *cursor) monthName() bool {
	key := name(c.s[c.i:])
	for n, month := range months {
		if key == month {
			c.month = n + 1
			c.i += 3
			return true
		}
	}
	return c.fail(c.i, "want the name of a month")
}

// monthDay reads a day of one digit or two.
func (c *cursor) monthDay() bool {
	c.dayAt = c.i
	width := 1
	if digit(c.s, c.i+1) {
		width = 2
	}
	return c.number(&c.day, width, 31, "want a day of the month") &&
		(c.day > 0 || c.fail(c.dayAt, "no such day in this month"))
}

func (c *cursor) year2() bool { return c.number(&c.year, 2, 99, "want a year of two digits") }
func (c *cursor) year4() bool { return c.number(&c.year, 4, 9999, "want a year of four digits") }

// clock reads the time of day. Any minute may have a second 60.
func (c *cursor) readClock() bool {
	if s := c.s[c.i:]; len(s) >= 8 && s[2] == ':' && s[5] == ':' {
		h, m, sec := two(s), two(s[3:]), two(s[6:])
		if h <= 23 && m <= 59 && sec <= 60 {
			c.clock = h*3600 + m*60 + sec
			c.i += 8
			return true
		}
	}
	return c.fail(c.i, "want a time of day such as 08:49:37")
}

// two reads two digits; what isn't gives a number beyond any that is.
func two(s string) int {
	a, b := s[0]-'0', s[1]-'0'
	if a > 9 || b > 9 {
		return 100
	}
	return int(a)*10 + int(b)
}

// zone reads GMT, UTC or an offset from it.
func (c *cursor) readZone() bool {
	s := c.s[c.i:]
	if key := name(s); key == gmt || key == utc {
		c.i += 3
		return true
	}
	if len(s) >= 5 && (s[0] == '+' || s[0] == '-') {
		h, m := two(s[1:]), two(s[3:])
		if h <= 23 && m <= 59 {
			c.zone = h*3600 + m*60
			if s[0] == '-' {
				c.zone = -c.zone
			}
			c.i += 5
			return true
		}
	}
	return c.fail(c.i, "want GMT, UTC or an offset such as +0200")
}

// number reads exactly width digits.
func (c *cursor) number(to *int, width, most int, want string) bool {
	n := 0
	for k := c.i; k < c.i+width; k++ {
		if !digit(c.s, k) {
			return c.fail(k, want)
		}
		n = n*10 + int(c.s[k]-'0')
	}
	if n > most {
		return c.fail(c.i, want)
	}
	c.i += width
	*to = n
	return true
}

// mark reads one given byte.
func (c *cursor) mark(b byte) bool {
	if c.i < len(c.s) && c.s[c.i] == b {
		c.i++
		return true
	}
	return c.fail(c.i, "want a comma or a dash")
}

// blanks reads one space or tab, or more.
func (c *cursor) blanks() bool {
	start := c.i
	c.i = skip(c.s, c.i)
	return c.i > start || c.fail(c.i, "want a space")
}
