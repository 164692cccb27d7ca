package clients

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stripe/stripe-go/v84"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hints"
)

func newStripe(key string, t *retryafter.Transport) *stripe.Client {
	t.Retry = hints.ShouldRetry("Stripe-Should-Retry", t.Retry)
	return stripe.NewClient(key, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: t, Timeout: time.Minute},
		MaxNetworkRetries: stripe.Int64(0), // nil would mean 2
	})))
}

const customer = `{"id":"cus_1","object":"customer"}`

func createCustomer(t *testing.T, f *fake, key *string) error {
	t.Helper()
	params := &stripe.CustomerCreateParams{Name: stripe.String("n")}
	params.IdempotencyKey = key
	c, err := newStripe("sk_test_1", &retryafter.Transport{Base: f}).V1Customers.Create(t.Context(), params)
	if err == nil && c.ID != "cus_1" {
		t.Errorf("%v", c)
	}
	return err
}

func TestStripeWritesAreRepeatedUnderOneKey(t *testing.T) {
	for _, key := range []*string{nil, new("mine")} {
		for _, status := range []int{409, 429, 500, 503} {
			synctest.Test(t, func(t *testing.T) {
				f := answers(reply(status, `{"error":{"type":"api_error"}}`, "Retry-After", "5"), reply(200, customer))
				if err := createCustomer(t, f, key); err != nil {
					t.Fatal(err)
				}
				got := f.want(t, 2)
				wantWait(t, got, 2, 5*time.Second)
				f.wantBodies(t, 2, "name=n")
				a, b := got[0].Header.Get("Idempotency-Key"), got[1].Header.Get("Idempotency-Key")
				if a == "" || a != b || key != nil && a != *key {
					t.Errorf("keys %q and %q", a, b)
				}
			})
		}
	}
}

func TestStripeCallsHaveAKeyEach(t *testing.T) {
	f := answers(reply(200, customer))
	for range 2 {
		if err := createCustomer(t, f, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.want(t, 2); got[0].Header.Get("Idempotency-Key") == got[1].Header.Get("Idempotency-Key") {
		t.Error("two calls under one key")
	}
}

func TestStripesOwnRetriesMultiplyTheAttemptsUnderOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]int{}
		c := stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
			HTTPClient: &http.Client{Transport: &retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				req.Body.Close()
				keys[req.Header.Get("Idempotency-Key")]++
				return nil, &timeout{}
			})}},
			MaxNetworkRetries: stripe.Int64(2),
			LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		})))
		if _, err := c.V1Customers.Create(t.Context(), &stripe.CustomerCreateParams{}); err == nil {
			t.Fatal("no error")
		}
		if len(keys) != 1 || slices.Collect(maps.Values(keys))[0] != 9 {
			t.Errorf("requests by key: %v", keys)
		}
	})
}

func TestStripesWordHolds(t *testing.T) {
	for _, c := range []struct {
		status int
		word   string
		want   int
	}{
		{500, "false", 1},
		{400, "true", 3},
		{500, "", 3},
		{402, "", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := answers(reply(c.status, `{"error":{"type":"api_error"}}`, "Stripe-Should-Retry", c.word))
			if err := createCustomer(t, f, nil); err == nil {
				t.Fatal("no error")
			}
			f.want(t, c.want)
		})
	}
}

func TestStripeRepeatsNothingByItselfWhereThatIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		c := newStripe("sk_test_1", &retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			sent++
			return nil, &timeout{}
		})})
		if _, err := c.V1Customers.Retrieve(t.Context(), "cus_1", nil); err == nil {
			t.Fatal("no error")
		}
		if sent != 3 {
			t.Errorf("%d requests", sent)
		}
	})
}

func TestStripeReadsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(429, `{"error":{"type":"invalid_request_error"}}`, "Retry-After", "5"), reply(200, customer))
		if _, err := newStripe("sk_test_1", &retryafter.Transport{Base: f}).V1Customers.Retrieve(t.Context(), "cus_1", nil); err != nil {
			t.Fatal(err)
		}
		wantWait(t, f.want(t, 2), 2, 5*time.Second)
	})
}
