package tiny

import (
	"testing"
	"time"
)

func TestGrade(t *testing.T) {
	for points, want := range map[int]int{9: 0, 10: 1, 19: 1, 25: 2} {
		if got := Grade(points); got != want {
			t.Errorf("Grade(%d) = %d, want %d", points, got, want)
		}
	}
}

func TestLater(t *testing.T) {
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	for _, both := range [][2]time.Time{{a, b}, {b, a}} {
		if got, n := Later(both[0], both[1]); got != b || n != 2 {
			t.Errorf("Later(%v) = %v, %d", both, got, n)
		}
	}
	if got, n := Later(time.Time{}, a); got != a || n != 1 {
		t.Errorf("Later(zero, %v) = %v, %d", a, got, n)
	}
}

func TestWeekend(t *testing.T) {
	for d := range time.Weekday(7) {
		if got, want := Weekend(d), d == 0 || d == 6; got != want {
			t.Errorf("Weekend(%v) = %v", d, got)
		}
	}
}

func TestHello(t *testing.T) {
	if got := Hello("you"); got != "hello, you" {
		t.Error(got)
	}
}
