package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/redisbucket/internal/redisserver"
	"github.com/retryafter-go/retryafter/retryaftertest"
	"github.com/retryafter-go/retryafter/throttle"
)

var (
	_ retryafter.RequestLimiter = (*Bucket)(nil)
	_ throttle.Limiter          = (*Keyed)(nil)
)

func TestOurLimitersConform(t *testing.T) {
	_, _, client := serve(t)
	count := 0
	for name, open := range map[string]func(prefix string, capacity int64, rate retryafter.Rate) retryafter.Limiter{
		"Bucket": func(prefix string, capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return &Bucket{Client: client, Prefix: prefix, Capacity: capacity, Rate: rate, Timeout: patient}
		},
		"Keyed": func(prefix string, capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return &Keyed{Client: client, Prefix: prefix, Capacity: capacity, Rate: rate, Timeout: patient}
		},
		"a key of Keyed": func(prefix string, capacity int64, rate retryafter.Rate) retryafter.Limiter {
			return (&Keyed{Client: client, Prefix: prefix, Capacity: capacity, Rate: rate, Timeout: patient}).For("key")
		},
	} {
		t.Run(name, func(t *testing.T) {
			retryaftertest.TestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.Limiter {
				count++
				return open(fmt.Sprintf("test %d:", count), capacity, rate)
			})
		})
	}
	t.Run("a request's", func(t *testing.T) {
		retryaftertest.TestRequestLimiter(t, func(_ *testing.T, capacity int64, rate retryafter.Rate) retryafter.RequestLimiter {
			count++
			return &Keyed{Client: client, Prefix: fmt.Sprintf("test %d:", count), Capacity: capacity, Rate: rate, Timeout: patient}
		})
	})
}

// scripted gives one answer after the other.
type scripted []int64

func (s *scripted) Eval(context.Context, string, string, []string) (int64, error) {
	panic("not asked for")
}

func (s *scripted) EvalSHA(context.Context, string, string, []string) (int64, error) {
	next := (*s)[0]
	*s = (*s)[1:]
	return next, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportKnowsTheWaitAndAsksNoMoreThanItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := scripted{0, 0, 250000, 0}
		var waits []retryafter.WaitInfo
		c := &http.Client{Transport: &retryafter.Transport{
			Base:    roundTripper(func(*http.Request) (*http.Response, error) { return httptest.NewRecorder().Result(), nil }),
			Limiter: &Bucket{Client: &answers, Capacity: 2, Rate: retryafter.PerSecond(4)},
			Trace:   &retryafter.Trace{Waiting: func(w retryafter.WaitInfo) { waits = append(waits, w) }},
		}}
		begin := time.Now()
		for i, left := range []int{3, 2, 0} {
			if _, err := c.Get("http://example.com/"); err != nil || len(answers) != left {
				t.Fatalf("request %d: error %v, %d answers are left", i+1, err, len(answers))
			}
		}
		if len(waits) != 1 || !waits[0].Limiter || waits[0].Wait != 250*time.Millisecond || time.Since(begin) != 250*time.Millisecond {
			t.Errorf("waits %+v, back after %v", waits, time.Since(begin))
		}
	})
}

func TestRetryThatTheBucketWontAdmitKeepsItsResponse(t *testing.T) {
	_, _, client := serve(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "come back", http.StatusServiceUnavailable)
	}))
	defer api.Close()
	b := &Bucket{Client: client, Capacity: 1, Rate: retryafter.Every(time.Hour), Timeout: patient}
	resp, err := (&http.Client{Transport: &retryafter.Transport{Limiter: b}, Timeout: time.Minute}).Get(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if r := retryafter.ReportOf(resp); r.Stop != retryafter.DeadlineTooNear || r.Attempts != 1 || string(body) != "come back\n" || err != nil {
		t.Errorf("%+v, body %q, error %v", r, body, err)
	}
}

func TestTransportDoesNotRepeatALostQuestion(t *testing.T) {
	server, rdb, _ := serve(t)
	proxy := redisserver.TestProxy(t, server)
	served := 0
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer api.Close()
	b := &Bucket{Client: goredisclient.New(connect(t, proxy.Socket)), Capacity: 10, Rate: retryafter.Every(time.Hour), Timeout: patient}
	take(t, b, 1)
	proxy.Lose.Store(1)
	_, err := (&http.Client{Transport: &retryafter.Transport{Limiter: b}}).Get(api.URL)
	e, ok := errors.AsType[*retryafter.Error](err)
	if !ok || e.Report.Stop != retryafter.Limited || !isUnavailable(err) || served != 0 || proxy.Lost.Load() != 1 {
		t.Errorf("served %d, lost %d: %v", served, proxy.Lost.Load(), err)
	}
	if s := stateOf(t, rdb, NameOf("retryafter:bucket:", "")); s.debt > 2*s.token || s.debt <= s.token {
		t.Errorf("%+v is not what two takes owe", s)
	}
}

func TestLooksDecideNothing(t *testing.T) {
	_, rdb, client := serve(t)
	b := &Bucket{Client: client, Capacity: 2, Rate: retryafter.PerMinute(1), Timeout: patient}
	for range 10 {
		if d, err := b.Delay(ctx, 2); d != 0 || err != nil {
			t.Fatal(d, err)
		}
	}
	if rdb.DBSize(ctx).Val() != 0 {
		t.Error("a look left a key")
	}
	dead := goredisclient.New(connect(t, t.TempDir()+"/nobody"))
	for _, away := range []Away{FailClosed, FailLocal, FailOpen} {
		k := &Keyed{Client: dead, Capacity: 10, Rate: retryafter.PerMinute(1), WhenAway: away, Share: 2, Timeout: 10 * time.Millisecond, CoolOff: time.Hour,
			Events: func(e Event) { t.Errorf("%+v", e) }}
		for range 9 {
			d, err := k.For("k").Delay(ctx, 5)
			if d != 0 || isUnavailable(err) != (away == FailClosed) {
				t.Errorf("%v: wait %v, error %v", away, d, err)
			}
		}
	}
}
