//go:build unix

package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/redisbucket/internal/redisserver"
)

func TestScriptIsSentOnceAndThenNamed(t *testing.T) {
	_, rdb, client := serve(t)
	count := &counted{Client: client}
	b := &Bucket{Client: count, Capacity: 100, Rate: retryafter.PerMinute(1), Timeout: patient}
	for range 10 {
		take(t, b, 1)
	}
	if count.sha.Load() != 10 || count.eval.Load() != 1 {
		t.Errorf("%d EVALSHA, %d EVAL", count.sha.Load(), count.eval.Load())
	}
	rdb.ScriptFlush(ctx)
	take(t, b, 1)
	if count.sha.Load() != 11 || count.eval.Load() != 2 {
		t.Errorf("%d EVALSHA, %d EVAL after a flush", count.sha.Load(), count.eval.Load())
	}
	if s := stateOf(t, rdb, NameOf("retryafter:bucket:", "")); s.debt <= 10*s.token || s.debt > 11*s.token {
		t.Errorf("%+v is not what eleven admissions owe", s)
	}
}

func TestScriptFlushIsNoticedByNobody(t *testing.T) {
	_, rdb, client := serve(t)
	count := &counted{Client: client}
	b := &Bucket{Client: count, Capacity: crowd.Capacity, Rate: crowd.Rate, Timeout: patient, Events: func(e Event) { t.Error(e.Err) }}
	take(t, b, 200)
	first := stateOf(t, rdb, NameOf("retryafter:bucket:", ""))
	var admitted atomic.Int64
	admitted.Add(200)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for begin := time.Now(); time.Since(begin) < 500*time.Millisecond; {
				if d, err := b.Take(ctx, 1); err != nil {
					t.Error(err)
					return
				} else if d == 0 {
					admitted.Add(1)
				}
			}
		})
	}
	for range 400 {
		rdb.ScriptFlush(ctx)
		time.Sleep(time.Millisecond)
	}
	all.Wait()
	if count.eval.Load() < 10 {
		t.Errorf("only %d EVAL", count.eval.Load())
	}
	withinEnvelope(t, b, first, stateOf(t, rdb, NameOf("retryafter:bucket:", "")), admitted.Load())
}

func TestKilledServerRefusesAndComesBackFull(t *testing.T) {
	server, rdb, client := serve(t)
	var events []Event
	b := &Bucket{Client: client, Key: "k", Capacity: 3, Rate: retryafter.PerMinute(1), CoolOff: time.Millisecond,
		Events: func(e Event) { events = append(events, e) }}
	take(t, b, 3)
	server.Kill()
	for i := range 5 {
		d, err := b.Take(ctx, 1)
		if !isUnavailable(err) || d != 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait %v, error %v", d, err)
		}
		if len(events) != i+1 || events[i].Admitted || events[i].Key != "k" || events[i].Cost != 1 || !errors.Is(err, events[i].Err) {
			t.Fatalf("events %+v", events)
		}
	}
	if b.Allow(ctx) || !isUnavailable(b.Wait(ctx)) {
		t.Error("admitted without Redis")
	}
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		d, err := b.Take(ctx, 3)
		if err == nil && d == 0 {
			break // its memory is gone: this is the documented price
		}
		if err == nil || time.Since(begin) > 20*time.Second {
			t.Fatalf("wait %v, error %v", d, err)
		}
	}
	if d := take(t, b, 1); d == 0 {
		t.Error("admitted more than one capacity anew")
	}
	_ = rdb
}

