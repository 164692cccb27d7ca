package main

import (
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

func TestRateIsWhatWasTyped(t *testing.T) {
	for text, want := range map[string]retryafter.Rate{
		"10/s":                   retryafter.PerSecond(10),
		"100/m":                  retryafter.PerMinute(100),
		"1/h":                    retryafter.Every(time.Hour),
		"5/10s":                  {Tokens: 5, Per: 10 * time.Second},
		"7/1m30s":                {Tokens: 7, Per: 90 * time.Second},
		"1/1281023h":             retryafter.Every(1281023 * time.Hour),
		"3/7ns":                  {Tokens: 3, Per: 7},
		"9223372036854775807/ms": {Tokens: 9223372036854775807, Per: time.Millisecond},
	} {
		var r rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r.Rate != want {
			t.Errorf("%q is %v, %v; want %v", text, r, err, want)
		}
	}
	for _, text := range []string{"", "10", "/s", "10/", "0/s", "-1/s", "10/0s", "10/-1s", "10/-s", "1.5/s", "1/1.5s", "10/.5s", "1/0.5ns",
		"10/day", "10/s/s", "10 / s", "10/ s", "10/5", "9223372036854775808/s", "1/9999999h", "1/1281024h", "a/s", "１/s"} {
		var r rate
		if err := r.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v, want an error", text, r)
		}
	}
}
