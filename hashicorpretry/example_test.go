package hashicorpretry_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hashicorpretry"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, "come back in an hour")
	}))
	defer server.Close()

	client := retryablehttp.NewClient()
	client.Logger = nil
	hashicorpretry.Use(client, &retryafter.Transport{
		Policy: retryafter.Policy{MaxAttempts: 5, MaxWait: 30 * time.Second},
	})

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err) // why it gave up, where there is no response to hand back
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	report := retryafter.ReportOf(resp)
	fmt.Println(resp.Status, report.Stop, report.Decision.Server)
	fmt.Printf("%s\n", body)
	// Output:
	// 429 Too Many Requests WaitTooLong 1h0m0s
	// come back in an hour
}
