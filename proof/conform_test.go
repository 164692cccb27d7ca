package proof

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

// A rate.Limiter keeps to what a Limiter promises, where its floats are exact.
func TestARateLimiterConforms(t *testing.T) {
	retryaftertest.TestLimiter(t, func(_ *testing.T, capacity int64, r retryafter.Rate) retryafter.Limiter {
		return rate.NewLimiter(rate.Every(r.Per/time.Duration(r.Tokens)), int(capacity))
	})
	synctest.Test(t, func(*testing.T) {})
}
