package fleet

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Rule is how clients behave that were refused.
//
// All rules decide by Policy.Decide whether there is another attempt, and use the
// default local backoff where a refusal has no Retry-After. Those of the
// library also wait what it says. The others bend the wait, and refuse none
// for its length.
//
// RetryBudget and Bucket are the library's own, under virtual time. A Gate reads
// the clock itself, so a model of its memory stands in for it: one instant a
// process, which refusals move forward, and which Decide is told of as
// Call.Held. The line before a Bucket is a model too; the tokens are real.
type Rule struct {
	Name  string
	About string

	bend                 func(server, local time.Duration, draw *rand.Rand) time.Duration // nil: the library's wait
	still                bool                                                             // NoJitter
	gate, budget, bucket bool
}

// Rules are all that there are.
var Rules = []Rule{
	{Name: "retryafter", About: "the zero Policy: max(server's delay, backoff) plus jitter"},
	{Name: "retryafter+gate", About: "and a Gate, which the calls of a process share", gate: true},
	{Name: "retryafter+budget", About: "and a RetryBudget, which the calls of a process share", budget: true},
	{Name: "retryafter+bucket", About: "and a Bucket with the process's share of the capacity", bucket: true},
	{Name: "nojitter", About: "the zero Policy with NoJitter", still: true},
	{Name: "exact", About: "the server's delay, as most clients wait it", bend: exact},
	{Name: "max", About: "max(server's delay, jittered local backoff)", bend: larger},
	{Name: "symmetric", About: "the server's delay, up to a quarter more or less", bend: symmetric},
	{Name: "clamped", About: "the server's delay, cut at 2s", bend: clamped},
}

func exact(server, _ time.Duration, _ *rand.Rand) time.Duration { return server }

func larger(server, local time.Duration, _ *rand.Rand) time.Duration { return max(server, local) }

func symmetric(server, _ time.Duration, draw *rand.Rand) time.Duration {
	return server - server/4 + upTo(server/2, draw)
}

func clamped(server, _ time.Duration, _ *rand.Rand) time.Duration {
	return min(server, 2*time.Second)
}

func upTo(most time.Duration, draw *rand.Rand) time.Duration {
	return time.Duration(draw.Uint64N(uint64(most) + 1))
}

// policy is r's Policy. Its jitter has the documented shape of the default, but
// comes from draw, so that a run can be repeated.
func (r *Rule) policy(attempts int, draw *rand.Rand) retryafter.Policy {
	p := retryafter.Policy{MaxAttempts: attempts, Jitter: jitter(draw)}
	if r.still || r.bend != nil {
		p.Jitter = retryafter.NoJitter
	}
	if r.bend != nil {
		p.MaxWait = -1
	}
	return p
}

func jitter(draw *rand.Rand) retryafter.Jitter {
	return func(wait time.Duration, fromServer bool) time.Duration {
		if fromServer {
			wait = min(max(wait/4, time.Second), 30*time.Second)
		}
		return upTo(wait, draw)
	}
}

// wait is how long r waits by d, the decision of its Policy.
func (r *Rule) wait(d *retryafter.Decision, draw *rand.Rand) time.Duration {
	if r.bend == nil {
		return d.Wait
	}
	local := d.Local + upTo(min(d.Local, math.MaxInt64-d.Local), draw)
	if d.HintErr != nil {
		return local
	}
	return r.bend(d.Server, local, draw)
}
