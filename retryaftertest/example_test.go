package retryaftertest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

// The functions below are tests: in your own file their names begin with Test.
// Here they are run by TestTheExamplesPass.

// newClient is what is tested: a client of your own.
func newClient(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &retryafter.Transport{Base: base}, Timeout: 5 * time.Minute}
}

// In a bubble the two minutes pass at once. The script has failed the test
// where the client came early, or more or less often than twice.
func comesBackWhenTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(retryaftertest.NewScript(t,
			retryaftertest.Response{Status: 503, RetryAfter: 2 * time.Minute},
			retryaftertest.Response{Body: "ok"},
		))
		resp, err := client.Get("http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s, want 200 OK", resp.Status)
		}
	})
}

func ExampleScript() { _ = comesBackWhenTold }

// A POST is not sent twice, whatever the server says.
func sendsAPostOnce(t *testing.T) {
	script := retryaftertest.NewScript(t, retryaftertest.Response{Status: 429, RetryAfter: time.Second})
	resp, err := newClient(script).Post("http://example.com/", "text/plain", strings.NewReader("order"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 429 {
		t.Errorf("%s, want 429", resp.Status)
	}
	if a := script.Attempts(); string(a[0].Body) != "order" {
		t.Errorf("sent %q, want the order", a[0].Body)
	}
}

func ExampleNewScript() { _ = sendsAPostOnce }

// Faults, over connections, in a bubble: Serve needs no network.
func survivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := retryaftertest.NewScript(t,
			retryaftertest.Response{Fault: retryaftertest.Reset},
			retryaftertest.Response{Status: 503, RetryAfterDate: time.Minute},
			retryaftertest.Response{Body: "ok"},
		)
		client := newClient(retryaftertest.Serve(t, script))
		req, err := http.NewRequest("PUT", "http://example.com/", strings.NewReader("state"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		script.CheckBodies()
	})
}

func ExampleServe() { _ = survivesAnOutage }

// Over loopback, for a client of which only the URL can be set.
func worksOverLoopback(t *testing.T) {
	script := retryaftertest.NewScript(t, retryaftertest.Response{Status: 404})
	server := httptest.NewServer(script)
	defer server.Close()
	resp, err := newClient(nil).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func ExampleScript_ServeHTTP() { _ = worksOverLoopback }

// A Recorder watches over a client on its way to a server of its own.
func isNeverEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := time.Now().Add(30 * time.Second)
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if wait := time.Until(open); wait > 0 {
				w.Header().Set("Retry-After", fmt.Sprint(wait.Round(time.Second).Seconds()))
				w.WriteHeader(429)
			}
		})
		recorder := &retryaftertest.Recorder{TB: t}
		client := newClient(retryaftertest.Serve(t, recorder.Handler(server)))
		for range 3 {
			resp, err := client.Get("http://example.com/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		recorder.CheckAttempts(4)
	})
}

func ExampleRecorder() { _ = isNeverEarly }

// Two orders to one path are two calls. The key tells them apart by what the
// caller has put into the context, which the script, as the Base, sees too. At a
// server it would be a header field that each call has to itself.
func sendsEachOrderOnce(t *testing.T) {
	type order struct{}
	script := retryaftertest.NewScript(t, retryaftertest.Response{Status: 201, Times: 2})
	script.Key = func(req *http.Request) retryafter.Key {
		return retryafter.NewKey(req.Method, req.URL.Path, fmt.Sprint(req.Context().Value(order{})))
	}
	client := newClient(script)
	for _, name := range []string{"apples", "pears"} {
		ctx := context.WithValue(t.Context(), order{}, name)
		req, err := http.NewRequestWithContext(ctx, "POST", "http://example.com/orders", strings.NewReader(name))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	script.CheckOnce()
	script.CheckBodies()
}

func ExampleRecorder_key() { _ = sendsEachOrderOnce }

func ExampleTestLimiter() {
	// In a test, where t is its *testing.T:
	_ = func(t *testing.T) {
		retryaftertest.TestLimiter(t, func(t *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return &retryafter.Bucket{Capacity: capacity, Rate: rate}
		})
	}
}

// none is a memory that keeps nothing, and fails most of the test.
type none struct{}

func (none) Hold(context.Context, retryafter.Key, time.Duration) error   { return nil }
func (none) Held(context.Context, retryafter.Key) (time.Duration, error) { return 0, nil }

func ExampleTestHolds() {
	// In a test, where t is its *testing.T:
	_ = func(t *testing.T) {
		retryaftertest.TestHolds(t, func(t *testing.T) retryafter.Holds {
			return none{} // a new and empty one
		})
	}
}

func TestTheExamplesPass(t *testing.T) {
	t.Run("comes back when told", comesBackWhenTold)
	t.Run("sends a POST once", sendsAPostOnce)
	t.Run("survives an outage", survivesAnOutage)
	t.Run("works over loopback", worksOverLoopback)
	t.Run("is never early", isNeverEarly)
	t.Run("sends each order once", sendsEachOrderOnce)
}
