package proof

import (
	"math"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	"pgregory.net/rapid"
)

func TestSpreadStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fraction := rapid.OneOf(rapid.Float64Range(0, 4), rapid.SampledFrom([]float64{0, 0.25, 1, math.SmallestNonzeroFloat64, math.MaxFloat64})).Draw(t, "fraction")
		least := extremes.Draw(t, "least")
		most := max(least, extremes.Draw(t, "most"))
		wait := extremes.Draw(t, "wait")
		// fraction·wait in exact numbers, but that a float64 of wait has 53 bits
		bound := new(big.Rat).SetFloat64(fraction)
		bound.Mul(bound, new(big.Rat).SetInt64(int64(wait)))
		bound.Mul(bound, new(big.Rat).Add(big.NewRat(1, 1), big.NewRat(1, 1<<51)))
		clamp := most
		if bound.Cmp(new(big.Rat).SetInt64(int64(most))) < 0 {
			n := new(big.Int).Quo(bound.Num(), bound.Denom())
			clamp = max(least, time.Duration(n.Int64()))
		}
		j := retryafter.Spread(fraction, least, most)
		for range 20 {
			if d := j(wait, rapid.Bool().Draw(t, "from server")); d < 0 || d > clamp {
				t.Fatalf("Spread(%v, %v, %v) of %v is %v, at most %v", fraction, least, most, wait, d, clamp)
			}
		}
	})
}

func TestSpreadReachesBothOfItsEnds(t *testing.T) {
	j := retryafter.Spread(0.5, 2, 3)
	seen := map[time.Duration]bool{}
	for range 1000 { // (3/4)^1000 to miss one
		seen[j(100, true)] = true
	}
	if len(seen) != 4 {
		t.Errorf("of 0 to 3 ns only %v", seen)
	}
}

// TestClientsDoNotComeBackTogether tells 1000 clients to wait for 60 s.
func TestClientsDoNotComeBackTogether(t *testing.T) {
	herd := func(t *testing.T, jitter retryafter.Jitter, header func() http.Header) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			far := &arrivals{t0: time.Now()}
			far.reply = func(n int) *http.Response {
				if n == 1 {
					return &http.Response{StatusCode: 503, Header: header()}
				}
				return &http.Response{StatusCode: 200}
			}
			tr := &retryafter.Transport{Base: far, Policy: retryafter.Policy{Jitter: jitter}}
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					req, _ := http.NewRequest("GET", "http://server.test", nil)
					if resp, err := tr.RoundTrip(req); err != nil || resp.StatusCode != 200 {
						t.Error(resp, err)
					}
				})
			}
			wg.Wait()
			at = far.at[1000:]
		})
		slices.Sort(at)
		return at
	}
	worst := func(at []time.Duration) (most int) {
		for i, j := 0, 0; j < len(at); j++ {
			for at[j]-at[i] >= 100*time.Millisecond {
				i++
			}
			most = max(most, j-i+1)
		}
		return most
	}
	seconds := func() http.Header { return http.Header{"Retry-After": {"60"}} }
	date := func() http.Header {
		return http.Header{"Retry-After": {time.Now().UTC().Add(time.Minute).Format(http.TimeFormat)}}
	}
	for name, header := range map[string]func() http.Header{"seconds": seconds, "date": date} {
		t.Run(name, func(t *testing.T) {
			at := herd(t, nil, header)
			if at[0] < time.Minute || at[999] > 75*time.Second {
				t.Errorf("came back from %v to %v", at[0], at[999])
			}
			// 6.7 are to be expected in 100 ms; 40 are less likely than 1e-17.
			if n := worst(at); n >= 40 {
				t.Errorf("%d of 1000 in the worst 100 ms", n)
			}
			at = herd(t, retryafter.NoJitter, header)
			if n := worst(at); n != 1000 || at[0] != time.Minute {
				t.Errorf("without jitter %d of 1000 in the worst 100 ms, from %v on", n, at[0])
			}
		})
	}
	t.Run("no delay", func(t *testing.T) {
		at := herd(t, nil, func() http.Header { return nil })
		if at[0] < time.Second || at[999] > 2*time.Second {
			t.Errorf("came back from %v to %v", at[0], at[999])
		}
		if n := worst(at); n >= 250 { // 100 are to be expected
			t.Errorf("%d of 1000 in the worst 100 ms", n)
		}
	})
}
