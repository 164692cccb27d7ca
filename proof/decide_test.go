package proof

import (
	"math"
	"math/big"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
	"pgregory.net/rapid"
)

// extremes are the durations at which sums and comparisons go wrong.
var extremes = rapid.OneOf(
	rapid.SampledFrom([]time.Duration{0, 1, time.Second, time.Minute, 2 * time.Minute, 2*time.Minute + 1, math.MaxInt64, math.MaxInt64 - 1,
		math.MaxInt64 / 2, math.MaxInt64/2 + 1}),
	rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d")) }),
	rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "d"))
	}),
)

var signed = rapid.OneOf(extremes, rapid.Custom(func(t *rapid.T) time.Duration { return -extremes.Draw(t, "below zero") }),
	rapid.Just[time.Duration](math.MinInt64))

// TestDecideAgreesWithTheModel asks Decide itself, where no clock or wire
// bounds what can be asked.
func TestDecideAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			received = start.Add(time.Duration(rapid.Int64().Draw(t, "received")))
			server   = drawServer(t)
			local    = signed.Draw(t, "local")
			jitter   = signed.Draw(t, "jitter")
			status   = rapid.SampledFrom(statuses).Draw(t, "status")
			method   = rapid.SampledFrom([]string{"GET", "GET", "PUT", "POST", "patch"}).Draw(t, "method")
			number   = rapid.OneOf(rapid.IntRange(1, 6), rapid.IntRange(1, math.MaxInt)).Draw(t, "number")
			limit    = rapid.SampledFrom([]int{0, 0, 1, 3, 5, math.MaxInt, -1}).Draw(t, "cap")
			call     = retryafter.Call{MaxAttempts: limit}
			policy   = retryafter.Policy{
				MaxAttempts: rapid.SampledFrom([]int{0, -1, -1, math.MinInt, 1, 2, 5, math.MaxInt}).Draw(t, "max attempts"),
				MaxWait:     rapid.OneOf(rapid.Just[time.Duration](-1), signed).Draw(t, "max wait"),
				MaxElapsed:  rapid.OneOf(rapid.Just[time.Duration](0), signed).Draw(t, "max elapsed"),
				Reserve:     rapid.OneOf(rapid.Just[time.Duration](0), extremes).Draw(t, "reserve"),
				Jitter:      func(time.Duration, bool) time.Duration { return jitter },
			}
		)
		f := settings(policy)
		if limit > 0 {
			f.caps = append(f.caps, limit)
		}
		attempt := retryafter.Attempt{
			Number: number, StatusCode: status, Received: received, Header: server.write(received),
			Elapsed: extremes.Draw(t, "elapsed"),
			Request: &http.Request{Method: method},
		}
		if seldom(t, 3, "failed") {
			attempt.Err, attempt.StatusCode, attempt.Header, f.failed = rapid.SampledFrom(failures).Draw(t, "error"), 0, nil, true
		}
		told := false
		if attempt.Err == nil {
			f.server, told = server.means(received, received)
		}
		f.worth = worthByDefault(attempt.StatusCode, attempt.Err, told, false)
		f.idempotent, f.replayable, f.number, f.elapsed = repeatable(method, nil), true, number, attempt.Elapsed
		switch rapid.IntRange(0, 2).Draw(t, "backoff") {
		case 0:
			f.local = defaultBackoff(number, attempt.StatusCode, told)
		case 1:
			call.Backoff = func() time.Duration { return local }
			f.local, f.stopped = max(local, 0), local < 0
		case 2:
			policy.Backoff = func() backoff.BackOff { return &steps{list: []time.Duration{local}} }
			f.local, f.stopped = max(local, 0), local < 0
			if number > 1000 {
				attempt.Number, f.number = number%1000+1, number%1000+1
			}
		}
		f.jitter = jitter
		if rapid.Bool().Draw(t, "limited") {
			f.limiter = signed.Draw(t, "limiter")
			call.Limiter = func(at time.Time) time.Duration {
				if !at.Equal(received) {
					t.Errorf("the limiter was asked for %v, received %v", at, received)
				}
				return f.limiter
			}
		}
		// Every bound is put to the test where it is met exactly, or nearly.
		floor, need := max(f.server, f.local), judge(f).need
		near := func(d time.Duration, free *rapid.Generator[time.Duration], what string) time.Duration {
			if off := rapid.SampledFrom([]time.Duration{0, 1, -1}).Draw(t, "off"); seldom(t, 2, what) && d < math.MaxInt64 {
				return d + off
			}
			return free.Draw(t, what)
		}
		if rapid.Bool().Draw(t, "max wait near") {
			policy.MaxWait = near(floor, signed, "max wait")
			f.maxWait = settings(policy).maxWait
		}
		if rapid.Bool().Draw(t, "max elapsed near") {
			spent := new(big.Int).Add(big.NewInt(int64(f.elapsed)), big.NewInt(int64(need)))
			policy.MaxElapsed = near(saturated(spent), signed, "max elapsed")
			f.maxElapsed = policy.MaxElapsed
		}
		if rapid.Bool().Draw(t, "deadline") {
			left := near(need, signed, "deadline")
			call.Deadline = received.Add(left)
			f.left = big.NewInt(int64(left))
		}

		got := policy.Decide(attempt, call)
		want := judge(f)
		if got.Reason != want.reason || got.Retry != (want.reason == 0) {
			t.Fatalf("decided %v, want %v: %+v of %+v", got.Reason, want.reason, got, f)
		}
		if want.parts && (got.Wait != want.wait || got.Server != f.server || got.Local != f.local || got.Jitter != max(jitter, 0)) {
			t.Fatalf("decided %+v, want a wait of %v out of %+v", got, want.wait, f)
		}
		if !want.parts && got != (retryafter.Decision{Reason: want.reason}) {
			t.Fatalf("%v, and yet %+v", want.reason, got)
		}
		if want.parts && (got.HintErr == nil) != told {
			t.Fatalf("the server told %v, and the error is %v", told, got.HintErr)
		}
		if again := policy.Decide(attempt, call); !reflect.DeepEqual(got, again) {
			t.Fatalf("decided %+v, then %+v", got, again)
		}
	})
}

