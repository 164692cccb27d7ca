package fleet

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/retryafter-go/retryafter"
)

// epoch is where virtual time begins.
var epoch = time.Date(2026, time.September, 8, 12, 0, 0, 0, time.UTC)

// A Result is what became of a fleet under one rule.
type Result struct {
	Rule Rule

	Completed, GaveUp int           // calls; together all
	Firsts, Attempts  int           // attempts that arrived, the first ones and all
	Early             int           // attempts that arrived before the latest instant that their call was told
	Worst             int           // arrivals in the worst Window since the server opened, or since the start
	Settled           time.Duration // from then until the last call was settled that was not served at once

	Windows []Arrivals // each of the length of a Window, since the start
}

// Arrivals are the attempts that arrived in some time, and how many of them came
// early or were served.
type Arrivals struct{ All, Early, Served int32 }

// ExtraLoad is how many attempts there were for each call that sent one.
func (r *Result) ExtraLoad() float64 { return float64(r.Attempts) / float64(max(r.Firsts, 1)) }

// A run is a Scenario under one Rule.
type run struct {
	*Scenario
	rule      Rule
	policy    retryafter.Policy
	draw      *rand.Rand
	server    retryafter.Bucket
	events    events
	clients   []client
	processes []process
	headers   map[time.Duration]http.Header
	last      time.Duration // when the last call was settled that was not served at once
	result    *Result

	call     retryafter.Call
	entering retryafter.Call
	at       time.Duration // of the event, for call's functions
	process  *process      // of the event, likewise
}

type client struct {
	told     time.Duration // not to come back before
	attempts int32
	late     bool // not served at once
}

type process struct {
	held   time.Duration // until when its Gate holds
	budget *retryafter.RetryBudget
	bucket *retryafter.Bucket
	line   []int32 // who waits for bucket
}

// Run puts a fleet through s under rule. Equal arguments give equal results.
// settled is called now and then with how many more calls have come to their end; nil
// is not. The error is that of ctx, or a *FieldError: of Check, or of Rules where
// the calls are not settled within LongestRun.
func (s *Scenario) Run(ctx context.Context, rule Rule, settled func(int)) (*Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if settled == nil {
		settled = func(int) {}
	}
	r := s.prepare(rule)
	return r.result, r.play(ctx, settled)
}

// prepare is a run that has not begun.
func (s *Scenario) prepare(rule Rule) *run {
	r := &run{
		Scenario:  s,
		rule:      rule,
		server:    retryafter.Bucket{Capacity: s.Capacity, Rate: s.Rate},
		clients:   make([]client, s.Clients),
		processes: make([]process, min(s.Processes, s.Clients)),
		headers:   make(map[time.Duration]http.Header),
		result:    &Result{Rule: rule},
	}
	r.draw = r.random(1)
	r.policy = rule.policy(s.Attempts, r.draw)
	r.equip()
	r.begin()
	return r
}

// random is the nth source of random draws. 0 says when calls begin, 1 what
// jitter they have.
func (s *Scenario) random(n uint64) *rand.Rand { return rand.New(rand.NewPCG(s.Seed, n)) }

// equip gives the processes what they share by the rule.
func (r *run) equip() {
	r.entering = retryafter.Call{
		Held:    func(time.Time) time.Duration { return r.process.held - r.at },
		Backoff: func() time.Duration { return 0 },
	}
	if r.rule.budget {
		r.call.Withdraw = func() bool { return r.process.budget.Withdraw("") }
	}
	for i := range r.processes {
		if r.rule.budget {
			r.processes[i].budget = &retryafter.RetryBudget{}
		}
		if r.rule.bucket {
			r.processes[i].bucket = r.share()
		}
	}
}

// begin sets when the calls begin: under every rule at the same instants.
func (r *run) begin() {
	draw := r.random(0)
	r.events = make(events, r.Clients)
	for i := range r.events {
		r.events[i].who = int32(i)
		if r.Over > 0 {
			r.events[i].at = time.Duration(draw.Int64N(int64(r.Over)))
		}
	}
	heap.Init(&r.events)
}

