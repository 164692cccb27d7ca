// Command soak lets very many calls meet a server that fails, for as long as it
// is told to, and looks at what must not happen with time: attempts that are
// early, a heap that grows, goroutines that stay. It prints Markdown, and fails
// where one of these did happen.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

func main() {
	s := soak{Log: os.Stderr}
	flag.DurationVar(&s.Time, "time", time.Minute, "how long calls are made")
	flag.IntVar(&s.Rate, "rate", 1000, "how many calls begin a second")
	flag.Uint64Var(&s.Seed, "seed", rand.Uint64(), "decides what calls and server do")
	flag.Int64Var(&s.Heap, "heap", 8, "by how many MiB the heap may have grown in the end, all calls over")
	flag.Parse()
	r, err := s.run()
	if err == nil {
		r.write(os.Stdout)
		err = r.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
