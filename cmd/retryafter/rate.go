package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A rate is a retryafter.Rate as it is typed: tokens, a slash, and a duration
// whose number may be left away where it is 1.
type rate struct{ retryafter.Rate }

func (r *rate) UnmarshalText(text []byte) error {
	tokens, per, _ := strings.Cut(string(text), "/")
	if per != "" && 'a' <= per[0] && per[0] <= 'z' {
		per = "1" + per
	}
	n, err := strconv.ParseInt(tokens, 10, 64)
	d, perErr := time.ParseDuration(per)
	// A fraction may be of less than a nanosecond, and would be cut.
	if err != nil || perErr != nil || n <= 0 || d <= 0 || strings.Contains(per, ".") {
		return fmt.Errorf("%q is not a rate such as 10/s, 100/m or 5/10s", text)
	}
	r.Rate = retryafter.Rate{Tokens: n, Per: d}
	if _, err := (&retryafter.Bucket{Capacity: 1, Rate: r.Rate}).DelayN(time.Now(), 1); err != nil {
		return fmt.Errorf("%q is a rate slower than can be counted", text)
	}
	return nil
}
