package retryafter

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"
)

// A meter is the arithmetic of one Capacity and Rate. It counts in units small
// enough for both a nanosecond's flow and a token to be whole numbers of them.
type meter struct {
	flow  uint64 // units a nanosecond
	token uint64 // units a token
	size  uint64 // units in a full bucket, at most maxSize
}

const maxSize = 1 << 62

// A level is all that one bucket needs to remember: the units missing from
// full at an instant, in nanoseconds from where its owner counts.
type level struct {
	debt uint64
	last int64
}

// newMeter returns a *ConfigError where the settings of owner make no sense.
func newMeter(owner string, capacity int64, r Rate) (meter, error) {
	bad := func(field, value, problem string) (meter, error) {
		return meter{}, &ConfigError{Field: owner + "." + field, Value: value, Problem: problem}
	}
	switch {
	case capacity <= 0:
		return bad("Capacity", strconv.FormatInt(capacity, 10), "must be positive")
	case r.Tokens <= 0:
		return bad("Rate.Tokens", strconv.FormatInt(r.Tokens, 10), "must be positive")
	case r.Per <= 0:
		return bad("Rate.Per", r.Per.String(), "must be positive")
	}
	flow, token := uint64(r.Tokens), uint64(r.Per)
	a, g := flow, token
	for a != 0 {
		a, g = g%a, a
	}
	m := meter{flow: flow / g, token: token / g}
	over, size := bits.Mul64(uint64(capacity), m.token)
	if over != 0 || size > maxSize {
		return bad("Capacity", strconv.FormatInt(capacity, 10),
			fmt.Sprintf("must be at most %d at a rate of %v", maxSize/m.token, r))
	}
	m.size = size
	return m, nil
}

// start is the level of a new bucket. For a full one the instant is the
// earliest there is, so that a look changes nothing for takes dated before it.
func (m *meter) start(empty bool, now int64) level {
	if empty {
		return level{debt: m.size, last: now}
	}
	return level{last: math.MinInt64}
}

// cost is n tokens in units; not ok where no level ever has room for them. A
// negative n, read as unsigned, is more than any size.
func (m *meter) cost(n int64) (units uint64, ok bool) {
	over, units := bits.Mul64(uint64(n), m.token)
	return units, over == 0 && units <= m.size
}

// fill is l with what flowed in until now.
func (m *meter) fill(l level, now int64) level {
	if now <= l.last {
		return l
	}
	over, in := bits.Mul64(m.flow, uint64(now)-uint64(l.last))
	if over != 0 || in >= l.debt {
		return level{last: now}
	}
	return level{debt: l.debt - in, last: now}
}

// take is l after cost was taken at now, where there is room for it.
func (m *meter) take(l level, now int64, cost uint64) (after level, ok bool) {
	l = m.fill(l, now)
	l.debt += cost
	return l, l.debt <= m.size
}

// wait is the least wait from now on after which take has room for cost.
func (m *meter) wait(l level, now int64, cost uint64) time.Duration {
	debt := m.fill(l, now).debt + cost
	if debt <= m.size {
		return 0
	}
	need := (debt - m.size + m.flow - 1) / m.flow
	return time.Duration(later(int64(since(l.last, now)), time.Duration(need)))
}

// served is l after cost was taken at the first instant possible.
func (m *meter) served(l level, cost uint64) level {
	l, _ = m.take(l, later(l.last, m.wait(l, l.last, cost)), cost)
	return level{debt: min(l.debt, m.size), last: l.last} // more only past the end of the clock
}

// since is the time from past to now, 0 where there is none. It saturates, and
// the last instant of the clock is never reached.
func since(now, past int64) time.Duration {
	switch d := now - past; {
	case now == math.MaxInt64:
		return math.MaxInt64
	case now <= past:
		return 0
	case d < 0:
		return math.MaxInt64
	default:
		return time.Duration(d)
	}
}

// later is the instant d after t, and saturates.
func later(t int64, d time.Duration) int64 {
	if sum := t + int64(d); sum >= t {
		return sum
	}
	return math.MaxInt64
}