func TestHungServerCostsItsTimeoutThenNothing(t *testing.T) {
	for _, minds := range []bool{true, false} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", minds), func(t *testing.T) {
			server := redisserver.Test(t, 0)
			rdb := connect(t, server.Socket, func(o *redis.Options) { o.ContextTimeoutEnabled = minds; o.ReadTimeout = time.Second })
			count := &counted{Client: goredisclient.New(rdb)}
			const timeout = 60 * time.Millisecond
			b := &Bucket{Client: count, Capacity: 100, Rate: retryafter.PerMinute(1), Timeout: timeout, CoolOff: time.Hour}
			slow := &Bucket{Client: count, Capacity: 100, Rate: retryafter.PerMinute(1), Timeout: patient}
			take(t, slow, 1)
			if err := server.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer server.Signal(syscall.SIGCONT)
			for range 3 {
				begin := time.Now()
				_, err := b.Take(ctx, 1)
				e, ok := errors.AsType[*UnavailableError](err)
				if took := time.Since(begin); !ok || e.Resting || !e.Timeout() || errors.Is(err, context.DeadlineExceeded) || took < timeout/2 || took > patient/2 {
					t.Errorf("after %v: %v", took, err)
				}
			}
			asked := count.sha.Load()
			for range 1000 {
				_, err := b.Take(ctx, 1)
				if e, ok := errors.AsType[*UnavailableError](err); !ok || !e.Resting {
					t.Fatal(err)
				}
			}
			if n := count.sha.Load() - asked; n != 0 {
				t.Errorf("asked %d times while Redis should be left alone", n)
			}
		})
	}
}

// The end of the caller's own time is the caller's: it opens nothing, starts no
// local bucket, and is not held against Redis.
func TestCallersOwnEndOpensNothing(t *testing.T) {
	for _, minds := range []bool{true, false} {
		server := redisserver.Test(t, 0)
		rdb := connect(t, server.Socket, func(o *redis.Options) { o.ContextTimeoutEnabled = minds; o.ReadTimeout = time.Second })
		take(t, &Bucket{Client: goredisclient.New(rdb), Key: "k", Capacity: 1, Rate: retryafter.PerMinute(1), Timeout: patient}, 1)
		server.Signal(syscall.SIGSTOP)
		for _, away := range []Away{FailOpen, FailLocal} {
			b := &Bucket{Client: goredisclient.New(rdb), Capacity: 9, Rate: retryafter.PerMinute(1), WhenAway: away, Share: 1, Timeout: time.Second,
				Events: func(e Event) { t.Errorf("%+v", e) }}
			for range 5 {
				short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				if d, err := b.Take(short, 1); !errors.Is(err, context.DeadlineExceeded) || d != 0 {
					t.Errorf("%v: wait %v, error %v", away, d, err)
				}
				cancel()
			}
			why := errors.New("no longer wanted")
			gone, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
			begin := time.Now()
			if err := b.WaitN(gone, 1); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Errorf("%v: %v", away, err)
			}
			if took := time.Since(begin); took > patient/2 {
				t.Errorf("%v: cancelled after %v", away, took)
			}
		}
		server.Signal(syscall.SIGCONT)
	}
}

// universal are the clients of go-redis, all before the socket of a proxy, with
// the repetitions that they have by default.
func universal(t *testing.T, socket string, minds bool) map[string]redis.UniversalClient {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	all := map[string]redis.UniversalClient{
		"Client": redis.NewClient(&redis.Options{Dialer: dial, ContextTimeoutEnabled: minds, MaxRetries: 3}),
		"ClusterClient": redis.NewClusterClient(&redis.ClusterOptions{Dialer: dial, ContextTimeoutEnabled: minds, MaxRedirects: 8, MaxRetries: 3,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
			}}),
		"Ring": redis.NewRing(&redis.RingOptions{Dialer: dial, ContextTimeoutEnabled: minds, MaxRetries: 3, HeartbeatFrequency: time.Hour,
			Addrs: map[string]string{"one": "127.0.0.1:1"}}),
	}
	for _, c := range all {
		t.Cleanup(func() { c.Close() })
	}
	return all
}

