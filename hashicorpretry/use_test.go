package hashicorpretry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hashicorpretry"
)

// roundTripper plays the server without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// atOnce is a policy that waits for servers only.
func atOnce() retryafter.Policy {
	return retryafter.Policy{
		Backoff: func() backoff.BackOff { return &backoff.ZeroBackOff{} },
		Jitter:  retryafter.NoJitter,
	}
}

// list collects what a client says.
type list []string

func (l *list) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *list) Printf(format string, args ...any) { l.add(format, args...) }

// levels is a LeveledLogger.
type levels struct{ list }

func (l *levels) Error(msg string, kv ...any) { l.add("error: %s %v", msg, kv) }
func (l *levels) Info(msg string, kv ...any)  { l.add("info: %s %v", msg, kv) }
func (l *levels) Debug(msg string, kv ...any) { l.add("debug: %s %v", msg, kv) }
func (l *levels) Warn(msg string, kv ...any)  { l.add("warn: %s %v", msg, kv) }

func TestHooksRunForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{begin: time.Now(), replies: []reply{
			{status: 503, header: told("3")}, {err: io.EOF}, {status: 429}, {status: 200},
		}}
		c := quiet(&retryafter.Transport{Base: s, Policy: retryafter.Policy{MaxAttempts: 4, Jitter: retryafter.NoJitter}})
		var said list
		c.RequestLogHook = func(l retryablehttp.Logger, req *http.Request, retry int) {
			if l != nil {
				t.Error("a Logger where none is set")
			}
			said.add("%v: request %d, signed %q", time.Since(s.begin), retry, req.Header.Get("Signature"))
		}
		c.PrepareRetry = func(req *http.Request) error {
			req.Header.Set("Signature", fmt.Sprint("at ", time.Since(s.begin)))
			return nil
		}
		c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) {
			text, _ := io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(bytes.NewReader(text))
			said.add("%v: response %d, %s", time.Since(s.begin), resp.StatusCode, text)
		}
		req, err := retryablehttp.NewRequest("GET", "http://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		want := list{
			`0s: request 0, signed ""`, `0s: response 503, body of reply 1`,
			`3s: request 1, signed "at 3s"`,
			`3.2s: request 2, signed "at 3.2s"`, `3.2s: response 429, body of reply 3`,
			`4.2s: request 3, signed "at 4.2s"`, `4.2s: response 200, body of reply 4`,
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if req.Header.Get("Signature") != "" {
			t.Error("the caller's request was signed")
		}
	})
}

func TestAResponseIsShownOnceThoughTwoWaitsFollowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{begin: time.Now(), replies: []reply{{status: 500}, {status: 200}}}
		gate := &retryafter.Gate{}
		hold := &script{begin: time.Now(), replies: []reply{{status: 429, header: told("30")}}}
		c := quiet(&retryafter.Transport{Base: s, Policy: retryafter.Policy{Jitter: retryafter.NoJitter}, Gate: gate})
		shown := 0
		c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) {
			if shown++; shown == 1 {
				// Another call is told to wait while this one backs off.
				other := &retryafter.Transport{Base: hold, Gate: gate, Policy: retryafter.Policy{MaxAttempts: 1}}
				time.AfterFunc(50*time.Millisecond, func() {
					req, _ := http.NewRequest("GET", "http://example.com/", nil)
					if resp, err := other.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
				})
			}
		}
		resp, err := c.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if shown != 2 || len(s.attempts) != 2 || s.attempts[1].At < 30*time.Second {
			t.Errorf("%d responses shown, attempts %v", shown, s.attempts)
		}
	})
}

// TestADiscardedResponseIsNotShown: where a Base returns an error beside it, and
// where it came too late.
func TestADiscardedResponseIsNotShown(t *testing.T) {
	for name, late := range map[string]bool{"beside an error": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts, discarded := 0, &body{Reader: strings.NewReader("text")}
				c := quiet(&retryafter.Transport{
					Policy: atOnce(), AttemptTimeout: time.Second,
					Base: roundTripper(func(req *http.Request) (*http.Response, error) {
						if attempts++; attempts > 1 {
							return &http.Response{StatusCode: 204, Body: http.NoBody, Request: req}, nil
						}
						resp := &http.Response{StatusCode: 200, Body: discarded, Request: req}
						if late {
							<-req.Context().Done()
							return resp, nil
						}
						return resp, io.EOF
					}),
				})
				var shown list
				c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) { shown.add("%d", resp.StatusCode) }
				resp, err := c.Get("http://example.com/")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if diff := cmp.Diff(list{"204"}, shown); diff != "" || attempts != 2 || !discarded.closed {
					t.Errorf("%d attempts (-want +got):\n%s", attempts, diff)
				}
			})
		})
	}
}

func TestAnErrorOfPrepareRetryEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 503}}}
		c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
		unsigned := errors.New("no key to sign with")
		c.PrepareRetry = func(*http.Request) error { return unsigned }
		req, err := retryablehttp.NewRequest("PUT", "http://example.com/", strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if e, ok := errors.AsType[*retryafter.Error](err); resp != nil || !errors.Is(err, unsigned) || !ok || e.Report.Stop != retryafter.Final {
			t.Errorf("%v, %v", resp, err)
		}
		if len(s.attempts) != 1 {
			t.Errorf("%d attempts, want 1", len(s.attempts))
		}
	})
}

// TestBodiesAreOpenedAndClosedInTurn: each body that a ReaderFunc gives is
// closed, and what PrepareRetry reads of one is not missing in the attempt.
func TestBodiesAreOpenedAndClosedInTurn(t *testing.T) {
	for name, last := range map[string]error{"sent": nil, "not prepared": errors.New("no key")} {
		t.Run(name, func(t *testing.T) {
			s := &script{replies: []reply{{status: 500}, {status: 500}, {status: 200}}}
			c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
			var opened []*body
			var at []int
			c.PrepareRetry = func(req *http.Request) error {
				if len(s.attempts) == 2 && last != nil {
					return last
				}
				b, err := req.GetBody()
				if err != nil {
					return err
				}
				defer b.Close()
				_, err = io.ReadAll(b)
				return err
			}
			c.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, _ int) { at = append(at, len(opened)) }
			req, err := retryablehttp.NewRequest("PUT", "http://example.com/", func() (io.Reader, error) {
				b := &body{Reader: strings.NewReader("text")}
				opened = append(opened, b)
				return b, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if !errors.Is(err, last) {
				t.Fatal(err)
			}
			if resp != nil {
				resp.Body.Close()
			}
			for i, b := range opened {
				if !b.closed {
					t.Errorf("body %d of %d was not closed", i+1, len(opened))
				}
			}
			for i, a := range s.attempts {
				if sent := opened[at[i]-1]; a.Body != "text" || sent.read != len("text") {
					t.Errorf("attempt %d sent %q, and %d bytes of its own body", i+1, a.Body, sent.read)
				}
			}
		})
	}
}

// TestPrepareRetryMayTakeTheBodyAway: a hook that has read it to sign it.
func TestPrepareRetryMayTakeTheBodyAway(t *testing.T) {
	for name, given := range map[string]any{"bytes": []byte("text"), "one reader": strings.NewReader("text")} {
		t.Run(name, func(t *testing.T) {
			s := &script{replies: []reply{{status: 500}, {status: 500}, {status: 200}}}
			c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
			c.PrepareRetry = func(req *http.Request) error {
				text, err := io.ReadAll(req.Body)
				if string(text) != "text" {
					t.Errorf("%q to sign", text)
				}
				req.Body.Close()
				req.Body = nil
				return err
			}
			if _, err := put(t, c, given); err != nil {
				t.Fatal(err)
			}
			for i, a := range s.attempts {
				if a.Body != "text" || len(s.attempts) != 3 {
					t.Errorf("attempt %d of %d sent %q", i+1, len(s.attempts), a.Body)
				}
			}
		})
	}
}

func TestPrepareRetryMayGiveABody(t *testing.T) {
	s := &script{replies: []reply{{status: 500}, {status: 200}}}
	c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
	c.PrepareRetry = func(req *http.Request) error {
		req.Body = io.NopCloser(strings.NewReader("again"))
		return nil
	}
	resp, err := c.Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if s.attempts[1].Body != "again" {
		t.Errorf("sent %q", s.attempts[1].Body)
	}
}

func TestOtherWaitsAreNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := quiet(&retryafter.Transport{
			Base: &script{replies: []reply{
				{status: 307, header: http.Header{"Location": {"/there"}, "Retry-After": {"1"}}}, {status: 500}, {status: 200},
			}},
			Policy:  atOnce(),
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(10 * time.Second)},
		})
		said := &list{}
		c.Logger = said
		resp, err := c.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		want := list{"[DEBUG] GET http://example.com/", "[DEBUG] GET http://example.com/there (status: 500): retrying in 0s"}
		if diff := cmp.Diff(want, *said); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestLoggersAreToldOfWaits(t *testing.T) {
	const line = "GET http://example.com/a (status: 503)"
	failed := &url.Error{Op: "Get", URL: "https://u:secret@idp/token?secret", Err: io.EOF}
	replies := []reply{{status: 503, header: told("3")}, {err: failed}, {status: 200}}
	send := func(t *testing.T, logger any) {
		c := quiet(&retryafter.Transport{Base: &script{replies: replies}, Policy: atOnce()})
		c.Logger = logger
		c.RequestLogHook = func(l retryablehttp.Logger, _ *http.Request, retry int) { l.Printf("retry %d", retry) }
		resp, err := c.Get("http://u:p@example.com/a?token=secret#secret")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	synctest.Test(t, func(t *testing.T) {
		plain := &list{}
		send(t, plain)
		want := list{
			"retry 0", "[DEBUG] " + line + ": retrying in 3s",
			"retry 1", "[DEBUG] GET http://example.com/a (error: Get \"https://idp/token\": EOF): retrying in 0s",
			"retry 2",
		}
		if diff := cmp.Diff(want, (*plain)[1:]); diff != "" { // the first is the client's own
			t.Errorf("Logger (-want +got):\n%s", diff)
		}
		leveled := &levels{}
		send(t, leveled)
		want = list{
			"info: retry 0 []", "debug: retrying request [request " + line + " timeout 3s]",
			"info: retry 1 []", "debug: retrying request [request GET http://example.com/a (error: Get \"https://idp/token\": EOF) timeout 0s]",
			"info: retry 2 []",
		}
		if diff := cmp.Diff(want, leveled.list[1:]); diff != "" {
			t.Errorf("LeveledLogger (-want +got):\n%s", diff)
		}
	})
}

func TestTheTraceOfTheTransportAndOfTheContextRunToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said list
		trace := func(who string) *retryafter.Trace {
			return &retryafter.Trace{
				AttemptDone: func(a retryafter.Attempt) { said.add("%s: attempt %d", who, a.Number) },
				Waiting:     func(w retryafter.WaitInfo) { said.add("%s: %v", who, w.Wait) },
				Done:        func(_ *http.Request, r retryafter.Report) { said.add("%s: %v", who, r.Stop) },
			}
		}
		c := quiet(&retryafter.Transport{
			Base:   &script{replies: []reply{{status: 503, header: told("3")}, {status: 404}}},
			Policy: atOnce(), Trace: trace("own"),
		})
		req, err := retryablehttp.NewRequestWithContext(retryafter.WithTrace(t.Context(), trace("context")), "GET", "http://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		want := list{
			"context: attempt 1", "own: attempt 1", "context: 3s", "own: 3s",
			"context: attempt 2", "own: attempt 2", "context: Final", "own: Final",
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestTheTimeoutOfTheHTTPClientBoundsEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{begin: time.Now(), replies: []reply{
			{status: 503, header: told("60"), takes: 4 * time.Second}, {status: 200, takes: time.Hour}, {status: 200, takes: 4 * time.Second},
		}}
		c := retryablehttp.NewClient()
		c.Logger = nil
		given := &http.Client{Transport: s, Timeout: 5 * time.Second}
		c.HTTPClient = given
		hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
		if given.Timeout != 5*time.Second || given.Transport != http.RoundTripper(s) {
			t.Error("the given http.Client was written to")
		}
		hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()}) // again, with the same timeout and base
		resp, err := c.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		var at []time.Duration
		for _, a := range s.attempts {
			at = append(at, a.At)
		}
		if diff := cmp.Diff([]time.Duration{0, 64 * time.Second, 69 * time.Second}, at); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		ctx := resp.Request.Context()
		resp.Body.Close()
		if ctx.Err() != nil {
			t.Error("the context of the response's request ended with its body")
		}
	})
}

func TestAnAttemptThatTheTimeoutEndsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []reply{{takes: time.Minute}}}
		c := retryablehttp.NewClient()
		c.Logger = nil
		c.HTTPClient = &http.Client{Transport: s, Timeout: 5 * time.Second}
		hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
		_, err := c.Get("http://example.com/")
		if isTheTimeout(t, err); len(s.attempts) != 3 {
			t.Errorf("%d attempts", len(s.attempts))
		}
	})
}

func TestTheTimeoutOfTheHTTPClientBoundsTheBody(t *testing.T) {
	for _, way := range []string{"stalled", "read", "closed unread", "none", "failed"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := retryablehttp.NewClient()
				c.Logger = nil
				var attempt context.Context
				b := &body{Reader: strings.NewReader("all")}
				c.HTTPClient = &http.Client{Timeout: 5 * time.Second, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
					attempt = req.Context()
					switch way {
					case "failed":
						return nil, errors.New("failed")
					case "none":
						return &http.Response{StatusCode: 204, Request: req}, nil
					case "stalled":
						b.Reader = stalled{attempt}
					}
					return &http.Response{StatusCode: 200, Body: b, Request: req}, nil
				})}
				hashicorpretry.Use(c, &retryafter.Transport{})
				begin := time.Now()
				resp, err := c.Get("http://example.com/")
				if (err != nil) != (way == "failed") {
					t.Fatal(err)
				}
				switch way {
				case "stalled":
					if attempt.Err() != nil {
						t.Error("the attempt ended with its header")
					}
					_, err := io.ReadAll(resp.Body)
					if time.Since(begin) != 5*time.Second {
						t.Errorf("%v after %v", err, time.Since(begin))
					}
					isTheTimeout(t, err)
				case "read":
					if text, err := io.ReadAll(resp.Body); string(text) != "all" || err != nil {
						t.Errorf("%q, %v", text, err)
					}
				}
				if way == "closed unread" || way == "stalled" {
					if resp.Body.Close(); !b.closed {
						t.Error("the body was not closed")
					}
				}
				if attempt.Err() == nil {
					t.Error("the attempt's timer runs on")
				}
			})
		})
	}
}

