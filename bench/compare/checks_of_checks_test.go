package compare

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter/bench/internal/peers"
)

// waiting is a client that repeats everything that is no success, once more
// than it should, without its body, after a part of the local backoff.
func waiting(part float64) contender {
	return contender{Peer: peers.Peer{Name: "careless", Transport: func(base http.RoundTripper, s peers.Settings) http.RoundTripper {
		return peers.Do(func(req *http.Request) (*http.Response, error) {
			for attempt := 1; ; attempt++ {
				resp, err := base.RoundTrip(req)
				if err == nil && resp.StatusCode < 400 || attempt > s.Attempts {
					return resp, err
				}
				time.Sleep(time.Duration(part * float64(s.Backoff)))
				req.Body, req.ContentLength = http.NoBody, 0
			}
		})
	}}}
}

// careless does everything wrong that the others get right.
var careless = waiting(0.001)

func TestEveryCheckIsFailedBySomebody(t *testing.T) {
	all := append(contenders()[1:], careless)
	for _, s := range sections() {
		for _, check := range s.checks {
			failed := false
			for _, c := range all {
				v := c.judge(t, check)
				failed = failed || !v.none && !v.right
			}
			if !failed {
				t.Errorf("nobody fails: %s", check.what)
			}
		}
	}
}

func TestTheCarelessOneIsFoundOut(t *testing.T) {
	want := map[string]string{}
	for saw, ids := range map[string][]string{
		"✗ not heeded": {"seconds", "imf", "rfc850", "asctime", "second-60", "two-digits", "huge", "immense",
			"lines", "merged", "junk-line", "other-status", "clock", "not-cut", "elapsed"},
		"✗ after 0 s":               {"negative", "plus", "junk", "max", "redirect"},
		"✗ 50 at once":              {"spread"},
		"✗ too early":               {"never-early"},
		"✗ tried again":             {"deadline", "client-timeout"},
		"✗ no wait":                 {"cancel"},
		"✗ sent 4 times":            {"cap", "certificate"},
		"✗ status 503, \"busy 4\"":  {"last"},
		"✗ a body of 0 bytes":       {"put"},
		"✗ empty the second time":   {"opaque"},
		"✗ sent twice":              {"post-503", "post-dead"},
		`✗ with key "one", body ""`: {"post-key"},
		"✗ 400 sent 4 times":        {"not-found"},
		"✗ a wait of 0 s":           {"concurrent"},
		"✗ Body replaced":           {"left-alone"},
		"✗ 101 connections":         {"connections"},
		"✗ 200 left":                {"goroutines"},
		"✗":                         {"idle"},
	} {
		for _, id := range ids {
			want[id] = saw
		}
	}
	for _, s := range sections() {
		for _, check := range s.checks {
			if got := careless.judge(t, check).String(); got != cmp.Or(want[check.id], "✓") {
				t.Errorf("%s: got %q, want %q", check.what, got, cmp.Or(want[check.id], "✓"))
			}
		}
	}
}

func TestIDsAreThoseOfChecks(t *testing.T) {
	ids := map[string]bool{}
	for _, s := range sections() {
		for _, check := range s.checks {
			if ids[check.id] {
				t.Errorf("two checks are %q", check.id)
			}
			ids[check.id] = true
		}
	}
	for _, c := range contenders() {
		for id := range both(c.lacks, c.notes) {
			if !ids[id] {
				t.Errorf("%s: %q is no check", c.Name, id)
			}
		}
		for id := range c.notes {
			if c.lacks[id] != "" {
				t.Errorf("%s: %q has a note, and a reason not to be checked", c.Name, id)
			}
		}
	}
}

func TestAContenderCannotTakeTheOthersDown(t *testing.T) {
	for name, test := range map[string]struct {
		check func(*run) verdict
		want  string
	}{
		"panics":                   {func(*run) verdict { panic("at the disco") }, "✗ panics: at the disco"},
		"hangs":                    {func(*run) verdict { select {} }, "✗ deadlock: all goroutines in bubble are blocked"},
		"leaves a goroutine":       {func(*run) verdict { go func() { select {} }(); return right }, "✗ deadlock: main bubble goroutine has exited but blocked goroutines remain"},
		"is wrong, and leaves one": {func(*run) verdict { go func() { select {} }(); return wrong("early") }, "✗ early"},
		"is right":                 {func(*run) verdict { return right }, "✓"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := careless.verdict(t, test.check).String(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheServerIsAsStrictAsNetHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{contender: careless, ctx: t.Context()}
		r.once(settings)
		req := r.request("PUT", "/", strings.NewReader("body"))
		req.Body = io.NopCloser(strings.NewReader(""))
		if _, err := r.server.RoundTrip(req); err == nil || len(r.server.arrived("/")) > 0 {
			t.Errorf("a body that is too short arrives as %v", r.server.arrived("/"))
		}
	})
}

func TestALocalBackoffHoldsFromItsFirstToItsLast(t *testing.T) {
	for _, test := range []struct {
		part, least float64
		want        string
	}{
		{1, 0, "✓"},
		{0.75, 0, "✗ after 15 s"},
		{0.75, 0.75, "✓"},
		{0.5, 0.001, "✗ after 10 s"}, // never longer than half, whatever its jitter is said to leave
	} {
		c := waiting(test.part)
		c.least = test.least
		if got := c.verdict(t, localHolds("junk")).String(); got != test.want {
			t.Errorf("%v of it, where %v is the least: got %q, want %q", test.part, test.least, got, test.want)
		}
	}
}
