package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/model"
	. "github.com/retryafter-go/retryafter/throttle"
)

var served = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "served") })

// perSecond is a Limiter of n tokens a second, at most n at once.
func perSecond(n int64) Limiter {
	return Keyed(&retryafter.Keyed{Capacity: n, Rate: retryafter.PerSecond(n)})
}

// delaying is a Limiter that always refuses with one delay.
func delaying(d time.Duration) Limiter { return answering(d, nil) }

func answering(d time.Duration, err error) Limiter {
	return LimiterFunc(func(context.Context, retryafter.Key, int) (time.Duration, error) { return d, err })
}

func serve(h http.Handler, method string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
	return w
}

func costs(n int) func(*http.Request) int { return func(*http.Request) int { return n } }

// randomState is a Handler and a model of its bucket after some traffic.
func randomState(t *testing.T, cost *int, policy string) (*Handler, *model.Bucket, time.Time) {
	k := &retryafter.Keyed{
		Capacity: 1 + rand.Int64N(40),
		Rate:     retryafter.Rate{Tokens: 1 + rand.Int64N(30), Per: time.Duration(1 + rand.Int64N(int64(20*time.Second)))},
		MaxKeys:  8,
	}
	h := &Handler{Next: served, Limit: Keyed(k), Cost: func(*http.Request) int { return *cost }, Policy: policy}
	begin := time.Now()
	m := model.NewBucket(k.Capacity, k.Rate.Tokens, k.Rate.Per, false, 0)
	for range rand.IntN(12) {
		if rand.IntN(3) == 0 {
			time.Sleep(time.Duration(rand.Int64N(int64(k.Rate.Per))))
		}
		*cost = 1 + rand.IntN(int(k.Capacity))
		want := 429
		if m.Take(int64(time.Since(begin)), int64(*cost)) {
			want = 200
		}
		if got := serve(h, "GET").Code; got != want {
			t.Fatalf("a cost of %d is answered by %d, not %d", *cost, got, want)
		}
	}
	*cost = 1 + rand.IntN(int(k.Capacity))
	return h, m, begin
}

func TestRetryAfterIsEnoughAndNotASecondMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		for refused < 10_000 {
			var cost int
			h, m, begin := randomState(t, &cost, "")
			w := serve(h, "GET")
			if w.Code == 200 {
				continue
			}
			refused++
			s, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			exact := m.Wait(int64(time.Since(begin)), int64(cost)).Int64()
			if want := max(1, (exact+1e9-1)/1e9); s != want {
				t.Fatalf("Retry-After: %d for a wait of %d ns", s, exact)
			}
			if s > 1 {
				time.Sleep(time.Duration(s-1) * time.Second)
				if serve(h, "GET").Code != 429 {
					t.Fatalf("there was room a second before Retry-After: %d", s)
				}
				time.Sleep(time.Second)
			} else {
				time.Sleep(time.Second)
			}
			if serve(h, "GET").Code != 200 {
				t.Fatalf("there was no room after Retry-After: %d", s)
			}
		}
	})
}

func TestRetryAfterIsWholeSecondsOfAnyDelay(t *testing.T) {
	for delay, want := range map[time.Duration]string{
		1:                         "1",
		time.Second - 1:           "1",
		time.Second:               "1",
		time.Second + 1:           "2",
		90 * time.Second:          "90",
		(1<<31-1)*time.Second + 1: "2147483648",
		math.MaxInt64:             "9223372037",
		-1:                        "1", // a Limiter that is wrong admits nothing
	} {
		w := serve(&Handler{Next: served, Limit: delaying(delay)}, "GET")
		if got := w.Header().Get("Retry-After"); w.Code != 429 || got != want {
			t.Errorf("%v: %d, Retry-After: %s, want %s", delay, w.Code, got, want)
		}
	}
	if got := serve(&Handler{Next: served, Limit: delaying(time.Second)}, "GET").Body.String(); !strings.Contains(got, " in 1 second.") {
		t.Error(got)
	}
}

// answer is all of a response but its length, which is checked.
type answer struct {
	Status int
	Header http.Header
	Body   map[string]any
}

func answerOf(t *testing.T, w *httptest.ResponseRecorder) answer {
	t.Helper()
	a := answer{Status: w.Code, Header: w.Header()}
	if err := json.Unmarshal(w.Body.Bytes(), &a.Body); err != nil {
		t.Errorf("%v: %q", err, w.Body)
	}
	if got := w.Header().Get("Content-Length"); got != strconv.Itoa(w.Body.Len()) {
		t.Errorf("Content-Length: %s of %d", got, w.Body.Len())
	}
	w.Header().Del("Content-Length")
	return a
}

