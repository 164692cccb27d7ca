package retryafter_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
)

// roundTripper plays the server without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// comesBackAfterAMinute is a test; in your own file its name begins with Test.
// In a bubble of testing/synctest the minute passes at once, and exactly.
func comesBackAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		client := &http.Client{Transport: &retryafter.Transport{
			Policy: retryafter.Policy{Jitter: retryafter.NoJitter},
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				if attempts++; attempts == 1 {
					return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"60"}}, Request: req}, nil
				}
				return &http.Response{StatusCode: 200, Request: req}, nil
			}),
		}}
		begin := time.Now()
		resp, err := client.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 || attempts != 2 || time.Since(begin) != time.Minute {
			t.Errorf("%s at attempt %d after %v", resp.Status, attempts, time.Since(begin))
		}
	})
}

func Example_synctest() {
	_ = comesBackAfterAMinute
}
