package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	manyKeys = 10_000 // but for benchmarks and bytes
	os.Exit(m.Run())
}

func withManyKeys(t testing.TB, n int) {
	before := manyKeys
	manyKeys = n
	t.Cleanup(func() { manyKeys = before })
}

func TestEveryKeyHasItsOwnBudget(t *testing.T) {
	for _, p := range keyedPeers() {
		t.Run(p.name, func(t *testing.T) {
			keys := tenants(100)
			l := p.start(quota{2, 24 * time.Hour}, len(keys))
			if l.stop != nil {
				t.Cleanup(l.stop)
			}
			for call, want := range []bool{true, true, false, false} {
				ask := l.asker()
				for _, key := range keys {
					if got := ask(strings.Clone(key)); got != want {
						t.Fatalf("call %d of %s: admitted %v, want %v", call+1, key, got, want)
					}
				}
			}
			if l.keys != nil && l.keys() != len(keys) {
				t.Errorf("%d keys are remembered, want %d", l.keys(), len(keys))
			}
		})
	}
}

func TestWorkFindsWrongAnswers(t *testing.T) {
	yes := func(string) bool { return true }
	no := func(string) bool { return false }
	plain := func(do func(int) error) func(int) error { return do }
	for _, test := range []struct {
		q    quota
		ask  func(string) bool
		want error
	}{
		{admits, yes, nil},
		{admits, no, errRefused},
		{refuses, yes, errAdmitted},
		{refuses, no, errRefused}, // the first token
	} {
		w := keyedWork(keyedPeer{start: func(quota, int) keyedLimiter { return keyedLimiter{asker: same(test.ask)} }}, test.q, 3, plain, strings.Clone)
		if got := w.verified(7); got != test.want {
			t.Errorf("%v: got %v, want %v", test.q, got, test.want)
		}
	}
}

func TestEveryKeyGetsItsTurn(t *testing.T) {
	for _, n := range []int{1, 2, 1000, 10_000} {
		asked := make(map[string]int)
		p := keyedPeer{start: func(quota, int) keyedLimiter {
			return keyedLimiter{asker: same(func(key string) bool { asked[key]++; return true })}
		}}
		plain := func(do func(int) error) func(int) error { return do }
		w := keyedWork(p, admits, n, plain, strings.Clone)
		clear(asked) // of the first tokens
		if err := w.do(n); err != nil {
			t.Fatal(err)
		}
		if len(asked) != n {
			t.Errorf("%d of %d keys were asked for", len(asked), n)
		}
	}
}

func TestBytesAKey(t *testing.T) {
	const most = 90
	withManyKeys(t, 1_000_000)
	tab := keyedBytes()
	found := false
	for _, r := range tab.rows {
		if !strings.HasPrefix(r.name, "Keyed") {
			continue
		}
		found = true
		for _, keys := range tab.keys {
			h, err := hold(r, keys)
			if err != nil {
				t.Fatal(err)
			}
			if h.kept > most || h.fresh > most {
				t.Errorf("%s keeps %.1f B a key for %d keys, and %.1f with the key strings; want at most %d", r.name, h.kept, keys, h.fresh, most)
			}
		}
	}
	if !found {
		t.Error("no row measures what Keyed keeps")
	}
}

func TestReportOfBytes(t *testing.T) {
	var out strings.Builder
	if err := report(&out, 1, time.Microsecond, "^keyed-bytes/Keyed, For[(]"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## keyed-bytes\n", "What 5,946, 7,071, 8,408 and 10,000 keys keep", "\n| map of x/time/rate | 1.00 | ", "\n| Keyed, For(key).Allow | ", "MaxKeys"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}