// problemHeader is all the header that a refusal may have, and more.
func problemHeader(more ...string) http.Header {
	h := http.Header{"Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"}}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = append(h[more[i]], more[i+1])
	}
	return h
}

var (
	errSecret    = errors.New("secret")
	errForwarded = &AddrError{Field: "Forwarded", Value: "secret", Problem: "secret"}
	errRemote    = &AddrError{Field: "RemoteAddr", Value: "secret", Problem: "secret"}
	blank        = func(status float64) map[string]any {
		return map[string]any{"type": "about:blank", "title": http.StatusText(int(status)), "status": status}
	}
)

func failing(err error) func(*http.Request) (retryafter.Key, error) {
	return func(*http.Request) (retryafter.Key, error) { return "secret", err }
}

// Each refusal is given here whole: whatever else it said would be too much.
func TestRefusalsSayWhatTheyMustAndNothingElse(t *testing.T) {
	secretKey := failing(nil)
	full := Keyed(&retryafter.Keyed{Capacity: 7654321, Rate: retryafter.PerMinute(1)})
	unable := map[string]any{"type": "about:blank", "title": "Bad Request", "status": 400.,
		"detail": "It can't be told where this request comes from."}
	never := map[string]any{
		"type":  "https://pkg.go.dev/github.com/retryafter-go/retryafter/throttle#CostTooHigh",
		"title": "Cost Too High", "status": 403.,
		"detail": "This request costs more than can be admitted at once, however long it waits. A smaller one may be admitted.",
	}
	for name, test := range map[string]struct {
		h    *Handler
		want answer
	}{
		"over the budget": {
			&Handler{Limit: delaying(6500 * time.Millisecond), Key: secretKey},
			answer{429, problemHeader("Retry-After", "7"), map[string]any{
				"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Quota Exceeded", "status": 429.,
				"detail": "There is room for this request in 7 seconds.",
			}},
		},
		"never":             {&Handler{Limit: full, Key: secretKey, Cost: costs(7654322)}, answer{403, problemHeader(), never}},
		"negative":          {&Handler{Limit: full, Key: secretKey, Cost: costs(-1)}, answer{500, problemHeader(), blank(500)}},
		"most negative":     {&Handler{Limit: full, Cost: costs(math.MinInt)}, answer{500, problemHeader(), blank(500)}},
		"the store's view":  {&Handler{Limit: answering(0, &retryafter.CostError{Cost: -1})}, answer{500, problemHeader(), blank(500)}},
		"no identity":       {&Handler{Limit: full, Key: failing(errSecret)}, answer{500, problemHeader(), blank(500)}},
		"forwarding":        {&Handler{Limit: full, Key: failing(errForwarded)}, answer{400, problemHeader(), unable}},
		"peer":              {&Handler{Limit: full, Key: failing(errRemote)}, answer{500, problemHeader(), blank(500)}},
		"failed limiter":    {&Handler{Limit: answering(time.Hour, errSecret), Key: secretKey}, answer{503, problemHeader(), blank(503)}},
		"no limiter":        {&Handler{}, answer{500, problemHeader(), blank(500)}},
		"no Keyed":          {&Handler{Limit: Keyed(nil)}, answer{500, problemHeader(), blank(500)}},
		"senseless limiter": {&Handler{Limit: Keyed(&retryafter.Keyed{Capacity: 1})}, answer{500, problemHeader(), blank(500)}},
	} {
		t.Run(name, func(t *testing.T) {
			test.h.Next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was admitted") })
			var seen []Decision
			test.h.Decided = func(_ *http.Request, d Decision) { seen = append(seen, d) }
			for range 2 {
				if diff := cmp.Diff(test.want, answerOf(t, serve(test.h, "GET"))); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
			if len(seen) != 2 || seen[0].Status != test.want.Status || (seen[0].Err == nil) != (test.want.Status == 429) {
				t.Errorf("Decided saw %+v", seen)
			}
		})
	}
}

func TestAHandlerWithoutNextRefuses(t *testing.T) {
	h := &Handler{Limit: perSecond(1)}
	h.Decided = func(_ *http.Request, d Decision) {
		if _, ok := errors.AsType[*retryafter.ConfigError](d.Err); !ok {
			t.Error(d.Err)
		}
	}
	if w := serve(h, "GET"); w.Code != 500 {
		t.Error(w.Code)
	}
}

func TestHEADIsRefusedWithTheSameHeaderAndNoBody(t *testing.T) {
	h := &Handler{Next: served, Limit: delaying(time.Minute)}
	head, get := serve(h, "HEAD"), serve(h, "GET")
	if diff := cmp.Diff(get.Header(), head.Header()); diff != "" || head.Code != 429 {
		t.Errorf("%d, -GET +HEAD:\n%s", head.Code, diff)
	}
	if head.Body.Len() > 0 {
		t.Errorf("body %q", head.Body)
	}
}

func TestARefusalDropsWhatWasSaidOfAnotherResponse(t *testing.T) {
	h := &Handler{Next: served, Limit: answering(0, errSecret)}
	w := httptest.NewRecorder()
	for _, field := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Expires", "Retry-After", "Cache-Control"} {
		w.Header().Set(field, "x")
	}
	w.Header().Set("Vary", "Origin")
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if diff := cmp.Diff(problemHeader("Vary", "Origin"), answerOf(t, w).Header); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestARefusalCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Handler{Next: served, Limit: perSecond(1)}
		serve(h, "GET")
		time.Sleep(999 * time.Millisecond)
		for range 100 {
			if w := serve(h, "GET"); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
				t.Fatal(w.Code, w.Header())
			}
		}
		time.Sleep(time.Millisecond)
		if w := serve(h, "GET"); w.Code != 200 {
			t.Fatal(w.Code, w.Header())
		}
	})
}

