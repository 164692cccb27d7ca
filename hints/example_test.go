package hints_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hints"
)

// decide prints what p makes of a response that came at noon of 8 September
// 2026.
func decide(p retryafter.Policy, method string, status int, kv ...string) {
	header := http.Header{"Date": {"Tue, 08 Sep 2026 12:00:00 GMT"}}
	for i := 0; i < len(kv); i += 2 {
		header.Set(kv[i], kv[i+1])
	}
	req, err := http.NewRequest(method, "https://api.example/", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Idempotency-Key", "of this operation") // lets a POST be repeated
	d := p.Decide(retryafter.Attempt{Number: 1, Request: req, StatusCode: status, Header: header,
		Received: time.Date(2026, 9, 8, 12, 0, 0, 0, time.UTC)}, retryafter.Call{})
	fmt.Println(d.Retry, d.Reason, d.Server)
}

// A primary limit names an instant that may be an hour away.
func ExampleGitHub() {
	limits := hints.GitHub{}
	policy := retryafter.Policy{Hint: limits.Hint, Retry: limits.Retry, MaxWait: 61 * time.Minute}
	decide(policy, "GET", 403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1788870600")

	// 30 minutes are more than the default of MaxWait.
	policy.MaxWait = 0
	decide(policy, "GET", 403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1788870600")

	// This one is no limit, but a missing permission.
	decide(policy, "GET", 403, "X-RateLimit-Remaining", "4711", "X-RateLimit-Reset", "1788870600")

	// Output:
	// true none 30m1s
	// false WaitTooLong 30m1s
	// false Final 0s
}

func ExampleOpenAI() {
	limits := hints.OpenAI{}
	policy := retryafter.Policy{Hint: limits.Hint, Retry: limits.Retry}
	decide(policy, "POST", 429, "Retry-After-Ms", "1250")
	decide(policy, "POST", 429, "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "1m12s")
	decide(policy, "POST", 429, "X-Should-Retry", "false")
	// Output:
	// true none 1.25s
	// true none 1m12s
	// false Final 0s
}

func ExampleAnthropic() {
	limits := hints.Anthropic{}
	policy := retryafter.Policy{Hint: limits.Hint, Retry: limits.Retry}
	decide(policy, "POST", 529)
	decide(policy, "POST", 429,
		"Anthropic-RateLimit-Input-Tokens-Remaining", "0", "Anthropic-RateLimit-Input-Tokens-Reset", "2026-09-08T12:00:42Z")
	decide(policy, "POST", 429) // a spent budget
	// Output:
	// true none 0s
	// true none 42s
	// false Final 0s
}

// Where an overloaded API names no time, the local backoff begins at 2 s here.
func ExampleAnthropic_Retry() {
	limits := hints.Anthropic{}
	policy := retryafter.Policy{Hint: limits.Hint, Retry: limits.Retry, Backoff: func() backoff.BackOff {
		return backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(2*time.Second),
			backoff.WithRandomizationFactor(0), // a Policy's Jitter comes on top
			backoff.WithMaxInterval(time.Minute),
			backoff.WithMaxElapsedTime(0),
		)
	}}
	d := policy.Decide(retryafter.Attempt{Number: 1, StatusCode: 529, Received: time.Now()}, retryafter.Call{})
	fmt.Println(d.Retry, d.Local, d.Wait >= d.Local)
	// Output: true 2s true
}

func ExampleAzure() {
	policy := retryafter.Policy{Hint: hints.Azure{}.Hint}
	decide(policy, "GET", 429, "X-Ms-Retry-After-Ms", "1250")
	decide(policy, "GET", 429, "X-Ms-Retry-After-Ms", "1250", "Retry-After", "2")
	// Output:
	// true none 1.25s
	// true none 2s
}

func ExampleRateLimit() {
	policy := retryafter.Policy{Hint: hints.RateLimit}
	decide(policy, "GET", 429, "RateLimit", `"burst";r=0;t=2, "daily";r=417;t=36000`)
	// Output: true none 2s
}

// What no profile knows is a field with a meaning.
func ExampleReset() {
	discord := hints.Reset{Field: "X-RateLimit-Reset-After", Meaning: hints.Seconds, Remaining: "X-RateLimit-Remaining"}
	decide(retryafter.Policy{Hint: discord.Hint}, "GET", 429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "1.25")

	// GitLab's field has the name of the IETF draft, and another meaning.
	gitLab := hints.Reset{Field: "RateLimit-Reset", Meaning: hints.EpochSeconds, Remaining: "RateLimit-Remaining"}
	decide(retryafter.Policy{Hint: gitLab.Hint}, "GET", 429, "RateLimit-Remaining", "0", "RateLimit-Reset", "1788868860")

	// Output:
	// true none 1.25s
	// true none 1m0s
}

func ExampleLatest() {
	policy := retryafter.Policy{Hint: hints.Latest(
		hints.RateLimit,
		hints.Reset{Field: "X-Backoff", Meaning: hints.Milliseconds}.Hint,
	)}
	decide(policy, "GET", 503, "RateLimit", `"default";r=0;t=2`, "X-Backoff", "3500")
	// Output: true none 3.5s
}

func ExampleShouldRetry() {
	policy := retryafter.Policy{Retry: hints.ShouldRetry("Stripe-Should-Retry", nil)}
	decide(policy, "POST", 400, "Stripe-Should-Retry", "true")
	decide(policy, "POST", 500, "Stripe-Should-Retry", "false")
	// Output:
	// true none 0s
	// false Final 0s
}
