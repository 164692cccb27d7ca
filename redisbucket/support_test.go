package redisbucket_test

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/redisbucket/internal/redisserver"
)

// patient is a timeout for tests that are not about it, on a busy machine.
const patient = 10 * time.Second

var ctx = context.Background()

// connect returns a client of its own to a unix socket.
func connect(t testing.TB, socket string, change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true, ReadTimeout: patient}
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// serve starts a server and returns a client of go-redis and one of ours.
func serve(t testing.TB, args ...string) (*redisserver.Server, *redis.Client, Client) {
	t.Helper()
	s := redisserver.Test(t, 0, args...)
	c := connect(t, s.Socket)
	return s, c, goredisclient.New(c)
}

// clocked tells scripts a time instead of the server's. The scripts are those
// of production but for the one expression that asks for the time.
type clocked struct {
	Client
	now  int64 // microseconds
	mu   sync.Mutex
	sent int
}

func (c *clocked) variant(text string) string {
	const ask = "redis.call('TIME')"
	if strings.Count(text, ask) != 1 || strings.Count(text, "TIME") != 1 {
		panic("a script asks for the time more than once, or otherwise")
	}
	return strings.Replace(text, ask, "{ARGV[#ARGV - 1], ARGV[#ARGV]}", 1)
}

func (c *clocked) timed(args []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	return append(args[:len(args):len(args)], strconv.FormatInt(c.now/1e6, 10), strconv.FormatInt(c.now%1e6, 10))
}

func (c *clocked) Eval(ctx context.Context, script, key string, args []string) (int64, error) {
	return c.Client.Eval(ctx, c.variant(script), key, c.timed(args))
}

func (c *clocked) EvalSHA(ctx context.Context, digest, key string, args []string) (int64, error) {
	sum := sha1.Sum([]byte(c.variant(Scripts()[digest])))
	return c.Client.EvalSHA(ctx, hex.EncodeToString(sum[:]), key, c.timed(args))
}

// counted counts what is sent.
type counted struct {
	Client
	sha, eval atomic.Int64
}

func (c *counted) Eval(ctx context.Context, script, key string, args []string) (int64, error) {
	c.eval.Add(1)
	return c.Client.Eval(ctx, script, key, args)
}

func (c *counted) EvalSHA(ctx context.Context, digest, key string, args []string) (int64, error) {
	c.sha.Add(1)
	return c.Client.EvalSHA(ctx, digest, key, args)
}

// state is what a bucket's key holds.
type state struct {
	debt, last, token int64 // units, microseconds, units
	expires           int64 // milliseconds
}

func stateOf(t testing.TB, c redis.UniversalClient, name string) state {
	t.Helper()
	value, err := c.Get(ctx, name).Bytes()
	if err != nil || len(value) != 24 {
		t.Fatalf("the value of %s: %q, %v", name, value, err)
	}
	number := func(at int) int64 { return int64(math.Float64frombits(binary.BigEndian.Uint64(value[at:]))) }
	s := state{debt: number(0), last: number(8), token: number(16)}
	if s.expires, err = c.Do(ctx, "PEXPIRETIME", name).Int64(); err != nil {
		ms, err := c.PTTL(ctx, name).Result()
		if err != nil {
			t.Fatal(err)
		}
		s.expires = serverTime(t, c)/1000 + ms.Milliseconds()
	}
	return s
}

// serverTime is the server's, in microseconds.
func serverTime(t testing.TB, c redis.UniversalClient) int64 {
	t.Helper()
	now, err := c.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMicro()
}

func take(t testing.TB, b interface {
	Take(context.Context, int) (time.Duration, error)
}, n int) time.Duration {
	t.Helper()
	d, err := b.Take(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func isUnavailable(err error) bool {
	_, ok := errors.AsType[*UnavailableError](err)
	return ok
}
