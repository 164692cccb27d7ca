package hints_test

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/fixtures"
	"github.com/retryafter-go/retryafter/hints"
	"github.com/retryafter-go/retryafter/throttle"
)

var noon = time.Date(2026, 9, 8, 12, 0, 0, 0, time.UTC)

// reader is what a row of the table is to be read with.
func reader(t *testing.T, v fixtures.VendorField) hints.Reader {
	meanings := map[string]hints.Meaning{
		"seconds": hints.Seconds, "milliseconds": hints.Milliseconds, "duration": hints.Duration,
		"epoch-seconds": hints.EpochSeconds, "epoch-milliseconds": hints.EpochMilliseconds, "timestamp": hints.Timestamp,
	}
	if m, ok := meanings[v.Reader]; ok {
		return hints.Reset{Field: v.Field, Meaning: m, Remaining: v.Remaining}.Hint
	}
	profiles := map[string]hints.Reader{
		"ratelimit": hints.RateLimit, "github": hints.GitHub{}.Hint, "openai": hints.OpenAI{}.Hint,
		"anthropic": hints.Anthropic{}.Hint, "azure": hints.Azure{}.Hint,
	}
	if profiles[v.Reader] == nil {
		t.Fatalf("%s: no reader %q", v.ID, v.Reader)
	}
	return profiles[v.Reader]
}

// check compares what was read with what v says must be.
func check(t *testing.T, v fixtures.VendorField, got retryafter.Hint, err error) {
	t.Helper()
	field, unreadable := errors.AsType[*hints.FieldError](err)
	verdict := ""
	switch {
	case err == retryafter.ErrNoHint:
		verdict = "none"
	case unreadable:
		verdict = "unreadable"
		if v.Header.Values(field.Field) == nil || field.Problem == "" {
			t.Errorf("%s: the error is %#v", v.ID, field)
		}
	case err != nil:
		t.Errorf("%s: %v", v.ID, err)
	}
	type reading struct {
		Verdict string
		Delay   time.Duration
		Date    time.Time
	}
	if diff := cmp.Diff(reading{v.Verdict, v.Delay, v.Instant}, reading{verdict, got.Delay, got.Date}); diff != "" {
		t.Errorf("%s: %q, %s (-want +got):\n%s", v.ID, v.Header, v.Note, diff)
	}
}

func TestEveryVectorIsReadAsItSays(t *testing.T) {
	for _, v := range fixtures.VendorFields() {
		t.Run(v.ID, func(t *testing.T) {
			hint, err := reader(t, v)(v.Header, v.Received)
			check(t, v, hint, err)
		})
	}
}

func TestNoTimeZonePlaysAPart(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	for _, zone := range []*time.Location{time.FixedZone("odd", -7*3600-1234), time.FixedZone("west", -7*3600), time.FixedZone("east", 14*3600)} {
		time.Local = zone
		for _, v := range fixtures.VendorFields() {
			hint, err := reader(t, v)(v.Header, v.Received.In(zone))
			check(t, v, hint, err)
			if hint.Date.Location() != time.UTC {
				t.Errorf("%s: %v is not told in UTC", v.ID, hint.Date)
			}
		}
	}
}

func TestAPolicyGoesByTheLaterOfAVectorAndRetryAfter(t *testing.T) {
	for _, v := range fixtures.VendorFields() {
		told, err := retryafter.FromHeader(v.Header, v.Received)
		want := v.Delay
		if err == nil {
			want = max(want, told.Delay)
		}
		d := retryafter.Policy{Hint: reader(t, v)}.Decide(
			retryafter.Attempt{Number: 1, StatusCode: 429, Header: v.Header, Received: v.Received}, retryafter.Call{})
		if d.Server != want || d.Wait < want {
			t.Errorf("%s: the server's delay is %v and the wait %v, want %v", v.ID, d.Server, d.Wait, want)
		}
		if v.Verdict == "unreadable" && d.Server == 0 && err == retryafter.ErrNoHint {
			if _, ok := errors.AsType[*hints.FieldError](d.HintErr); !ok {
				t.Errorf("%s: the decision hides what can't be read: %v", v.ID, d.HintErr)
			}
		}
	}
}

