package redisbucket_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
)

var _ retryafter.Limiter = (*Bucket)(nil)

// crowd is a bucket that many take from at once. It is full after 8 s, so its
// key is there while the test looks at it, on a busy machine too.
var crowd = Bucket{Key: "crowd", Capacity: 800, Rate: retryafter.PerSecond(100), Timeout: patient}

func TestMain(m *testing.M) {
	if socket := os.Getenv("REDISBUCKET_CHILD"); socket != "" {
		child(socket)
		return
	}
	redis.SetLogger(silent{})
	os.Exit(m.Run())
}

// silent keeps go-redis from printing what tests provoke.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// child takes from the crowd's bucket by 16 connections until its input ends,
// and prints how many tokens it got.
func child(socket string) {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, PoolSize: 16, ContextTimeoutEnabled: true})
	b := &Bucket{Client: goredisclient.New(rdb), Key: crowd.Key, Capacity: crowd.Capacity, Rate: crowd.Rate, Timeout: patient}
	var stop atomic.Bool
	go func() {
		bufio.NewReader(os.Stdin).ReadByte()
		stop.Store(true)
	}()
	var all sync.WaitGroup
	var got atomic.Int64
	for g := range 16 {
		all.Go(func() {
			for n := 1 + g%3; !stop.Load(); {
				d, err := b.Take(ctx, n)
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				if d == 0 {
					got.Add(int64(n))
				}
			}
		})
	}
	all.Wait()
	fmt.Println(got.Load())
}

// withinEnvelope checks what was admitted against the bucket's state, in the
// server's own time: all of it is paid back since the first take, or is debt.
func withinEnvelope(t *testing.T, b *Bucket, first, last state, admitted int64) {
	t.Helper()
	flow, token, size := b.Units()
	paid := flow * (last.last - first.last)
	t.Logf("%d admitted in %d µs; the bound is %d", admitted, last.last-first.last, (size+paid)/token)
	if admitted*token > last.debt+paid || last.debt > size {
		t.Errorf("admitted %d units, with a debt of %d of %d and at most %d paid back", admitted*token, last.debt, size, paid)
	}
	if admitted <= b.Capacity {
		t.Errorf("admitted %d, no more than the bucket held", admitted)
	}
}

func TestThirtyTwoConnectionsStayWithinTheEnvelope(t *testing.T) {
	server, rdb, client := serve(t)
	b := &Bucket{Client: client, Key: crowd.Key, Capacity: crowd.Capacity, Rate: crowd.Rate, Timeout: patient}
	take(t, b, 200)
	first := stateOf(t, rdb, NameOf("retryafter:bucket:", b.Key))
	var admitted atomic.Int64
	admitted.Add(200)
	var all sync.WaitGroup
	for g := range 32 {
		own := connect(t, server.Socket, func(o *redis.Options) { o.PoolSize = 1 })
		b := &Bucket{Client: goredisclient.New(own), Key: b.Key, Capacity: b.Capacity, Rate: b.Rate, Timeout: patient}
		all.Go(func() {
			for begin := time.Now(); time.Since(begin) < time.Second; {
				n := 1 + g%5
				if d, err := b.Take(ctx, n); err != nil {
					t.Error(err)
					return
				} else if d == 0 {
					admitted.Add(int64(n))
				}
			}
		})
	}
	all.Wait()
	withinEnvelope(t, b, first, stateOf(t, rdb, NameOf("retryafter:bucket:", b.Key)), admitted.Load())
}

func TestTwoProcessesStayWithinTheEnvelope(t *testing.T) {
	server, rdb, client := serve(t)
	b := &Bucket{Client: client, Key: crowd.Key, Capacity: crowd.Capacity, Rate: crowd.Rate, Timeout: patient}
	take(t, b, 200)
	first := stateOf(t, rdb, NameOf("retryafter:bucket:", b.Key))
	type process struct {
		cmd  *exec.Cmd
		stop interface{ Close() error }
		out  bytes.Buffer
	}
	var children [2]process
	for i := range children {
		p := &children[i]
		p.cmd = exec.Command(os.Args[0], "-test.run=^$")
		p.cmd.Env = append(os.Environ(), "REDISBUCKET_CHILD="+server.Socket)
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
		stop, err := p.cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.stop = stop
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.cmd.Process.Kill() })
	}
	// Both have to have had their share of the time.
	time.Sleep(1500 * time.Millisecond)
	for i := range children {
		children[i].stop.Close()
	}
	admitted := int64(200)
	for i := range children {
		p := &children[i]
		err := p.cmd.Wait()
		n, parse := strconv.ParseInt(strings.TrimSpace(p.out.String()), 10, 64)
		if err != nil || parse != nil || n == 0 {
			t.Fatalf("a child said %q: %v", p.out.String(), err)
		}
		admitted += n
	}
	withinEnvelope(t, b, first, stateOf(t, rdb, NameOf("retryafter:bucket:", b.Key)), admitted)
}

