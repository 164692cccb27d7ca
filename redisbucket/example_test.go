package redisbucket_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
)

// All machines together call each host at most ten times a second, and wait
// together where one of them was told to.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true, DialerRetries: 1})
	shared := goredisclient.New(rdb)
	client := &http.Client{
		Transport: &retryafter.Transport{
			Limiter: &redisbucket.Keyed{Client: shared, Capacity: 10, Rate: retryafter.PerSecond(10)},
			Gate:    &retryafter.Gate{Shared: &redisbucket.Gate{Client: shared}},
		},
		Timeout: time.Minute,
	}
	client.Get("https://api.example.com/")
}

// A server refuses what a tenant sends beyond 600 an hour, whichever machine it
// reaches, and says when to come back.
func ExampleKeyedBucket_Take() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true, DialerRetries: 1})
	tenants := &redisbucket.Keyed{
		Client:   goredisclient.New(rdb),
		Prefix:   "api:",
		Capacity: 60,
		Rate:     retryafter.Rate{Tokens: 600, Per: time.Hour},
	}
	var tenantOf func(*http.Request) string // after authentication
	http.HandleFunc("/reports", func(w http.ResponseWriter, r *http.Request) {
		delay, err := tenants.For(retryafter.NewKey("tenant", tenantOf(r))).Take(r.Context(), 1)
		switch {
		case err != nil:
			http.Error(w, "the limiter is not available", http.StatusServiceUnavailable)
		case delay > 0:
			w.Header().Set("Retry-After", fmt.Sprint(int64((delay+time.Second-1)/time.Second)))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		}
	})
}

// While Redis is away each of eight machines goes on with an eighth.
func ExampleBucket_whenAway() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true, DialerRetries: 1})
	bucket := &redisbucket.Bucket{
		Client:   goredisclient.New(rdb),
		Key:      "reports",
		Capacity: 80,
		Rate:     retryafter.PerMinute(400),
		WhenAway: redisbucket.FailLocal,
		Share:    8,
		Events: func(e redisbucket.Event) {
			slog.Warn("decided without Redis", "admitted", e.Admitted, "error", e.Err)
		},
	}
	client := &http.Client{Transport: &retryafter.Transport{Limiter: bucket}}
	client.Get("https://api.example.com/reports")
}