func TestDelaysOfOneLineAllocateNothing(t *testing.T) {
	count := 0
	for _, v := range fixtures.VendorFields() {
		switch v.Reader {
		case "seconds", "milliseconds", "duration", "ratelimit", "openai", "azure":
		default:
			continue // instants are formatted for FromHeader
		}
		if v.Verdict != "" || len(v.Header["Ratelimit"]) > 1 {
			continue
		}
		v.Field, v.Remaining = http.CanonicalHeaderKey(v.Field), http.CanonicalHeaderKey(v.Remaining)
		if v.ID == "O07" || v.ID == "O09" || v.ID == "R09" {
			continue // they have an error to make, too
		}
		count++
		read := reader(t, v)
		n := testing.AllocsPerRun(20, func() {
			if _, err := read(v.Header, v.Received); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", v.ID, n)
		}
	}
	if count < 30 {
		t.Errorf("only %d rows were read", count)
	}
}

func TestAResetThatMakesNoSenseIsAConfigError(t *testing.T) {
	h := http.Header{"X-Wait": {"5"}}
	for field, r := range map[string]hints.Reset{
		"Reset.Field":   {Meaning: hints.Seconds},
		"Reset.Meaning": {Field: "X-Wait"},
	} {
		hint, err := r.Hint(h, noon)
		if config, ok := errors.AsType[*retryafter.ConfigError](err); !ok || config.Field != field || hint != (retryafter.Hint{}) {
			t.Errorf("%+v: %+v, %v", r, hint, err)
		}
	}
	if _, err := (hints.Reset{Field: "X-Wait", Meaning: hints.Timestamp + 1}).Hint(h, noon); err == nil || !strings.Contains(err.Error(), `Reset.Meaning`) {
		t.Errorf("a meaning that doesn't exist: %v", err)
	}
}

func TestNamesOfFieldsAreReadInAnyCase(t *testing.T) {
	h := http.Header{}
	h.Set("x-wAIT", "5")
	h.Set("x-LEFT", "0")
	if hint, err := (hints.Reset{Field: "X-WAIT", Meaning: hints.Seconds, Remaining: "x-left"}).Hint(h, noon); err != nil || hint.Delay != 5*time.Second {
		t.Errorf("%v, %v", hint, err)
	}
}

// says is a Reader that always says the same.
func says(delay time.Duration, err error) hints.Reader {
	return func(http.Header, time.Time) (retryafter.Hint, error) { return retryafter.Hint{Delay: delay}, err }
}

func TestLatestAndFirst(t *testing.T) {
	bad, worse := errors.New("bad"), errors.New("worse")
	none := retryafter.ErrNoHint
	for _, tc := range []struct {
		name     string
		readers  []hints.Reader
		latest   time.Duration
		first    time.Duration
		wrong    error
		notAsked bool // First must not come to the last one
	}{
		{"no reader", nil, 0, 0, none, false},
		{"nothing to read", []hints.Reader{says(9, none), says(9, none)}, 0, 0, none, false},
		{"one", []hints.Reader{says(9, none), says(3, nil)}, 3, 3, nil, false},
		{"two", []hints.Reader{says(3, nil), says(5, nil)}, 5, 3, nil, true},
		{"the later before", []hints.Reader{says(5, nil), says(3, nil)}, 5, 5, nil, true},
		{"now", []hints.Reader{says(9, bad), says(0, nil)}, 0, 0, nil, false},
		{"an error before", []hints.Reader{says(9, bad), says(3, nil)}, 3, 3, nil, false},
		{"an error behind", []hints.Reader{says(3, nil), says(9, bad)}, 3, 3, nil, true},
		{"an error among nothing", []hints.Reader{says(9, none), says(9, bad), says(9, none)}, 0, 0, bad, false},
		{"two errors", []hints.Reader{says(9, bad), says(9, worse)}, 0, 0, bad, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if hint, err := hints.Latest(tc.readers...)(nil, noon); hint.Delay != tc.latest || err != tc.wrong {
				t.Errorf("Latest: %v, %v", hint.Delay, err)
			}
			asked := 0
			counted := make([]hints.Reader, len(tc.readers))
			for i, read := range tc.readers {
				counted[i] = func(h http.Header, received time.Time) (retryafter.Hint, error) {
					asked++
					return read(h, received)
				}
			}
			if hint, err := hints.First(counted...)(nil, noon); hint.Delay != tc.first || err != tc.wrong {
				t.Errorf("First: %v, %v", hint.Delay, err)
			}
			if tc.notAsked == (asked == len(tc.readers)) {
				t.Errorf("First asked %d of %d readers", asked, len(tc.readers))
			}
		})
	}
}

