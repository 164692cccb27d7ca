package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestEveryRedisKeyHasItsOwnBudget(t *testing.T) {
	if err := needsRedis(); err != nil {
		leaveOut(t, err)
	}
	socket, err := useRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leaveRedis)
	for _, p := range redisPeers() {
		t.Run(p.name, func(t *testing.T) {
			taker, stop, err := p.start(socket, quota{2, 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			takes := []take{taker(t.Name() + "a"), taker(t.Name() + "b")}
			for call, want := range []bool{true, true, p.open, p.open} {
				for key, take := range takes {
					if got, err := take(); got != want || err != nil {
						t.Fatalf("call %d of key %d: admitted %v, want %v (%v)", call+1, key, got, want, err)
					}
				}
			}
		})
	}
}

func TestRedisWorkFindsWrongAnswers(t *testing.T) {
	if err := needsRedis(); err != nil {
		leaveOut(t, err)
	}
	broken := errors.New("broken")
	for _, test := range []struct {
		ok   bool
		err  error
		want error
	}{
		{true, nil, nil},
		{false, nil, errRefused},
		{false, broken, broken},
	} {
		takes := 0
		w := redisWork(redisPeer{start: func(string, quota) (func(string) take, func(), error) {
			return func(string) take {
				return func() (bool, error) { takes++; return test.ok, test.err }
			}, func() {}, nil
		}}, sharedQuota, 1)
		if got := w.verified(5); !errors.Is(got, test.want) {
			t.Errorf("got %v, want %v", got, test.want)
		}
		if test.want == nil && takes != 5 {
			t.Errorf("%d takes, want 5", takes)
		}
		w.close()
	}
}

func TestServersEndWithTheirUsers(t *testing.T) {
	if err := needsRedis(); err != nil {
		leaveOut(t, err)
	}
	socket, err := useRedis()
	if err != nil {
		t.Fatal(err)
	}
	same, err := useRedis()
	if err != nil || same != socket {
		t.Errorf("got %q and %v, want %q", same, err, socket)
	}
	leaveRedis()
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("the server ended before its last user left: %v", err)
	}
	leaveRedis()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("its socket is still there: %v", err)
	}
}

func TestReportWithoutAServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var out strings.Builder
	if err := report(&out, 1, time.Microsecond, "^redis-16/"); err != nil {
		t.Fatal(err)
	}
	if want := "## redis-16\n\nLeft out: redis-server is not installed.\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, want it to end in %q", out.String(), want)
	}
}

func TestReportOfTakes(t *testing.T) {
	if err := needsRedis(); err != nil {
		leaveOut(t, err)
	}
	var out strings.Builder
	if err := report(&out, 2, time.Millisecond, "^redis-1/rueidis: redisbucket"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## redis-1\n", "| thousand a second |", "\n| rueidis: empty script | 1 | ", "\n| rueidis: redisbucket | "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

func TestThroughputIsTheOtherWayRound(t *testing.T) {
	var out strings.Builder
	printThroughput(&out, []result{
		{row: row{name: "slow", base: true}, samples: []sample{{ns: 4000}}},
		{row: row{name: "slower"}, samples: []sample{{ns: 8000}}},
	})
	for _, want := range []string{"| slow | 1 | 250.0 | 250.0..250.0 |", "| slower | 0.50 | 125.0 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwithout %q", out.String(), want)
		}
	}
}

// leaveOut says what could not be tried; where all must be, that is a failure.
func leaveOut(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("left out: ", err)
	}
	t.Skip("left out: ", err)
}
