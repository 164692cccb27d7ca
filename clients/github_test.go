package clients

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hints"
)

func newGitHub(transport http.RoundTripper, token string) (*github.Client, error) {
	return github.NewClient(github.WithTransport(transport), github.WithAuthToken(token))
}

// gitHubLimits waits for GitHub's rate limits in all their forms, for longest
// at most.
func gitHubLimits(longest time.Duration) retryafter.Policy {
	limits := hints.GitHub{}
	return retryafter.Policy{Hint: limits.Hint, Retry: limits.Retry, MaxWait: longest}
}

const (
	repository = `{"name":"r"}`
	secondary  = `{"message":"You have exceeded a secondary rate limit","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
)

func gitHub(t *testing.T, transport http.RoundTripper) *github.Client {
	t.Helper()
	c, err := newGitHub(transport, "secret")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGitHubReadsAreRepeatedWhenTheServerSaid(t *testing.T) {
	for _, status := range []int{429, 502, 503} {
		synctest.Test(t, func(t *testing.T) {
			f := answers(reply(status, secondary, "Retry-After", "60"), reply(200, repository))
			r, _, err := gitHub(t, &retryafter.Transport{Base: f}).Repositories.Get(t.Context(), "o", "r")
			if err != nil || r.GetName() != "r" {
				t.Fatalf("%v, %v", r, err)
			}
			got := f.want(t, 2)
			wantWait(t, got, 2, time.Minute)
			for _, r := range got {
				if r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("an attempt went out without the token: %v", r.Header)
				}
			}
		})
	}
}

func TestGitHubRemembersTheSecondaryLimitOfAWaitThatWasRefused(t *testing.T) {
	for _, status := range []int{403, 429} {
		synctest.Test(t, func(t *testing.T) {
			f := answers(reply(status, secondary, "Retry-After", "3600"))
			c := gitHub(t, &retryafter.Transport{Base: f})
			for call := 1; call <= 2; call++ {
				_, resp, err := c.Repositories.Get(t.Context(), "o", "r")
				limit, ok := errors.AsType[*github.AbuseRateLimitError](err)
				if !ok || limit.GetRetryAfter() != time.Hour {
					t.Fatalf("call %d: %v", call, err)
				}
				if call == 1 {
					stop := retryafter.Final
					if status == 429 {
						stop = retryafter.WaitTooLong
					}
					wantReport(t, resp.Response, 1, stop)
				}
				f.want(t, 1) // the second call never left the client
			}
		})
	}
}

func TestGitHubSecondaryLimitsAreWaitedForWhereThePolicySaysSo(t *testing.T) {
	for _, status := range []int{403, 429} {
		synctest.Test(t, func(t *testing.T) {
			f := answers(reply(status, secondary, "Retry-After", "60"), reply(200, repository))
			c := gitHub(t, &retryafter.Transport{Base: f, Policy: gitHubLimits(time.Hour)})
			if _, _, err := c.Repositories.Get(t.Context(), "o", "r"); err != nil {
				t.Fatal(err)
			}
			wantWait(t, f.want(t, 2), 2, time.Minute)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(403, `{"message":"Must have admin rights"}`))
		if _, _, err := gitHub(t, &retryafter.Transport{Base: f, Policy: gitHubLimits(time.Hour)}).Repositories.Get(t.Context(), "o", "r"); err == nil {
			t.Error("no error")
		}
		f.want(t, 1)
	})
}

func spent(after answer) *fake {
	return answers(reply(429, `{"message":"API rate limit exceeded"}`, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0",
		"X-RateLimit-Reset", itoa(time.Now().Add(time.Hour).Unix())), after)
}

func TestGitHubPrimaryLimitIsAskedAgainByDefaultAndNotWithItsHints(t *testing.T) {
	for _, c := range []struct {
		policy retryafter.Policy
		sent   int
		stop   retryafter.Reason
	}{
		{retryafter.Policy{}, 3, retryafter.AttemptsUsed},
		{gitHubLimits(time.Minute), 1, retryafter.WaitTooLong},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := spent(nil)
			f.answers = f.answers[:1]
			client := gitHub(t, &retryafter.Transport{Base: f, Policy: c.policy})
			for call := range 2 {
				_, resp, err := client.Repositories.Get(t.Context(), "o", "r")
				if _, ok := errors.AsType[*github.RateLimitError](err); !ok {
					t.Fatal(err)
				}
				if call == 0 {
					wantReport(t, resp.Response, c.sent, c.stop)
				}
			}
			f.want(t, c.sent) // the second call never left the client
		})
	}
}

func TestGitHubPrimaryLimitIsWaitedForWhereThePolicySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := spent(reply(200, repository))
		if _, _, err := gitHub(t, &retryafter.Transport{Base: f, Policy: gitHubLimits(61 * time.Minute)}).Repositories.Get(t.Context(), "o", "r"); err != nil {
			t.Fatal(err)
		}
		wantWait(t, f.want(t, 2), 2, time.Hour)
	})
}

func TestGitHubWritesWithPOSTAndPATCHAreSentOnce(t *testing.T) {
	f := answers(reply(503, `{}`, "Retry-After", "0"))
	url, base := listen(t, f)
	c := gitHub(t, atOnce(base))
	c, err := c.Clone(github.WithURLs(&url, &url))
	if err != nil {
		t.Fatal(err)
	}
	_, resp, err := c.Issues.Create(t.Context(), "o", "r", &github.IssueRequest{Title: new("twice?")})
	if err == nil {
		t.Fatal("no error")
	}
	wantReport(t, resp.Response, 1, retryafter.MethodNotIdempotent)

	_, resp, err = c.Issues.Edit(t.Context(), "o", "r", 1, &github.IssueRequest{Title: new("twice?")})
	if err == nil {
		t.Fatal("no error")
	}
	wantReport(t, resp.Response, 1, retryafter.MethodNotIdempotent)

	_, resp, err = c.Repositories.UploadReleaseAsset(t.Context(), "o", "r", 1, &github.UploadOptions{Name: "asset"}, file(t, "asset"))
	if err == nil {
		t.Fatal("no error")
	}
	wantReport(t, resp.Response, 1, retryafter.MethodNotIdempotent)
	f.want(t, 3)
}

func TestGitHubWritesWithPUTAndDELETEAreRepeatedWithTheirBodies(t *testing.T) {
	f := answers(reply(503, `{}`, "Retry-After", "0"), reply(200, `{}`))
	url, base := listen(t, f)
	c, err := gitHub(t, atOnce(base)).Clone(github.WithURLs(&url, &url))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Repositories.ReplaceAllTopics(t.Context(), "o", "r", []string{"topic"})
	if err != nil {
		t.Fatal(err)
	}
	f.wantBodies(t, 2, `{"names":["topic"]}`+"\n")
	f.forget()
	if _, err := c.Issues.DeleteComment(t.Context(), "o", "r", 1); err != nil {
		t.Fatal(err)
	}
	f.wantBodies(t, 2, "")
}

func TestGitHubTakesTheProxyFromTheEnvironmentOfAnHTTPTransportOnly(t *testing.T) {
	if _, err := github.NewClient(github.WithTransport(&retryafter.Transport{}), github.WithEnvProxy()); err == nil {
		t.Error("no error")
	}
}