func TestShouldRetryObeysTheServer(t *testing.T) {
	never := func(retryafter.Attempt) bool { return false }
	always := func(retryafter.Attempt) bool { return true }
	for _, tc := range []struct {
		status    int
		lines     []string
		otherwise func(retryafter.Attempt) bool
		want      bool
	}{
		{400, nil, nil, false},
		{400, []string{"true"}, nil, true},
		{500, nil, nil, true},
		{500, []string{"false"}, nil, false},
		{500, []string{"False"}, nil, true},
		{400, []string{"yes"}, nil, false},
		{400, []string{" true\t"}, nil, true},
		{400, []string{""}, nil, false},
		{500, []string{"true, false"}, nil, false},
		{500, []string{"true", "false"}, nil, false},
		{500, []string{"junk", "false"}, nil, false},
		{500, nil, never, false},
		{500, []string{"true"}, never, true},
		{400, nil, always, true},
		{400, []string{"false"}, always, false},
		{200, []string{"true"}, nil, false}, // what is done is not done again
		{202, []string{"true"}, nil, false},
		{304, []string{"true"}, nil, false},
		{399, []string{"true"}, nil, false},
		{200, []string{"true"}, always, true},
		{200, []string{"false"}, always, false},
		{0, []string{"true"}, nil, false},
		{599, []string{"true"}, nil, true},
	} {
		h := http.Header{}
		for _, line := range tc.lines {
			h.Add("Stripe-Should-Retry", line)
		}
		a := retryafter.Attempt{Number: 1, StatusCode: tc.status, Header: h, Received: noon}
		if got := hints.ShouldRetry("stripe-should-retry", tc.otherwise)(a); got != tc.want {
			t.Errorf("%d with %q: %v", tc.status, tc.lines, got)
		}
	}
}

func TestAFieldErrorQuotesALittle(t *testing.T) {
	err := &hints.FieldError{Field: "X-Wait", Value: strings.Repeat("x", 65), Problem: "want seconds"}
	if got, want := err.Error(), `hints: X-Wait "`+strings.Repeat("x", 64)+`"...: want seconds`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	err.Value = err.Value[:64]
	if got, want := err.Error(), `hints: X-Wait "`+err.Value+`": want seconds`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	err.Value = "so\non"
	if got, want := err.Error(), `hints: X-Wait "so\non": want seconds`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWhatIsSaturatedEndsTheCall(t *testing.T) {
	h := http.Header{"X-Ratelimit-Reset": {strings.Repeat("9", 100)}, "X-Ratelimit-Remaining": {"0"}}
	d := retryafter.Policy{Hint: hints.GitHub{}.Hint, Retry: hints.GitHub{}.Retry, MaxWait: 1000 * time.Hour}.Decide(
		retryafter.Attempt{Number: 1, StatusCode: 403, Header: h, Received: noon}, retryafter.Call{})
	if d.Retry || d.Reason != retryafter.WaitTooLong || d.Server != math.MaxInt64 {
		t.Errorf("%+v", d)
	}
}

func TestWhatThrottleWritesIsRead(t *testing.T) {
	handler := &throttle.Handler{
		Next:   http.NotFoundHandler(),
		Limit:  throttle.Keyed(&retryafter.Keyed{Capacity: 2, Rate: retryafter.Rate{Tokens: 1, Per: time.Hour}}),
		Key:    func(*http.Request) (retryafter.Key, error) { return "k", nil },
		Policy: `a "name", with; signs`,
	}
	for _, left := range []bool{true, false, false} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		h := w.Result().Header
		told, refused := retryafter.FromHeader(h, noon)
		h.Del("Retry-After")
		hint, err := hints.RateLimit(h, noon)
		switch {
		case left:
			if err != retryafter.ErrNoHint {
				t.Errorf("one left, by %q: %v, %v", h["Ratelimit"], hint, err)
			}
		case err != nil || hint.Delay < 50*time.Minute || refused == nil && hint.Delay > told.Delay:
			t.Errorf("none left, by %q: %v, %v; Retry-After says %v", h["Ratelimit"], hint, err, told)
		}
	}
}
