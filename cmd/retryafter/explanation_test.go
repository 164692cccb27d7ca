package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

// The text of a refusal names the default, which the library does not export.
func TestDefaultMaxWaitIsTheLibrarys(t *testing.T) {
	now := time.Now()
	decide := func(value string) retryafter.Reason {
		a := retryafter.Attempt{Number: 1, StatusCode: 503, Header: map[string][]string{"Retry-After": {value}}, Received: now}
		return retryafter.Policy{}.Decide(a, retryafter.Call{}).Reason
	}
	if defaultMaxWait != 120*time.Second || decide("120") != 0 || decide("121") != retryafter.WaitTooLong {
		t.Errorf("MaxWait is not %v by default: 120 gives %v, 121 gives %v", defaultMaxWait, decide("120"), decide("121"))
	}
}

func TestExcerptPointsAtTheByte(t *testing.T) {
	long := strings.Repeat("9", 400)
	for _, c := range []struct {
		value  string
		offset int
		quoted string
		at     string // what stands in the column and behind it
	}{
		{"soon", 0, `"soon"`, `soon"`},
		{"60x", 2, `"60x"`, `x"`},
		{"", 0, `""`, `"`},
		{"60", 2, `"60"`, `"`},
		{"\t\"x", 2, `"\t\"x"`, `x"`},
		{"\x1b\xff!", 2, `"\x1b\xff!"`, `!"`},
		{"é1", 2, `"\u00e91"`, `1"`},
		{long, 0, `"` + long[:64] + `"... (400 bytes)`, long[:64] + `"... (400 bytes)`},
		{long + "x", 400, `..."` + long[:48] + `x" (401 bytes)`, `x" (401 bytes)`},
	} {
		quoted, column := excerpt(c.value, c.offset)
		if quoted != c.quoted || column > len(quoted) || quoted[column:] != c.at {
			t.Errorf("excerpt(%.20q, %d) = %s, %d; want %s, pointing at %s", c.value, c.offset, quoted, column, c.quoted, c.at)
		}
	}
}

func TestSecondsAreExactInJSON(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                        "0",
		time.Nanosecond:          "0.000000001",
		-1500 * time.Millisecond: "-1.5",
		2 * time.Minute:          "120",
		math.MaxInt64:            "9223372036.854775807",
		math.MinInt64:            "-9223372036.854775808",
	} {
		if got, err := json.Marshal(seconds(d)); string(got) != want || err != nil {
			t.Errorf("%v is %s, %v; want %s", d, got, err, want)
		}
	}
}
