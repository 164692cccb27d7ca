package hints

import (
	"iter"
	"math"
	"math/bits"
	"time"
)

// A decimal is a number that is not negative, as fields have it: ASCII digits,
// and perhaps a point with digits on both sides. There is no sign and no
// exponent.
type decimal struct {
	whole    uint64 // the largest where it is beyond
	fraction uint64 // in 1/scale, rounded up
}

const scale = 1e18

// readDecimal reads the decimal that s begins with, and gives what follows.
func readDecimal(s string) (d decimal, rest string, ok bool) {
	i := 0
	for ; i < len(s) && digit(s[i]); i++ {
		if d.whole > (math.MaxUint64-9)/10 {
			d.whole = math.MaxUint64
		} else {
			d.whole = d.whole*10 + uint64(s[i]-'0')
		}
	}
	if i == 0 {
		return decimal{}, s, false
	}
	if i+1 >= len(s) || s[i] != '.' || !digit(s[i+1]) {
		return d, s[i:], true
	}
	i++
	unit, more := uint64(scale), uint64(0)
	for ; i < len(s) && digit(s[i]); i++ {
		if unit /= 10; unit > 0 {
			d.fraction += uint64(s[i]-'0') * unit
		} else if s[i] != '0' {
			more = 1
		}
	}
	d.fraction += more
	return d, s[i:], true
}

// times gives d units, rounded up to nanoseconds; what exceeds a Duration gives
// the largest one.
func (d decimal) times(unit time.Duration) time.Duration {
	hi, lo := bits.Mul64(d.fraction, uint64(unit))
	part, remainder := bits.Div64(hi, lo, scale)
	if remainder > 0 {
		part++
	}
	over, ns := bits.Mul64(d.whole, uint64(unit))
	ns, carry := bits.Add64(ns, part, 0)
	if over+carry > 0 || ns > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

func digit(c byte) bool { return c-'0' <= 9 }

// members gives what commas separate in a field line, without the spaces and
// tabs around it.
func members(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for start, i := 0, 0; i <= len(line); i++ {
			if i < len(line) && line[i] != ',' {
				continue
			}
			if !yield(trim(line[start:i])) {
				return
			}
			start = i + 1
		}
	}
}

func trim(s string) string {
	for s != "" && blank(s[0]) {
		s = s[1:]
	}
	for s != "" && blank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func blank(c byte) bool { return c == ' ' || c == '\t' }
