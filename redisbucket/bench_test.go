package redisbucket_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/redisbucket/internal/redisserver"
)

// BenchmarkTake compares takes with an empty script through the same client.
func BenchmarkTake(b *testing.B) {
	server := redisserver.Test(b, 0)
	ctx := context.Background()
	for _, minds := range []bool{false, true} {
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, PoolSize: 64, ContextTimeoutEnabled: minds})
		defer rdb.Close()
		client := goredisclient.New(rdb)
		empty := redis.NewScript("return 0")
		bucket := &Bucket{Client: client, Capacity: 1e9, Rate: retryafter.PerSecond(1e6), Timeout: 5 * time.Second}
		denied := &Bucket{Client: client, Capacity: 1, Key: "denied", Rate: retryafter.Every(time.Hour), Timeout: 5 * time.Second}
		denied.Allow(ctx)
		for _, n := range []int{1, 16, 64} {
			for _, way := range []struct {
				name string
				do   func() error
			}{
				{"empty", func() error { return empty.Run(ctx, rdb, []string{"k"}).Err() }},
				{"take", func() error { _, err := bucket.Take(ctx, 1); return err }},
				{"denial", func() error { _, err := denied.Take(ctx, 1); return err }},
			} {
				b.Run(fmt.Sprintf("deadlines=%v/%d/%s", minds, n, way.name), func(b *testing.B) {
					b.ReportAllocs()
					var all sync.WaitGroup
					for g := range n {
						all.Go(func() {
							for range (b.N + g) / n {
								if err := way.do(); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					all.Wait()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
				})
			}
		}
	}
}
