package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A scene is one request, what the server says to it, and what must come of it.
type scene struct {
	name    string
	about   string
	method  string
	key     string        // the Idempotency-Key, for what may be repeated though its method doesn't say so
	timeout time.Duration // the caller's deadline; 0: none
	answers []answer      // in turn
	sent    int           // how many attempts must arrive
	stop    retryafter.Reason
}

// returns are the scenes in which the client comes back.
var returns = []scene{
	{name: "delay-seconds", about: "a 503 that names a number of seconds",
		method: "GET", sent: 2, stop: retryafter.Final,
		answers: []answer{{status: 503, back: inSeconds(1)}, {status: 200}}},
	{name: "IMF-fixdate", about: "a 429 that names a date",
		method: "GET", sent: 2, stop: retryafter.Final,
		answers: []answer{{status: 429, back: onDate(http.TimeFormat, 2*time.Second)}, {status: 200}}},
	{name: "rfc850-date", about: "a 503 with a date in a form that is obsolete",
		method: "GET", sent: 2, stop: retryafter.Final,
		answers: []answer{{status: 503, back: onDate(rfc850, 2*time.Second)}, {status: 200}}},
	{name: "asctime-date", about: "a 429 with the other such form",
		method: "GET", sent: 2, stop: retryafter.Final,
		answers: []answer{{status: 429, back: onDate(time.ANSIC, 2*time.Second)}, {status: 200}}},
	{name: "redirect", about: "a 303 that asks to wait before it is followed",
		method: "GET", sent: 2, stop: retryafter.Final,
		answers: []answer{{status: 303, back: inSeconds(1), location: "/redirect/result"}, {status: 200}}},
	{name: "zero", about: "a 503 that asks for no wait, so that the local backoff decides",
		method: "GET", sent: 2, stop: retryafter.Final,
		answers: []answer{{status: 503, back: inSeconds(0)}, {status: 200}}},
	{name: "keyed-post", about: "a POST whose Idempotency-Key makes it safe to repeat",
		method: "POST", key: `"7f3c"`, sent: 2, stop: retryafter.Final,
		answers: []answer{{status: 503, back: inSeconds(0)}, {status: 201}}},
}

// refusals are the scenes in which the client gives up at once. The times are
// so far apart that a slow machine is not taken for a client that sleeps.
var refusals = []scene{
	{name: "post", about: "a POST is not safe to repeat",
		method: "POST", sent: 1, stop: retryafter.MethodNotIdempotent,
		answers: []answer{{status: 503, back: inSeconds(5)}}},
	{name: "too-long", about: "an hour is more than MaxWait, which is " + defaultMaxWait.String(),
		method: "GET", sent: 1, stop: retryafter.WaitTooLong,
		answers: []answer{{status: 503, back: inSeconds(3600)}}},
	{name: "deadline", about: "the caller has 4s left",
		method: "GET", timeout: 4 * time.Second, sent: 1, stop: retryafter.DeadlineTooNear,
		answers: []answer{{status: 429, back: inSeconds(5)}}},
}

// scene sends s's request and sees whether what comes of it is what must. The
// error is that of an interruption.
func (d *demo) scene(ctx context.Context, s scene) error {
	record := d.server.script(s.name, s.answers)
	var report retryafter.Report // of the last hop
	announced, status := 0, 0
	t := &retryafter.Transport{Base: &d.base, Policy: policy(), Trace: &retryafter.Trace{
		Waiting: func(w retryafter.WaitInfo) {
			announced++
			d.server.announced(record, w.Until)
			d.timeline.add(time.Now(), waiting(s.name, w))
		},
		AttemptDone: func(a retryafter.Attempt) { status = a.StatusCode },
		Done: func(_ *http.Request, r retryafter.Report) {
			report = r
			d.timeline.add(time.Now(), ended(s.name, r, status))
		},
	}}
	got, body, err := d.send(ctx, t, s)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	returned := time.Now()
	seen := d.server.seen(record)
	d.calls++
	d.sent += len(seen.arrivals)

	broken := func(format string, args ...any) { d.timeline.broken(s.name, format, args...) }
	if err != nil {
		broken("the call failed: %v", err)
		return nil
	}
	if n := len(seen.arrivals); n != s.sent {
		broken("sent %d times, want %d", n, s.sent)
	}
	if want := s.answers[len(s.answers)-1].status; got != want {
		broken("the call ended with a %d, want the %d", got, want)
	}
	if body != bodyOf(got) {
		broken("the body came as %q, want it whole: %q", body, bodyOf(got))
	}
	for _, key := range seen.keys {
		if key != s.key {
			broken("the Idempotency-Key arrived as %q, want %q", key, s.key)
		}
	}
	if report.Stop != s.stop {
		broken("stopped for %v, want %v", report.Stop, s.stop)
	}
	if s.stop == retryafter.Final {
		return nil
	}
	if announced > 0 || report.Waited > 0 || !returned.Before(seen.named) {
		broken("slept %v before it gave up", report.Waited)
	}
	d.timeline.add(returned, event{
		Scene: s.name, Event: "returned", Status: got,
		who: "client", text: fmt.Sprintf("has the %d with its body, %s after the server got it, asleep for %v",
			got, short(returned.Sub(seen.arrivals[0])), report.Waited),
	})
	return nil
}

// send makes s's call, and reads the response to its end.
func (d *demo) send(ctx context.Context, t *retryafter.Transport, s scene) (status int, body string, err error) {
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	var content io.Reader
	if s.method == http.MethodPost {
		content = strings.NewReader("the order")
	}
	req, err := http.NewRequestWithContext(ctx, s.method, d.server.URL+"/"+s.name, content)
	if err != nil {
		return 0, "", err
	}
	if s.key != "" {
		req.Header.Set("Idempotency-Key", s.key)
	}
	resp, err := (&http.Client{Transport: d.client(t)}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

func waiting(scene string, w retryafter.WaitInfo) event {
	text := "waits " + sum(w.Decision)
	if w.Attempt == 1 {
		text += ", before it follows"
	}
	return event{Scene: scene, Event: "wait", Attempt: w.Attempt, parts: partsOf(w.Decision), who: "client", text: text}
}

// sum is d's wait, and what it is made of.
func sum(d retryafter.Decision) string {
	return fmt.Sprintf("%s: the larger of %s (server) and %s (local), plus %s jitter",
		short(d.Wait), short(d.Server), short(d.Local), short(d.Jitter))
}

// ended tells of a call of the Transport that ended with status. Where that is a
// redirect, which http.Client follows by another, it is no more than a hop.
func ended(scene string, r retryafter.Report, status int) event {
	e := event{Scene: scene, Event: "stop", Reason: r.Stop.String(), Sent: &r.Attempts, who: "client", text: "stops: " + r.String()}
	if status/100 == 3 && r.Stop == retryafter.Final {
		e.Event, e.text = "hop", "ends this hop: "+r.String()+", to be followed"
	}
	if r.Stop != retryafter.Final {
		e.parts = partsOf(r.Decision)
	}
	return e
}