func TestEachKeyHasItsOwnBudgetAndNoKeyMeansOne(t *testing.T) {
	byHeader := func(r *http.Request) (retryafter.Key, error) {
		return retryafter.NewKey(r.Header.Get("Account")), nil
	}
	for name, key := range map[string]func(*http.Request) (retryafter.Key, error){"by account": byHeader, "one for all": nil} {
		h := &Handler{Next: served, Limit: Keyed(&retryafter.Keyed{Capacity: 1, Rate: retryafter.Every(time.Hour)}), Key: key}
		var got []int
		for _, account := range []string{"a", "b", "a"} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Account", account)
			// What outgoing calls are charged to is another matter.
			r = r.WithContext(retryafter.WithKey(r.Context(), retryafter.Key(strconv.Itoa(len(got)))))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got = append(got, w.Code)
		}
		want := []int{200, 200, 429}
		if key == nil {
			want = []int{200, 429, 429}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestACostOfNothingIsAdmittedFree(t *testing.T) {
	cost := 0
	h := &Handler{Next: served, Limit: Keyed(&retryafter.Keyed{Capacity: 1, Rate: retryafter.Every(time.Hour)}),
		Cost: func(*http.Request) int { return cost }}
	for range 3 {
		if w := serve(h, "GET"); w.Code != 200 {
			t.Error(w.Code)
		}
	}
	cost = 1
	if w := serve(h, "GET"); w.Code != 200 {
		t.Error("something was charged for nothing")
	}
	cost = 0
	if w := serve(h, "GET"); w.Code != 200 {
		t.Error("nothing did not fit")
	}
}

func TestANegativeCostReachesNoLimiter(t *testing.T) {
	h := &Handler{Next: served, Cost: costs(-1), Limit: LimiterFunc(func(context.Context, retryafter.Key, int) (time.Duration, error) {
		t.Error("it does")
		return 0, nil
	})}
	if w := serve(h, "GET"); w.Code != 500 {
		t.Error(w.Code)
	}
}

// While someone waits for a key nobody overtakes. Who is refused for that is
// refused, though the other may give up before the wait has been worked out.
func TestWhoGivesUpWaitingLetsNobodyInUncharged(t *testing.T) {
	k := &retryafter.Keyed{Capacity: 2, Rate: retryafter.Every(time.Hour)}
	limit := Keyed(k)
	admitted := 0
	for i := range 2000 {
		key := retryafter.Key(strconv.Itoa(i))
		k.For(key).Allow()
		ctx, cancel := context.WithCancel(context.Background())
		var waiting sync.WaitGroup
		waiting.Go(func() { k.For(key).WaitN(ctx, 2) })
		waiting.Go(cancel)
		free := 0
		for range 50 {
			if d, err := limit.Take(ctx, key, 1); err != nil {
				t.Fatal(err)
			} else if d == 0 {
				free++
			}
		}
		cancel()
		waiting.Wait()
		if admitted += free; free > 1 {
			t.Fatalf("%d admitted where one token was", free)
		}
	}
	if admitted == 0 {
		t.Error("nobody was admitted")
	}
}

func TestOnlyAFailedLimiterIsOpenedAndOnlyOnDemand(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		done bool // the request's context
		want int
	}{
		"store":          {err: errSecret, want: 200},
		"store timeout":  {err: context.DeadlineExceeded, want: 200},
		"caller is gone": {err: context.Canceled, done: true, want: 503},
		"cost":           {err: &retryafter.CostError{Cost: 2, Capacity: 1}, want: 403},
		"setting":        {err: &retryafter.ConfigError{}, want: 500},
	} {
		t.Run(name, func(t *testing.T) {
			var seen Decision
			h := &Handler{
				Next: served, Limit: answering(time.Hour, test.err),
				FailOpen: func(_ *http.Request, err error) bool { return err == test.err },
				Decided:  func(_ *http.Request, d Decision) { seen = d },
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if test.done {
				cancel()
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			if w.Code != test.want {
				t.Errorf("%d, want %d", w.Code, test.want)
			}
			if seen.Err != test.err || seen.Delay != 0 {
				t.Errorf("%+v", seen)
			}
			h = &Handler{Next: served, Limit: h.Limit, FailOpen: func(*http.Request, error) bool { return false }}
			if w := serve(h, "GET"); w.Code < 400 {
				t.Errorf("%d though FailOpen refused", w.Code)
			}
		})
	}
}

func TestTheLimiterGetsTheRequestsContext(t *testing.T) {
	type key struct{}
	h := &Handler{Next: served, Limit: LimiterFunc(func(ctx context.Context, k retryafter.Key, n int) (time.Duration, error) {
		if ctx.Value(key{}) != 1 || n != 3 || k != "who" {
			t.Error(ctx, k, n)
		}
		return 0, nil
	}), Cost: costs(3), Key: func(*http.Request) (retryafter.Key, error) { return "who", nil }}
	r := httptest.NewRequest("GET", "/", nil)
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), key{}, 1)))
}

