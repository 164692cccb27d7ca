package main

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A store keeps something a key.
type store struct {
	name string
	make func(keys int) (put, look func(retryafter.Key))
}

// A cost is what a full store costs.
type cost struct {
	bytes, fill, look, unknown float64
}

func stores() []store {
	ctx := context.Background()
	return []store{
		{"Gate, all held", func(keys int) (put, look func(retryafter.Key)) {
			g := &retryafter.Gate{MaxKeys: keys}
			until := time.Now().Add(time.Hour)
			return func(k retryafter.Key) { g.Hold(ctx, k, until) }, func(k retryafter.Key) { g.Held(ctx, k) }
		}},
		{"Keyed, all with debt", func(keys int) (put, look func(retryafter.Key)) {
			b := &retryafter.Keyed{Capacity: 10, Rate: retryafter.Every(time.Hour), MaxKeys: keys + keys/4}
			take := func(k retryafter.Key) { b.For(k).Allow() }
			return take, take
		}},
		{"RetryBudget, all spent from", func(keys int) (put, look func(retryafter.Key)) {
			b := &retryafter.RetryBudget{MaxKeys: keys}
			return func(k retryafter.Key) { b.Withdraw(k) }, func(k retryafter.Key) { b.Left(k) }
		}},
	}
}

// fill fills s with n keys, of which it counts the strings too, and looks at
// some of them.
func (s store) fill(n int) cost {
	key := func(i int) retryafter.Key { return retryafter.Key("host" + strconv.Itoa(i)) }
	before := memory()
	put, look := s.make(n)
	begin := time.Now()
	for i := range n {
		put(key(i))
	}
	c := cost{fill: nanoseconds(begin, n)}
	c.bytes = float64(memory()-before) / float64(n)
	const looks = 1 << 18
	known, unknown := make([]retryafter.Key, looks), make([]retryafter.Key, looks)
	for i := range known {
		known[i] = key(i * 7919 % n)
		unknown[i] = key(n + i)
	}
	begin = time.Now()
	for _, k := range known {
		look(k)
	}
	c.look = nanoseconds(begin, looks)
	begin = time.Now()
	for _, k := range unknown {
		look(k)
	}
	c.unknown = nanoseconds(begin, looks)
	runtime.KeepAlive(put)
	return c
}

func nanoseconds(begin time.Time, n int) float64 {
	return float64(time.Since(begin).Nanoseconds()) / float64(n)
}
