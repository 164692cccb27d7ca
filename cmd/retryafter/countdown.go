package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A countdown is a line on a terminal that is rewritten each second, by a
// goroutine of its own.
type countdown struct {
	out        io.Writer
	quit, gone chan struct{}
}

// count starts one that tells when what follows, until it is ended.
func count(out io.Writer, what string, until time.Time) *countdown {
	c := &countdown{out, make(chan struct{}), make(chan struct{})}
	go c.run(what, until)
	return c
}

func (c *countdown) run(what string, until time.Time) {
	defer close(c.gone)
	width := 0
	for {
		left := max(0, time.Until(until))
		whole := (left + time.Second - 1).Truncate(time.Second)
		line := fmt.Sprintf("%s in %v ", what, whole)
		fmt.Fprintf(c.out, "\r%-*s", width, line)
		width = max(width, len(line))
		next := left - whole + time.Second // until the number changes
		if left == 0 {
			next = time.Second // for as long as others come first
		}
		select {
		case <-time.After(next):
		case <-c.quit:
			fmt.Fprintf(c.out, "\r%s\r", strings.Repeat(" ", width))
			return
		}
	}
}

// end clears the line. A nil countdown has none.
func (c *countdown) end() {
	if c != nil {
		close(c.quit)
		<-c.gone
	}
}
