package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/redact"
)

// A teller tells on standard error what becomes of each URL, as it happens, or
// with --json at the end. Its hooks run in the goroutine of the call.
type teller struct {
	out     io.Writer
	flags   *getCommand
	live    bool // out is a terminal, on which lines can be rewritten
	fetch   *fetch
	call    *fetchCall
	last    *fetchAttempt // the newest one
	untold  string        // the newest attempt's outcome, while nobody knows whether it matters
	pending *retryafter.WaitInfo
	clock   *countdown
}

func newTeller(flags *getCommand, out *os.File) *teller {
	return &teller{out: out, flags: flags, live: !flags.JSON && !flags.Quiet && term.IsTerminal(int(out.Fd()))}
}

// A fetch is what became of one URL.
type fetch struct {
	URL    string       `json:"url"`                       // without userinfo and query
	Key    string       `json:"idempotency_key,omitempty"` // of --idempotency-key, as it was sent
	Calls  []*fetchCall `json:"calls"`                     // one, and one for each redirect that was followed
	Status int          `json:"status,omitempty"`          // of the final response
	Bytes  int64        `json:"bytes"`                     // of its body that were written
	Exit   status       `json:"exit_status"`               // of this URL alone
	Error  string       `json:"error,omitempty"`
}

// A fetchCall is what became of one call of the Transport.
type fetchCall struct {
	Method   string          `json:"method"`
	URL      string          `json:"url"`
	Attempts []*fetchAttempt `json:"attempts"`
	Waits    []fetchWait     `json:"waits"`
	Stop     string          `json:"stop"`
	Waited   seconds         `json:"waited_seconds"`  // in waits that the server or the backoff made
	Limited  seconds         `json:"limited_seconds"` // for --rate
	*parts                   // of the wait that was refused, or not made to its end
	Limiter  seconds         `json:"limiter_seconds,omitempty"` // that --rate would have needed for it
}

type fetchAttempt struct {
	Number     int     `json:"number"`
	Sent       instant `json:"sent"`
	Received   instant `json:"received"` // the response's header, or the error
	Status     int     `json:"status,omitempty"`
	RetryAfter string  `json:"retry_after,omitempty"`       // all its lines
	Unreadable string  `json:"retry_after_error,omitempty"` // why that counts as absent
	Error      string  `json:"error,omitempty"`
}

type fetchWait struct {
	Attempt int     `json:"attempt"` // the one that it is for
	Until   instant `json:"until"`
	*parts          // none where it is for --rate
	Token   seconds `json:"token_seconds,omitempty"` // for --rate, at least
}

// begin starts to tell of u.
func (t *teller) begin(u *url.URL) *fetch {
	t.fetch, t.pending = &fetch{URL: redact.URL(u), Calls: []*fetchCall{}}, nil
	return t.fetch
}

// end tells the exit status of the URL, and where it is not 0 why.
func (t *teller) end(exit status, why string) *fetch {
	if exit != 0 && t.flags.makesKeys() {
		why += "; the Idempotency-Key was " + t.fetch.Key
	}
	t.fetch.Exit, t.fetch.Error = exit, why
	switch {
	case t.flags.JSON:
		j := json.NewEncoder(t.out)
		j.SetEscapeHTML(false)
		if err := j.Encode(t.fetch); err != nil {
			t.fetch.Exit = statusTrouble // nobody is there to be told
		}
	case exit != 0:
		t.line("%s", why)
	}
	return t.fetch
}

// sends is told of each attempt before it leaves.
func (t *teller) sends(req *http.Request) {
	t.clock.end()
	t.clock, t.pending = nil, nil
	c := t.callOf(req)
	t.last = &fetchAttempt{Number: retryafter.AttemptNumber(req.Context()), Sent: instant{time.Now()}}
	c.Attempts = append(c.Attempts, t.last)
	if t.flags.Verbose {
		t.say("sends %s %s", c.Method, c.URL)
	}
}

