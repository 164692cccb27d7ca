package retryafter

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter/fixtures"
	"github.com/retryafter-go/retryafter/internal/model"
)

// receipt makes an instant within some 8700 years of 1970.
func receipt(sec int64, nsec uint32) time.Time {
	return time.Unix(sec%(1<<38), int64(nsec%1e9))
}

// agree fails t unless hint and err say what the slow reader says.
func agree(t *testing.T, hint Hint, err error, slow model.Reading) {
	t.Helper()
	if (err == nil) != (slow.Form != "") {
		t.Errorf("error %v, but the model says %+v", err, slow)
	}
	got := model.Reading{Delay: hint.Delay, Date: hint.Date}
	if err == nil {
		got.Form = hint.Form.String()
	}
	if diff := cmp.Diff(slow, got); diff != "" {
		t.Errorf("-model +got:\n%s", diff)
	}
	if syntax, ok := err.(*SyntaxError); ok {
		if syntax.Offset < 0 || syntax.Offset > len(syntax.Value) || syntax.Problem == "" {
			t.Errorf("error %#v", syntax)
		}
		_ = syntax.Error()
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range fixtures.HeaderValues() {
		for _, line := range v.Lines {
			f.Add(line, v.Received.Unix(), uint32(v.Received.Nanosecond()))
		}
	}
	f.Fuzz(func(t *testing.T, value string, sec int64, nsec uint32) {
		if len(value) > 512 {
			t.Skip("the model is slow")
		}
		received := receipt(sec, nsec)
		hint, err := Parse(value, received)
		agree(t, hint, err, model.Parse(value, received))
	})
}

func FuzzFromHeader(f *testing.F) {
	for _, v := range fixtures.HeaderValues() {
		var in [5]string
		fields := 0
		for i, lines := range [][]string{v.Lines, v.Date, v.Age} {
			for k, line := range lines {
				if at := 2*i + k; k < 2 && at < 5 {
					in[at] = line
					fields |= 1 << at
				}
			}
		}
		f.Add(in[0], in[1], in[2], in[3], in[4], uint8(fields), v.Received.Unix(), uint32(v.Received.Nanosecond()))
	}
	f.Fuzz(func(t *testing.T, line, line2, date, date2, age string, fields uint8, sec int64, nsec uint32) {
		if len(line)+len(line2)+len(date)+len(date2) > 512 {
			t.Skip("the model is slow")
		}
		h := http.Header{}
		for i, field := range []struct{ name, value string }{
			{"Retry-After", line}, {"Retry-After", line2}, {"Date", date}, {"Date", date2}, {"Age", age},
		} {
			if fields&(1<<i) != 0 {
				h.Add(field.name, field.value)
			}
		}
		received := receipt(sec, nsec)
		hint, err := FromHeader(h, received)
		if absent := fields&3 == 0; absent != (err == ErrNoHint) {
			t.Fatalf("%v: error %v", h, err)
		}
		agree(t, hint, err, model.FromHeader(h, received))
	})
}

// spell makes a value that is a date or nearly one, so close to 50 years ahead
// of received that the century is in doubt.
func spell(r *rand.Rand, received time.Time) string {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	mostly := func(usual string, others ...string) string {
		if r.IntN(12) > 0 {
			return usual
		}
		return pick(others...)
	}
	date := received.AddDate([]int{0, 50, 50, -50}[r.IntN(4)], 0, 0).Add(time.Duration(r.Int64N(int64(96*time.Hour))) - 48*time.Hour)
	space := func() string { return mostly(" ", "", "  ", "\t", "\u00a0") }
	clock := mostly(date.Format("15:04:05"), date.Format("15:04:60"), "24:00:00", "12:60:00", "9:00:00", "12:00:61")
	day := mostly(date.Format("02"), date.Format("2"), "29", "31", "00", "008")
	month := mostly(date.Format("Jan"), "Feb", "feb", "SEP", "Sept")
	zone := pick("GMT", "GMT", "gmt", "UTC", "+0100", "-0100", "+2359", "-2359", "+0060", "PST", "")
	switch r.IntN(3) {
	case 0:
		return date.Format("Mon") + mostly(",", "", " ,") + space() + day + space() + month + space() + date.Format(mostly("2006", "06")) + space() + clock + space() + zone
	case 1:
		return date.Format("Monday") + mostly(",", "", ",,") + space() + day + "-" + month + "-" + date.Format(mostly("06", "2006")) + space() + clock + space() + zone
	}
	return date.Format("Mon") + space() + month + space() + day + space() + clock + space() + date.Format(mostly("2006", "06"))
}

func TestNearMissesAreReadAsTheModelReadsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(9110, 567))
	readable := 0
	const n = 20000
	for range n {
		received := time.Unix(r.Int64N(1<<33)-1<<31, r.Int64N(1e9))
		if r.IntN(4) == 0 { // the turn of a year, often of a century
			received = time.Date(1900+50*r.IntN(8)+r.IntN(2), 1, 1, 0, 0, r.IntN(7200)-3600, 0, time.UTC)
		}
		value := spell(r, received)
		if r.IntN(4) == 0 {
			value += "," + spell(r, received)
		}
		hint, err := Parse(value, received)
		if err == nil {
			readable++
		}
		if agree(t, hint, err, model.Parse(value, received)); t.Failed() {
			t.Fatalf("%q at %v", value, received)
		}
	}
	if readable < n/4 || readable > n*3/4 {
		t.Errorf("%d of %d are readable: the values no longer test both answers", readable, n)
	}
}
