package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter"
)

// cleared is the end of a countdown.
var cleared = regexp.MustCompile(`\rattempt 2 of 3 in \S+ \r +\r$`)

func TestTellerEndsItsCountdownWithTheWait(t *testing.T) {
	req, err := http.NewRequest("GET", "http://user:hunter2@example.com/path?token=hunter2#hunter2", nil)
	if err != nil {
		t.Fatal(err)
	}
	d := retryafter.Decision{Server: time.Minute, Wait: time.Minute}
	for _, c := range []struct {
		name string
		then func(*teller)
		why  string
	}{
		{"an attempt follows", func(l *teller) { l.sends(req) }, "interrupted before there was a response"},
		{"it is broken off", func(l *teller) { l.done(req, retryafter.Report{Stop: retryafter.Canceled}) },
			"interrupted: attempt 2 of 3 would have left in 1m0s, for the server asked for 1m0s"},
		{"another follows", func(l *teller) {
			l.waiting(retryafter.WaitInfo{Request: req, Attempt: 2, Limiter: true, Wait: time.Second, Until: time.Now().Add(time.Second)})
			synctest.Wait()
			l.done(req, retryafter.Report{Stop: retryafter.Canceled})
		}, "interrupted: attempt 2 of 3 would have left in 1s, for so much --rate needs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				l := &teller{out: &out, flags: &getCommand{MaxAttempts: 3}, live: true}
				if f := l.begin(req.URL); f.URL != "http://example.com/path" {
					t.Errorf("tells of %s", f.URL)
				}
				l.waiting(retryafter.WaitInfo{Request: req, Attempt: 2, StatusCode: 503, Wait: d.Wait, Until: time.Now().Add(d.Wait), Decision: d})
				synctest.Wait()
				c.then(l)
				if l.clock != nil || !cleared.MatchString(out.String()) {
					t.Errorf("it goes on: %q", &out)
				}
				if why := l.interrupted(); why != c.why {
					t.Errorf("%q, want %q", why, c.why)
				}
				l.end(statusInterrupted, "the end")
				if !strings.HasSuffix(out.String(), "\rretryafter: the end\n") || strings.Contains(out.String(), "hunter2") {
					t.Errorf("%q", &out)
				}
			})
		})
	}
}