func TestRefuseWritesItsOwnBody(t *testing.T) {
	h := &Handler{Next: served, Limit: delaying(time.Minute), Refuse: func(w http.ResponseWriter, r *http.Request, d Decision) {
		w.WriteHeader(d.Status)
		io.WriteString(w, "in "+d.Delay.String())
	}}
	w := serve(h, "GET")
	want := http.Header{"Retry-After": {"60"}, "Cache-Control": {"no-store"}}
	if diff := cmp.Diff(want, w.Header()); diff != "" || w.Code != 429 || w.Body.String() != "in 1m0s" {
		t.Errorf("%d %q, -want +got:\n%s", w.Code, w.Body, diff)
	}
}

// fields are those of the draft.
func fields(t *testing.T, w *httptest.ResponseRecorder) (r, s int64) {
	t.Helper()
	m := regexp.MustCompile(`^"name";r=(\d+);t=(\d+)$`).FindStringSubmatch(w.Header().Get("RateLimit"))
	if m == nil {
		t.Fatalf("RateLimit: %q", w.Header()["Ratelimit"])
	}
	r, _ = strconv.ParseInt(m[1], 10, 64)
	s, _ = strconv.ParseInt(m[2], 10, 64)
	return r, s
}

func TestRateLimitFieldsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3000 {
			var cost int
			h, m, begin := randomState(t, &cost, "name")
			now := int64(time.Since(begin))
			capacity := m.Credit(math.MaxInt64 / 2).Num().Int64()
			full := m.Credit(now).Cmp(m.Credit(math.MaxInt64/2)) == 0
			m.Take(now, int64(cost))
			w := serve(h, "GET")
			r, s := fields(t, w)
			credit := m.Credit(now)
			if want := new(big.Int).Quo(credit.Num(), credit.Denom()).Int64(); r != want {
				t.Fatalf("r=%d of %s", r, credit.FloatString(9))
			}
			if r < capacity {
				next := m.Wait(now, r+1).Int64()
				if want := max(1, (next+1e9-1)/1e9); s != want {
					t.Fatalf("t=%d, though there is one more after %d ns", s, next)
				}
			} else if !full {
				t.Fatal("a charge left the bucket full")
			}
			if after := w.Header().Get("Retry-After"); after != "" {
				if a, _ := strconv.ParseInt(after, 10, 64); a < s {
					t.Fatalf("Retry-After: %d is before the end of t=%d", a, s)
				}
			}
			if _, ok := w.Header()["Ratelimit-Policy"]; !ok {
				t.Fatal("no RateLimit-Policy")
			}
		}
	})
}

