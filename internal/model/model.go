// Package model reads Retry-After slowly and plainly: regular expressions,
// arbitrary precision and the calendar of package time. It shares no code and no
// method with the reader that the module exports, so that tests can hold the two
// against each other.
package model

import (
	"math"
	"math/big"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Reading is what a Retry-After says. Its zero value says that nothing in it
// can be read.
type Reading struct {
	Form  string        // "delay-seconds", "IMF-fixdate", "rfc850-date", "asctime-date", or "" where nothing can be read
	Delay time.Duration // from the reference on; never negative, at most the largest Duration
	Date  time.Time     // the instant named, in UTC; zero for delay-seconds
}

const (
	blank = `[ \t]+`
	month = `(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)`
	day   = `(?P<day>[0-9]{1,2})`
	clock = `(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})`
	zone  = `(?:GMT|UTC|(?P<sign>[+-])(?P<zonehour>[0-9]{2})(?P<zoneminute>[0-9]{2}))`
	year4 = `(?P<year>[0-9]{4})`
	year2 = `(?P<year>[0-9]{2})`
	short = `(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)`
	long  = `(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)`
)

var (
	digits = regexp.MustCompile(`^[0-9]+$`)
	forms  = map[string]*regexp.Regexp{
		"IMF-fixdate":  pattern(short, `,`, blank, day, blank, month, blank, year4, blank, clock, blank, zone),
		"rfc850-date":  pattern(long, `,`, blank, day, `-`, month, `-`, year2, blank, clock, blank, zone),
		"asctime-date": pattern(short, blank, month, blank, day, blank, clock, blank, year4),
	}
)

func pattern(parts ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^` + strings.Join(parts, "") + `$`)
}

// Parse reads one field line against a reference clock: the longest of its
// readable members, the first of equals.
func Parse(value string, reference time.Time) Reading {
	return longest(readings([]string{value}, reference))
}

// FromHeader reads the Retry-After lines of a response header, with dates on the
// server's clock where Date tells it and there is no Age.
func FromHeader(h http.Header, received time.Time) Reading {
	reference := received
	if h.Values("Age") == nil {
		found := false
		for _, r := range readings(h.Values("Date"), received) {
			if r.Form != "delay-seconds" && (!found || r.Date.Before(reference)) {
				reference, found = r.Date, true
			}
		}
	}
	return longest(readings(h.Values("Retry-After"), reference))
}

func longest(all []Reading) Reading {
	var best Reading
	for _, r := range all {
		if best.Form == "" || r.Delay > best.Delay {
			best = r
		}
	}
	return best
}

// readings gives all members that can be read. A member is a piece between two
// commas, or two neighbouring pieces with the comma between them.
func readings(lines []string, reference time.Time) []Reading {
	var all []Reading
	for _, line := range lines {
		pieces := strings.Split(line, ",")
		for i, piece := range pieces {
			if r := member(piece, reference); r.Form != "" {
				all = append(all, r)
			}
			if i+1 < len(pieces) {
				if r := member(piece+","+pieces[i+1], reference); r.Form != "" {
					all = append(all, r)
				}
			}
		}
	}
	return all
}

func member(text string, reference time.Time) Reading {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return Reading{} // letters beyond ASCII that fold to ASCII would match
		}
	}
	text = strings.Trim(text, " \t")
	if digits.MatchString(text) {
		n, _ := new(big.Int).SetString(text, 10)
		n.Mul(n, big.NewInt(int64(time.Second)))
		if !n.IsInt64() {
			return Reading{Form: "delay-seconds", Delay: math.MaxInt64}
		}
		return Reading{Form: "delay-seconds", Delay: time.Duration(n.Int64())}
	}
	for form, re := range forms {
		if found := re.FindStringSubmatch(text); found != nil {
			fields := map[string]string{}
			for i, name := range re.SubexpNames() {
				fields[name] = found[i]
			}
			at, ok := instant(fields, reference)
			if !ok {
				return Reading{}
			}
			return Reading{Form: form, Delay: max(0, at.Sub(reference.Round(0))), Date: at}
		}
	}
	return Reading{}
}

func instant(fields map[string]string, reference time.Time) (time.Time, bool) {
	n := map[string]int{}
	for name, text := range fields {
		n[name], _ = strconv.Atoi(text)
	}
	if n["hour"] > 23 || n["minute"] > 59 || n["second"] > 60 || n["zonehour"] > 23 || n["zoneminute"] > 59 {
		return time.Time{}, false
	}
	east := n["zonehour"]*60 + n["zoneminute"]
	if fields["sign"] == "-" {
		east = -east
	}
	m := time.Month(1 + strings.Index("janfebmaraprmayjunjulaugsepoctnovdec", strings.ToLower(fields["month"]))/3)
	in := func(year int) time.Time {
		return time.Date(year, m, n["day"], n["hour"], n["minute"]-east, n["second"], 0, time.UTC)
	}
	year := n["year"]
	if len(fields["year"]) == 2 {
		limit := reference.UTC().AddDate(50, 0, 0)
		for year = limit.Year() + 2; ((year%100)+100)%100 != n["year"] || in(year).After(limit); year-- {
		}
	}
	if noon := time.Date(year, m, n["day"], 12, 0, 0, 0, time.UTC); noon.Day() != n["day"] || noon.Month() != m {
		return time.Time{}, false
	}
	return in(year), true
}
