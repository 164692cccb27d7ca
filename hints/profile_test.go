package hints_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hints"
)

// A server answers with its first reply until a instant on the client's clock,
// and with 200 from then on. Its own clock is years ahead of the client's.
type server struct {
	status int
	header func(now time.Time) http.Header // of the first reply; now is the server's
	opens  time.Time                       // on the client's clock; zero: with the second attempt

	attempts int
	early    int // attempts before it opened, the first aside
}

const ahead = 26 * 365 * 24 * time.Hour

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.attempts++
	if req.Body != nil {
		req.Body.Close()
	}
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body")), Request: req}
	now := time.Now()
	if s.attempts == 1 || now.Before(s.opens) {
		if s.attempts > 1 {
			s.early++
		}
		resp.StatusCode, resp.Header = s.status, s.header(now.Add(ahead))
		resp.Header.Set("Date", now.Add(ahead).UTC().Format(http.TimeFormat))
	}
	return resp, nil
}

func fields(kv ...string) func(time.Time) http.Header {
	return func(time.Time) http.Header {
		h := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			h.Add(kv[i], kv[i+1])
		}
		return h
	}
}

// gitHubLimit is GitHub's reply to a client with so many requests left, until a
// time from now.
func gitHubLimit(left string, reset time.Duration, more ...string) func(time.Time) http.Header {
	return func(now time.Time) http.Header {
		h := fields(more...)(now)
		h.Set("x-ratelimit-remaining", left)
		h.Set("x-ratelimit-reset", strconv.FormatInt(now.Add(reset).Unix(), 10))
		return h
	}
}

