package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/retryafter-go/retryafter"
)

type explainCommand struct {
	Value []string `arg:"" optional:"" help:"A Retry-After value. Without any, each line of standard input is one."`
	Now   *instant `placeholder:"TIME" help:"When the response arrived, by this machine's clock, as in 2026-09-08T12:00:00Z. Default: now."`
	Date  *string  `placeholder:"DATE" help:"The response's Date: the server's own clock, on which dates are then measured."`
	Age   *uint    `placeholder:"SECONDS" help:"The response's Age: a cache has kept it, so that its Date tells no time."`
	JSON  bool     `help:"Print one JSON object a value."`
}

// Help stands below the usage.
func (*explainCommand) Help() string {
	return `What the default policy does is told for a first attempt, a GET that got a 503.

A value that begins with - comes after --, as in: retryafter explain -- -1

Exit status:

  0  every value can be read
  1  one can't, or more
  2  wrong usage, no value at all, or reading or writing failed`
}

func (c *explainCommand) Run() error {
	if err := c.checkDate(); err != nil {
		return err
	}
	values := given(c.Value)
	if len(c.Value) == 0 {
		values = lines(os.Stdin)
	}
	count, unreadable := 0, 0
	for value, err := range values {
		if err != nil {
			return err
		}
		e := explain(value, c.header(value), c.received())
		if count++; !e.Readable {
			unreadable++
		}
		if _, err := os.Stdout.Write(c.render(e, count)); err != nil {
			return err
		}
	}
	switch {
	case count == 0:
		return errors.New("explain: standard input holds no value")
	case unreadable > 0:
		return statusNo
	}
	return nil
}

func (c *explainCommand) checkDate() error {
	if c.Date == nil {
		return nil
	}
	if h, err := retryafter.Parse(*c.Date, c.received()); err != nil || h.Form == retryafter.Seconds {
		return fmt.Errorf("--date: %q is not a date such as Tue, 08 Sep 2026 12:00:00 GMT", *c.Date)
	}
	return nil
}

// received is when the response arrived: --now, else the time at which its value
// is read, of which milliseconds are enough.
func (c *explainCommand) received() time.Time {
	if c.Now == nil {
		return time.Now().UTC().Truncate(time.Millisecond)
	}
	return c.Now.UTC()
}

// header is a response header with value as its Retry-After.
func (c *explainCommand) header(value string) http.Header {
	h := http.Header{"Retry-After": {value}}
	if c.Date != nil {
		h.Set("Date", *c.Date)
	}
	if c.Age != nil {
		h.Set("Age", fmt.Sprint(*c.Age))
	}
	return h
}

func (c *explainCommand) render(e explanation, count int) []byte {
	var b bytes.Buffer
	if !c.JSON {
		if count > 1 {
			b.WriteByte('\n')
		}
		e.print(&b)
		return b.Bytes()
	}
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	if err := j.Encode(e); err != nil {
		panic(err) // there is nothing in an explanation that JSON can't hold
	}
	return b.Bytes()
}
