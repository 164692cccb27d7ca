package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/cmd/retryafter/internal/fleet"
)

type simulateCommand struct {
	Herd   herdCommand   `cmd:"" set:"rules=retryafter, exact, max, symmetric, clamped" help:"All clients are told in one instant to come back after a while."`
	Outage outageCommand `cmd:"" set:"rules=retryafter, retryafter+gate, retryafter+budget, exact, max, symmetric, clamped" help:"Calls come at random, and for a while the server refuses all of them."`
	Quota  quotaCommand  `cmd:"" set:"rules=retryafter, retryafter+bucket, exact, max, symmetric, clamped" help:"Calls come at random, and more of them than a quota lets through."`
}

// Help stands below the usage.
func (*simulateCommand) Help() string {
	return `A model in virtual time: nothing is sent. The clients decide by the library's own code; docs/simulations.md says what else is real and what is left out. The same flags give the same output.` + rulesHelp() + `

Exit status:

  0    done
  2    wrong usage, or writing failed
  130  interrupted, by SIGINT or SIGTERM`
}

func rulesHelp() string {
	var b strings.Builder
	b.WriteString("\n\nRules:\n")
	for _, r := range fleet.Rules {
		fmt.Fprintf(&b, "\n  %-17s  %s", r.Name, r.About)
	}
	return b.String()
}

// simulateFlags are those of every scenario.
type simulateFlags struct {
	Processes int      `default:"10" help:"Among how many processes the clients are spread; each has a Gate, a RetryBudget and a Bucket of its own, where the rule has one."`
	Attempts  int      `default:"3" help:"How many a call may make, by every rule."`
	Rules     []string `default:"${rules}" placeholder:"NAME" help:"What to set side by side; the rules stand above. Default: ${default}."`
	Seed      uint64   `default:"1" help:"Of all random draws."`
	Plot      string   `placeholder:"FILE" help:"Draw it, into FILE.svg or FILE.png."`
	JSON      bool     `help:"Print one JSON object a rule."`
}

type herdCommand struct {
	Clients  int           `default:"1000" help:"How many."`
	Delay    time.Duration `default:"60s" help:"What they are told to wait; until then the server refuses everything."`
	Capacity int64         `default:"100" help:"What the server serves a second, and in a burst."`
	simulateFlags
}

// Help stands below the usage.
func (*herdCommand) Help() string { return strings.TrimSpace(rulesHelp()) }

func (c *herdCommand) Run() error {
	switch {
	case c.Delay < time.Second:
		return fmt.Errorf("--delay %v must be at least 1s", c.Delay)
	case c.Delay%time.Second != 0: // of which no Retry-After tells
		return fmt.Errorf("--delay %v must be a multiple of 1s", c.Delay)
	}
	s := fleet.Scenario{
		Clients: c.Clients, Opens: c.Delay,
		Capacity: c.Capacity, Rate: retryafter.PerSecond(c.Capacity), Status: 503,
	}
	about := fmt.Sprintf("%d clients are told at once to come back after %v; then the server serves %d/s", c.Clients, c.Delay, c.Capacity)
	return c.simulate(&simulation{name: "herd", about: about, scenario: s, since: "the end of the delay",
		flags: map[string]string{"Opens": "--delay"}})
}

type outageCommand struct {
	Clients  int            `default:"30000" help:"How many; each makes one call."`
	Over     time.Duration  `default:"5m" help:"The calls begin within this time."`
	After    time.Duration  `default:"1m" help:"The outage begins after this time."`
	Outage   time.Duration  `default:"1m" help:"How long it lasts."`
	Capacity int64          `default:"200" help:"What the server serves a second, and in a burst."`
	Delay    *time.Duration `help:"The Retry-After of every refusal. Default: what is left of the outage; after it, until there is capacity for one."`
	NoHint   bool           `help:"Refuse without a Retry-After."`
	simulateFlags
}

// Help stands below the usage.
func (*outageCommand) Help() string { return strings.TrimSpace(rulesHelp()) }

func (c *outageCommand) Run() error {
	s := fleet.Scenario{
		Clients: c.Clients, Over: c.Over, Closes: c.After, Opens: c.After + c.Outage,
		Capacity: c.Capacity, Rate: retryafter.PerSecond(c.Capacity), Status: 503, NoHint: c.NoHint,
	}
	about := fmt.Sprintf("%d calls begin within %v; after %v the server is out for %v, else it serves %d/s", c.Clients, c.Over, c.After, c.Outage, c.Capacity)
	return c.simulate(&simulation{name: "outage", about: about, scenario: s, delay: c.Delay, since: "the end of the outage",
		flags: map[string]string{"Closes": "--after", "Opens": "--outage"}})
}