func do(t *testing.T, tr *retryafter.Transport, method string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, "https://api.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestProfiles(t *testing.T) {
	github := retryafter.Policy{Hint: hints.GitHub{}.Hint, Retry: hints.GitHub{}.Retry}
	patient := github
	patient.MaxWait = 2 * time.Hour
	openAI := retryafter.Policy{Hint: hints.OpenAI{}.Hint, Retry: hints.OpenAI{}.Retry}
	anthropic := retryafter.Policy{Hint: hints.Anthropic{}.Hint, Retry: hints.Anthropic{}.Retry}
	azure := retryafter.Policy{Hint: hints.Azure{}.Hint}
	keyed := http.Header{"Idempotency-Key": {"k"}}

	for _, tc := range []struct {
		name   string
		policy retryafter.Policy
		method string
		sent   http.Header
		status int
		header func(time.Time) http.Header
		waits  time.Duration // the least wait; negative: there is no second attempt
		within time.Duration // and the most, jitter included
		reason retryafter.Reason
	}{
		{"GitHub: the primary limit, waited for", patient, "GET", nil, 403, gitHubLimit("0", 30*time.Minute), 30*time.Minute + time.Second, 31 * time.Minute, 0},
		{"GitHub: the same as a 429", patient, "GET", nil, 429, gitHubLimit("0", 30*time.Minute), 30*time.Minute + time.Second, 31 * time.Minute, 0},
		{"GitHub: the primary limit, whose instant is now", patient, "GET", nil, 403, gitHubLimit("0", 0), time.Second, 3 * time.Second, 0},
		{"GitHub: the primary limit, whose instant is gone by", patient, "GET", nil, 403, gitHubLimit("0", -time.Second), 0, time.Second, 0},
		{"GitHub: the primary limit, further away than MaxWait", github, "GET", nil, 403, gitHubLimit("0", 30*time.Minute), -1, 0, retryafter.WaitTooLong},
		{"GitHub: no permission", patient, "GET", nil, 403, gitHubLimit("42", 30*time.Minute), -1, 0, retryafter.Final},
		{"GitHub: no permission, and no field", patient, "GET", nil, 403, fields(), -1, 0, retryafter.Final},
		{"GitHub: nothing left, and no instant", patient, "GET", nil, 403, fields("x-ratelimit-remaining", "0"), -1, 0, retryafter.Final},
		{"GitHub: a secondary limit", patient, "GET", nil, 403, gitHubLimit("42", 30*time.Minute, "Retry-After", "60"), time.Minute, 90 * time.Second, 0},
		{"GitHub: a secondary limit whose Retry-After is blank", patient, "GET", nil, 403, gitHubLimit("42", 30*time.Minute, "Retry-After", ""), -1, 0, retryafter.Final},
		{"GitHub: a secondary limit that says no time", patient, "GET", nil, 429, gitHubLimit("42", 30*time.Minute), -1, 0, retryafter.Final},
		{"GitHub: a POST", patient, "POST", nil, 403, gitHubLimit("0", 30*time.Minute), -1, 0, retryafter.MethodNotIdempotent},
		{"GitHub: a POST with a key", patient, "POST", keyed, 403, gitHubLimit("0", 30*time.Minute), 30*time.Minute + time.Second, 31 * time.Minute, 0},
		{"GitHub: an outage", github, "GET", nil, 502, fields(), 0, time.Second, 0},
		{"GitHub: another status", github, "GET", nil, 404, gitHubLimit("0", time.Second), -1, 0, retryafter.Final},

		{"OpenAI: milliseconds", openAI, "POST", keyed, 429, fields("retry-after-ms", "1500"), 1500 * time.Millisecond, 3 * time.Second, 0},
		{"OpenAI: milliseconds, and a later Retry-After", openAI, "POST", keyed, 429, fields("retry-after-ms", "1500", "Retry-After", "20"), 20 * time.Second, 30 * time.Second, 0},
		{"OpenAI: tokens are spent", openAI, "POST", keyed, 429, fields("x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "20s"), 20 * time.Second, 30 * time.Second, 0},
		{"OpenAI: a POST without a key", openAI, "POST", nil, 429, fields("retry-after-ms", "1500"), -1, 0, retryafter.MethodNotIdempotent},
		{"OpenAI: the server says no", openAI, "POST", keyed, 429, fields("x-should-retry", "false", "retry-after-ms", "1500"), -1, 0, retryafter.Final},
		{"OpenAI: the server says yes", openAI, "POST", keyed, 400, fields("x-should-retry", "true", "retry-after-ms", "1500"), 1500 * time.Millisecond, 3 * time.Second, 0},
		{"OpenAI: the server says yes to what is unsafe", openAI, "POST", nil, 400, fields("x-should-retry", "true"), -1, 0, retryafter.MethodNotIdempotent},
		{"OpenAI: the server says yes to what it did", openAI, "POST", keyed, 200, fields("x-should-retry", "true", "retry-after-ms", "1500"), -1, 0, retryafter.Final},
		{"OpenAI: the server says yes to what is not there", openAI, "GET", nil, 404, fields("x-should-retry", "true"), 0, time.Second, 0},
		{"OpenAI: nothing said", openAI, "POST", keyed, 429, fields(), time.Second, 3 * time.Second, 0},

		{"Anthropic: overloaded", anthropic, "POST", keyed, 529, fields(), 0, time.Second, 0},
		{"Anthropic: overloaded, with a delay", anthropic, "POST", keyed, 529, fields("Retry-After", "20"), 20 * time.Second, 30 * time.Second, 0},
		{"Anthropic: overloaded, and the server says no", anthropic, "POST", keyed, 529, fields("x-should-retry", "false"), -1, 0, retryafter.Final},
		{"Anthropic: the server says yes to what it did", anthropic, "POST", keyed, 200, fields("x-should-retry", "true", "Retry-After", "1"), -1, 0, retryafter.Final},
		{"Anthropic: the server says yes to a redirect", anthropic, "GET", nil, 302, fields("x-should-retry", "true"), -1, 0, retryafter.Final},
		{"Anthropic: the server says yes", anthropic, "POST", keyed, 400, fields("x-should-retry", "true", "Retry-After", "20"), 20 * time.Second, 30 * time.Second, 0},
		{"Anthropic: a rate limit", anthropic, "POST", keyed, 429, fields("Retry-After", "20"), 20 * time.Second, 30 * time.Second, 0},
		{"Anthropic: a rate limit in milliseconds", anthropic, "POST", keyed, 429, fields("retry-after-ms", "1500"), 1500 * time.Millisecond, 3 * time.Second, 0},
		{"Anthropic: a rate limit that says when it is full again", anthropic, "POST", keyed, 429, func(now time.Time) http.Header {
			return fields("anthropic-ratelimit-requests-remaining", "0", "anthropic-ratelimit-requests-reset", now.Add(20*time.Second).Format(time.RFC3339))(now)
		}, 20 * time.Second, 30 * time.Second, 0},
		{"Anthropic: a spent budget", anthropic, "POST", keyed, 429, fields(), -1, 0, retryafter.Final},
		{"Anthropic: a bad request", anthropic, "POST", keyed, 400, fields(), -1, 0, retryafter.Final},
		{"Anthropic: an outage", anthropic, "POST", keyed, 500, fields(), 0, time.Second, 0},

		{"Azure: milliseconds", azure, "GET", nil, 429, fields("x-ms-retry-after-ms", "1500"), 1500 * time.Millisecond, 3 * time.Second, 0},
		{"Azure: milliseconds, and a later Retry-After", azure, "GET", nil, 429, fields("x-ms-retry-after-ms", "1500", "Retry-After", "20"), 20 * time.Second, 30 * time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{status: tc.status, header: tc.header}
				begin := time.Now()
				resp := do(t, &retryafter.Transport{Base: s, Policy: tc.policy}, tc.method, tc.sent)
				took := time.Since(begin)
				report := retryafter.ReportOf(resp)
				body, err := io.ReadAll(resp.Body)
				if err != nil || string(body) != "body" {
					t.Errorf("the body is %q, %v", body, err)
				}
				if tc.waits < 0 {
					if s.attempts != 1 || resp.StatusCode != tc.status || report.Stop != tc.reason || took != 0 {
						t.Errorf("%d attempts in %v, the last a %d: %v", s.attempts, took, resp.StatusCode, report)
					}
					return
				}
				if s.attempts != 2 || resp.StatusCode != 200 || took < tc.waits || took > tc.within {
					t.Errorf("%d attempts in %v, the last a %d: %v", s.attempts, took, resp.StatusCode, report)
				}
			})
		})
	}
}

func TestGitHubsUncutDelayIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{status: 403, header: gitHubLimit("0", 30*time.Minute)}
		resp := do(t, &retryafter.Transport{Base: s, Policy: retryafter.Policy{Hint: hints.GitHub{}.Hint, Retry: hints.GitHub{}.Retry}}, "GET", nil)
		d := retryafter.ReportOf(resp).Decision
		if want := time.Now().Add(ahead + 30*time.Minute).UTC(); d.Server != 30*time.Minute+time.Second || !d.Hint.Date.Equal(want) || d.Hint.Form != 0 {
			t.Errorf("%+v, want the delay until %v", d, want)
		}
	})
}

func TestAGateIsHeldByWhatAProfileKnowsOfIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		when   func(retryafter.Attempt) bool
		hint   hints.Reader
		status int
		header func(time.Time) http.Header
		holds  time.Duration
	}{
		{"GitHub: the primary limit", hints.GitHub{}.When, hints.GitHub{}.Hint, 403, gitHubLimit("0", 30*time.Minute), 30*time.Minute + time.Second},
		{"GitHub: a secondary limit", hints.GitHub{}.When, hints.GitHub{}.Hint, 403, gitHubLimit("42", 30*time.Minute, "Retry-After", "60"), time.Minute},
		{"GitHub: as a 429", hints.GitHub{}.When, hints.GitHub{}.Hint, 429, gitHubLimit("0", 30*time.Minute), 30*time.Minute + time.Second},
		{"GitHub: an outage", hints.GitHub{}.When, hints.GitHub{}.Hint, 503, fields("Retry-After", "60"), time.Minute},
		{"GitHub: no permission", hints.GitHub{}.When, hints.GitHub{}.Hint, 403, gitHubLimit("42", 30*time.Minute), 0},
		{"GitHub: not found with the last request", hints.GitHub{}.When, hints.GitHub{}.Hint, 404, gitHubLimit("0", 30*time.Minute), 0},
		{"Anthropic: overloaded", hints.Anthropic{}.When, hints.Anthropic{}.Hint, 529, fields("Retry-After", "60"), time.Minute},
		{"Anthropic: a rate limit", hints.Anthropic{}.When, hints.Anthropic{}.Hint, 429, fields("retry-after-ms", "60000"), time.Minute},
		{"Anthropic: unavailable", hints.Anthropic{}.When, hints.Anthropic{}.Hint, 503, fields("Retry-After", "60"), time.Minute},
		{"Anthropic: a spent budget", hints.Anthropic{}.When, hints.Anthropic{}.Hint, 429, fields(), 0},
		{"Anthropic: a server error", hints.Anthropic{}.When, hints.Anthropic{}.Hint, 500, fields("Retry-After", "60"), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				s := &server{status: tc.status, header: tc.header, opens: begin.Add(tc.holds)}
				tr := &retryafter.Transport{
					Base:   s,
					Policy: retryafter.Policy{Hint: tc.hint, MaxAttempts: 1, MaxWait: -1},
					Gate:   &retryafter.Gate{When: tc.when},
				}
				if resp := do(t, tr, "POST", nil); resp.StatusCode != tc.status {
					t.Fatal(resp.StatusCode)
				}
				resp := do(t, tr, "GET", nil)
				if took := time.Since(begin); resp.StatusCode != 200 || s.attempts != 2 || s.early != 0 || took < tc.holds || tc.holds == 0 && took != 0 {
					t.Errorf("%d after %v", resp.StatusCode, took)
				}
			})
		})
	}
}