func TestLocalBackoffOnlyGrows(t *testing.T) {
	p := retryafter.Policy{MaxAttempts: -1, Jitter: retryafter.NoJitter}
	for _, a := range []retryafter.Attempt{{StatusCode: 503}, {StatusCode: 500}, {Err: failures[0]}} {
		last := time.Duration(0)
		for n := 1; n <= 1_000_000; n++ {
			if n > 100 && n < 999_000 && n%997 != 0 {
				continue
			}
			a.Number = n
			d := p.Decide(a, retryafter.Call{})
			if !d.Retry || d.Local < last || d.Local > 20*time.Second || d.Wait != d.Local {
				t.Fatalf("attempt %d of %v: %+v after %v", n, a, d, last)
			}
			if want := defaultBackoff(n, a.StatusCode, false); d.Local != want {
				t.Fatalf("attempt %d of %v: %v, want %v", n, a, d.Local, want)
			}
			last = d.Local
		}
	}
	a := retryafter.Attempt{StatusCode: 503, Number: math.MaxInt}
	if d := p.Decide(a, retryafter.Call{}); d.Local != 20*time.Second {
		t.Errorf("%+v", d)
	}
	a.Number = 1_000_000 // by stepping, which must not overflow either
	p.Backoff = func() backoff.BackOff {
		b := backoff.NewExponentialBackOff()
		b.MaxElapsedTime = 0
		return b
	}
	if d := p.Decide(a, retryafter.Call{}); !d.Retry || d.Local <= 0 {
		t.Errorf("%+v", d)
	}
}
