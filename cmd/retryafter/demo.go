package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/retryafter-go/retryafter"
)

type demoCommand struct {
	JSON bool `help:"Print one JSON object an event."`
}

// Help stands below the usage.
func (*demoCommand) Help() string {
	return `The server listens on 127.0.0.1 and is gone at the end; nothing leaves the machine. It keeps its own record of when attempts arrive, and the demo checks itself by it. All takes some 10 seconds.

Exit status:

  0    everything was as promised
  1    something was not: look for BROKEN
  2    wrong usage, no server could be started, or writing failed
  130  interrupted, by SIGINT or SIGTERM`
}

func (c *demoCommand) Run() error { return c.run(honest) }

func (c *demoCommand) run(client client) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	t := &timeline{out: os.Stdout, json: c.JSON, start: time.Now()}
	s, err := serve(t)
	if err != nil {
		return err
	}
	defer s.Close()
	d := demo{timeline: t, server: s, client: client}
	defer d.base.CloseIdleConnections()
	err = d.play(ctx)
	switch {
	case t.count() > 0:
		return statusNo
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "retryafter: interrupted")
		return statusInterrupted
	}
	return err
}

// A client makes what sends the requests of a scene: honest, but in tests of
// the demo something that breaks the promises.
type client func(*retryafter.Transport) http.RoundTripper

func honest(t *retryafter.Transport) http.RoundTripper { return t }

// A demo is one run of all scenes.
type demo struct {
	timeline    *timeline
	server      *server
	base        http.Transport
	client      client
	calls, sent int
}

// policy is the default one but for the jitter, which is smaller.
func policy() retryafter.Policy {
	return retryafter.Policy{Jitter: retryafter.Spread(0.1, 50*time.Millisecond, 200*time.Millisecond)}
}

// play plays all scenes. The error is that of an interruption, or of the
// timeline.
func (d *demo) play(ctx context.Context) error {
	t := d.timeline
	t.say("Real requests of a retryafter.Transport to a server on %s,", d.server.URL)
	t.say("and what happened, each with the seconds since the start. The policy is the default one,")
	t.say("but its jitter is Spread(0.1, 50ms, 200ms), so as not to keep you long.")

	t.say("\nThe server says when, and the client comes back then, never earlier. (Dates have whole")
	t.say("seconds, on the server's clock too, so that a return may be up to a second late.)")
	if err := d.scenes(ctx, returns); err != nil {
		return err
	}

	t.say("\n%d requests at once, through a Bucket of %d that gains %d a second:\n", burstRequests, burstCapacity, burstRate)
	if err := d.burst(ctx); err != nil {
		return err
	}

	t.say("\nThe wait can't be made, and the client gives up at once:")
	if err := d.scenes(ctx, refusals); err != nil {
		return err
	}
	d.summary()
	return t.failure()
}

func (d *demo) scenes(ctx context.Context, scenes []scene) error {
	for _, s := range scenes {
		d.timeline.say("\n          %s: %s", s.name, s.about)
		if err := d.scene(ctx, s); err != nil {
			return err
		}
		if err := d.timeline.failure(); err != nil {
			return err
		}
	}
	return nil
}

// summary is the last line.
func (d *demo) summary() {
	problems, now := d.timeline.count(), time.Now()
	early := "none early"
	if closest, any := d.server.closestReturn(); any && closest >= 0 {
		early += fmt.Sprintf(", the closest return %s after the instant named", short(closest))
	}
	text := fmt.Sprintf("All held: %d calls, %d attempts, %s; %s in all.", d.calls, d.sent, early, short(now.Sub(d.timeline.start)))
	if problems > 0 {
		text = fmt.Sprintf("BROKEN: %d promises or expectations did not hold; see above.", problems)
	}
	d.timeline.say("\n%s", text)
	d.timeline.add(now, event{Event: "summary", Calls: d.calls, Sent: &d.sent, Problems: &problems})
}
