package main

import (
	"errors"
	"sync"
	"time"

	"github.com/retryafter-go/retryafter"
	"golang.org/x/time/rate"
)

var (
	errRefused  = errors.New("refused where it should admit")
	errAdmitted = errors.New("admitted where it should refuse")
)

// clock is the least that a bucket with a clock of its own can do.
func clock(spread func(func(int) error) func(int) error) row {
	return row{name: "time.Since under a mutex", base: true, start: func() work {
		var mu sync.Mutex
		base := time.Now()
		var last time.Duration
		return work{do: spread(func(n int) error {
			for range n {
				mu.Lock()
				last = time.Since(base)
				mu.Unlock()
			}
			mu.Lock()
			sinkDuration = last
			mu.Unlock()
			return nil
		})}
	}}
}

// asks is the work of asking allow, which always admits, or never. A limiter
// that never admits does so once, at first.
func asks(allow func() bool, admits bool, spread func(func(int) error) func(int) error) work {
	if !admits {
		allow()
	}
	return work{do: spread(func(n int) error {
		admitted := 0
		for range n {
			if allow() {
				admitted++
			}
		}
		switch {
		case admits && admitted < n:
			return errRefused
		case !admits && admitted > 0:
			return errAdmitted
		}
		return nil
	})}
}

// What admits is far from empty, and far from filling up between two calls, so
// that each call has its arithmetic to do.
const (
	perSecond = 1000
	plenty    = 1 << 40
)

func bucketRows(spread func(func(int) error) func(int) error) []row {
	return []row{
		clock(spread),
		{name: "admitting: Bucket", start: func() work {
			b := &retryafter.Bucket{Capacity: plenty, Rate: retryafter.PerSecond(perSecond)}
			return asks(b.Allow, true, spread)
		}},
		{name: "admitting: x/time/rate", start: func() work {
			return asks(rate.NewLimiter(perSecond, plenty).Allow, true, spread)
		}},
		{name: "refusing: Bucket", start: func() work {
			b := &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(24 * time.Hour)}
			return asks(b.Allow, false, spread)
		}},
		{name: "refusing: x/time/rate", start: func() work {
			return asks(rate.NewLimiter(rate.Every(24*time.Hour), 1).Allow, false, spread)
		}},
	}
}

var bucketAim = aim{
	text:  "Bucket at most 1.15 times the clock",
	about: ends("Bucket"),
	met:   func(l, _ line, _ []line) bool { return l.figure("ratio") <= 1.15 },
}

func bucket() table {
	return table{
		name:  "bucket",
		procs: 1,
		about: "One token, from one goroutine.",
		aim:   bucketAim,
		unit:  nanoseconds,
		rows:  bucketRows(func(do func(int) error) func(int) error { return do }),
	}
}

func bucketParallel() table {
	return table{
		name:  "bucket-parallel",
		about: "One token of a bucket that GOMAXPROCS goroutines share; the time is that from one token to the next, whoever takes it.",
		aim:   bucketAim,
		unit:  nanoseconds,
		rows:  bucketRows(parallel),
	}
}