func TestWhatIsLeftOfAFullBucketHoldsForATokensTime(t *testing.T) {
	h := &Handler{Next: served, Limit: Keyed(&retryafter.Keyed{Capacity: 5, Rate: retryafter.Rate{Tokens: 3, Per: 10 * time.Second}}),
		Cost: costs(0), Policy: "name"}
	w := serve(h, "GET")
	if r, s := fields(t, w); r != 5 || s != 4 {
		t.Errorf("r=%d;t=%d", r, s)
	}
}

// quotaOf is a QuotaLimiter of any figures.
type quotaOf struct {
	Limiter
	capacity int64
	rate     retryafter.Rate
	left     Left
}

func (q quotaOf) Quota() (int64, retryafter.Rate) { return q.capacity, q.rate }
func (q quotaOf) TakeLeft(ctx context.Context, k retryafter.Key, n int) (time.Duration, Left, error) {
	d, err := q.Take(ctx, k, n)
	return d, q.left, err
}

func TestRateLimitFieldsAreStructuredFields(t *testing.T) {
	huge := quotaOf{answering(time.Second, nil), math.MaxInt64, retryafter.Rate{Tokens: math.MaxInt64, Per: time.Hour}, Left{math.MaxInt64, math.MaxInt64}}
	wrong := huge
	wrong.left = Left{-1, -1}
	ten := perSecond(10)
	for name, test := range map[string]struct {
		h             *Handler
		policy, limit string
	}{
		"plain":     {&Handler{Policy: "default", Limit: ten}, `"default";q=10;w=1`, `"default";r=9;t=1`},
		"quoted":    {&Handler{Policy: `a"b\c ~`, Limit: perSecond(9)}, `"a\"b\\c ~";q=9;w=1`, `"a\"b\\c ~";r=8;t=1`},
		"unit":      {&Handler{Policy: "p", QuotaUnit: "content-bytes", Limit: perSecond(9)}, `"p";q=9;qu="content-bytes";w=1`, `"p";r=8;t=1`},
		"window":    {&Handler{Policy: "p", Limit: Keyed(&retryafter.Keyed{Capacity: 7, Rate: retryafter.Rate{Tokens: 3, Per: time.Minute}})}, `"p";q=7;w=140`, `"p";r=6;t=20`},
		"rounded":   {&Handler{Policy: "p", Limit: Keyed(&retryafter.Keyed{Capacity: 10, Rate: retryafter.Rate{Tokens: 3, Per: time.Second}})}, `"p";q=10;w=4`, `"p";r=9;t=1`},
		"by a hair": {&Handler{Policy: "p", Limit: Keyed(&retryafter.Keyed{Capacity: 1, Rate: retryafter.Rate{Tokens: 3, Per: 3*time.Second + 1}})}, `"p";q=1;w=2`, `"p";r=0;t=2`},
		"very many": {&Handler{Policy: "p", Limit: huge}, `"p";q=999999999999999;w=3600`, `"p";r=999999999999999;t=1`},
		"wrong":     {&Handler{Policy: "p", Limit: wrong}, `"p";q=999999999999999;w=3600`, `"p";r=0;t=1`},
	} {
		test.h.Next = served
		w := serve(test.h, "GET")
		if got := w.Header()["Ratelimit-Policy"]; !slices.Equal(got, []string{test.policy}) {
			t.Errorf("%s: RateLimit-Policy: %q", name, got)
		}
		if got := w.Header()["Ratelimit"]; !slices.Equal(got, []string{test.limit}) {
			t.Errorf("%s: RateLimit: %q", name, got)
		}
	}
}

