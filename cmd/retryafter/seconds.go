package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// seconds is a duration that JSON has as an exact number of seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	sign, n := "", uint64(s)
	if s < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/1e9, n%1e9)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// saturated reports whether d stands for every delay that a Duration can't
// hold.
func saturated(d time.Duration) bool { return d == math.MaxInt64 }

// short is d for human eyes, in no more digits than they want.
func short(d time.Duration) string {
	switch abs := d.Abs(); {
	case saturated(d):
		return "more than 292 years"
	case abs >= time.Second:
		return d.Round(time.Millisecond).String()
	case abs >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
