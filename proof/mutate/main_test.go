package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All that is done to the small package is listed, once and in order, what no
// test of it notices is known, and no file is another after that.
func TestWhatNoTestNoticesSurvives(t *testing.T) {
	before := files(t)
	var out strings.Builder
	survived, err := run(&out, []string{"testdata/tiny"}, "", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/tiny.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if want := strings.Count(string(want), ": SURVIVED\n"); survived != want {
		t.Errorf("%d survived, want %d", survived, want)
	}
	if diff := cmp.Diff(before, files(t)); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
}

func files(t *testing.T) map[string]string {
	all := make(map[string]string)
	err := filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var text []byte
			text, err = os.ReadFile(path)
			all[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFurtherTestsKillWhatSurvivesTheFirst(t *testing.T) {
	for _, dirs := range [][]string{{"testdata/tiny"}, {"testdata/tiny", "testdata/further"}} {
		var out strings.Builder
		survived, err := run(&out, dirs, `>= → >`, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := 2 - len(dirs)
		if survived != want || strings.Contains(out.String(), "killed by TestTwenty") != (want == 0) {
			t.Errorf("%v: %d survived, want %d:\n%s", dirs, survived, want, &out)
		}
	}
}

func TestASampleDependsOnTheSeedAlone(t *testing.T) {
	sample := func(seed uint64) string {
		var out strings.Builder
		if _, err := run(&out, []string{"testdata/tiny"}, "[0-9]: [0-9]+ → ", seed, 3); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), " → "); n != 3 {
			t.Errorf("%d mutants in a sample of 3", n)
		}
		return out.String()
	}
	one := sample(1)
	if again := sample(1); again != one {
		t.Errorf("one seed gives\n%s and\n%s", one, again)
	}
	if other := sample(2); other == one {
		t.Errorf("two seeds give\n%s", other)
	}
}

func TestTestsThatFailAsTheyAreAreNotUsed(t *testing.T) {
	if _, err := run(new(strings.Builder), []string{"testdata/failing"}, "", 1, 0); err == nil || !strings.Contains(err.Error(), "TestNever") {
		t.Errorf("error %v, want one that shows TestNever", err)
	}
}