type quotaCommand struct {
	Clients int            `default:"2000" help:"How many; each makes one call."`
	Over    time.Duration  `default:"1m" help:"The calls begin within this time."`
	Quota   int64          `default:"600" help:"What the server serves a minute, and in a burst."`
	Delay   *time.Duration `help:"The Retry-After of every refusal. Default: until there is quota for one."`
	NoHint  bool           `help:"Refuse without a Retry-After."`
	simulateFlags
}

// Help stands below the usage.
func (*quotaCommand) Help() string { return strings.TrimSpace(rulesHelp()) }

func (c *quotaCommand) Run() error {
	s := fleet.Scenario{
		Clients: c.Clients, Over: c.Over,
		Capacity: c.Quota, Rate: retryafter.PerMinute(c.Quota), Status: 429, NoHint: c.NoHint,
	}
	about := fmt.Sprintf("%d calls begin within %v; the server serves %d/min", c.Clients, c.Over, c.Quota)
	return c.simulate(&simulation{name: "quota", about: about, scenario: s, delay: c.Delay, since: "the start",
		flags: map[string]string{"Capacity": "--quota"}})
}

// A simulation is a scenario with what it is called.
type simulation struct {
	name     string
	about    string // in one line
	since    string // what the worst window and the time until all is settled count from
	scenario fleet.Scenario
	delay    *time.Duration
	flags    map[string]string // by the field that each sets, where they are named otherwise
	results  []*fleet.Result
}

func (c *simulateFlags) simulate(s *simulation) error {
	s.scenario.Processes, s.scenario.Attempts, s.scenario.Seed = c.Processes, c.Attempts, c.Seed
	rules, err := c.rules()
	if err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	p, err := openPicture(c.Plot)
	if err != nil {
		return err
	}
	defer p.discard()
	ctx, stop := interruptible()
	defer stop()
	if !c.JSON {
		if _, err := fmt.Printf("%s.\n", s.about); err != nil {
			return err
		}
	}
	if err := s.run(ctx, rules); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "retryafter: interrupted")
			return statusInterrupted
		}
		return s.named(err)
	}
	if _, err := os.Stdout.Write(s.render(c.JSON)); err != nil {
		return err
	}
	return p.draw(s)
}

func (c *simulateFlags) rules() ([]fleet.Rule, error) {
	var rules []fleet.Rule
	var known []string
	for _, r := range fleet.Rules {
		known = append(known, r.Name)
	}
	if len(c.Rules) == 0 {
		return nil, fmt.Errorf("--rules: none is named of %s", strings.Join(known, ", "))
	}
	for _, name := range c.Rules {
		name = strings.TrimSpace(name)
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("--rules: there is no rule %q, only %s", name, strings.Join(known, ", "))
		}
		if slices.ContainsFunc(rules, func(r fleet.Rule) bool { return r.Name == name }) {
			return nil, fmt.Errorf("--rules: %q is there twice", name)
		}
		rules = append(rules, fleet.Rules[i])
	}
	return rules, nil
}

// check finds what makes no sense.
func (s *simulation) check() error {
	if s.delay != nil {
		if *s.delay == 0 {
			return errors.New("--delay 0s must be at least 1s; for none, see --no-hint")
		}
		if s.scenario.NoHint {
			return fmt.Errorf("--delay %v makes no sense with --no-hint", *s.delay)
		}
		s.scenario.Delay = *s.delay
	}
	return s.named(s.scenario.Check())
}

// named is err with the flag of what makes no sense.
func (s *simulation) named(err error) error {
	wrong, ok := errors.AsType[*fleet.FieldError](err)
	if !ok {
		return err
	}
	text := fmt.Sprintf("%s %v %s", s.flag(wrong.Field), wrong.Value, wrong.Problem)
	if wrong.Field == "Rules" {
		text += fmt.Sprintf("; fewer --clients or --attempts, or more %s, take less", s.flag("Capacity"))
	}
	return errors.New(text)
}

// flag is the one that sets a field.
func (s *simulation) flag(field string) string {
	if flag := s.flags[field]; flag != "" {
		return flag
	}
	return "--" + strings.ToLower(field)
}

// run puts the fleet through each rule, two at a time.
func (s *simulation) run(interrupted context.Context, rules []fleet.Rule) error {
	progress := func(int) {}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		bar := progressbar.NewOptions(s.scenario.Clients*len(rules),
			progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(s.name),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		defer func() { bar.Exit(); bar.Clear() }()
		progress = func(n int) { bar.Add(n) }
	}
	s.results = make([]*fleet.Result, len(rules))
	group, ctx := errgroup.WithContext(interrupted)
	group.SetLimit(2)
	for i, rule := range rules {
		group.Go(func() (err error) {
			s.results[i], err = s.scenario.Run(ctx, rule, progress)
			return err
		})
	}
	done := make(chan error, 1)
	go func() { done <- group.Wait() }()
	select {
	case err := <-done:
		return err
	case <-interrupted.Done(): // whatever they are at
		return context.Cause(interrupted)
	}
}
