package hints

import (
	"net/http"
	"time"

	"github.com/retryafter-go/retryafter"
)

// GitHub knows what GitHub's API documents of its rate limits: Rate limits for
// the REST API, and Best practices for using the REST API
// (https://docs.github.com/en/rest/using-the-rest-api, at commits 21143d5 and
// 058fa63 of github.com/github/docs).
//
// A primary limit is a 403 or 429 with x-ratelimit-remaining: 0, and
// x-ratelimit-reset names the instant after which to come back. That is up to
// an hour away, and Policy.MaxWait is 2 minutes unless set: the call then ends
// at once with the response in hand, WaitTooLong and the uncut delay. Set
// MaxWait to 61 minutes, and no nearer deadline, to wait for it.
//
// A secondary limit is a 403 or 429, with a Retry-After or without. One without
// looks like a missing permission; only the body says more. GitHub asks for a
// minute at least then, and for more each time. Such a response is handed to the
// caller instead of repeating it early.
//
// GitHub's limits are an account's, and some are for a part of the API. A Gate
// whose Key is the host holds all accounts for what one of them was told: with
// several of them, give it a Key of its own.
type GitHub struct{}

var gitHub = Reset{Field: "X-Ratelimit-Reset", Meaning: EpochSeconds, Remaining: "X-Ratelimit-Remaining"}

// Hint is a [Reader] of x-ratelimit-reset where x-ratelimit-remaining is 0. The
// delay ends a second after the instant that was named, also where that is now
// or just gone by, since it is to have passed; GitHub's own client does the same
// (src/index.ts of github.com/octokit/plugin-throttling.js).
func (GitHub) Hint(h http.Header, received time.Time) (retryafter.Hint, error) {
	hint, err := gitHub.Hint(h, received)
	if err == nil && !hint.Date.IsZero() {
		later, _ := until(hint.Date.Add(time.Second), h, received)
		hint.Delay = later.Delay
	}
	return hint, err
}

// Retry is for Policy.Retry. A 403 or 429 is worth another attempt where the
// response says when; for the rest it is DefaultRetry.
func (g GitHub) Retry(a retryafter.Attempt) bool {
	if a.StatusCode == http.StatusForbidden || a.StatusCode == http.StatusTooManyRequests {
		_, err := g.Hint(a.Header, a.Received)
		return err == nil || readable(a.Header, a.Received)
	}
	return retryafter.DefaultRetry(a)
}

// When is for Gate.When: a 403 that says when to come back holds a Gate too.
func (GitHub) When(a retryafter.Attempt) bool {
	switch a.StatusCode {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}