func TestLostReplyIsShownAndNotChargedTwice(t *testing.T) {
	server, rdb, _ := serve(t)
	proxy := redisserver.TestProxy(t, server)
	lose := func() {
		proxy.Lost.Store(0)
		proxy.Lose.Store(1)
	}
	for _, minds := range []bool{true, false} {
		for kind, c := range universal(t, proxy.Socket, minds) {
			t.Run(fmt.Sprintf("%s, ContextTimeoutEnabled=%v", kind, minds), func(t *testing.T) {
				// What the test is about: go-redis repeats a script by default.
				incr := redis.NewScript("return redis.call('INCR', KEYS[1])")
				rdb.Del(ctx, "n")
				incr.Run(ctx, c, []string{"n"})
				lose()
				if err := incr.Run(ctx, c, []string{"n"}).Err(); err != nil || rdb.Get(ctx, "n").Val() != "3" || proxy.Lost.Load() != 1 {
					t.Fatalf("the proxy shows nothing: counted to %s, error %v", rdb.Get(ctx, "n").Val(), err)
				}

				b := &Bucket{Client: goredisclient.New(c), Key: retryafter.NewKey(kind, fmt.Sprint(minds)), Capacity: 10, Rate: retryafter.PerMinute(1), Timeout: patient}
				name := NameOf("retryafter:bucket:", b.Key)
				take(t, b, 1)
				lose()
				d, err := b.Take(ctx, 1)
				if !isUnavailable(err) || d != 0 || proxy.Lost.Load() != 1 {
					t.Errorf("lost %d replies: wait %v, error %v", proxy.Lost.Load(), d, err)
				}
				if s := stateOf(t, rdb, name); s.debt > 2*s.token || s.debt <= s.token {
					t.Errorf("%+v is not what two takes owe", s)
				}
				if d := take(t, b, 1); d != 0 {
					t.Errorf("wait %v after a lost reply", d)
				}
				if s := stateOf(t, rdb, name); s.debt > 3*s.token || s.debt <= 2*s.token {
					t.Errorf("%+v is not what three takes owe", s)
				}
			})
		}
	}
}

func TestWithoutRedisThePolicyRules(t *testing.T) {
	dead := goredisclient.New(connect(t, t.TempDir()+"/nobody"))
	for _, away := range []Away{FailClosed, FailLocal, FailOpen} {
		var events []Event
		k := &Keyed{Client: dead, Capacity: 10, Rate: retryafter.Rate{Tokens: 10, Per: time.Hour}, WhenAway: away, Share: 3, Timeout: 20 * time.Millisecond, CoolOff: time.Hour,
			Events: func(e Event) { events = append(events, e) }}
		for _, key := range []retryafter.Key{"a", "b"} {
			b, admitted := k.For(key), 0
			events = events[:0]
			for range 20 {
				d, err := b.Take(ctx, 1)
				e := events[len(events)-1]
				if e.Key != key || e.Cost != 1 || e.Away != away || e.Err == nil || e.Delay != d || e.Admitted != (d == 0 && err == nil) {
					t.Errorf("%v: event %+v of wait %v, error %v", away, e, d, err)
				}
				if isUnavailable(err) != (away == FailClosed) || err != nil && away != FailClosed {
					t.Errorf("%v: %v", away, err)
				}
				if e.Admitted {
					admitted++
				}
				if away == FailLocal && !e.Admitted && (d > 18*time.Minute || d < 17*time.Minute) {
					t.Errorf("told to wait %v for a third of ten an hour", d)
				}
			}
			if want := map[Away]int{FailClosed: 0, FailLocal: 3, FailOpen: 20}[away]; admitted != want || len(events) != 20 {
				t.Errorf("%v: %d admitted, %d events", away, admitted, len(events))
			}
		}
		// What the local bucket never holds is refused, though Redis might hold it.
		if _, err := k.For("c").Take(ctx, 4); isUnavailable(err) != (away != FailOpen) {
			t.Errorf("%v: %v", away, err)
		}
		if _, err := k.For("c").Take(ctx, 11); isUnavailable(err) || err == nil {
			t.Errorf("%v: %v", away, err)
		}
	}
}

// failing answers with err, or with a refusal.
type failing struct {
	err    error
	during func() // happens before the answer
	sent   atomic.Int64
}

func (f *failing) Eval(ctx context.Context, _, _ string, _ []string) (int64, error) {
	panic("not asked for")
}

func (f *failing) EvalSHA(ctx context.Context, _, _ string, _ []string) (int64, error) {
	f.sent.Add(1)
	if f.during != nil {
		f.during()
	}
	return 0, f.err
}

func TestDeadRedisIsAskedOnceACoolOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{err: errors.New("connection refused")}
		b := &Bucket{Client: f, Capacity: 10, Rate: retryafter.PerSecond(1), CoolOff: 5 * time.Second}
		ask := func(n int, want int64) {
			t.Helper()
			before := f.sent.Load()
			var all sync.WaitGroup
			for range n {
				all.Go(func() { b.Take(ctx, 1) })
			}
			all.Wait()
			if got := f.sent.Load() - before; got != want {
				t.Errorf("asked %d times, want %d", got, want)
			}
		}
		ask(1, 1)
		ask(1, 1) // two in a row are no reason
		f.err = nil
		ask(1, 1)
		f.err = errors.New("connection refused")
		ask(1, 1)
		ask(1, 1)
		ask(1, 1)
		ask(50, 0)
		for range 3 {
			time.Sleep(5*time.Second - 1)
			ask(50, 0)
			time.Sleep(time.Nanosecond)
			f.during = func() { time.Sleep(90 * time.Millisecond) } // the others come meanwhile
			ask(50, 1)
			f.during = nil
		}
		// A probe whose caller has gone is not the one.
		time.Sleep(5 * time.Second)
		gone, cancel := context.WithCancel(ctx)
		f.during = cancel
		if _, err := b.Take(gone, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		f.during, f.err = nil, nil
		ask(1, 1)
		ask(50, 50)

		each := &Bucket{Client: &failing{err: errors.New("connection refused")}, Capacity: 10, Rate: retryafter.PerSecond(1), CoolOff: -1}
		for range 9 {
			each.Take(ctx, 1)
		}
		if n := each.Client.(*failing).sent.Load(); n != 9 {
			t.Errorf("without a CoolOff: asked %d times", n)
		}
	})
}

// A connection that ends with the caller's time may say so a moment before the
// caller's context does.
func TestTimeoutAtTheCallersDeadlineIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{os.ErrDeadlineExceeded, context.DeadlineExceeded, fmt.Errorf("read: %w", os.ErrDeadlineExceeded)} {
			events := 0
			b := &Bucket{Client: &failing{err: err}, Capacity: 10, Rate: retryafter.PerSecond(1), WhenAway: FailOpen, Events: func(Event) { events++ }}
			for _, left := range []time.Duration{1, time.Millisecond, 10 * time.Millisecond} {
				short, cancel := context.WithTimeout(ctx, left)
				if d, got := b.Take(short, 1); !errors.Is(got, context.DeadlineExceeded) || d != 0 || isUnavailable(got) || events != 0 {
					t.Errorf("%v with %v left: wait %v, error %v, %d events", err, left, d, got, events)
				}
				cancel()
			}
			// With more time left it is a timeout of Redis's client, be it longer than the Bucket's or not.
			for i, left := range []time.Duration{20 * time.Millisecond, 90 * time.Millisecond, time.Second} {
				long, cancel := context.WithTimeout(ctx, left)
				if d, got := b.Take(long, 1); d != 0 || got != nil || events != i+1 {
					t.Errorf("%v with %v left: wait %v, error %v, %d events", err, left, d, got, events)
				}
				cancel()
			}
		}
		// Who is gone by the time of the answer is not admitted by it.
		gone, leave := context.WithCancel(ctx)
		late := &Bucket{Client: &failing{during: leave}, Capacity: 10, Rate: retryafter.PerSecond(1)}
		if d, err := late.Take(gone, 1); !errors.Is(err, context.Canceled) || d != 0 {
			t.Errorf("wait %v, error %v", d, err)
		}
		// The other way round: an end by the caller in the guise of something else.
		events := 0
		f := &failing{err: errors.New("broken pipe"), during: func() { time.Sleep(10 * time.Millisecond) }}
		b := &Bucket{Client: f, Capacity: 10, Rate: retryafter.PerSecond(1), WhenAway: FailOpen, Events: func(Event) { events++ }}
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := b.Take(short, 1); !errors.Is(err, context.DeadlineExceeded) || events != 0 {
			t.Errorf("error %v, %d events", err, events)
		}
	})
}

