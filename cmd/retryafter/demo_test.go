package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// hasty repeats whatever was refused, once and at once, and asks no Limiter.
func hasty(t *retryafter.Transport) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := t.Base.RoundTrip(req)
		if err != nil || resp.StatusCode < 400 {
			return resp, err
		}
		resp.Body.Close()
		req = req.Clone(req.Context())
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		return t.Base.RoundTrip(req)
	})
}

// sleepy gives up as it should, but sleeps before.
func sleepy(t *retryafter.Transport) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := t.RoundTrip(req)
		time.Sleep(600 * time.Millisecond)
		return resp, err
	})
}

// wasteful gives up as it should, but eats the body.
func wasteful(t *retryafter.Transport) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := t.RoundTrip(req)
		if err == nil {
			io.CopyN(io.Discard, resp.Body, 1)
		}
		return resp, err
	})
}

func TestSceneFindsBrokenPromises(t *testing.T) {
	soon := func(now time.Time) (string, time.Time) { return "1", now.Add(500 * time.Millisecond) }
	for _, c := range []struct {
		name   string
		client client
		want   string // "": none
	}{
		{"honest", honest, ""},
		{"hasty", hasty, "EARLY: attempt 2 came"},
		{"hasty", hasty, "sent 2 times, want 1"},
		{"sleepy", sleepy, "before it gave up"},
		{"wasteful", wasteful, "want it whole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			d := demo{timeline: &timeline{out: &out, start: time.Now()}, client: c.client}
			var err error
			if d.server, err = serve(d.timeline); err != nil {
				t.Fatal(err)
			}
			defer d.server.Close()
			defer d.base.CloseIdleConnections()
			err = d.scene(t.Context(), scene{name: "post", method: "POST", sent: 1,
				stop: retryafter.MethodNotIdempotent, answers: []answer{{status: 503, back: soon}}})
			if err != nil {
				t.Fatal(err)
			}
			if broken := d.timeline.count() > 0; broken != (c.want != "") || !strings.Contains(out.String(), c.want) {
				t.Errorf("got %d problems, want %q among them:\n%s", d.timeline.count(), c.want, &out)
			}
		})
	}
}

func TestOnlyARedirectThatIsFollowedIsAHop(t *testing.T) {
	for _, c := range []struct {
		stop   retryafter.Reason
		status int
		event  string
	}{
		{retryafter.Final, 303, "hop"},
		{retryafter.Final, 200, "stop"},
		{retryafter.Final, 404, "stop"},
		{retryafter.WaitTooLong, 303, "stop"}, // before the next hop
	} {
		if got := ended("scene", retryafter.Report{Stop: c.stop}, c.status).Event; got != c.event {
			t.Errorf("%v with a %d is told as a %s, want a %s", c.stop, c.status, got, c.event)
		}
	}
}

func TestArrivalIsEarlyByANanosecond(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name         string
		named, until time.Time
		broken       int
	}{
		{"on both instants", now, now, 0},
		{"before the instant named", now.Add(1), now, 1},
		{"before the end of the wait", now, now.Add(1), 1},
		{"before both", now.Add(1), now.Add(1), 2},
		{"nothing named", time.Time{}, time.Time{}, 0},
	} {
		r := record{answers: []answer{{status: 503}, {status: 200}}, named: c.named, until: c.until}
		if _, _, broken := r.arrive(now); len(broken) != c.broken {
			t.Errorf("%s: %q, want %d problems", c.name, broken, c.broken)
		}
	}
}

func TestBudgetIsExceededByANanosecond(t *testing.T) {
	start := time.Now()
	at := func(after ...time.Duration) (all []time.Time) {
		for _, d := range after {
			all = append(all, start.Add(d))
		}
		return all
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name     string
		arrivals []time.Time
		margin   time.Duration
		broken   bool
	}{
		{"the burst alone", at(0, 0, 0), 0, false},
		{"on the bound", at(0, 0, 0, 100*ms, 200*ms), 0, false},
		{"in any order", at(203*ms, 0, 102*ms, 0, 0), 2 * ms, false},
		{"one too early", at(0, 0, 0, 100*ms-1, 200*ms), -1, true},
		{"a later one too early", at(0, 0, 0, 150*ms, 200*ms-1), -1, true},
		{"all at once", at(0, 0, 0, 0), -100 * ms, true},
	} {
		margin, broken := withinBudget(start, c.arrivals, 3, retryafter.PerSecond(10))
		if margin != c.margin || (broken != "") != c.broken {
			t.Errorf("%s: %v, %q; want %v, %t", c.name, margin, broken, c.margin, c.broken)
		}
	}
}

func TestNamingsNameWhatTheySay(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name naming
		form retryafter.Form
	}{
		{inSeconds(2), retryafter.Seconds},
		{onDate(http.TimeFormat, 2*time.Second), retryafter.IMFFixdate},
		{onDate(rfc850, 2*time.Second), retryafter.RFC850Date},
		{onDate(time.ANSIC, 2*time.Second), retryafter.AsctimeDate},
	} {
		value, named := c.name(now)
		h, err := retryafter.Parse(value, now)
		if err != nil || h.Form != c.form || h.Delay != named.Sub(now) {
			t.Errorf("%q names %v from now; read as %+v, %v", value, named.Sub(now), h, err)
		}
		if d := named.Sub(now); d <= time.Second && c.form != retryafter.Seconds || d > 2*time.Second {
			t.Errorf("%q is %v ahead", value, d)
		}
	}
}
