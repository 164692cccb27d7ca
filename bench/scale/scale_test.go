package main

import (
	"strings"
	"testing"
)

func TestACallThatWaitsIsNoGoroutineOfItsOwn(t *testing.T) {
	for _, c := range crowds() {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.gather(500) // which checks that all left when cancelled, and that nothing stayed
			if err != nil {
				t.Fatal(err)
			}
			if s.goroutines > 1.05 && strings.HasPrefix(c.name, "retryafter") {
				t.Errorf("%.2f goroutines a call", s.goroutines)
			}
		})
	}
}

func TestTheReportNamesEverythingOnce(t *testing.T) {
	var b strings.Builder
	if err := report(&b, 50, 2000); err != nil {
		t.Fatal(err)
	}
	for _, c := range crowds() {
		if strings.Count(b.String(), "| "+c.name+" |") != 1 {
			t.Errorf("no row %q in\n%s", c.name, &b)
		}
	}
	for _, s := range stores() {
		if strings.Count(b.String(), "| "+s.name+" |") != 1 {
			t.Errorf("no row %q in\n%s", s.name, &b)
		}
	}
	if err := report(&b, 0, 1); err == nil {
		t.Error("no calls were taken for some")
	}
}
