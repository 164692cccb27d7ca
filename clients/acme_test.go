package clients

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/retryafter-go/retryafter"
)

func newACME(directory string, key crypto.Signer, t *retryafter.Transport) *acme.Client {
	return &acme.Client{
		DirectoryURL: directory,
		Key:          key,
		HTTPClient:   &http.Client{Transport: t},
		RetryBackoff: func(n int, req *http.Request, resp *http.Response) time.Duration {
			switch {
			case req.Method != "POST":
				return 0 // no more: the Transport has done what could be done
			case resp.StatusCode == http.StatusBadRequest && n < 3:
				return time.Millisecond // a bad nonce, and the answer has brought a new one
			}
			d := t.Policy.Decide(retryafter.Attempt{
				Number: n, StatusCode: resp.StatusCode, Header: resp.Header, Received: time.Now(),
			}, retryafter.Call{})
			if !d.Retry {
				return 0
			}
			return d.Wait
		},
	}
}

// poll sends what next makes, each time anew, until done says that it is. It
// comes back when the server says, and every five seconds where it doesn't.
func poll(ctx context.Context, c *http.Client, next func(context.Context) (*http.Request, error), done func(*http.Response) (bool, error)) error {
	for {
		req, err := next(ctx)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		wait := 5 * time.Second
		if hint, err := retryafter.FromHeader(resp.Header, time.Now()); err == nil {
			wait = max(hint.Delay, time.Second)
		}
		finished, err := done(resp)
		resp.Body.Close()
		if finished || err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A ca is an ACME server with one order.
type ca struct {
	directory, order *fake
	nonces           int
	t                *testing.T
	spent            map[string]bool
}

func newCA(t *testing.T, order ...answer) *ca {
	return &ca{
		directory: answers(reply(200, `{"newNonce":"http://ca.test/nonce","newAccount":"http://ca.test/account","newOrder":"http://ca.test/new"}`)),
		order:     answers(order...), t: t, spent: map[string]bool{},
	}
}

func (c *ca) RoundTrip(req *http.Request) (*http.Response, error) {
	serve := c.directory
	switch req.URL.Path {
	case "/nonce":
		serve = answers(reply(200, ""))
	case "/order":
		serve = c.order
	}
	resp, err := serve.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if req.URL.Path == "/order" {
		nonce := nonceOf(c.t, serve.requests()[len(serve.requests())-1])
		if c.spent[nonce] {
			c.t.Errorf("nonce %s came twice", nonce)
		}
		c.spent[nonce] = true
	}
	c.nonces++
	resp.Header.Set("Replay-Nonce", "nonce"+itoa(int64(c.nonces)))
	return resp, nil
}

func nonceOf(t *testing.T, r request) string {
	t.Helper()
	var jws, protected struct{ Protected, Nonce string }
	if err := json.Unmarshal([]byte(r.Body), &jws); err != nil {
		t.Fatal(err)
	}
	b, err := base64.RawURLEncoding.DecodeString(jws.Protected)
	if err == nil {
		err = json.Unmarshal(b, &protected)
	}
	if err != nil || protected.Nonce == "" {
		t.Fatalf("%q, %v", b, err)
	}
	return protected.Nonce
}

func waitOrder(t *testing.T, c *ca, tr *retryafter.Transport) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tr.Base = c
	client := newACME("http://ca.test/directory", key, tr)
	client.KID = "http://ca.test/account/1"
	o, err := client.WaitOrder(t.Context(), "http://ca.test/order")
	if err == nil && o.Status != acme.StatusValid {
		t.Errorf("the order is %s", o.Status)
	}
	return err
}

const valid = `{"status":"valid"}`

func pending(after string) answer { return reply(200, `{"status":"processing"}`, "Retry-After", after) }

func TestACMEPollsArePassedThroughWithTheirRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := newCA(t, pending("30"), pending("40"), reply(200, valid))
		err := waitOrder(t, c, &retryafter.Transport{Trace: &retryafter.Trace{
			Waiting: func(w retryafter.WaitInfo) { t.Errorf("the Transport waits %v", w.Wait) },
			Done:    func(_ *http.Request, r retryafter.Report) { calls++ },
		}})
		if err != nil {
			t.Fatal(err)
		}
		got := c.order.want(t, 3)
		wantWait(t, got, 2, 30*time.Second)
		wantWait(t, got, 3, 40*time.Second)
		if calls != 4 { // and one for the directory
			t.Errorf("%d calls", calls)
		}
	})
}

func TestACMEBadNonceIsRepeatedByItsClientWithAnotherNonce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := reply(400, `{"type":"urn:ietf:params:acme:error:badNonce"}`, "Content-Type", "application/problem+json")
		c := newCA(t, bad, reply(200, valid))
		if err := waitOrder(t, c, &retryafter.Transport{}); err != nil {
			t.Fatal(err)
		}
		c.order.want(t, 2)

		c = newCA(t, bad)
		if err := waitOrder(t, c, &retryafter.Transport{}); err == nil {
			t.Error("no error")
		}
		c.order.want(t, 3)
	})
}

