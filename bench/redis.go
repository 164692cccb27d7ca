package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/redisbucket/rueidisclient"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
)

// A redisServer listens on a unix socket, and nowhere else, for this process.
type redisServer struct {
	dir string
	cmd *exec.Cmd
	log bytes.Buffer
}

func (s *redisServer) socket() string { return filepath.Join(s.dir, "s") }

func redisPath() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("redis-server is not installed")
	}
	return path, nil
}

func needsRedis() error {
	_, err := redisPath()
	return err
}

func startRedis() (*redisServer, error) {
	path, err := redisPath()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "retryafter-bench")
	if err != nil {
		return nil, err
	}
	s := &redisServer{dir: dir}
	s.cmd = exec.Command(path, "--port", "0", "--unixsocket", s.socket(), "--unixsocketperm", "700",
		"--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", s.socket())
		if err == nil {
			return s, c.Close()
		}
		if time.Now().After(end) {
			s.close()
			return nil, fmt.Errorf("redis-server did not start: %w\n%s", err, s.log.String())
		}
	}
}

func (s *redisServer) close() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// shared is the server of all rows of a table, while there are any.
var shared struct {
	sync.Mutex
	*redisServer
	users int
}

func useRedis() (socket string, err error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		if shared.redisServer, err = startRedis(); err != nil {
			return "", err
		}
	}
	shared.users++
	return shared.socket(), nil
}

func leaveRedis() {
	shared.Lock()
	defer shared.Unlock()
	if shared.users--; shared.users == 0 {
		shared.close()
	}
}

// A redisPeer is a way to take from budgets that Redis keeps, or a script that
// admits everything.
type redisPeer struct {
	name string
	base bool // the peers below are set against it
	open bool // it admits everything

	// start gives what takes a token of key's budget, and what ends it all.
	start func(socket string, q quota) (taker func(key string) take, stop func(), err error)
}

// A take reports whether a token was there.
type take func() (bool, error)

var background = context.Background()

func redisPeers() []redisPeer {
	const (
		nothing = "return 0"

		// least is what a bucket can't do without that counts by the server's
		// clock and is gone when it is full.
		least = `redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], '012345678901234567890123', 'PX', 3600000)
return 0`
	)
	goredis := func(client string, o redis.Options) func(name string, taker func(redis.UniversalClient, quota, string) take) redisPeer {
		return func(name string, taker func(redis.UniversalClient, quota, string) take) redisPeer {
			return redisPeer{name: client + ": " + name, start: func(socket string, q quota) (func(string) take, func(), error) {
				o := o
				o.Network, o.Addr, o.PoolSize = "unix", socket, 64
				c := redis.NewClient(&o)
				return func(key string) take { return taker(c, q, key) }, func() { c.Close() }, nil
			}}
		}
	}
	runs := func(script string) func(redis.UniversalClient, quota, string) take {
		return func(c redis.UniversalClient, _ quota, key string) take {
			s, keys := redis.NewScript(script), []string{key}
			return func() (bool, error) {
				err := s.Run(background, c, keys).Err()
				return err == nil, err
			}
		}
	}
	rueidisRuns := func(script string) func(rueidis.Client, quota, string) take {
		return func(c rueidis.Client, _ quota, key string) take {
			s, keys := rueidis.NewLuaScript(script), []string{key}
			return func() (bool, error) {
				err := s.Exec(background, c, keys, nil).Error()
				return err == nil, err
			}
		}
	}
	bucket := func(c redis.UniversalClient, q quota, key string) take {
		return takeOf(goredisclient.New(c), q, key)
	}
	minding := goredis("go-redis", redis.Options{ContextTimeoutEnabled: true})
	plain := goredis("go-redis as it comes", redis.Options{})
	return []redisPeer{
		asBasePeer(minding("empty script", runs(nothing))),
		asOpen(minding("script of TIME, GET and SET", runs(least))),
		minding("redisbucket", bucket),
		minding("redis_rate", func(c redis.UniversalClient, q quota, key string) take {
			l, limit := redis_rate.NewLimiter(c), redis_rate.Limit{Rate: 1, Burst: q.capacity, Period: q.every}
			return func() (bool, error) {
				r, err := l.Allow(background, key, limit)
				return err == nil && r.Allowed == 1, err
			}
		}),
		minding("throttled", func(c redis.UniversalClient, q quota, key string) take {
			store, err := goredisstore.NewCtx(c, "throttled:")
			if err != nil {
				panic(err)
			}
			l := gcraOn(store, q)
			return func() (bool, error) {
				limited, _, err := l.RateLimitCtx(background, key, 1)
				return err == nil && !limited, err
			}
		}),
		asBasePeer(plain("empty script", runs(nothing))),
		plain("redisbucket", bucket),
		asBasePeer(rueidisPeer("empty script", rueidisRuns(nothing))),
		asOpen(rueidisPeer("script of TIME, GET and SET", rueidisRuns(least))),
		rueidisPeer("redisbucket", func(c rueidis.Client, q quota, key string) take {
			return takeOf(rueidisclient.New(c), q, key)
		}),
	}
}

