package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/retryafter-go/retryafter"
)

// A crowd is very many callers who wait for the same reason.
type crowd struct {
	name string
	wait func() func(context.Context) error // what one caller does until it is cancelled
}

// A sight is what there is to see of a crowd.
type sight struct {
	bytes      float64 // of heap and stack a call
	goroutines float64 // a call
	cancelled  time.Duration
}

var errLeft = errors.New("it did not wait")

// busy answers that an hour's patience is needed.
type busy struct{}

func (busy) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusServiceUnavailable,
		Header:     http.Header{"Retry-After": {"3600"}},
		Body:       http.NoBody,
		Request:    req,
	}, nil
}

func crowds() []crowd {
	patient := retryafter.Policy{MaxWait: -1}
	return []crowd{
		{"bare: a goroutine with a timer", func() func(context.Context) error {
			return func(ctx context.Context) error {
				timer := time.NewTimer(time.Hour)
				defer timer.Stop()
				select {
				case <-timer.C:
					return errLeft
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}},
		{"retryafter, for the server", func() func(context.Context) error {
			return sends(&retryafter.Transport{Base: busy{}, Policy: patient})
		}},
		{"retryafter, at a Gate", func() func(context.Context) error {
			gate := &retryafter.Gate{}
			gate.Hold(context.Background(), retryafter.ByHost(request(context.Background())), time.Now().Add(time.Hour))
			return sends(&retryafter.Transport{Base: busy{}, Policy: patient, Gate: gate})
		}},
		{"retryafter, for a Bucket", func() func(context.Context) error {
			bucket := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Hour), StartEmpty: true}
			return sends(&retryafter.Transport{Base: busy{}, Policy: patient, Limiter: bucket})
		}},
		{"go-retryablehttp, for the server", func() func(context.Context) error {
			c := retryablehttp.NewClient()
			c.HTTPClient = &http.Client{Transport: busy{}}
			c.Logger = nil
			return sends(&retryablehttp.RoundTripper{Client: c})
		}},
	}
}

func request(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stub.example/", nil)
	if err != nil {
		panic(err)
	}
	return req
}

// sends is a call by rt that must not return a response.
func sends(rt http.RoundTripper) func(context.Context) error {
	return func(ctx context.Context) error {
		resp, err := rt.RoundTrip(request(ctx))
		if err == nil {
			resp.Body.Close()
			return fmt.Errorf("%w: status %d", errLeft, resp.StatusCode)
		}
		return err
	}
}

// gather lets n callers wait, looks at them, and sends them away.
func (c crowd) gather(n int) (sight, error) {
	wait := c.wait()
	before, goroutines := memory(), runtime.NumGoroutine()
	all, cancel := context.WithCancel(context.Background())
	defer cancel()
	var here sync.WaitGroup
	failed := make(chan error, n)
	for range n {
		here.Go(func() {
			ctx, cancel := context.WithCancel(all)
			defer cancel()
			if err := wait(ctx); !errors.Is(err, context.Canceled) {
				failed <- err
			}
		})
	}
	settle()
	s := sight{
		bytes:      float64(memory()-before) / float64(n),
		goroutines: float64(runtime.NumGoroutine()-goroutines) / float64(n),
	}
	begin := time.Now()
	cancel()
	here.Wait()
	s.cancelled = time.Since(begin)
	select {
	case err := <-failed:
		return s, err
	default:
	}
	settle()
	if left := runtime.NumGoroutine() - goroutines; left > 0 {
		return s, fmt.Errorf("%d goroutines are left", left)
	}
	return s, nil
}

// settle returns when the process has nothing to do: the goroutines' number is
// steady, and the scheduler gets round to this one at once.
func settle() {
	for last, same := -1, 0; same < 20; {
		begin := time.Now()
		time.Sleep(5 * time.Millisecond)
		if n := runtime.NumGoroutine(); n != last || time.Since(begin) > 20*time.Millisecond {
			last, same = n, 0
			continue
		}
		same++
	}
}

// memory is what heap and stacks take that is in use.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
