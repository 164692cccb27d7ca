package retryafter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A Jitter is an extra on top of a wait: it keeps clients that were told the
// same delay from coming back in the same instant. It gets the wait without
// jitter and whether the server named it (else the local backoff did), and
// returns what to add; a negative result counts as 0. It is called once a
// decision, from many goroutines at once.
type Jitter func(wait time.Duration, fromServer bool) time.Duration

// NoJitter adds nothing. Clients that share it and a server's delay come back
// together; it is for tests and for single clients.
func NoJitter(time.Duration, bool) time.Duration { return 0 }

// Spread returns a Jitter that is uniform in [0, x], where x is fraction of
// the wait, at least least and at most most. It panics where fraction is
// negative, infinite or not a number, where least is negative, and where most
// is less than least.
func Spread(fraction float64, least, most time.Duration) Jitter {
	switch {
	case !(fraction >= 0) || math.IsInf(fraction, 1):
		panic(fmt.Sprintf("retryafter: Spread: fraction %v is not a finite number of at least 0", fraction))
	case least < 0:
		panic(fmt.Sprintf("retryafter: Spread: least %v is negative", least))
	case most < least:
		panic(fmt.Sprintf("retryafter: Spread: most %v is less than least %v", most, least))
	}
	return func(wait time.Duration, _ bool) time.Duration {
		x := most
		// Every float64 below 2^63 fits; the comparison is false for those that don't.
		if f := fraction * float64(wait); f < math.MaxInt64 {
			x = min(max(time.Duration(f), least), most)
		}
		return time.Duration(rand.Uint64N(uint64(x) + 1))
	}
}

var (
	serverJitter = Spread(0.25, time.Second, 30*time.Second)
	localJitter  = Spread(1, 0, math.MaxInt64)
)

// defaultJitter serves a Policy without one.
func defaultJitter(wait time.Duration, fromServer bool) time.Duration {
	if fromServer {
		return serverJitter(wait, true)
	}
	return localJitter(wait, false)
}