func TestServerThatCannotServeIsAwayAndOneThatRefusesIsNot(t *testing.T) {
	for reply, away := range map[ServerError]bool{
		"LOADING Redis is loading the dataset in memory":                true,
		"BUSY Redis is busy running a script.":                          true,
		"READONLY You can't write against a read only replica.":         true,
		"CLUSTERDOWN The cluster is down":                               true,
		"MASTERDOWN Link with MASTER is down":                           true,
		"OOM command not allowed when used memory > 'maxmemory'.":       true,
		"MISCONF Redis is configured to save RDB snapshots":             true,
		"NOREPLICAS Not enough good replicas to write.":                 true,
		"TRYAGAIN Multiple keys request during rehashing of slot":       true,
		"MOVED 1 127.0.0.1:1":                                           true,
		"ERR max number of clients reached":                             true,
		"NOAUTH Authentication required.":                               false,
		"NOPERM this user has no permissions to run the 'evalsha' comm": false,
		"WRONGPASS invalid username-password pair":                      false,
		"WRONGTYPE Operation against a key holding the wrong kind":      false,
		"ERR unknown command 'EVALSHA'":                                 false,
		"CORRUPT the value of the key is not a bucket":                  false,
	} {
		f := &failing{err: reply}
		events := 0
		b := &Bucket{Client: f, Capacity: 10, Rate: retryafter.PerSecond(1), WhenAway: FailOpen, Events: func(Event) { events++ }}
		for range 5 {
			_, err := b.Take(ctx, 1)
			if (err == nil) != away || !away && !errors.Is(err, reply) {
				t.Errorf("%s: %v", reply, err)
			}
		}
		if events != map[bool]int{true: 5}[away] || f.sent.Load() != map[bool]int64{true: 3, false: 5}[away] {
			t.Errorf("%s: %d events, asked %d times", reply, events, f.sent.Load())
		}
	}
}

// The same, told by a server itself, and that it has written nothing.
func TestReplicaAndFullServerAreAway(t *testing.T) {
	_, rdb, client := serve(t)
	b := &Bucket{Client: client, Capacity: 10, Rate: retryafter.PerMinute(1), Timeout: patient, CoolOff: -1}
	take(t, b, 1)
	name := NameOf("retryafter:bucket:", "")
	before := stateOf(t, rdb, name)
	refused := func(code string) {
		t.Helper()
		d, err := b.Take(ctx, 1)
		reply, ok := errors.AsType[ServerError](err)
		if !ok || !isUnavailable(err) || d != 0 || len(reply) < len(code) || string(reply)[:len(code)] != code {
			t.Errorf("wait %v, error %v; want %s", d, err, code)
		}
		if after := stateOf(t, rdb, name); after != before {
			t.Errorf("%s: %+v became %+v", code, before, after)
		}
	}
	set := func(name, value string) {
		t.Helper()
		if err := rdb.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory", "1")
	refused("OOM")
	set("maxmemory", "0")
	if err := rdb.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	refused("READONLY")
	set("replica-serve-stale-data", "no")
	if d, err := b.Take(ctx, 1); !isUnavailable(err) {
		t.Errorf("wait %v, error %v; want MASTERDOWN", d, err)
	}
	rdb.ReplicaOf(ctx, "NO", "ONE")
	take(t, b, 1)
}

// Each loss of the memory is worth one full bucket, no more.
func TestFlushedServerIsAFullBucket(t *testing.T) {
	_, rdb, client := serve(t)
	b := &Bucket{Client: client, Capacity: 10, Rate: retryafter.PerMinute(1), Timeout: patient}
	admitted := 0
	for i := range 299 {
		if i%75 == 74 {
			rdb.FlushAll(ctx)
		}
		if b.Allow(ctx) {
			admitted++
		}
	}
	if admitted < 40 || admitted > 41 {
		t.Errorf("admitted %d of four buckets of ten", admitted)
	}
}
