package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCountdownIsRewrittenEachSecondAndCleared(t *testing.T) {
	for _, c := range []struct {
		wait, ended time.Duration
		want        string
	}{
		{2500 * time.Millisecond, 2500 * time.Millisecond, "\rA in 3s \rA in 2s \rA in 1s \r        \r"},
		{2 * time.Second, 1500 * time.Millisecond, "\rA in 2s \rA in 1s \r        \r"},
		{10 * time.Second, 1500 * time.Millisecond, "\rA in 10s \rA in 9s  \r         \r"},
		{time.Hour + time.Millisecond, 2 * time.Millisecond, "\rA in 1h0m1s \rA in 1h0m0s \r            \r"},
		{-time.Second, 1500 * time.Millisecond, "\rA in 0s \rA in 0s \r        \r"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			d := count(&out, "A", time.Now().Add(c.wait))
			time.Sleep(c.ended - 1)
			d.end()
			if out.String() != c.want {
				t.Errorf("a wait of %v, ended after %v:\n%q, want\n%q", c.wait, c.ended, &out, c.want)
			}
		})
	}
}
