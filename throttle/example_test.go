package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/throttle"
)

// An Actor is who authentication found, and what routing found it doing.
type Actor struct{ Tenant, Account, Operation string }

type actorKey struct{}

// authenticate stands for what verifies a credential and finds whose it is.
func authenticate(next http.Handler) http.Handler {
	tokens := map[string]Actor{
		"Bearer a1": {"north", "alice", "export"},
		"Bearer a2": {"north", "alice", "export"}, // another token of hers
		"Bearer b1": {"north", "bob", "export"},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := tokens[r.Header.Get("Authorization")]
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, actor)))
	})
}

// A budget an account: the key is made of what authentication has put in the
// request's context, so neither another address nor another token is another
// budget.
func ExampleHandler() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "data") })

	limited := &throttle.Handler{
		Next:  mux,
		Limit: throttle.Keyed(&retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1)}),
		Key: func(r *http.Request) (retryafter.Key, error) {
			actor, ok := r.Context().Value(actorKey{}).(Actor)
			if !ok {
				return "", errors.New("no actor: the limit must be behind authentication")
			}
			return retryafter.NewKey(actor.Tenant, actor.Account, actor.Operation), nil
		},
		Decided: func(r *http.Request, d throttle.Decision) {
			if d.Err != nil {
				slog.ErrorContext(r.Context(), "request not judged", "status", d.Status, "error", d.Err)
			}
		},
	}
	handler := authenticate(limited)

	for _, token := range []string{"a1", "a2", "b1"} {
		r := httptest.NewRequest("GET", "/export", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%s: %d %q\n", token, w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// a1: 200 ""
	// a2: 429 "60"
	// b1: 200 ""
}

// A budget an address, for what comes before authentication: here behind a
// proxy on the same machine that adds to X-Forwarded-For.
func ExampleClientAddr() {
	clients := &throttle.ClientAddr{
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Field:   "X-Forwarded-For",
	}
	handler := &throttle.Handler{
		Next:  http.NotFoundHandler(),
		Limit: throttle.Keyed(&retryafter.Keyed{Capacity: 1, Rate: retryafter.PerMinute(1)}),
		Key:   clients.Key,
	}
	send := func(peer, forwarded string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", forwarded)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	send("127.0.0.1:50000", "192.0.2.1")
	send("127.0.0.1:50001", "203.0.113.9, 192.0.2.1") // the proxy added 192.0.2.1 to a claim
	send("198.51.100.7:4000", "203.0.113.10")         // not the proxy: the field doesn't count
	send("198.51.100.7:4001", "203.0.113.11")
	// Output:
	// 404
	// 429
	// 404
	// 429
}

// A cost a request: here a page of so many rows costs as many tokens. What
// costs more than a full budget is refused for good.
func ExampleHandler_cost() {
	handler := &throttle.Handler{
		Next:  http.NotFoundHandler(),
		Limit: throttle.Keyed(&retryafter.Keyed{Capacity: 100, Rate: retryafter.PerSecond(10)}),
		Cost: func(r *http.Request) int {
			rows, err := strconv.ParseUint(r.URL.Query().Get("rows"), 10, 31)
			if err != nil {
				return 1 // Next will say what is wrong with it
			}
			return max(1, int(rows))
		},
	}
	for _, rows := range []string{"80", "75", "101"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/?rows="+rows, nil))
		fmt.Printf("%s: %d %q\n", rows, w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 80: 404 ""
	// 75: 429 "6"
	// 101: 403 ""
}

// A store that is shared with other machines fits behind a Handler as a
// function. FailOpen says what an outage means: here reading goes on unlimited
// and writing stops.
func ExampleLimiterFunc() {
	take := func(ctx context.Context, key retryafter.Key, n int) (time.Duration, error) {
		return 0, errors.New("the store is away")
	}
	handler := &throttle.Handler{
		Next: http.NotFoundHandler(),
		Limit: throttle.LimiterFunc(func(ctx context.Context, key retryafter.Key, n int) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return take(ctx, key, n)
		}),
		FailOpen: func(r *http.Request, err error) bool { return r.Method == "GET" },
	}
	for _, method := range []string{"GET", "POST"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		fmt.Println(method, w.Code)
	}
	// Output:
	// GET 404
	// POST 503
}

// A quota that is published, in the fields of the IETF's draft.
func ExampleHandler_policy() {
	handler := &throttle.Handler{
		Next:   http.NotFoundHandler(),
		Limit:  throttle.Keyed(&retryafter.Keyed{Capacity: 100, Rate: retryafter.PerMinute(100)}),
		Policy: "everyone",
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// "everyone";q=100;w=60
	// "everyone";r=99;t=1
}