// isTheTimeout holds err to what net/http says where a client's Timeout passes.
func isTheTimeout(t *testing.T, err error) {
	t.Helper()
	timeouter, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	if !ok || !timeouter.Timeout() || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, retryafter.ErrAttemptTimeout) ||
		!strings.Contains(err.Error(), "HTTPClient.Timeout") || strings.Contains(err.Error(), "header") {
		t.Errorf("%v", err)
	}
}

// stalled is a body that ends with the context of its request.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

func TestUseAgainReplaces(t *testing.T) {
	s := &script{replies: []reply{{status: 500}}}
	c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
	for _, attempts := range []int{2, 4} {
		p := atOnce()
		p.MaxAttempts = attempts
		hashicorpretry.Use(c, &retryafter.Transport{Policy: p})
		s.attempts = nil
		resp, err := c.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if len(s.attempts) != attempts {
			t.Errorf("%d attempts, want %d", len(s.attempts), attempts)
		}
	}
}

// TestUseReplacesWhatAnotherUseSet, wherever it finds it: the attempts would
// multiply.
func TestUseReplacesWhatAnotherUseSet(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	for _, where := range []string{"Base", "HTTPClient", "DefaultTransport"} {
		s := &script{replies: []reply{{status: 500}}}
		old := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
		c, tr := &retryablehttp.Client{HTTPClient: &http.Client{}}, &retryafter.Transport{Policy: atOnce()}
		switch where {
		case "Base":
			tr.Base = old.HTTPClient.Transport
		case "HTTPClient":
			c.HTTPClient = old.HTTPClient
		case "DefaultTransport":
			http.DefaultTransport = old.HTTPClient.Transport
		}
		hashicorpretry.Use(c, tr)
		resp, err := c.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if len(s.attempts) != 3 {
			t.Errorf("%s: %d attempts, want 3", where, len(s.attempts))
		}
	}
}

