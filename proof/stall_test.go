package proof

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"pgregory.net/rapid"
)

// A stalledBody gives nothing until it is closed.
type stalledBody struct {
	closed chan struct{}
	n      int
}

func (b *stalledBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, io.ErrClosedPipe
}

func (b *stalledBody) Close() error {
	if b.n++; b.n == 1 {
		close(b.closed)
	}
	return nil
}

// TestAStalledBodyIsLetGo makes the bodies of refusals stall. The bubble
// would not end if anything were left to wait for them.
func TestAStalledBodyIsLetGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wait := rapid.SampledFrom([]time.Duration{0, 1, 20 * time.Millisecond, 50 * time.Millisecond, 51 * time.Millisecond, time.Second}).Draw(t, "wait")
		length := rapid.SampledFrom([]int64{-1, 10, 64 << 10, 64<<10 + 1, 1 << 40}).Draw(t, "length")
		gone := rapid.SampledFrom([]time.Duration{0, 0, 10*time.Millisecond + 1}).Draw(t, "cancelled")
		timeout := rapid.SampledFrom([]time.Duration{0, time.Second + 1}).Draw(t, "attempt timeout")
		const patience = 50 * time.Millisecond // for a body to end, by rule 13's promise to let go
		rapid.SyncTest(t, func(t *rapid.T) {
			t0 := time.Now()
			var at []time.Duration
			var bodies []*stalledBody
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if gone > 0 {
				defer time.AfterFunc(gone, cancel).Stop()
			}
			tr := &retryafter.Transport{
				AttemptTimeout: timeout,
				Base: roundTripper(func(req *http.Request) (*http.Response, error) {
					at = append(at, time.Since(t0))
					if len(at) > 2 {
						return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
					}
					b := &stalledBody{closed: make(chan struct{})}
					bodies = append(bodies, b)
					return &http.Response{StatusCode: 503, Body: b, ContentLength: length, Request: req}, nil
				}),
				Policy: retryafter.Policy{Jitter: retryafter.NoJitter, Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(wait) }},
			}
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://server.test", nil)
			resp, err := tr.RoundTrip(req)
			if (resp == nil) == (err == nil) {
				t.Fatalf("response %v and error %v", resp, err)
			}
			for i, b := range bodies {
				if b.n != 1 {
					t.Errorf("body %d was closed %d times", i+1, b.n)
				}
			}
			for i := 1; i < len(at); i++ {
				if got := at[i] - at[i-1]; got < wait || got > max(wait, patience) {
					t.Errorf("attempt %d left after %v, the wait is %v", i+1, got, wait)
				}
			}
			if end := time.Since(t0); gone > 0 && end > gone+patience {
				t.Errorf("ended at %v, cancelled at %v", end, gone)
			}
		})
	})
}

func TestAnEndlessBodyIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, read := 0, 0
		tr := &retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			if n++; n > 1 {
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: 503, ContentLength: -1, Body: io.NopCloser(reader(func(p []byte) (int, error) {
				read += len(p)
				return len(p), nil
			}))}, nil
		})}
		req, _ := http.NewRequest("GET", "http://server.test", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		if read < 1 || read > 64<<10 {
			t.Errorf("read %d bytes of a body without end", read)
		}
	})
}

type reader func([]byte) (int, error)

func (f reader) Read(p []byte) (int, error) { return f(p) }
