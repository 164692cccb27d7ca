//go:build unix

package rueidisclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/internal/redisserver"
	"github.com/retryafter-go/retryafter/redisbucket/rueidisclient"
)

var ctx = context.Background()

const patient = 10 * time.Second

func connect(t testing.TB, socket string, change ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	o := rueidis.ClientOption{InitAddress: []string{socket}, DisableCache: true, ForceSingleClient: true,
		PipelineMultiplex: -1, // one connection, so that tests know which
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", addr)
		}}
	for _, f := range change {
		f(&o)
	}
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestContendersStayWithinTheCapacity(t *testing.T) {
	server := redisserver.Test(t, 0)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		b := &redisbucket.Bucket{Client: rueidisclient.New(connect(t, server.Socket)), Capacity: 50, Rate: retryafter.Every(time.Hour), Timeout: patient}
		for range 8 {
			all.Go(func() {
				for range 20 {
					d, err := b.Take(ctx, 1)
					if err != nil {
						t.Error(err)
						return
					}
					if d == 0 {
						admitted.Add(1)
					} else if d > time.Hour || d < 59*time.Minute {
						t.Errorf("wait %v", d)
					}
				}
			})
		}
	}
	all.Wait()
	if admitted.Load() != 50 {
		t.Errorf("admitted %d", admitted.Load())
	}
}

func TestScriptFlushIsNoticedByNobody(t *testing.T) {
	server := redisserver.Test(t, 0)
	c := connect(t, server.Socket)
	b := &redisbucket.Bucket{Client: rueidisclient.New(c), Capacity: 50, Rate: retryafter.Every(time.Hour), Timeout: patient}
	for range 50 {
		if !b.Allow(ctx) {
			t.Fatal("refused")
		}
		if err := c.Do(ctx, c.B().ScriptFlush().Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if b.Allow(ctx) {
		t.Error("admitted by an empty bucket")
	}
}

func TestLostReplyIsShownAndNotChargedTwice(t *testing.T) {
	server := redisserver.Test(t, 0)
	proxy := redisserver.TestProxy(t, server)
	for kind, change := range map[string]func(*rueidis.ClientOption){
		"single":           func(*rueidis.ClientOption) {},
		"always pipelined": func(o *rueidis.ClientOption) { o.AlwaysPipelining = true },
	} {
		t.Run(kind, func(t *testing.T) {
			b := &redisbucket.Bucket{Client: rueidisclient.New(connect(t, proxy.Socket, change)), Key: retryafter.Key(kind), Capacity: 3, Rate: retryafter.Every(time.Hour), Timeout: patient}
			if !b.Allow(ctx) {
				t.Fatal("refused")
			}
			proxy.Lost.Store(0)
			proxy.Lose.Store(1)
			_, err := b.Take(ctx, 1)
			if _, ok := errors.AsType[*redisbucket.UnavailableError](err); !ok || proxy.Lost.Load() != 1 {
				t.Errorf("lost %d replies: %v", proxy.Lost.Load(), err)
			}
			if !b.Allow(ctx) || b.Allow(ctx) {
				t.Error("three takes of three are not three")
			}
		})
	}
}

func TestHungServerCostsItsTimeout(t *testing.T) {
	server := redisserver.Test(t, 0)
	c := rueidisclient.New(connect(t, server.Socket))
	b := &redisbucket.Bucket{Client: c, Capacity: 100, Rate: retryafter.PerMinute(1), Timeout: 50 * time.Millisecond, CoolOff: time.Hour}
	slow := &redisbucket.Bucket{Client: c, Capacity: 100, Rate: retryafter.PerMinute(1), Timeout: time.Second, WhenAway: redisbucket.FailOpen,
		Events: func(e redisbucket.Event) { t.Errorf("%+v", e) }}
	slow.Allow(ctx)
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	gone, cancel := context.WithCancel(ctx)
	time.AfterFunc(10*time.Millisecond, cancel)
	begin := time.Now()
	if _, err := slow.Take(gone, 1); !errors.Is(err, context.Canceled) || time.Since(begin) > patient/2 {
		t.Errorf("cancelled after %v: %v", time.Since(begin), err)
	}
	for range 3 {
		begin := time.Now()
		_, err := b.Take(ctx, 1)
		e, ok := errors.AsType[*redisbucket.UnavailableError](err)
		if took := time.Since(begin); !ok || !e.Timeout() || errors.Is(err, context.DeadlineExceeded) || took > patient/2 {
			t.Errorf("after %v: %v", took, err)
		}
	}
}

func TestErrorRepliesAreServerErrors(t *testing.T) {
	server := redisserver.Test(t, 0)
	c := connect(t, server.Socket)
	b := &redisbucket.Bucket{Client: rueidisclient.New(c), Prefix: "p:", Capacity: 100, Rate: retryafter.PerMinute(1), Timeout: patient}
	b.Allow(ctx)
	names, err := c.Do(ctx, c.B().Keys().Pattern("p:*").Build()).AsStrSlice()
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	c.Do(ctx, c.B().Set().Key(names[0]).Value("x").Build())
	if _, err := b.Take(ctx, 1); !errors.Is(err, redisbucket.ErrCorrupt) {
		t.Error(err)
	}
	g := &redisbucket.Gate{Client: rueidisclient.New(c), Timeout: patient}
	if err := g.Hold(ctx, "k", time.Hour); err != nil {
		t.Error(err)
	}
	if d, err := g.Held(ctx, "k"); err != nil || d < 59*time.Minute {
		t.Error(d, err)
	}
}

func TestClusterKeepsEachKeyInASlot(t *testing.T) {
	servers := redisserver.TestCluster(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{servers[0].Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := &redisbucket.Keyed{Client: rueidisclient.New(c), Capacity: 2, Rate: retryafter.Every(time.Hour), Timeout: patient}
	for i := range 300 {
		b := k.For(retryafter.NewKey("tenant", strconv.Itoa(i)))
		if !b.Allow(ctx) || !b.Allow(ctx) || b.Allow(ctx) {
			t.Fatalf("key %d did not hold two tokens", i)
		}
	}
	sum := 0
	for i, s := range servers {
		size, err := s.Do("DBSIZE")
		n, _ := strconv.Atoi(size)
		if sum += n; err != nil || n < 50 {
			t.Errorf("master %d has %s keys, error %v", i, size, err)
		}
	}
	if sum != 300 {
		t.Errorf("%d keys in the cluster", sum)
	}
}
