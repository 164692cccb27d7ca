package clients

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/retryafter-go/retryafter"
)

// newOAuth2 has the token inside: each attempt asks for the current one.
func newOAuth2(conf *clientcredentials.Config, tokens *http.Client, t retryafter.Transport) *http.Client {
	conf.AuthStyle = oauth2.AuthStyleInHeader // AutoDetect sends a refused request once more, at once
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, tokens)
	t.Base = &oauth2.Transport{Source: conf.TokenSource(ctx), Base: t.Base}
	return &http.Client{Transport: &t, Timeout: time.Minute}
}

// repeatable lets the POST of a client credentials grant be repeated: a second
// token does no harm. It is not for refresh tokens, which may serve only once.
type repeatable struct{ next http.RoundTripper }

func (r repeatable) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header["Idempotency-Key"] = []string{} // says so to the Transport, and is not sent
	return r.next.RoundTrip(req)
}

// tokens gives out tokens that live for a minute, named in turn.
func tokens() *fake {
	n := 0
	return answers(func(w http.ResponseWriter, _ *http.Request) {
		n++
		reply(200, `{"access_token":"t`+itoa(int64(n))+`","token_type":"Bearer","expires_in":60}`, "Content-Type", "application/json")(w, nil)
	})
}

const away = "http://tokens.test/token"

func unavailable() answer { return reply(503, "", "Retry-After", "30") }

func get(t *testing.T, c *http.Client) *http.Response {
	t.Helper()
	resp, err := c.Get("http://api.test/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestOAuth2InsideSendsTheCurrentTokenWithEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := answers(reply(503, "", "Retry-After", "90"), reply(200, ""))
		c := newOAuth2(&clientcredentials.Config{TokenURL: away}, &http.Client{Transport: tokens()}, retryafter.Transport{Base: api})
		c.Timeout = time.Hour
		get(t, c)
		got := api.want(t, 2)
		wantWait(t, got, 2, 90*time.Second)
		for i, want := range []string{"Bearer t1", "Bearer t2"} {
			if a := got[i].Header.Get("Authorization"); a != want {
				t.Errorf("attempt %d came with %q, want %q", i+1, a, want)
			}
		}
	})
}

func TestOAuth2OutsideSendsTheFirstTokenWithEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := answers(reply(503, "", "Retry-After", "90"), reply(200, ""))
		tok := tokens()
		split := roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "tokens.test" {
				return tok.RoundTrip(req)
			}
			return api.RoundTrip(req)
		})
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: &retryafter.Transport{Base: split}})
		get(t, (&clientcredentials.Config{TokenURL: away, AuthStyle: oauth2.AuthStyleInHeader}).Client(ctx))
		for i, r := range api.want(t, 2) {
			if a := r.Header.Get("Authorization"); a != "Bearer t1" {
				t.Errorf("attempt %d came with %q", i+1, a)
			}
		}
	})
}

func TestOAuth2TokenRequestsAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{429, 503} {
			tok := answers(reply(status, "", "Retry-After", "30"))
			api := answers(reply(200, ""))
			c := newOAuth2(&clientcredentials.Config{TokenURL: away}, &http.Client{Transport: &retryafter.Transport{Base: tok}}, retryafter.Transport{Base: api})
			_, err := c.Get("http://api.test/")
			failed, ok := errors.AsType[*oauth2.RetrieveError](err)
			if !ok {
				t.Fatal(err)
			}
			wantReport(t, failed.Response, 1, retryafter.MethodNotIdempotent)
			hint, err := retryafter.FromHeader(failed.Response.Header, time.Now())
			if err != nil || hint.Delay != 30*time.Second {
				t.Errorf("the caller can't tell when to come back: %v, %v", hint, err)
			}
			tok.want(t, 1)
			api.want(t, 0)
		}
	})
}

func TestOAuth2AutoDetectAsksARefusingServerTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tok := answers(unavailable())
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: &retryafter.Transport{Base: tok}})
		if _, err := (&clientcredentials.Config{TokenURL: away}).Token(ctx); err == nil {
			t.Fatal("no error")
		}
		got := tok.want(t, 2)
		if gap := got[1].At.Sub(got[0].At); gap != 0 {
			t.Errorf("the second came after %v: AuthStyle need not be set any more", gap)
		}
	})
}

func TestOAuth2AutoDetectAsksOnceWhereAGateHoldsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tok := answers(unavailable(), tokens().answers[0])
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: &retryafter.Transport{Base: tok, Gate: &retryafter.Gate{}}})
		if _, err := (&clientcredentials.Config{TokenURL: away}).Token(ctx); err != nil {
			t.Fatal(err)
		}
		wantWait(t, tok.want(t, 2), 2, 30*time.Second)
	})
}