func (t *teller) attemptDone(a retryafter.Attempt) {
	last := t.last
	last.Received, last.Status, last.RetryAfter = instant{a.Received}, a.StatusCode, strings.Join(a.Header["Retry-After"], ", ")
	t.untold = t.numbered(a.Number) + ": "
	if a.Err != nil {
		last.Error = t.flags.errorText(a.Err)
		t.untold += last.Error
	} else {
		t.untold += statusText(a.StatusCode)
	}
	_, err := retryafter.FromHeader(a.Header, a.Received)
	if bad, ok := errors.AsType[*retryafter.SyntaxError](err); ok {
		value, _ := excerpt(last.RetryAfter, bad.Offset)
		last.Unreadable = fmt.Sprintf("Retry-After %s can't be read: %s, at byte %d", value, bad.Problem, bad.Offset)
		t.untold += ", " + last.Unreadable
	} else if err == nil {
		value, _ := excerpt(last.RetryAfter, 0)
		t.untold += ", Retry-After " + value
	}
	if t.flags.Verbose {
		t.outcome()
	}
}

func (t *teller) waiting(w retryafter.WaitInfo) {
	t.clock.end()
	t.pending = &w
	t.outcome()
	c := t.callOf(w.Request)
	next := fetchWait{Attempt: w.Attempt, Until: instant{w.Until}}
	what := t.numbered(w.Attempt)
	if w.Limiter {
		next.Token = seconds(w.Wait)
		t.say("waits %s or more for --rate, before %s", short(w.Wait), what)
	} else {
		next.parts = partsOf(w.Decision)
		why := ""
		switch {
		case w.StatusCode/100 == 3:
			why = statusText(w.StatusCode) + ": "
		case w.StatusCode == 0 && w.Err == nil:
			why = "for what the server said before, "
		}
		t.say("%swaits %s, before %s", why, sum(w.Decision), what)
	}
	c.Waits = append(c.Waits, next)
	if t.live {
		t.clock = count(t.out, what, w.Until)
	}
}

func (t *teller) done(req *http.Request, r retryafter.Report) {
	t.clock.end()
	t.clock = nil
	c := t.callOf(req)
	c.Stop, c.Waited, c.Limited = r.Stop.String(), seconds(r.Waited), seconds(r.Limited)
	if r.Stop != retryafter.Final {
		c.parts, c.Limiter = partsOf(r.Decision), seconds(r.Decision.Limiter)
	}
	if r.Attempts > 1 {
		t.outcome()
	}
	t.call, t.untold = nil, ""
}

// callOf is the call that req belongs to, which is a new one where the last is
// done.
func (t *teller) callOf(req *http.Request) *fetchCall {
	if t.call == nil {
		t.call = &fetchCall{Method: req.Method, URL: redact.URL(req.URL), Attempts: []*fetchAttempt{}, Waits: []fetchWait{}}
		t.fetch.Calls = append(t.fetch.Calls, t.call)
	}
	return t.call
}

// interrupted tells what will not be.
func (t *teller) interrupted() string {
	w := t.pending
	if w == nil {
		return "interrupted before there was a response"
	}
	why := "so much --rate needs"
	if d := w.Decision; !w.Limiter {
		if why = "the server asked for " + short(d.Server); d.Local > d.Server {
			why = "the local backoff was " + short(d.Local)
		}
	}
	return fmt.Sprintf("interrupted: %s would have left in %s, for %s", t.numbered(w.Attempt), short(max(0, time.Until(w.Until))), why)
}

func (t *teller) numbered(attempt int) string {
	return fmt.Sprintf("attempt %d of %d", attempt, t.flags.MaxAttempts)
}

// outcome tells the newest attempt's, if it was not told.
func (t *teller) outcome() {
	if t.untold != "" {
		t.say("%s", t.untold)
	}
	t.untold = ""
}

// say tells what is of interest while all goes well.
func (t *teller) say(format string, args ...any) {
	if !t.flags.Quiet && !t.flags.JSON {
		t.line(format, args...)
	}
}

func (t *teller) line(format string, args ...any) {
	prefix := "retryafter: "
	if len(t.flags.URL) > 1 {
		prefix += t.fetch.URL + ": "
	}
	fmt.Fprintf(t.out, prefix+"%s\n", fmt.Sprintf(format, args...))
}

func statusText(code int) string {
	if text := http.StatusText(code); text != "" {
		return fmt.Sprintf("%d %s", code, text)
	}
	return fmt.Sprint(code)
}
