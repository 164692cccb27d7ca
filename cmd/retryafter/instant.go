package main

import (
	"fmt"
	"strconv"
	"time"
)

// An instant is a time as RFC 3339 writes it, but in whatever year: an offset
// can carry a Retry-After beyond 9999.
type instant struct{ time.Time }

func (i *instant) UnmarshalText(text []byte) (err error) {
	if i.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("%q is not a time such as 2026-09-08T12:00:00Z (RFC 3339)", text)
	}
	return nil
}

func (i instant) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(i.String())), nil }

func (i instant) String() string { return i.UTC().Format(time.RFC3339Nano) }