func TestOAuth2TokenRequestsAreRepeatedWhereTheyAreSaidToBe(t *testing.T) {
	tok := answers(reply(503, "", "Retry-After", "0"), tokens().answers[0])
	u, base := listen(t, tok)
	conf := &clientcredentials.Config{TokenURL: u, ClientID: "id", ClientSecret: "secret", EndpointParams: url.Values{"audience": {"a"}}}
	c := newOAuth2(conf, &http.Client{Transport: repeatable{atOnce(base)}}, retryafter.Transport{Base: answers(reply(200, ""))})
	get(t, c)
	tok.wantBodies(t, 2, "audience=a&grant_type=client_credentials")
	for _, r := range tok.requests() {
		if _, sent := r.Header["Idempotency-Key"]; sent {
			t.Error("the mark was sent")
		}
	}
}

func TestOAuth2TokenRequestsThatFindNoServerAreRepeatedByACallOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		tok := tokens()
		unsteady := roundTripper(func(req *http.Request) (*http.Response, error) {
			if tries++; tries == 1 {
				return nil, &timeout{}
			}
			return tok.RoundTrip(req)
		})
		api := answers(reply(200, ""))
		c := newOAuth2(&clientcredentials.Config{TokenURL: away}, &http.Client{Transport: &retryafter.Transport{Base: unsteady}}, retryafter.Transport{Base: api})
		get(t, c)
		if tries != 2 {
			t.Errorf("%d requests for a token", tries)
		}
		api.want(t, 1)
	})
}

// timeout is a connection that timed out.
type timeout struct{}

func (*timeout) Error() string { return "dial: timed out" }
func (*timeout) Timeout() bool { return true }

func TestOAuth2ExpiryByTheServersWordIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := answers(reply(401, "", "WWW-Authenticate", `Bearer error="invalid_token"`, "Retry-After", "1"))
		tok := tokens()
		c := newOAuth2(&clientcredentials.Config{TokenURL: away}, &http.Client{Transport: tok}, retryafter.Transport{Base: api})
		for range 2 {
			resp := get(t, c)
			if resp.StatusCode != 401 {
				t.Errorf("status %d", resp.StatusCode)
			}
			wantReport(t, resp, 1, retryafter.Final)
		}
		api.want(t, 2)
		tok.want(t, 1)
	})
}

func TestOAuth2TokenWaitsEndByTheirOwnClientAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tok := answers(unavailable(), tokens().answers[0])
		conf := &clientcredentials.Config{TokenURL: away}
		c := newOAuth2(conf, &http.Client{Transport: repeatable{&retryafter.Transport{Base: tok}}}, retryafter.Transport{Base: answers(reply(200, ""))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://api.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := c.Do(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 30*time.Second {
			t.Errorf("the call ended after %v: the context of the call has come to reach the request for its token", took)
		}

		tok = answers(unavailable())
		c = newOAuth2(conf, &http.Client{Transport: repeatable{&retryafter.Transport{Base: tok}}, Timeout: 5 * time.Second}, retryafter.Transport{Base: answers(reply(200, ""))})
		start = time.Now()
		if _, err := c.Get("http://api.test/"); err == nil {
			t.Fatal("no error")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("a wait that can't be made took %v", took)
		}
		tok.want(t, 1)
	})
}

func TestOAuth2RefreshesOnceForConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tok := tokens()
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: &retryafter.Transport{Base: tok}})
		conf := &oauth2.Config{Endpoint: oauth2.Endpoint{TokenURL: away, AuthStyle: oauth2.AuthStyleInHeader}}
		old := &oauth2.Token{AccessToken: "old", RefreshToken: "r", Expiry: time.Now().Add(-time.Minute)}
		api := answers(reply(503, "", "Retry-After", "1"), reply(200, ""))
		c := &http.Client{Transport: &retryafter.Transport{Base: &oauth2.Transport{Source: conf.TokenSource(ctx, old), Base: api}}}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if resp, err := c.Get("http://api.test/"); err == nil {
					resp.Body.Close()
				} else {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if r := tok.want(t, 1)[0]; !strings.Contains(r.Body, "refresh_token=r") {
			t.Errorf("the token was asked for by %q", r.Body)
		}
		for _, r := range api.want(t, 6) {
			if a := r.Header.Get("Authorization"); a != "Bearer t1" {
				t.Errorf("%q", a)
			}
		}
	})
}