func (r *run) play(ctx context.Context, settled func(int)) error {
	told := 0
	for n := 0; len(r.events) > 0; n++ {
		if n%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			settled(r.settled() - told)
			told = r.settled()
		}
		e := r.events.next()
		if r.at = e.at; r.at > LongestRun {
			return &FieldError{"Rules", r.rule.Name, fmt.Sprintf("takes more than %v of virtual time", LongestRun)}
		}
		if e.who < 0 {
			r.process = &r.processes[-1-e.who]
			r.serveLine(-1 - e.who)
			continue
		}
		r.process = &r.processes[int(e.who)%len(r.processes)]
		r.enter(e.who)
	}
	settled(r.settled() - told)
	r.sumUp()
	return nil
}

func (r *run) settled() int { return r.result.Completed + r.result.GaveUp }

// enter is rule 2 of the package documentation: the Gate, then the Limiter, then
// the attempt.
func (r *run) enter(who int32) {
	if r.rule.gate && r.process.held > r.at {
		// A 503 without a Retry-After and without a local backoff leaves to
		// Decide just what the Gate was told.
		d := r.policy.Decide(retryafter.Attempt{StatusCode: http.StatusServiceUnavailable, Received: epoch.Add(r.at)}, r.entering)
		r.follow(who, &d)
		return
	}
	if r.process.bucket == nil {
		r.send(who)
		return
	}
	r.process.line = append(r.process.line, who)
	if len(r.process.line) == 1 {
		r.serveLine(who % int32(len(r.processes)))
	}
	r.clients[who].late = r.clients[who].late || len(r.process.line) > 0
}

// serveLine lets go as many of a process's line as there are tokens for, in the
// order in which they came.
func (r *run) serveLine(process int32) {
	p := r.process
	for len(p.line) > 0 {
		wait, err := p.bucket.TakeN(epoch.Add(r.at), 1)
		if err != nil {
			panic(err) // Check has seen the settings, and 1 is never too much
		}
		if wait > 0 {
			r.events.add(r.at+wait, -1-process)
			return
		}
		first := p.line[0]
		p.line = p.line[1:]
		r.send(first)
	}
	p.line = nil
}

// send is one attempt, its answer, and what follows.
func (r *run) send(who int32) {
	c := &r.clients[who]
	c.attempts++
	r.result.Attempts++
	if c.attempts == 1 {
		r.result.Firsts++
	}
	window := r.window()
	window.All++
	if r.at < c.told {
		r.result.Early++
		window.Early++
	}
	wait := r.answer(r.at)
	if wait == 0 {
		window.Served++
		r.complete(c)
		return
	}
	a := retryafter.Attempt{Number: int(c.attempts), StatusCode: r.Status, Received: epoch.Add(r.at)}
	if hint := r.hint(wait); hint > 0 {
		a.Header = r.header(hint)
		c.told = max(c.told, r.at+hint)
		r.process.held = r.at + hint // later than before, for a held process sends nothing
	}
	d := r.policy.Decide(a, r.call)
	r.follow(who, &d)
}

// follow does what d says.
func (r *run) follow(who int32, d *retryafter.Decision) {
	r.clients[who].late = true
	if d.Retry {
		r.events.add(r.at+r.rule.wait(d, r.draw), who)
		return
	}
	r.result.GaveUp++
	r.last = r.at
}

func (r *run) complete(c *client) {
	r.result.Completed++
	if c.late {
		r.last = r.at
	}
	switch {
	case !r.rule.budget:
	case c.attempts == 1:
		r.process.budget.Deposit("")
	default:
		r.process.budget.Refund("")
	}
}

// header is that of a refusal with a Retry-After.
func (r *run) header(hint time.Duration) http.Header {
	h := r.headers[hint]
	if h == nil {
		h = http.Header{"Retry-After": {strconv.FormatInt(int64(hint/time.Second), 10)}}
		r.headers[hint] = h
	}
	return h
}

// window is where arrivals are counted now.
func (r *run) window() *Arrivals {
	i := int(r.at / Window)
	for len(r.result.Windows) <= i {
		r.result.Windows = append(r.result.Windows, Arrivals{})
	}
	return &r.result.Windows[i]
}

func (r *run) sumUp() {
	r.result.Settled = max(r.last-r.Opens, 0)
	for _, w := range r.result.Windows[min(int(r.Opens/Window), len(r.result.Windows)):] {
		r.result.Worst = max(r.result.Worst, int(w.All))
	}
}
