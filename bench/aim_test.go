package main

import "testing"

func TestAimIsJudgedByTheFiguresShown(t *testing.T) {
	const table = `| | ratio | beyond, ns | ns |
|---|--:|--:|--:|
| bare | 1 |  | 10.0 |
| ours, slow | 3.00 | 20.0 | 30.0 |
| peer | 9.00 | 80.0 | 90.0 |
| bare, twice | 1 |  | 20.0 |
| ours, fast | 1.00 | 0 | 20.0 |
| ours, even | 1.15 | 3.0 | 23.0 |
`
	ratio := func(most float64) func(l, _ line, _ []line) bool {
		return func(l, _ line, _ []line) bool { return l.figure("ratio") <= most }
	}
	for _, test := range []struct {
		aim
		want string
	}{
		{aim{about: begins("ours"), met: ratio(3)}, " Held."},
		{aim{about: begins("ours"), met: ratio(2.99)}, ` Missed at "ours, slow"; held at the other 2.`},
		{aim{about: begins("ours"), met: ratio(1.14)}, ` Missed at "ours, slow", "ours, even"; held at the other.`},
		{aim{about: begins("ours"), met: ratio(0.99)}, " Missed."},
		{aim{about: ends("fast"), met: ratio(1)}, " Held."},
		{aim{about: begins("ours"), met: func(l, base line, _ []line) bool {
			return l.figure("ns")-base.figure("ns") == l.figure("beyond, ns")
		}}, " Held."},
		{aim{about: begins("ours"), met: func(l, _ line, all []line) bool {
			return l.figure("ns") < named(all, "peer").figure("ns")-60
		}}, ` Missed at "ours, slow"; held at the other 2.`},
		{aim{about: begins("ours")}, ""},
	} {
		if got := test.verdict(lines(table)); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestNumbersAreGroupedByThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 594603: "594,603", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

func TestWhoMintsByForgettingIsNoMeasureOfBytes(t *testing.T) {
	for forgets, want := range map[string]string{"never": " Missed.", "all of it, which mints": " Held."} {
		table := "| | kept, B a key | with key strings | what it forgets |\n|---|--:|--:|---|\n" +
			"| peer | 50.0 | 60.0 | " + forgets + " |\n| Keyed | 70.0 | 70.0 | never |\n"
		if got := keyedBytes().aim.verdict(lines(table)); got != want {
			t.Errorf("beside a peer that keeps less and forgets %s:%s want%s", forgets, got, want)
		}
	}
}
