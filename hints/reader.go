package hints

import (
	"net/http"
	"strconv"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Reader reads what a response's header, which arrived at received, says about
// when to come back. It is for Policy.Hint, whose contract it keeps: the error
// is [retryafter.ErrNoHint] where there is nothing to read and nothing amiss.
type Reader func(h http.Header, received time.Time) (retryafter.Hint, error)

// Latest reads with all of readers and gives the latest instant that any of them
// found; among equals, the first reader's. What one reader can't read does not
// hide what another can. Where none can, the error is the first that is not
// ErrNoHint.
func Latest(readers ...Reader) Reader {
	return func(h http.Header, received time.Time) (retryafter.Hint, error) {
		var latest retryafter.Hint
		err := retryafter.ErrNoHint
		for _, read := range readers {
			hint, wrong := read(h, received)
			switch {
			case wrong == nil && (err != nil || hint.Delay > latest.Delay):
				latest, err = hint, nil
			case wrong != nil && err == retryafter.ErrNoHint:
				err = wrong
			}
		}
		return latest, err
	}
}

// First gives what the first of readers says that can read anything, for
// providers whose fields are in order of precedence: the others are not asked.
// Where none can, the error is the first that is not ErrNoHint.
func First(readers ...Reader) Reader {
	return func(h http.Header, received time.Time) (retryafter.Hint, error) {
		err := retryafter.ErrNoHint
		for _, read := range readers {
			hint, wrong := read(h, received)
			if wrong == nil {
				return hint, nil
			}
			if err == retryafter.ErrNoHint {
				err = wrong
			}
		}
		return retryafter.Hint{}, err
	}
}

// ShouldRetry gives a function for Policy.Retry that obeys the server where a
// field of the response is "false", whatever the status, or "true" and the
// status 400 or above. Otherwise it asks otherwise, or [retryafter.DefaultRetry]
// where that is nil. "false" counts more than "true" where both were sent; any
// other value counts as absent. As with every Retry function, "true" does not
// make an unsafe request safe.
//
// Stripe sends Stripe-Should-Retry, and its libraries obey it
// (stripe/_http_client.py of github.com/stripe/stripe-python, at commit 0861c88,
// and stripe.go of github.com/stripe/stripe-go, v84.4.1). They would obey "true"
// on a success too; here nothing repeats what was done.
func ShouldRetry(field string, otherwise func(retryafter.Attempt) bool) func(retryafter.Attempt) bool {
	if otherwise == nil {
		otherwise = retryafter.DefaultRetry
	}
	return func(a retryafter.Attempt) bool {
		said := false
		for _, line := range a.Header.Values(field) {
			for member := range members(line) {
				switch member {
				case "false":
					return false
				case "true":
					said = true
				}
			}
		}
		return said && a.StatusCode >= 400 || otherwise(a)
	}
}

// A FieldError reports a field that can't be read. Such a field says nothing.
type FieldError struct {
	Field   string // its name
	Value   string // the field line, uncut
	Problem string // what is wrong with it
}

// Error quotes at most 64 bytes of the value.
func (e *FieldError) Error() string {
	const most = 64
	quoted := strconv.Quote(e.Value[:min(len(e.Value), most)])
	if len(e.Value) > most {
		quoted += "..."
	}
	return "hints: " + e.Field + " " + quoted + ": " + e.Problem
}

// readable reports whether there is a Retry-After that can be read.
func readable(h http.Header, received time.Time) bool {
	_, err := retryafter.FromHeader(h, received)
	return err == nil
}
