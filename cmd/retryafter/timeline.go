package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A timeline prints what happens, as it happens.
type timeline struct {
	start time.Time
	json  bool

	mu       sync.Mutex
	out      io.Writer
	err      error // of the first write that failed
	problems int
}

// An event is one line of a timeline.
type event struct {
	At    seconds `json:"at_seconds"` // since the start
	Scene string  `json:"scene,omitempty"`
	Event string  `json:"event"`

	// What the server saw and said.
	Number     int      `json:"number,omitempty"` // 1 for the first to arrive in the scene
	Method     string   `json:"method,omitempty"`
	Path       string   `json:"path,omitempty"`
	After      *seconds `json:"after_named_seconds,omitempty"` // since the latest instant that was named before
	Status     int      `json:"status,omitempty"`
	RetryAfter string   `json:"retry_after,omitempty"`
	NotBefore  *seconds `json:"not_before_seconds,omitempty"` // the instant that RetryAfter names, since the start

	// What the client told.
	Attempt int      `json:"attempt,omitempty"` // the one that a wait is for
	Sent    *int     `json:"sent,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Token   *seconds `json:"token_seconds,omitempty"` // waited for the Limiter
	*parts

	// What the demo found.
	Margin   *seconds `json:"margin_seconds,omitempty"` // by which the closest arrival kept to the budget
	Problem  string   `json:"problem,omitempty"`
	Calls    int      `json:"calls,omitempty"`
	Problems *int     `json:"problems,omitempty"`

	who, text string // the line in words; for JSON only where text is empty
}

// parts are what a wait is made of.
type parts struct {
	Wait   seconds `json:"wait_seconds"`
	Server seconds `json:"server_seconds"`
	Local  seconds `json:"local_seconds"`
	Jitter seconds `json:"jitter_seconds"`
}

func partsOf(d retryafter.Decision) *parts {
	return &parts{seconds(d.Wait), seconds(d.Server), seconds(d.Local), seconds(d.Jitter)}
}

// add prints e, which happened at the given time.
func (t *timeline) add(at time.Time, e event) {
	e.At = seconds(at.Sub(t.start))
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.json:
		line, err := json.Marshal(e)
		if err != nil {
			panic(err) // there is nothing in an event that JSON can't hold
		}
		t.print(string(line))
	case e.text != "":
		t.print(fmt.Sprintf("%8s  %-6s  %s", t.clock(at), e.who, e.text))
	}
}

// say prints a line for human eyes only.
func (t *timeline) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.json {
		t.print(fmt.Sprintf(format, args...))
	}
}

// broken prints that what was promised did not hold.
func (t *timeline) broken(scene, format string, args ...any) {
	t.mu.Lock()
	t.problems++
	t.mu.Unlock()
	problem := fmt.Sprintf(format, args...)
	t.add(time.Now(), event{Scene: scene, Event: "problem", Problem: problem, who: "BROKEN", text: problem})
}

func (t *timeline) print(line string) {
	if _, err := fmt.Fprintln(t.out, line); err != nil && t.err == nil {
		t.err = err
	}
}

// count is how many problems there were.
func (t *timeline) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.problems
}

// failure is why a line could not be printed, or nil.
func (t *timeline) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// clock is at on the timeline's clock.
func (t *timeline) clock(at time.Time) string {
	return fmt.Sprintf("%.3f", at.Sub(t.start).Seconds())
}
