package compare

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryafter-go/retryafter/bench/internal/peers"
)

// careless is a client that does everything wrong that the others get right.
var careless = contender{Peer: peers.Peer{Name: "careless", Transport: func(base http.RoundTripper, s peers.Settings) http.RoundTripper {
	var calls atomic.Int64 // of all callers together
	return peers.Do(func(req *http.Request) (*http.Response, error) {
		spent := calls.Add(1) > 10
		for attempt := 1; ; attempt++ {
			resp, err := base.RoundTrip(req)
			if err == nil && resp.StatusCode < 400 || attempt > s.Attempts || spent {
				return resp, err
			}
			time.Sleep(time.Millisecond)
			req.Body = http.NoBody
			req.ContentLength = 0
		}
	})
}}}

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
