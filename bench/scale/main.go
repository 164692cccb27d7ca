// Command scale tells what it takes to have very many: calls that wait at once,
// and keys of a Gate, a Keyed and a RetryBudget. It prints Markdown.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
)

func main() {
	calls := flag.Int("calls", 100_000, "how many calls wait at once")
	keys := flag.Int("keys", 1_000_000, "how many keys are held")
	flag.Parse()
	if err := report(os.Stdout, *calls, *keys); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func report(w io.Writer, calls, keys int) error {
	if calls < 1 || keys < 1 {
		return fmt.Errorf("-calls %d and -keys %d must be positive", calls, keys)
	}
	fmt.Fprintf(w, "%s, %s/%s, GOMAXPROCS=%d.\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	fmt.Fprintf(w, "\n## %d calls that wait\n\n", calls)
	fmt.Fprint(w, "Each is a goroutine of its caller's, whose stack and heap are counted with a context that can be cancelled. Cancelled are all\nat once; the time is until the last has returned.\n\n")
	fmt.Fprint(w, "| waiting | B a call | goroutines a call | all cancelled in, ms | beyond bare |\n|---|--:|--:|--:|--:|\n")
	var bare float64
	for i, c := range crowds() {
		s, err := c.gather(calls)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if i == 0 {
			bare = s.bytes
		}
		fmt.Fprintf(w, "| %s | %.0f | %.3f | %.0f | %.2f |\n", c.name, s.bytes, s.goroutines, s.cancelled.Seconds()*1000, s.bytes/bare)
	}
	fmt.Fprintf(w, "\n## %d keys\n\n| | B a key | ns a key to fill | ns a look | ns a look at an unknown key |\n|---|--:|--:|--:|--:|\n", keys)
	for _, s := range stores() {
		k := s.fill(keys)
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %.0f |\n", s.name, k.bytes, k.fill, k.look, k.unknown)
	}
	return nil
}
