package proof_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/retryafter-go/retryafter"
	"golang.org/x/time/rate"
)

// A Limiter of golang.org/x/time/rate serves as it is. It is asked before
// every attempt, so that retries are counted too.
func Example_timeRate() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "welcome")
	}))
	defer server.Close()

	client := &http.Client{
		Transport: &retryafter.Transport{
			Limiter: rate.NewLimiter(rate.Every(10*time.Millisecond), 1),
		},
		Timeout: time.Minute,
	}
	begin := time.Now()
	for range 3 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	fmt.Println(time.Since(begin) >= 20*time.Millisecond)
	client.CloseIdleConnections()
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// true
}
