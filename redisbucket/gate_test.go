package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

func TestHoldOnlyMovesForward(t *testing.T) {
	_, rdb, client := serve(t)
	clock := &clocked{Client: client, now: origin}
	g := &Gate{Client: clock, Timeout: patient}
	name := NameOf("retryafter:gate:", "k")
	held := func(want time.Duration) {
		t.Helper()
		if d, err := g.Held(ctx, "k"); d != want || err != nil {
			t.Errorf("held for %v, error %v; want %v", d, err, want)
		}
		if d, err := g.Held(ctx, "other"); d != 0 || err != nil {
			t.Errorf("another key is held for %v, error %v", d, err)
		}
	}
	hold := func(d time.Duration) {
		t.Helper()
		if err := g.Hold(ctx, "k", d); err != nil {
			t.Fatal(err)
		}
	}
	held(0)
	hold(0)
	hold(-time.Second)
	held(0)
	if rdb.Exists(ctx, name).Val() != 0 {
		t.Error("no hold has a key")
	}
	hold(10 * time.Second)
	held(10 * time.Second)
	value, ends := rdb.Get(ctx, name).Val(), rdb.Do(ctx, "PEXPIRETIME", name).Val()
	hold(9 * time.Second)
	hold(10 * time.Second)
	held(10 * time.Second)
	if rdb.Get(ctx, name).Val() != value || rdb.Do(ctx, "PEXPIRETIME", name).Val() != ends {
		t.Error("a hold that ends earlier was written")
	}
	if ends != (origin+10e6)/1000 {
		t.Errorf("the key ends at %v", ends)
	}
	clock.now += 4e6
	held(6 * time.Second)
	hold(6*time.Second + 1) // rounded up to a microsecond, and the key to a millisecond
	held(6*time.Second + time.Microsecond)
	if ends := rdb.Do(ctx, "PEXPIRETIME", name).Val(); ends != (origin+10e6)/1000+1 {
		t.Errorf("the key ends at %v", ends)
	}
	clock.now += 6e6
	held(time.Microsecond)
	clock.now++
	held(0)
	clock.now -= 3600e6 // the server's clock goes back
	held(time.Hour)
	hold(time.Minute)
	held(time.Hour)
	hold(math.MaxInt64)
	held(1 << 52 * time.Microsecond)
}

func TestOurHoldsConform(t *testing.T) {
	_, _, client := serve(t)
	count := 0
	retryaftertest.TestHolds(t, func(*testing.T) retryafter.Holds {
		count++
		return &Gate{Client: client, Prefix: fmt.Sprintf("test %d:", count), Timeout: patient}
	})
}

func TestHoldGoesWhenItEnds(t *testing.T) {
	_, rdb, client := serve(t)
	g := &Gate{Client: client, Timeout: patient}
	begin := serverTime(t, rdb)
	if err := g.Hold(ctx, "k", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for {
		d, err := g.Held(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if d == 0 {
			break
		}
	}
	if end := serverTime(t, rdb); end-begin < 50000 {
		t.Errorf("held for %d µs", end-begin)
	}
	for begin := time.Now(); rdb.DBSize(ctx).Val() != 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > patient {
			t.Fatal("the key stays")
		}
	}
}

func TestMachinesShareAHold(t *testing.T) {
	server, _, _ := serve(t)
	var served atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer api.Close()
	machine := func() *http.Client {
		client := goredisclient.New(connect(t, server.Socket))
		return &http.Client{Transport: &retryafter.Transport{Gate: &retryafter.Gate{
			Shared: &Gate{Client: client, Timeout: patient}, Failed: func(err error) { t.Error(err) },
		}}}
	}
	first, err := machine().Get(api.URL)
	if err != nil || first.StatusCode != 429 {
		t.Fatal(first, err)
	}
	first.Body.Close()
	_, err = machine().Get(api.URL)
	e, ok := errors.AsType[*retryafter.Error](err)
	if !ok || e.Report.Stop != retryafter.WaitTooLong || e.Report.Decision.Server < 3590*time.Second || served.Load() != 1 {
		t.Errorf("served %d: %v", served.Load(), err)
	}
}

func TestGateGoesOnAloneWithoutRedis(t *testing.T) {
	failed := 0
	g := &retryafter.Gate{
		Shared: &Gate{Client: goredisclient.New(connect(t, t.TempDir()+"/nobody")), Timeout: 10 * time.Millisecond},
		Failed: func(err error) {
			failed++
			if !isUnavailable(err) {
				t.Error(err)
			}
		},
	}
	g.Hold(ctx, "k", time.Now().Add(time.Hour))
	if d := g.Held(ctx, "k"); d < 59*time.Minute || failed != 2 {
		t.Errorf("held for %v, %d errors", d, failed)
	}
}

func TestGateTellsWhatIsWrong(t *testing.T) {
	_, rdb, client := serve(t)
	g := &Gate{Client: client, Timeout: patient}
	for _, value := range []string{"", "soon", "-1", "1.5", "1e9", "9007199254740993000"} {
		rdb.Set(ctx, NameOf("retryafter:gate:", "k"), value, 0)
		if _, err := g.Held(ctx, "k"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Held of %q: %v", value, err)
		}
		if err := g.Hold(ctx, "k", time.Hour); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Hold of %q: %v", value, err)
		}
	}
	for _, g := range []*Gate{{}, {Client: client, Prefix: "{"}, {Client: client, Timeout: -1}} {
		_, err := g.Held(ctx, "k")
		if _, ok := errors.AsType[*retryafter.ConfigError](err); !ok {
			t.Error(err)
		}
		if _, ok := errors.AsType[*retryafter.ConfigError](g.Hold(ctx, "k", time.Hour)); !ok {
			t.Error("no ConfigError")
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.Held(gone, "k"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
