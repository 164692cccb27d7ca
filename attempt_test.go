package retryafter_test

import (
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
)

// What the caller parsed of the form, and the redirect that led to the request.
func TestAnAttemptSharesNoFormAndRepeatsNoRedirect(t *testing.T) {
	for name, parse := range map[string]func(*http.Request){
		"nothing parsed": func(*http.Request) {},
		"Form":           func(r *http.Request) { r.Form = url.Values{"a": {"1"}} },
		"PostForm":       func(r *http.Request) { r.PostForm = url.Values{"a": {"1"}} },
		"MultipartForm":  func(r *http.Request) { r.MultipartForm = &multipart.Form{Value: map[string][]string{"a": {"1"}}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				tr := &retryafter.Transport{Policy: netAtOnce(), Base: netFunc(func(r *http.Request) (*http.Response, error) {
					if sent++; sent == 1 {
						return netResponse(r, 503, netBodyOf("")), nil
					}
					if r.Response != nil {
						t.Error("the second attempt has the redirect's response, whose wait was made")
					}
					for _, form := range []map[string][]string{r.Form, r.PostForm} {
						if form != nil {
							form["a"] = nil
						}
					}
					if r.MultipartForm != nil {
						r.MultipartForm.Value["a"] = nil
					}
					return netResponse(r, 200, netBodyOf("")), nil
				})}
				req := netRequest("GET", "http://example.com/")
				req.Response = &http.Response{StatusCode: 303}
				parse(req)
				resp, err := tr.RoundTrip(req)
				netWant(t, resp, err, 200, 2, retryafter.Final)
				for _, form := range []url.Values{req.Form, req.PostForm} {
					if form != nil && form.Get("a") != "1" {
						t.Errorf("the caller's form is now %v", form)
					}
				}
				if f := req.MultipartForm; f != nil && len(f.Value["a"]) != 1 {
					t.Errorf("the caller's form is now %v", f.Value)
				}
				if req.Response == nil {
					t.Error("the caller's request was written to")
				}
			})
		})
	}
}

// What is wrong with a request is for Base to say.
func TestARequestWithoutAURLReachesBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &retryafter.Transport{Base: netBase(netReply(503), netReply(200)), Policy: netAtOnce()}
		resp, err := tr.RoundTrip(&http.Request{Method: "GET", Header: http.Header{}})
		netWant(t, resp, err, 200, 2, retryafter.Final)
	})
}

func TestAResponseThatComesAfterAttemptTimeoutIsClosed(t *testing.T) {
	for name, body := range map[string]*netBody{"a body": netBodyOf("late"), "no body": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &retryafter.Transport{AttemptTimeout: time.Second, Policy: retryafter.Policy{MaxAttempts: 1},
					Base: netFunc(func(r *http.Request) (*http.Response, error) {
						time.Sleep(2 * time.Second)
						resp := netResponse(r, 200, nil)
						if body != nil {
							resp.Body = body
						}
						return resp, nil
					})}
				resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
				netWantError(t, resp, err, 1, retryafter.AttemptsUsed)
				if !errors.Is(err, retryafter.ErrAttemptTimeout) || !strings.Contains(err.Error(), "AttemptTimeout") {
					t.Errorf("error %v", err)
				}
				if body != nil && body.closed() != 1 {
					t.Errorf("the body was closed %d times", body.closed())
				}
			})
		})
	}
}

// Of two ends of one attempt the caller's is told, with what Base said.
func TestACancelAfterAttemptTimeoutIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := errors.New("own")
		tr := &retryafter.Transport{AttemptTimeout: time.Second, Base: netFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(3 * time.Second)
			return nil, own
		})}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
		netWantError(t, resp, err, 1, retryafter.Canceled)
		if !errors.Is(err, own) || errors.Is(err, retryafter.ErrAttemptTimeout) {
			t.Errorf("error %v", err)
		}
	})
}

func TestAttemptTimeoutChangesOnlyItsOwn(t *testing.T) {
	other := netRequest("GET", "http://other.example/")
	tr := &retryafter.Transport{AttemptTimeout: time.Hour, Base: netFunc(func(r *http.Request) (*http.Response, error) {
		return netResponse(other, 200, netBodyOf("")), nil
	})}
	resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/"))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Request != other {
		t.Error("the response has another request than Base gave it")
	}
	if _, ok := resp.Body.(io.Writer); ok {
		t.Error("a body that is only read became a Writer")
	}
	resp.Body.Close()
}

// A 101's body that can't be closed by halves says so.
func TestHalfClosingWhatCanNotBeSo(t *testing.T) {
	type readWriteCloser struct {
		io.ReadCloser
		io.Writer
	}
	ctx := &netCounting{Context: context.Background(), done: make(chan struct{})}
	tr := &retryafter.Transport{AttemptTimeout: time.Hour,
		Base: netBase(netReplyBody(101, readWriteCloser{netBodyOf(""), io.Discard}))}
	resp, err := tr.RoundTrip(netRequest("GET", "http://example.com/").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	half, ok := resp.Body.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("body %T", resp.Body)
	}
	if err := half.CloseWrite(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("CloseWrite: %v", err)
	}
	resp.Body.Close()
	if hung, most := ctx.counts(); hung != 0 || most == 0 {
		t.Errorf("%d of at most %d registrations are left after Close", hung, most)
	}
}