func TestRateLimitFieldsThatMakeNoSenseRefuse(t *testing.T) {
	ten := perSecond(10)
	for name, h := range map[string]*Handler{
		"line break":         {Policy: "a\r\nSet-Cookie: x", Limit: ten},
		"not ASCII":          {Policy: "straße", Limit: ten},
		"unit":               {Policy: "p", QuotaUnit: "\x7f", Limit: ten},
		"unit alone":         {QuotaUnit: "content-bytes", Limit: ten},
		"no QuotaLimiter":    {Policy: "p", Limit: delaying(0)},
		"no capacity":        {Policy: "p", Limit: Keyed(&retryafter.Keyed{Rate: retryafter.PerSecond(1)})},
		"no rate":            {Policy: "p", Limit: Keyed(&retryafter.Keyed{Capacity: 1})},
		"no time":            {Policy: "p", Limit: Keyed(&retryafter.Keyed{Capacity: 1, Rate: retryafter.Rate{Tokens: 1}})},
		"more than a uint64": {Policy: "p", Limit: Keyed(&retryafter.Keyed{Capacity: math.MaxInt64, Rate: retryafter.Every(time.Hour)})},
		"no Keyed":           {Policy: "p", Limit: Keyed(nil)},
	} {
		h.Next = served
		var err error
		h.Decided = func(_ *http.Request, d Decision) { err = d.Err }
		w := serve(h, "GET")
		if _, ok := errors.AsType[*retryafter.ConfigError](err); w.Code != 500 || !ok {
			t.Errorf("%s: %d, %v", name, w.Code, err)
		}
		if diff := cmp.Diff(problemHeader(), answerOf(t, w).Header); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestPublishedQuotasNameThePolicyAndNotTheKey(t *testing.T) {
	k := &retryafter.Keyed{Capacity: 2, Rate: retryafter.Every(30 * time.Second)}
	cost := 2
	h := &Handler{Next: served, Limit: Keyed(k), Policy: "account", Key: failing(nil), Cost: func(*http.Request) int { return cost }}
	serve(h, "GET")
	got := answerOf(t, serve(h, "GET"))
	want := answer{429, problemHeader("Retry-After", "60",
		"Ratelimit", `"account";r=0;t=30`, "Ratelimit-Policy", `"account";q=2;w=60`),
		map[string]any{
			"type": QuotaExceeded, "title": "Quota Exceeded", "status": 429.,
			"detail":            "There is room for this request in 60 seconds.",
			"violated-policies": []any{"account"},
		}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	cost = 3
	if got := serve(h, "GET").Header(); got.Get("RateLimit-Policy") == "" || got.Get("RateLimit") != "" || got.Get("Retry-After") != "" {
		t.Errorf("never: %v", got)
	}
}

func TestNestedHandlersPublishOneList(t *testing.T) {
	inner := &Handler{Next: served, Limit: perSecond(2), Policy: "inner"}
	outer := &Handler{Next: inner, Limit: perSecond(3), Policy: "outer"}
	w := serve(outer, "GET")
	if diff := cmp.Diff([]string{`"outer";r=2;t=1`, `"inner";r=1;t=1`}, w.Header()["Ratelimit"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWithoutAPolicyAnAdmittedResponseIsUntouched(t *testing.T) {
	w := serve(&Handler{Next: served, Limit: perSecond(10)}, "GET")
	if got := slices.Collect(maps.Keys(w.Header())); w.Body.String() != "served" || !slices.Equal(got, []string{"Content-Type"}) {
		t.Errorf("%q with %v", w.Body, got)
	}
}

func TestAdmissionDoesNotAllocate(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	k := &retryafter.Keyed{Capacity: 1 << 30, Rate: retryafter.PerSecond(1)}
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	key := retryafter.NewKey("tenant", "account")
	h := &Handler{
		Next: nothing, Limit: Keyed(k), Cost: costs(2),
		Key:     func(*http.Request) (retryafter.Key, error) { return key, nil },
		Decided: func(*http.Request, Decision) {},
	}
	if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	h = &Handler{Next: nothing, Limit: Keyed(k), Policy: "name"}
	if n := testing.AllocsPerRun(1000, func() {
		clear(w.Header())
		h.ServeHTTP(w, r)
	}); n > 3 {
		t.Errorf("%v allocations with RateLimit fields", n)
	}
}

func BenchmarkAdmission(b *testing.B) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	for name, policy := range map[string]string{"plain": "", "fields": "name"} {
		b.Run(name, func(b *testing.B) {
			h := &Handler{Next: nothing, Limit: Keyed(&retryafter.Keyed{Capacity: 1 << 30, Rate: retryafter.PerSecond(1 << 30)}), Policy: policy}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.Header())
				h.ServeHTTP(w, r)
			}
		})
	}
}

func TestThePackageImportsTheStandardLibraryAndItsRootOnly(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, path := range strings.Fields(string(out)) {
		if strings.Contains(path, ".") && path != "github.com/retryafter-go/retryafter" {
			t.Errorf("imports %s", path)
		}
	}
}
