package retryafter_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

// comesBackAfterAMinute is a test; in your own file its name begins with Test.
// In a bubble of testing/synctest the minute passes at once, and exactly. The
// script fails the test where a request comes early, or not at all.
func comesBackAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: &retryafter.Transport{
			Policy: retryafter.Policy{Jitter: retryafter.NoJitter},
			Base: retryaftertest.NewScript(t,
				retryaftertest.Response{Status: 429, RetryAfter: time.Minute},
				retryaftertest.Response{Body: "ok"},
			),
		}}
		begin := time.Now()
		resp, err := client.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 || time.Since(begin) != time.Minute {
			t.Errorf("%s after %v", resp.Status, time.Since(begin))
		}
	})
}

func Example_synctest() {
	_ = comesBackAfterAMinute
}
