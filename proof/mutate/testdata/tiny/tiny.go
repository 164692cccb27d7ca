// Package tiny is what mutate is tested on: each thing that it breaks is here.
package tiny

import "time"

// Grade is 0 below 10, 2 from 20 on, and 1 between. No test looks at 20.
func Grade(points int) int {
	if points < 10 {
		return 0
	}
	if points >= 20 {
		return 2
	}
	return 1
}

// Unused is reached by no test.
func Unused(a, b bool) bool { return a && b }

// Later is the later instant of those that are set, and how many were.
func Later(a, b time.Time) (later time.Time, set int) {
	for _, t := range []time.Time{a, b} {
		switch {
		case t.IsZero():
			continue
		case t.After(later): // or the same
			later = t
		}
		set++
	}
	return later, max(set, 0)
}

func Weekend(d time.Weekday) bool {
	switch d {
	case time.Saturday, time.Sunday:
		return true
	}
	return d != time.Monday && !weekday(d)
}

func weekday(d time.Weekday) bool { return d == time.Tuesday || d > time.Tuesday }

// Hello can not be broken in each of the ways that there are.
func Hello(name string) string { return "hello, " + name }
