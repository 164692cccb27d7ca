package hints

import (
	"net/http"
	"time"

	"github.com/retryafter-go/retryafter"
)

// Anthropic knows what the Claude API documents of its limits (Rate limits, and
// Errors, https://platform.claude.com/docs/en/api, as of August 2026), and what
// its library reads beside them: retry-after-ms and x-should-retry
// (src/anthropic/_base_client.py of github.com/anthropics/anthropic-sdk-python,
// as of 8 August 2026).
//
// Most of its requests are POSTs, which are repeated only with an
// Idempotency-Key.
type Anthropic struct{}

// overloaded is the status of an API that has too much to do for all.
const overloaded = 529

var anthropic = First(
	retryAfterMs.Hint,
	retryafter.FromHeader,
	Latest(
		Reset{Field: "Anthropic-Ratelimit-Requests-Reset", Meaning: Timestamp, Remaining: "Anthropic-Ratelimit-Requests-Remaining"}.Hint,
		Reset{Field: "Anthropic-Ratelimit-Tokens-Reset", Meaning: Timestamp, Remaining: "Anthropic-Ratelimit-Tokens-Remaining"}.Hint,
		Reset{Field: "Anthropic-Ratelimit-Input-Tokens-Reset", Meaning: Timestamp, Remaining: "Anthropic-Ratelimit-Input-Tokens-Remaining"}.Hint,
		Reset{Field: "Anthropic-Ratelimit-Output-Tokens-Reset", Meaning: Timestamp, Remaining: "Anthropic-Ratelimit-Output-Tokens-Remaining"}.Hint,
	),
)

// Hint is a [Reader] of retry-after-ms. Where neither that nor Retry-After can be
// read, it reads the latest of anthropic-ratelimit-requests-reset, -tokens-reset,
// -input-tokens-reset and -output-tokens-reset, each where its -remaining is 0:
// these tell when a limit is full again, which is later than when a request
// would pass.
func (Anthropic) Hint(h http.Header, received time.Time) (retryafter.Hint, error) {
	return anthropic(h, received)
}

var anthropicRetry = ShouldRetry("X-Should-Retry", func(a retryafter.Attempt) bool {
	switch a.StatusCode {
	case overloaded:
		return true
	case http.StatusTooManyRequests:
		_, err := anthropic(a.Header, a.Received)
		return err == nil
	}
	return retryafter.DefaultRetry(a)
})

// Retry is for Policy.Retry. It obeys x-should-retry as [ShouldRetry] does, that
// is "true" on a status of 400 or above; Anthropic's library doesn't read the
// field of a success. Otherwise a 529 (overloaded) is worth another attempt, and
// a 429 is where the response says when: one that doesn't is for a spent budget,
// and stays until that is renewed. For the rest it is DefaultRetry.
//
// A 529 that says no time waits the local backoff, and the default one begins at
// 100 ms: its second that a 429 or 503 waits at least is for these alone. To
// begin at more, set Policy.Backoff; the example of Retry does.
func (Anthropic) Retry(a retryafter.Attempt) bool { return anthropicRetry(a) }

// When is for Gate.When: a 529 holds a Gate too.
func (Anthropic) When(a retryafter.Attempt) bool {
	switch a.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, overloaded:
		return true
	}
	return false
}
