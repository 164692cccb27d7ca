package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
)

// An explanation is what there is to say of one value.
type explanation struct {
	Value    string   `json:"value"`
	Readable bool     `json:"readable"`
	Received instant  `json:"received"`
	Hint     *hint    `json:"hint,omitempty"`
	Problem  *problem `json:"problem,omitempty"`
	Decision decision `json:"decision"`
}

// A hint is how a value is read.
type hint struct {
	Form      string  `json:"form"`
	Date      instant `json:"date,omitzero"` // the instant named
	Delay     seconds `json:"delay_seconds"`
	Saturated bool    `json:"saturated"`           // the delay is longer than can be counted
	Clock     string  `json:"clock"`               // that Date is measured on: server or local; none for delay-seconds
	NotBefore instant `json:"not_before,omitzero"` // on the clock that Received was read on
	Merged    bool    `json:"merged"`              // the longest of several members
}

// A problem is why a value can't be read.
type problem struct {
	Offset  int    `json:"offset"`
	Problem string `json:"problem"`
}

// A decision is what the default policy decides, without jitter.
type decision struct {
	Retry  bool    `json:"retry"`
	Reason string  `json:"reason,omitempty"`
	Floor  seconds `json:"floor_seconds"`
	Server seconds `json:"server_seconds"`
	Local  seconds `json:"local_seconds"`
}

// defaultMaxWait is what MaxWait is where a Policy doesn't set it.
const defaultMaxWait = 2 * time.Minute

// explain reads value, which header has as its Retry-After.
func explain(value string, header http.Header, received time.Time) explanation {
	policy := retryafter.Policy{Jitter: retryafter.NoJitter}
	d := policy.Decide(retryafter.Attempt{
		Number:     1,
		StatusCode: http.StatusServiceUnavailable,
		Header:     header,
		Received:   received,
	}, retryafter.Call{})
	e := explanation{
		Value:    value,
		Readable: d.HintErr == nil,
		Received: instant{received},
		Decision: decision{Retry: d.Retry, Floor: seconds(d.Wait), Server: seconds(d.Server), Local: seconds(d.Local)},
	}
	if !d.Retry {
		e.Decision.Reason = d.Reason.String()
	}
	if bad, ok := errors.AsType[*retryafter.SyntaxError](d.HintErr); ok {
		e.Problem = &problem{bad.Offset, bad.Problem}
		return e
	}
	e.Hint = &hint{
		Form:      d.Hint.Form.String(),
		Date:      instant{d.Hint.Date},
		Delay:     seconds(d.Hint.Delay),
		Saturated: saturated(d.Hint.Delay),
		Clock:     clockOf(d.Hint, header),
		Merged:    strings.Count(value, ",") > commas(d.Hint.Form),
	}
	if !e.Hint.Saturated {
		e.Hint.NotBefore = instant{received.Add(d.Hint.Delay)}
	}
	return e
}

func clockOf(h retryafter.Hint, header http.Header) string {
	switch {
	case h.Form == retryafter.Seconds:
		return "none"
	case header.Get("Date") != "" && header.Get("Age") == "":
		return "server"
	}
	return "local"
}

// commas is how many are part of a value of form f; others separate members.
func commas(f retryafter.Form) int {
	if f == retryafter.IMFFixdate || f == retryafter.RFC850Date {
		return 1
	}
	return 0
}

// print writes e for human eyes.
func (e explanation) print(w io.Writer) {
	if e.Problem != nil {
		value, column := excerpt(e.Value, e.Problem.Offset)
		fmt.Fprintf(w, "%s\n%*s %s, at byte %d\n", value, column+1, "^", e.Problem.Problem, e.Problem.Offset)
		fmt.Fprintf(w, "  unreadable  counts as absent, never as \"now\"\n")
		if name, _, ok := strings.Cut(e.Value, ":"); ok && strings.EqualFold(name, "Retry-After") {
			fmt.Fprintf(w, "  hint        give the value alone, without the field's name\n")
		}
	} else {
		value, _ := excerpt(e.Value, 0)
		fmt.Fprintln(w, value)
		e.Hint.print(w)
	}
	fmt.Fprintf(w, "  by default  %s\n", e.Decision)
}

func (h *hint) print(w io.Writer) {
	form := h.Form
	if !h.Date.IsZero() {
		form += ", the instant " + h.Date.String()
	}
	if h.Merged {
		form += ", the longest of several members"
	}
	fmt.Fprintf(w, "  form        %s\n", form)
	delay := fmt.Sprint(time.Duration(h.Delay))
	switch {
	case h.Saturated:
		delay = "more than 292 years (longer than can be told)"
	case h.Delay == 0 && !h.Date.IsZero():
		delay += ", for the instant has gone by"
	}
	fmt.Fprintf(w, "  delay       %s, %s\n", delay, map[string]string{
		"none":   "counted from receipt",
		"server": "measured on the server's own Date",
		"local":  "measured on this machine's clock",
	}[h.Clock])
	if !h.NotBefore.IsZero() {
		fmt.Fprintf(w, "  not before  %s\n", h.NotBefore)
	}
}

func (d decision) String() string {
	floor := fmt.Sprint(time.Duration(d.Floor))
	if saturated(time.Duration(d.Floor)) {
		floor = "that"
	}
	switch {
	case d.Reason == retryafter.WaitTooLong.String():
		return fmt.Sprintf("gives up at once, %s: %s is longer than MaxWait, %v", d.Reason, floor, defaultMaxWait)
	case !d.Retry:
		return "gives up at once, " + d.Reason
	case d.Local > d.Server:
		return fmt.Sprintf("local backoff decides: waits %s, plus jitter", floor)
	}
	return fmt.Sprintf("waits %s, plus jitter", floor)
}

// excerpt quotes value, or where it is long the part around the byte at offset,
// and gives the column where that byte stands.
func excerpt(value string, offset int) (quoted string, column int) {
	const most, before = 64, 48
	from, to := 0, len(value)
	if len(value) > most {
		from = max(0, offset-before)
		to = min(len(value), from+most)
	}
	quoted = strconv.QuoteToASCII(value[from:to])
	column = len(strconv.QuoteToASCII(value[from:offset])) - 1
	if from > 0 {
		quoted = "..." + quoted
		column += len("...")
	}
	if to < len(value) {
		quoted += "..."
	}
	if len(value) > most {
		quoted += fmt.Sprintf(" (%d bytes)", len(value))
	}
	return quoted, column
}