func TestABaseOfTheTransportGoesBeforeTheClients(t *testing.T) {
	s := &script{replies: []reply{{status: 200}}}
	c := retryablehttp.NewClient()
	c.Logger, c.HTTPClient.Transport = nil, &script{replies: []reply{{err: errors.New("not the base")}}}
	hashicorpretry.Use(c, &retryafter.Transport{Base: s})
	resp, err := c.Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestTheDefaultTransportServesAClientThatHasNone(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = &script{replies: []reply{{status: 204}}}
	c := &retryablehttp.Client{HTTPClient: &http.Client{}}
	hashicorpretry.Use(c, &retryafter.Transport{})
	http.DefaultTransport = c.HTTPClient.Transport // as one may; it must not send by itself
	resp, err := c.Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 204 {
		t.Error(resp.Status)
	}
}

func TestClosesIdleConnectionsOfTheBase(t *testing.T) {
	closed := 0
	c := retryablehttp.NewClient()
	c.HTTPClient.Transport = idler{closed: &closed}
	hashicorpretry.Use(c, &retryafter.Transport{})
	if c.HTTPClient.CloseIdleConnections(); closed != 1 {
		t.Errorf("closed %d times, want once", closed)
	}
	c.HTTPClient.Transport = roundTripper(nil)
	hashicorpretry.Use(c, &retryafter.Transport{})
	c.HTTPClient.CloseIdleConnections() // there is nothing to call
}

type idler struct {
	http.RoundTripper
	closed *int
}

func (i idler) CloseIdleConnections() { *i.closed++ }

func TestACookieIsSentOnceAnAttempt(t *testing.T) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var cookies list
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Jar: jar, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		cookies.add("%s", req.Header["Cookie"])
		return &http.Response{StatusCode: 500, Header: http.Header{"Set-Cookie": {"a=b"}}, Body: http.NoBody, Request: req}, nil
	})}
	hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
	for range 2 {
		resp, err := c.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if diff := cmp.Diff(list{"[]", "[]", "[]", "[a=b]", "[a=b]", "[a=b]"}, cookies); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnErrorHandlerIsAskedOnErrors, and told how many tries there were.
func TestAnErrorHandlerIsAskedOnErrors(t *testing.T) {
	mine, bad := errors.New("mine"), errors.New("not what was asked for")
	for _, test := range []struct {
		name    string
		replies []reply
		handle  retryablehttp.ResponseHandlerFunc
		asked   string // what the handler was given
	}{
		{name: "broken for good", replies: []reply{{err: io.EOF}}, asked: "response 0, EOF, 3 tries"},
		{name: "not to be cured", replies: []reply{{err: failures["x509"]}}, asked: "response 0, tls: failed to verify certificate: x509: certificate signed by unknown authority, 1 tries"},
		{name: "gives up with a response", replies: []reply{{status: 500}}},
		{name: "well", replies: []reply{{status: 200}}},
		{
			name: "ResponseHandlerFunc", replies: []reply{{status: 500}, {status: 200}},
			handle: func(*http.Response) error { return bad }, asked: "response 200, not what was asked for, 2 tries",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := retryablehttp.NewClient()
			c.Logger, c.HTTPClient.Transport = nil, &script{replies: test.replies}
			asked := ""
			c.ErrorHandler = func(resp *http.Response, err error, tries int) (*http.Response, error) {
				status := 0
				if resp != nil {
					status = resp.StatusCode
					resp.Body.Close()
				}
				asked += fmt.Sprintf("response %d, %v, %d tries", status, cause(err), tries)
				if e, ok := errors.AsType[*retryafter.Error](err); ok {
					asked = fmt.Sprintf("response %d, %v, %d tries", status, e.Err, tries)
				}
				return nil, mine
			}
			hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
			hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()}) // again, with the same handler
			req, err := retryablehttp.NewRequest("GET", "http://example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.SetResponseHandler(test.handle)
			resp, err := c.Do(req)
			if resp != nil {
				resp.Body.Close()
			}
			if asked != test.asked || errors.Is(err, mine) != (test.asked != "") || (resp == nil) != (test.asked != "") {
				t.Errorf("asked %q, want %q; %v, %v", asked, test.asked, resp, err)
			}
		})
	}
}

func TestAResponseHandlerGetsTheLastResponse(t *testing.T) {
	s := &script{replies: []reply{{status: 500}}}
	c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
	req, err := retryablehttp.NewRequest("GET", "http://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("not what was asked for")
	handled := 0
	req.SetResponseHandler(func(resp *http.Response) error { handled++; return bad })
	resp, err := c.Do(req)
	if resp == nil || !errors.Is(err, bad) || handled != 1 || len(s.attempts) != 3 {
		t.Fatalf("%v, %v, handled %d times after %d attempts", resp, err, handled, len(s.attempts))
	}
	resp.Body.Close()
}

func TestTheLimiterAndTheBudgetOfTheTransportHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{begin: time.Now(), replies: []reply{{status: 500}}}
		c := quiet(&retryafter.Transport{
			Base: s, Policy: atOnce(),
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(10 * time.Second)},
			Budget:  &retryafter.RetryBudget{Retries: 3},
		})
		var stops []retryafter.Reason
		for range 3 {
			resp, err := c.Get("http://example.com/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			stops = append(stops, retryafter.ReportOf(resp).Stop)
		}
		if diff := cmp.Diff([]retryafter.Reason{retryafter.AttemptsUsed, retryafter.BudgetSpent, retryafter.BudgetSpent}, stops); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for i, a := range s.attempts {
			if a.At < time.Duration(i)*10*time.Second {
				t.Errorf("attempt %d left after %v", i+1, a.At)
			}
		}
	})
}