func asBasePeer(p redisPeer) redisPeer {
	p.base = true
	return asOpen(p)
}

func asOpen(p redisPeer) redisPeer {
	p.open = true
	return p
}

func rueidisPeer(name string, taker func(rueidis.Client, quota, string) take) redisPeer {
	return redisPeer{name: "rueidis: " + name, start: func(socket string, q quota) (func(string) take, func(), error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress:  []string{socket},
			DisableCache: true,
			DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return d.DialContext(ctx, "unix", addr)
			},
		})
		if err != nil {
			return nil, nil, err
		}
		return func(key string) take { return taker(c, q, key) }, c.Close, nil
	}}
}

// takeOf is a take of a Bucket that gives Redis time, on a busy machine too.
func takeOf(c redisbucket.Client, q quota, key string) take {
	b := &redisbucket.Bucket{
		Client:   c,
		Key:      retryafter.Key(key),
		Capacity: int64(q.capacity),
		Rate:     retryafter.Every(q.every),
		Timeout:  10 * time.Second,
	}
	return func() (bool, error) {
		delay, err := b.Take(background, 1)
		return err == nil && delay == 0, err
	}
}

// redisWork is the work of so many goroutines, each of which takes of a key of
// its own.
func redisWork(p redisPeer, q quota, goroutines int) work {
	failed := func(err error) work { return work{do: func(int) error { return err }} }
	socket, err := useRedis()
	if err != nil {
		return failed(err)
	}
	taker, stop, err := p.start(socket, q)
	if err != nil {
		leaveRedis()
		return failed(err)
	}
	takes := make([]take, goroutines)
	for g := range takes {
		takes[g] = taker(fmt.Sprintf("%s %d", p.name, g))
	}
	return work{
		do: func(n int) error {
			errs := make([]error, len(takes))
			var wg sync.WaitGroup
			for g, take := range takes {
				wg.Go(func() {
					for range (n + g) / len(takes) {
						ok, err := take()
						if err == nil && !ok {
							err = errRefused
						}
						if err != nil {
							errs[g] = err
							return
						}
					}
				})
			}
			wg.Wait()
			return errors.Join(errs...)
		},
		stop: func() {
			stop()
			leaveRedis()
		},
	}
}

// sharedQuota is a bucket that a benchmark does not drain. In scripts numbers are
// doubles, so it holds less than the others do.
var sharedQuota = quota{1e9, time.Millisecond}

func redisTables() []table {
	var all []table
	for _, size := range []struct {
		n   int
		who string
	}{
		{1, "one goroutine"},
		{16, "16 goroutines, each from a budget of its own"},
		{64, "64 goroutines, each from a budget of its own"},
	} {
		t := table{
			name: fmt.Sprintf("redis-%d", size.n),
			about: "Takes by " + size.who + ", through a redis-server on a unix socket of this machine; the ratio is to the takes of an empty script through the same client. " +
				"B and allocations are those of this process.",
			aim: aim{
				text:  "redisbucket at least 0.7",
				about: ends("redisbucket"),
				met:   func(l, _ line, _ []line) bool { return l.figure("ratio") >= 0.7 },
			},
			unit:  thousands,
			needs: needsRedis,
		}
		for _, p := range redisPeers() {
			t.rows = append(t.rows, row{name: p.name, base: p.base, start: func() work { return redisWork(p, sharedQuota, size.n) }})
		}
		all = append(all, t)
	}
	return all
}