// Sixteen callers contend for five admissions. A refusal spends nothing and
// puts nothing off.
func TestSixteenCallersFiveAdmitted(t *testing.T) {
	server, rdb, client := serve(t)
	b := &Bucket{Key: "reports", Client: client, Capacity: 5, Rate: retryafter.Rate{Tokens: 5, Per: time.Minute}, Timeout: patient}
	start := make(chan struct{})
	var all sync.WaitGroup
	var admitted, told atomic.Int64
	for range 16 {
		own := &Bucket{Key: b.Key, Client: goredisclient.New(connect(t, server.Socket)), Capacity: b.Capacity, Rate: b.Rate, Timeout: patient}
		all.Go(func() {
			<-start
			switch d, err := own.Take(ctx, 1); {
			case err != nil:
				t.Error(err)
			case d == 0:
				admitted.Add(1)
			case d > 11*time.Second && d <= 12*time.Second:
				told.Add(1)
			default:
				t.Errorf("told to wait %v for a token each 12 s", d)
			}
		})
	}
	close(start)
	all.Wait()
	if admitted.Load() != 5 || told.Load() != 11 {
		t.Errorf("%d admitted, %d refused; want 5 and 11", admitted.Load(), told.Load())
	}
	name := NameOf("retryafter:bucket:", "reports")
	before := stateOf(t, rdb, name)
	if before.debt <= 4*before.token || before.debt > 5*before.token {
		t.Errorf("%+v is not what five admissions owe", before)
	}
	for range 20 {
		if b.Allow(ctx) {
			t.Error("a sixth was admitted")
		}
	}
	if after := stateOf(t, rdb, name); after != before {
		t.Errorf("refusals made %+v of %+v", after, before)
	}
	// The key ends, here before its time, and a full bucket begins.
	if err := rdb.PExpire(ctx, name, 20*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for rdb.Exists(ctx, name).Val() != 0 {
		time.Sleep(time.Millisecond)
	}
	take(t, b, 1)
	if s := stateOf(t, rdb, name); s.debt != s.token {
		t.Errorf("%+v is not what one admission owes", s)
	}
}

func TestWaitComesBackWhenTold(t *testing.T) {
	_, rdb, client := serve(t)
	b := &Bucket{Client: client, Capacity: 2, Rate: retryafter.Every(30 * time.Millisecond), Timeout: patient}
	take(t, b, 2)
	name := NameOf("retryafter:bucket:", "")
	first := stateOf(t, rdb, name)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := b.Wait(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if last := stateOf(t, rdb, name); last.last-first.last < 8*30000 {
		t.Errorf("eight tokens at one in 30 ms took %d µs", last.last-first.last)
	}
}

func TestWaitThatCannotEndInTimeDoesNotBegin(t *testing.T) {
	_, rdb, client := serve(t)
	clock := &clocked{Client: client, now: origin}
	b := &Bucket{Client: clock, Capacity: 2, Rate: retryafter.PerMinute(1), Timeout: patient}
	take(t, b, 2)
	before := stateOf(t, rdb, NameOf("retryafter:bucket:", ""))
	short, cancel := context.WithTimeout(ctx, 59*time.Second)
	defer cancel()
	begin := time.Now()
	err := b.WaitN(short, 1)
	limit, ok := errors.AsType[*retryafter.LimitError](err)
	if !ok || limit.Delay != time.Minute || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	if after := stateOf(t, rdb, NameOf("retryafter:bucket:", "")); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestCancelledWaitCostsNothing(t *testing.T) {
	_, rdb, client := serve(t)
	b := &Bucket{Client: client, Capacity: 2, Rate: retryafter.PerMinute(1), Timeout: patient}
	take(t, b, 2)
	before := stateOf(t, rdb, NameOf("retryafter:bucket:", ""))
	why := errors.New("no longer wanted")
	for range 100 {
		waiting, cancel := context.WithCancelCause(ctx)
		done := make(chan error)
		go func() { done <- b.Wait(waiting) }()
		time.Sleep(time.Millisecond)
		cancel(why)
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("does not mind its context")
		}
	}
	if after := stateOf(t, rdb, NameOf("retryafter:bucket:", "")); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestDoneContextAsksNothing(t *testing.T) {
	_, _, client := serve(t)
	count := &counted{Client: client}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	b := &Bucket{Client: count, Capacity: 2, Rate: retryafter.PerMinute(1), WhenAway: FailOpen, Events: func(e Event) { t.Error(e) }}
	for _, n := range []int{0, 1, 2} {
		if _, err := b.Take(gone, n); !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", n, err)
		}
		if err := b.WaitN(gone, n); !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if n := count.sha.Load() + count.eval.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

func TestImpossibleCostsFailAtOnce(t *testing.T) {
	count := &counted{}
	b := &Bucket{Client: count, Capacity: 10, Rate: retryafter.PerSecond(1), WhenAway: FailOpen}
	for _, n := range []int{11, -1, math.MaxInt, math.MinInt} {
		_, err := b.Take(ctx, n)
		if cost, ok := errors.AsType[*retryafter.CostError](err); !ok || cost.Cost != int64(n) || cost.Capacity != 10 {
			t.Errorf("%d: %v", n, err)
		}
		if _, ok := errors.AsType[*retryafter.CostError](b.WaitN(ctx, n)); !ok {
			t.Errorf("%d: no CostError", n)
		}
	}
	if d, err := b.Take(ctx, 0); d != 0 || err != nil { // a look
		t.Error(d, err)
	}
}

func TestSenselessSettingsAreErrorsUnderEveryPolicy(t *testing.T) {
	_, _, client := serve(t)
	good := func() *Bucket {
		return &Bucket{Client: client, Capacity: 10, Rate: retryafter.PerSecond(1), Share: 2, Timeout: patient}
	}
	for field, spoil := range map[string]func(*Bucket){
		"redisbucket.Bucket.Client":      func(b *Bucket) { b.Client = nil },
		"redisbucket.Bucket.Capacity":    func(b *Bucket) { b.Capacity = 0 },
		"redisbucket.Bucket.Rate.Tokens": func(b *Bucket) { b.Rate.Tokens = -1 },
		"redisbucket.Bucket.Rate.Per":    func(b *Bucket) { b.Rate.Per = 0 },
		"redisbucket.Bucket.Rate":        func(b *Bucket) { b.Rate.Tokens = math.MaxInt64 },
		"redisbucket.Bucket.Timeout":     func(b *Bucket) { b.Timeout = -1 },
		"redisbucket.Bucket.Prefix":      func(b *Bucket) { b.Prefix = "a{b}" },
		"redisbucket.Bucket.WhenAway":    func(b *Bucket) { b.WhenAway = 3 },
		"redisbucket.Bucket.Share":       func(b *Bucket) { b.WhenAway, b.Share = FailLocal, 11 },
	} {
		for _, away := range []Away{FailClosed, FailLocal, FailOpen} {
			b := good()
			b.WhenAway = away
			b.Events = func(e Event) { t.Errorf("%s: %+v", field, e) }
			spoil(b)
			for range 2 {
				_, err := b.Take(ctx, 1)
				bad, ok := errors.AsType[*retryafter.ConfigError](err)
				if !ok || bad.Field != field || b.Allow(ctx) || b.WaitN(ctx, 0) == nil {
					t.Errorf("%s, %v: error %v; want a ConfigError, and nothing admitted", field, away, err)
				}
			}
		}
	}
	for _, b := range []*Bucket{good()} {
		if d, err := b.Take(ctx, 1); d != 0 || err != nil {
			t.Errorf("%v, %v", d, err)
		}
	}
}

// The largest capacity is counted exactly, and one token more is refused.
func TestCapacityEndsWhereTheNumbersDo(t *testing.T) {
	_, rdb, client := serve(t)
	for _, r := range []retryafter.Rate{retryafter.PerSecond(1), retryafter.PerSecond(1000007), {Tokens: 5, Per: time.Hour}, retryafter.Every(999999937), {Tokens: 999999937, Per: 1}} {
		b := &Bucket{Client: client, Capacity: math.MaxInt64, Rate: r, Timeout: patient}
		_, err := b.Take(ctx, 1)
		bad, ok := errors.AsType[*retryafter.ConfigError](err)
		if !ok {
			t.Errorf("%v: %v", r, err)
			continue
		}
		var most int64
		if _, err := fmt.Sscanf(bad.Problem, "must be at most %d", &most); err != nil {
			t.Fatalf("%v: %v", r, bad)
		}
		clock := &clocked{Client: client, now: origin}
		b = &Bucket{Client: clock, Key: retryafter.Key(r.String()), Capacity: most, Rate: r, Timeout: patient}
		take(t, b, int(most-1))
		flow, token, size := b.Units()
		s := stateOf(t, rdb, NameOf("retryafter:bucket:", b.Key))
		if s.debt != (most-1)*token || 2*size+flow > 1<<53 || 2*(size+token)+flow <= 1<<53 {
			t.Errorf("%v: %+v of %d units, %d a microsecond", r, s, size, flow)
		}
		if take(t, b, 1) != 0 {
			t.Errorf("%v: the last token is missing", r)
		}
		if d := take(t, b, 1); d.Microseconds() != (token+flow-1)/flow {
			t.Errorf("%v: wait %v of an empty bucket", r, d)
		}
		b = &Bucket{Client: client, Capacity: most + 1, Rate: r}
		if _, ok := errors.AsType[*retryafter.ConfigError](b.Wait(ctx)); !ok {
			t.Errorf("%v: a capacity of %d is no ConfigError", r, most+1)
		}
	}
}

func TestCorruptValuesAreErrorsAndStay(t *testing.T) {
	_, rdb, client := serve(t)
	for _, away := range []Away{FailClosed, FailLocal, FailOpen} {
		b := &Bucket{Client: client, Capacity: 10, Rate: retryafter.PerSecond(1), Share: 2, WhenAway: away, Timeout: patient,
			Events: func(e Event) { t.Error(e) }}
		name := NameOf("retryafter:bucket:", "")
		take(t, b, 1)
		good := rdb.Get(ctx, name).Val()
		for _, value := range []string{
			"", "7", strings.Repeat("x", 24), good[:23], good + "\x00",
			"\xbf\xf0\x00\x00\x00\x00\x00\x00" + good[8:], // a debt of -1
			"\x3f\xe0\x00\x00\x00\x00\x00\x00" + good[8:], // of one half
			"\x7f\xf8\x00\x00\x00\x00\x00\x00" + good[8:], // not a number
			"\x7f\xf0\x00\x00\x00\x00\x00\x00" + good[8:], // infinite
			good[:8] + "\x7f\xf8\x00\x00\x00\x00\x00\x00" + good[16:],
			good[:16] + "\x00\x00\x00\x00\x00\x00\x00\x00", // no units a token
		} {
			rdb.Set(ctx, name, value, 0)
			for range 2 {
				if d, err := b.Take(ctx, 1); !errors.Is(err, ErrCorrupt) || d != 0 {
					t.Errorf("%q, %v: wait %v, error %v", value, away, d, err)
				}
			}
			if b.Allow(ctx) || rdb.Get(ctx, name).Val() != value {
				t.Errorf("%q was written over", value)
			}
		}
		rdb.Del(ctx, name)
		rdb.HSet(ctx, name, "debt", 1)
		_, err := b.Take(ctx, 1)
		if reply, ok := errors.AsType[ServerError](err); !ok || !strings.HasPrefix(string(reply), "WRONGTYPE") || errors.Is(err, ErrCorrupt) {
			t.Errorf("a hash: %v", err)
		}
		rdb.Del(ctx, name)
	}
}

func TestKeysShowNoNamesAndAreTheirOwn(t *testing.T) {
	_, rdb, client := serve(t)
	k := &Keyed{Client: client, Prefix: "app:", Capacity: 1, Rate: retryafter.PerMinute(1), Timeout: patient}
	keys := []retryafter.Key{"", "tenant", retryafter.NewKey("tenant"), retryafter.NewKey("a", "b"), retryafter.NewKey("ab"), "{x}", "a}b{"}
	for _, key := range keys {
		if take(t, k.For(key), 1) != 0 {
			t.Errorf("%q shares a bucket with another key", key)
		}
	}
	names := rdb.Keys(ctx, "*").Val()
	if len(names) != len(keys) {
		t.Errorf("%d keys made %q", len(keys), names)
	}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, "app:{")
		hex, ok2 := strings.CutSuffix(rest, "}")
		if !ok || !ok2 || len(hex) != 32 || strings.Trim(hex, "0123456789abcdef") != "" {
			t.Errorf("the key is %q", name)
		}
		if ttl := rdb.PTTL(ctx, name).Val(); ttl <= 0 || ttl > time.Minute+time.Millisecond {
			t.Errorf("%s lives for %v", name, ttl)
		}
	}
}
