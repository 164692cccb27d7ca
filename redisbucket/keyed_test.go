package redisbucket_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
)

func TestKeyIsTheContextsThenTheFunctionsThenTheHosts(t *testing.T) {
	by := func(r *http.Request) retryafter.Key { return retryafter.Key("by " + r.URL.Path) }
	req := httptest.NewRequest("GET", "http://Example.com/a", nil)
	tagged := req.WithContext(retryafter.WithKey(ctx, "tenant"))
	empty := req.WithContext(retryafter.WithKey(ctx, ""))
	capped := req.WithContext(retryafter.WithMaxAttempts(ctx, 0)) // a mistake of the caller's
	gone, cancel := context.WithCancel(tagged.Context())
	cancel()
	for _, c := range []struct {
		req  *http.Request
		by   func(*http.Request) retryafter.Key
		want retryafter.Key
	}{
		{req, nil, retryafter.NewKey("http", "example.com", "80")},
		{req, by, "by /a"},
		{tagged, nil, "tenant"},
		{tagged, by, "tenant"},
		{empty, by, ""},
		{capped, by, "by /a"},
		{tagged.WithContext(gone), by, "tenant"},
	} {
		// Finding out must not show up in the caller's own hooks.
		trace := &retryafter.Trace{
			AttemptDone: func(retryafter.Attempt) { t.Error("an attempt") },
			Waiting:     func(retryafter.WaitInfo) { t.Error("a wait") },
		}
		req := c.req.WithContext(retryafter.WithTrace(c.req.Context(), trace))
		if got := KeyOf(req, c.by); got != c.want {
			t.Errorf("%v is charged to %q, want %q", c.req.Context(), got, c.want)
		}
	}
}

func TestTransportChargesEachRequestToItsKey(t *testing.T) {
	server, rdb, _ := serve(t)
	served := 0
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer api.Close()
	machine := func() *http.Client {
		return &http.Client{Transport: &retryafter.Transport{Limiter: &Keyed{
			Client: goredisclient.New(connect(t, server.Socket)), Capacity: 2, Rate: retryafter.Rate{Tokens: 1, Per: time.Hour}, Timeout: patient,
		}}}
	}
	machines := []*http.Client{machine(), machine()}
	send := func(ctx context.Context) (refused int) {
		for i := range 6 {
			short, cancel := context.WithTimeout(ctx, time.Minute)
			req, err := http.NewRequestWithContext(short, "GET", api.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := machines[i%2].Do(req)
			if err == nil {
				resp.Body.Close()
			}
			limit, ok := errors.AsType[*retryafter.LimitError](err)
			e, _ := errors.AsType[*retryafter.Error](err)
			if ok && limit.Delay > 59*time.Minute && e.Report.Stop == retryafter.Limited {
				refused++
			} else if err != nil {
				t.Error(err)
			}
			cancel()
		}
		return refused
	}
	for _, ctx := range []context.Context{ctx, retryafter.WithKey(ctx, "a"), retryafter.WithKey(ctx, "b"), retryafter.WithCost(retryafter.WithKey(ctx, "c"), 2)} {
		served = 0
		want := 2
		if n := rdb.DBSize(ctx).Val(); n == 3 {
			want = 1 // at a cost of two
		}
		if refused := send(ctx); served != want || refused != 6-want {
			t.Errorf("%d served, %d refused; want %d served", served, refused, want)
		}
	}
	if n := rdb.DBSize(ctx).Val(); n != 4 {
		t.Errorf("%d keys in Redis", n)
	}
}

func TestKeyedWithoutARequest(t *testing.T) {
	_, rdb, client := serve(t)
	k := &Keyed{Client: client, Capacity: 1, Rate: retryafter.PerMinute(1), Timeout: patient}
	for _, ctx := range []context.Context{ctx, retryafter.WithKey(ctx, "a"), retryafter.WithKey(ctx, "b")} {
		short, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := k.WaitN(short, 1); err != nil {
			t.Error(err)
		}
		if _, ok := errors.AsType[*retryafter.LimitError](k.WaitN(short, 1)); !ok {
			t.Error("a second token was there")
		}
	}
	for _, key := range []retryafter.Key{"", "a", "b"} {
		if rdb.Exists(ctx, NameOf("retryafter:bucket:", key)).Val() != 1 || k.For(key).Allow(ctx) {
			t.Errorf("%q was not charged", key)
		}
	}
	bad := &Keyed{Client: client, Rate: retryafter.PerMinute(1)}
	for _, err := range []error{bad.WaitN(ctx, 1), bad.For("a").Wait(ctx)} {
		if e, ok := errors.AsType[*retryafter.ConfigError](err); !ok || e.Field != "redisbucket.Keyed.Capacity" {
			t.Error(err)
		}
	}
}
