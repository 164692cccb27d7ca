package hints

import (
	"net/http"
	"time"

	"github.com/retryafter-go/retryafter"
)

// OpenAI knows what OpenAI's API documents of its rate limits (Rate limits in
// headers, https://platform.openai.com/docs/guides/rate-limits, as of 26 June
// 2026), and what its library reads beside them: retry-after-ms and
// x-should-retry (src/openai/_base_client.py of github.com/openai/openai-python,
// as of 21 August 2026).
//
// Two things it can't do. Its requests are POSTs, which are repeated only with
// an Idempotency-Key. And a 429 for want of money (insufficient_quota) differs
// from others in its body alone: unless x-should-retry says so, it is repeated.
type OpenAI struct{}

var retryAfterMs = Reset{Field: "Retry-After-Ms", Meaning: Milliseconds}

var openAI = First(
	retryAfterMs.Hint,
	retryafter.FromHeader,
	Latest(
		Reset{Field: "X-Ratelimit-Reset-Requests", Meaning: Duration, Remaining: "X-Ratelimit-Remaining-Requests"}.Hint,
		Reset{Field: "X-Ratelimit-Reset-Tokens", Meaning: Duration, Remaining: "X-Ratelimit-Remaining-Tokens"}.Hint,
		Reset{Field: "X-Ratelimit-Reset-Project-Tokens", Meaning: Duration, Remaining: "X-Ratelimit-Remaining-Project-Tokens"}.Hint,
	),
)

// Hint is a [Reader] of retry-after-ms. Where neither that nor Retry-After can be
// read, it reads the latest of x-ratelimit-reset-requests, -tokens and
// -project-tokens, each where its x-ratelimit-remaining is 0: these tell when a
// limit is back at its initial state, which is later than when a request would
// pass again.
func (OpenAI) Hint(h http.Header, received time.Time) (retryafter.Hint, error) {
	return openAI(h, received)
}

var openAIRetry = ShouldRetry("X-Should-Retry", nil)

// Retry is for Policy.Retry. It obeys x-should-retry as [ShouldRetry] does, that
// is "true" on a status of 400 or above, for which alone OpenAI's library reads
// the field; for the rest it is DefaultRetry.
func (OpenAI) Retry(a retryafter.Attempt) bool { return openAIRetry(a) }
