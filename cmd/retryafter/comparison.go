package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/retryafter-go/retryafter/cmd/retryafter/internal/fleet"
)

// A comparison is one line of a simulation's outcome.
type comparison struct {
	Scenario  string  `json:"scenario"`
	Rule      string  `json:"rule"`
	Seed      uint64  `json:"seed"`
	Clients   int     `json:"clients"`
	Worst     int     `json:"worst_100ms"`
	Attempts  int     `json:"attempts"`
	Firsts    int     `json:"first_attempts"`
	ExtraLoad float64 `json:"attempts_per_first"`
	Settled   seconds `json:"settled_seconds"`
	Early     int     `json:"early"`
	Completed int     `json:"completed"`
	GaveUp    int     `json:"gave_up"`
}

func (s *simulation) compare(r *fleet.Result) comparison {
	return comparison{
		Scenario: s.name, Rule: r.Rule.Name, Seed: s.scenario.Seed, Clients: s.scenario.Clients,
		Worst: r.Worst, Attempts: r.Attempts, Firsts: r.Firsts, ExtraLoad: r.ExtraLoad(),
		Settled: seconds(r.Settled), Early: r.Early, Completed: r.Completed, GaveUp: r.GaveUp,
	}
}

func (s *simulation) render(asJSON bool) []byte {
	var b bytes.Buffer
	if asJSON {
		j := json.NewEncoder(&b)
		for _, r := range s.results {
			if err := j.Encode(s.compare(r)); err != nil {
				panic(err) // there is nothing in a comparison that JSON can't hold
			}
		}
		return b.Bytes()
	}
	name := 0
	for _, r := range s.results {
		name = max(name, len(r.Rule.Name))
	}
	fmt.Fprintf(&b, "The worst 100 ms, and the time until all is settled, count from %s. Seed %d.\n\n", s.since, s.scenario.Seed)
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%-*s\tworst 100 ms\tattempts/first\tsettled\tearly\tcompleted\tgave up\t\n", name, "rule")
	for _, r := range s.results {
		c := s.compare(r)
		fmt.Fprintf(t, "%-*s\t%d\t%.2f\t%.1f s\t%d\t%d\t%d\t\n", name, c.Rule, c.Worst, c.ExtraLoad, r.Settled.Seconds(), c.Early, c.Completed, c.GaveUp)
	}
	t.Flush()
	return b.Bytes()
}
