package redisbucket_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/redisbucket/internal/redisserver"
)

func cluster(t *testing.T) (masters []*redis.Client, addrs []string) {
	t.Helper()
	for _, s := range redisserver.TestCluster(t) {
		masters = append(masters, connect(t, s.Socket))
		addrs = append(addrs, s.Addr())
	}
	return masters, addrs
}

func TestClusterKeepsEachKeyInASlot(t *testing.T) {
	masters, addrs := cluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs[:1], ContextTimeoutEnabled: true})
	defer rdb.Close()
	client := goredisclient.New(rdb)
	k := &Keyed{Client: client, Prefix: "app:", Capacity: 3, Rate: retryafter.Rate{Tokens: 3, Per: time.Hour}, Timeout: patient}
	const keys = 1000
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := g; i < keys; i += 8 {
				b := k.For(retryafter.NewKey("tenant", fmt.Sprint(i)))
				for j := range 4 {
					d, err := b.Take(ctx, 1)
					if err != nil || (d == 0) != (j < 3) {
						t.Errorf("key %d, take %d: wait %v, error %v", i, j, d, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for i, m := range masters {
		n := int(m.DBSize(ctx).Val())
		sum += n
		if math.Abs(float64(n)-keys/3) > keys/10 {
			t.Errorf("master %d has %d of %d keys", i, n, keys)
		}
	}
	if sum != keys {
		t.Errorf("%d keys in the cluster", sum)
	}
	for i := range 20 {
		name := NameOf("app:", retryafter.NewKey("tenant", fmt.Sprint(i)))
		tag := strings.TrimSuffix(strings.TrimPrefix(name, "app:{"), "}")
		if a, b := masters[0].ClusterKeySlot(ctx, name).Val(), masters[0].ClusterKeySlot(ctx, tag).Val(); a != b {
			t.Errorf("%s is in slot %d, what is in its braces in %d", name, a, b)
		}
	}
}

// A key that has moved is found where it is, and its bucket with it.
func TestClusterRedirectsAreFollowed(t *testing.T) {
	masters, addrs := cluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true,
		// A client with a map of its own, that is wrong: all is at the first.
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addrs[0]}}}}, nil
		}})
	defer rdb.Close()
	k := &Keyed{Client: goredisclient.New(rdb), Capacity: 1, Rate: retryafter.PerMinute(1), Timeout: patient}
	for i := range 30 {
		b := k.For(retryafter.NewKey(fmt.Sprint(i)))
		if !b.Allow(ctx) || b.Allow(ctx) {
			t.Errorf("key %d is wrong", i)
		}
	}
	for i, m := range masters {
		if m.DBSize(ctx).Val() == 0 {
			t.Errorf("master %d has no key", i)
		}
	}
}