func TestACMEPostsAreRepeatedByItsClientWithAnotherNonceWhenTheServerSaid(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			c := newCA(t, reply(status, "", "Retry-After", "60"), reply(200, valid))
			if err := waitOrder(t, c, &retryafter.Transport{}); err != nil {
				t.Fatal(err)
			}
			wantWait(t, c.order.want(t, 2), 2, time.Minute)

			c = newCA(t, reply(status, "", "Retry-After", "60"))
			if err := waitOrder(t, c, &retryafter.Transport{}); err == nil {
				t.Error("no error")
			}
			c.order.want(t, 3)

			c = newCA(t, reply(status, "", "Retry-After", "3600"))
			start := time.Now()
			if err := waitOrder(t, c, &retryafter.Transport{}); err == nil || time.Since(start) > time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			c.order.want(t, 1)
		})
	}
}

func TestACMEPostsAreNotRepeatedByTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCA(t, reply(503, "", "Retry-After", "1"))
		tr := &retryafter.Transport{Policy: retryafter.Policy{MaxAttempts: 5}, Trace: &retryafter.Trace{
			Done: func(req *http.Request, r retryafter.Report) {
				if req.Method == "POST" && (r.Attempts != 1 || r.Stop != retryafter.MethodNotIdempotent) {
					t.Errorf("%v", r)
				}
			},
		}}
		if err := waitOrder(t, c, tr); err == nil {
			t.Error("no error")
		}
		c.order.want(t, 5)
	})
}

func TestACMEReadsAreRepeatedByTheTransportAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCA(t, reply(200, valid))
		ok := c.directory.answers[0]
		c.directory = answers(reply(503, "", "Retry-After", "60"), ok)
		if err := waitOrder(t, c, &retryafter.Transport{}); err != nil {
			t.Fatal(err)
		}
		wantWait(t, c.directory.want(t, 2), 2, time.Minute)

		c.directory = answers(reply(503, ""))
		if err := waitOrder(t, c, &retryafter.Transport{}); err == nil {
			t.Error("no error")
		}
		c.directory.want(t, 3)
	})
}

func TestACMEsOwnPollingGoesByTheLocalClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := func(w http.ResponseWriter, _ *http.Request) {
			now := time.Now().Add(-time.Hour).UTC() // by the server's clock
			reply(200, `{"status":"processing"}`, "Date", now.Format(http.TimeFormat),
				"Retry-After", now.Add(30*time.Second).Format(http.TimeFormat))(w, nil)
		}
		c := newCA(t, behind, behind, reply(200, valid))
		if err := waitOrder(t, c, &retryafter.Transport{}); err != nil {
			t.Fatal(err)
		}
		got := c.order.want(t, 3)
		if gap := got[2].At.Sub(got[1].At); gap != 0 {
			t.Errorf("the client waited %v: it has come to look at the server's Date", gap)
		}

		f := answers(behind, behind, reply(200, valid))
		if err := pollValid(t, f); err != nil {
			t.Fatal(err)
		}
		wantWait(t, f.want(t, 3), 3, 30*time.Second)
	})
}

func pollValid(t *testing.T, f *fake) error {
	t.Helper()
	n := 0
	return poll(t.Context(), &http.Client{Transport: &retryafter.Transport{Base: f}}, func(ctx context.Context) (*http.Request, error) {
		n++
		return http.NewRequestWithContext(ctx, "POST", "http://ca.test/order", strings.NewReader("nonce"+itoa(int64(n))))
	}, func(resp *http.Response) (bool, error) {
		if resp.StatusCode >= 300 {
			return false, errors.New(resp.Status)
		}
		var o struct{ Status string }
		err := json.NewDecoder(resp.Body).Decode(&o)
		return o.Status == "valid", err
	})
}

func TestAPollerComesBackWhenTheServerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(pending("30"), reply(202, `{}`, "Retry-After", "40"), reply(200, `{}`), reply(200, `{}`, "Retry-After", "soon"), pending("0"), reply(200, valid))
		if err := pollValid(t, f); err != nil {
			t.Fatal(err)
		}
		got := f.want(t, 6)
		for i, wait := range []int{30, 40, 5, 5, 1} {
			wantWait(t, got, i+2, time.Duration(wait)*time.Second)
		}
		for i, r := range got {
			if want := "nonce" + itoa(int64(i+1)); r.Body != want {
				t.Errorf("request %d came with %q, want %q", i+1, r.Body, want)
			}
		}
	})
}

func TestAPollerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		start := time.Now()
		time.AfterFunc(time.Second, func() { cancel(enough) })
		err := poll(ctx, &http.Client{Transport: &retryafter.Transport{Base: answers(pending("30"))}}, func(ctx context.Context) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, "GET", "http://ca.test/order", nil)
		}, func(*http.Response) (bool, error) { return false, nil })
		if took := time.Since(start); !errors.Is(err, enough) || took >= 30*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
