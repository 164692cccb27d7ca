package hashicorpretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hashicorpretry"
)

// refusing is a server that refuses each path twice before it serves it.
func refusing(t *testing.T) (*httptest.Server, func(path string) int) {
	var mu sync.Mutex
	seen := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen[r.URL.Path]++
		n := seen[r.URL.Path]
		mu.Unlock()
		if n <= 2 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "%s %s %d", r.URL.Path, body, n)
	}))
	t.Cleanup(s.Close)
	return s, func(path string) int {
		mu.Lock()
		defer mu.Unlock()
		return seen[path]
	}
}

func TestConcurrentCallsDoNotMeet(t *testing.T) {
	s, seen := refusing(t)
	c := retryablehttp.NewClient()
	c.Logger = nil
	hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
	defer c.HTTPClient.CloseIdleConnections()
	standard := c.StandardClient()
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			path, body := fmt.Sprint("/", i), strings.Repeat("x", i)
			req, err := http.NewRequest("PUT", s.URL+path, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			var resp *http.Response
			if i%2 == 0 {
				resp, err = standard.Do(req)
			} else if wrapped, wrapErr := retryablehttp.FromRequest(req); wrapErr == nil {
				resp, err = c.Do(wrapped)
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if want := fmt.Sprintf("%s %s 3", path, body); string(text) != want || err != nil {
				t.Errorf("%q, %v; want %q", text, err, want)
			}
			if r := retryafter.ReportOf(resp); r.Attempts != 3 || seen(path) != 3 {
				t.Errorf("%v; the server saw %d", r, seen(path))
			}
		})
	}
	wg.Wait()
}

// TestARequestWithoutABodyMayBeShared: go-retryablehttp does not write to it,
// and neither may what is beneath.
func TestARequestWithoutABodyMayBeShared(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer s.Close()
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient.Timeout = time.Minute
	hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
	defer c.HTTPClient.CloseIdleConnections()
	standard := c.StandardClient()
	req, err := http.NewRequest("GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			resp, err := standard.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if r := retryafter.ReportOf(resp); r.Attempts != 3 || r.Stop != retryafter.AttemptsUsed {
				t.Error(r)
			}
		})
	}
	wg.Wait()
}

// TestADeadlineRefusesTheWaitAtOnce: by the context, and by the Timeout of a
// client above.
func TestADeadlineRefusesTheWaitAtOnce(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, "slow down")
	}))
	defer s.Close()
	c := retryablehttp.NewClient()
	c.Logger = nil
	hashicorpretry.Use(c, &retryafter.Transport{})
	defer c.HTTPClient.CloseIdleConnections()
	standard := c.StandardClient()
	standard.Timeout = 30 * time.Second
	ways := map[string]func() (*http.Response, error){
		"context": func() (*http.Response, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			t.Cleanup(cancel)
			req, err := retryablehttp.NewRequestWithContext(ctx, "GET", s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			return c.Do(req)
		},
		"Timeout": func() (*http.Response, error) { return standard.Get(s.URL) },
	}
	for name, send := range ways {
		t.Run(name, func(t *testing.T) {
			resp, err := send()
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			r := retryafter.ReportOf(resp)
			if r.Stop != retryafter.DeadlineTooNear || r.Decision.Server != time.Minute || r.Waited != 0 {
				t.Error(r)
			}
			if text, err := io.ReadAll(resp.Body); string(text) != "slow down" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

func TestTheTimeoutCutsAStalledBody(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "some")
		w.(http.Flusher).Flush()
		<-release
	}))
	defer s.Close()
	defer close(release)
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient.Timeout = 50 * time.Millisecond
	hashicorpretry.Use(c, &retryafter.Transport{})
	defer c.HTTPClient.CloseIdleConnections()
	resp, err := c.Get(s.URL)
	if errors.Is(err, retryafter.ErrAttemptTimeout) {
		return // so slow a machine is cut before
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if string(text) != "some" {
		t.Errorf("%q", text)
	}
	isTheTimeout(t, err)
}

func TestLeavesNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	s, _ := refusing(t)
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient.Timeout = time.Minute
	hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
	for i := range 50 {
		resp, err := c.Get(fmt.Sprint(s.URL, "/", i))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req, err := retryablehttp.NewRequestWithContext(ctx, "GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled call: %v", err)
		}
	}
	c.HTTPClient.CloseIdleConnections()
	s.Close()
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestTheZeroClientHasConnectionsOfItsOwn: a call that fails closes all idle
// connections of its client.
func TestTheZeroClientHasConnectionsOfItsOwn(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = &script{replies: []reply{{status: 418}}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer s.Close()
	c := &retryablehttp.Client{}
	hashicorpretry.Use(c, &retryafter.Transport{})
	defer c.HTTPClient.CloseIdleConnections()
	resp, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Error(resp.Status)
	}
}
