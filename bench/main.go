// Command bench measures retryafter beside its peers, in one run, and prints
// the result as Markdown. See README.md for how to read it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

func main() {
	passes := flag.Int("passes", 41, "how many passes to make over the rows of each table; fewer than 7 make no steady median")
	pass := flag.Duration("time", 10*time.Millisecond, "how long a row runs in each pass")
	run := flag.String("run", "", "run only the rows whose table/row matches this regular `expression`, and those that they are set against")
	flag.Parse()
	if err := report(os.Stdout, *passes, *pass, *run); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func report(w io.Writer, passes int, pass time.Duration, run string) error {
	if passes < 1 || pass <= 0 {
		return errors.New("-passes and -time must be positive")
	}
	wanted, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	var chosen []table
	for _, t := range tables() {
		rows := matching(t, wanted)
		if len(rows) < len(t.rows) {
			t.aim.met = nil
		}
		if t.rows = rows; len(rows) > 0 {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-run %q matches no table/row", run)
	}
	printMachine(w, passes, pass)
	for _, t := range chosen {
		if err := t.lacks(); err != nil {
			fmt.Fprintf(w, "\n## %s\n\nLeft out: %v.\n", t.name, err)
			continue
		}
		var shown strings.Builder
		if err := show(&shown, t, passes, pass); err != nil {
			return err
		}
		printAbout(w, t, shown.String())
	}
	return nil
}

// show measures t, and prints what it found as a table.
func show(w io.Writer, t table, passes int, pass time.Duration) error {
	if t.keys != nil {
		all, err := holdings(t)
		if err != nil {
			return err
		}
		printHoldings(w, all)
		return nil
	}
	results, err := measure(t, passes, pass)
	if err != nil {
		return err
	}
	if t.unit == thousands {
		printThroughput(w, results)
	} else {
		printTimes(w, t.unit, results)
	}
	return nil
}

func tables() []table {
	return append([]table{
		noRetry(), retry(), timer(), put(), loopback(), loopbackRetry(),
		parseSeconds(), parseDates(), parseOther(),
		bucket(), bucketParallel(),
	}, append(keyed(), redisTables()...)...)
}

// matching gives the rows of t that are wanted, each under the row that it is
// set against.
func matching(t table, wanted *regexp.Regexp) []row {
	var rows []row
	var base *row // not in rows yet
	for _, r := range t.rows {
		if r.base {
			base = &r
		}
		if !wanted.MatchString(t.name + "/" + r.name) {
			continue
		}
		if base != nil && !r.base {
			rows = append(rows, *base)
		}
		base = nil
		rows = append(rows, r)
	}
	return rows
}
