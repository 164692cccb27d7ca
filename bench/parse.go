//lint:file-ignore U1000 The sinks are written to only.

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"github.com/retryafter-go/retryafter"
)

// Where results go, so that no compiler finds the work to be for nothing.
var (
	sinkHint     retryafter.Hint
	sinkTime     time.Time
	sinkInt      int
	sinkDuration time.Duration
)

var errMissed = errors.New("the value was read where it should not be, or the other way round")

var received = time.Date(2026, 9, 8, 12, 0, 0, 0, time.UTC)

// parses reads value by retryafter.Parse, which must find delay there; a
// negative one means that it can't be read.
func parses(value string, delay time.Duration) row {
	return row{name: spelled(value, "retryafter"), start: func() work {
		return work{do: func(n int) error {
			var h retryafter.Hint
			var err error
			for range n {
				h, err = retryafter.Parse(value, received)
			}
			sinkHint = h
			if n > 0 && (err != nil) != (delay < 0) || err == nil && n > 0 && h.Delay != delay {
				return fmt.Errorf("%q: %v, %v", value, h.Delay, err)
			}
			return nil
		}}
	}}
}

// parsesTime reads value by http.ParseTime, which must be able to, or not.
func parsesTime(value string, readable bool) row {
	return row{name: spelled(value, "http.ParseTime"), start: func() work {
		return work{do: func(n int) error {
			var t time.Time
			var err error
			for range n {
				t, err = http.ParseTime(value)
			}
			sinkTime = t
			if n > 0 && (err == nil) != readable {
				return errMissed
			}
			return nil
		}}
	}}
}

// parsesInt reads value by strconv.Atoi, with blanks around it taken off.
func parsesInt(value string) row {
	return row{name: spelled(value, "strconv.Atoi"), base: true, start: func() work {
		return work{do: func(n int) error {
			var seconds int
			var err error
			for range n {
				seconds, err = strconv.Atoi(textproto.TrimString(value))
			}
			sinkInt = seconds
			return err
		}}
	}}
}

func spelled(value, by string) string { return "`" + value + "`, " + by }

func parseAim(ns float64) aim {
	return aim{
		text:  fmt.Sprintf("retryafter under %v ns, no allocation", ns),
		about: ends("retryafter"),
		met:   func(l, _ line, _ []line) bool { return l.figure("ns") < ns && l.figure("allocations") == 0 },
	}
}

func parseSeconds() table {
	t := table{
		name:  "parse-seconds",
		procs: 1,
		about: "Retry-After in seconds. Atoi gets the value without the blanks around it; ParseTime refuses it.",
		aim:   parseAim(15),
		unit:  nanoseconds,
	}
	for _, value := range []string{"120", " 120 "} {
		t.rows = append(t.rows, parsesInt(value), parses(value, 120*time.Second), parsesTime(value, false))
	}
	return t
}

func parseDates() table {
	t := table{
		name:  "parse-dates",
		procs: 1,
		about: "Retry-After as each form of an HTTP-date.",
		aim:   parseAim(60),
		unit:  nanoseconds,
	}
	for _, value := range []string{
		"Tue, 08 Sep 2026 12:02:00 GMT",
		"Tuesday, 08-Sep-26 12:02:00 GMT",
		"Tue Sep  8 12:02:00 2026",
	} {
		t.rows = append(t.rows, asBase(parsesTime(value, true)), parses(value, 120*time.Second))
	}
	return t
}

func parseOther() table {
	const tolerated, garbage = "tue, 8 sep 2026 14:02:00 +0200", "soon"
	header := http.Header{
		"Date":        {"Tue, 08 Sep 2026 12:00:00 GMT"},
		"Retry-After": {"120"},
	}
	return table{
		name:  "parse-other",
		procs: 1,
		about: "A spelling that the grammar forbids, which ParseTime refuses; what can't be read; and a header with seconds and Date, beside its Date read by ParseTime.",
		unit:  nanoseconds,
		rows: []row{
			asBase(parsesTime(tolerated, false)),
			parses(tolerated, 120*time.Second),
			asBase(parsesTime(garbage, false)),
			parses(garbage, -1),
			asBase(parsesTime(header.Get("Date"), true)),
			{name: "`120` and Date, FromHeader", start: func() work {
				return work{do: func(n int) error {
					var h retryafter.Hint
					var err error
					for range n {
						h, err = retryafter.FromHeader(header, received)
					}
					sinkHint = h
					if n > 0 && h.Delay != 120*time.Second {
						return fmt.Errorf("%v, %v", h.Delay, err)
					}
					return nil
				}}
			}},
		},
	}
}
