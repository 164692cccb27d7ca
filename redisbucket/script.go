package redisbucket

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A script as Redis knows it.
type script struct{ text, digest string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// The numbers of a script are doubles: whole ones are exact up to 2^53, and so
// is every quotient of two of them as far as its floor and its ceiling go.
// TIME is read once. Whatever is written expires at an instant of that same
// clock, rounded up to a millisecond, so that no key goes early.

// takeScript takes ARGV[4] units from the bucket at KEYS[1], or returns after
// how many microseconds they would be there. ARGV[1] units flow in each
// microsecond, a token is ARGV[2] of them and the bucket holds ARGV[3].
//
// The value is three doubles, big-endian: the units missing from full, the
// microsecond they were counted at and the units of a token then. (To write
// and read them as text would take a third more of the server's time.) Where a
// token has other units now, the debt is converted, rounding up. It may be more
// than the bucket holds now.
var takeScript = newScript(`local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local value = redis.pcall('GET', KEYS[1])
local debt, last, token = 0, now, ARGV[2] + 0
if value then
  if type(value) == 'table' then return value end
  local d, l, t = -1, 0, 0
  if #value == 24 then d, l, t = struct.unpack('>ddd', value) end
  if not (d >= 0 and d <= 4503599627370496 and d % 1 == 0 and l >= 0 and l <= 9007199254740992 and l % 1 == 0 and t >= 1 and t <= 9007199254740992) then
    return redis.error_reply('CORRUPT the value of the key is not a bucket')
  end
  if t ~= token then
    local n = d * token / t
    if d * token > 9007199254740992 then n = n * (1 + 2 ^ -50) end
    d = math.min(math.ceil(n), 4503599627370496)
  end
  if now > l then
    d = d - ARGV[1] * (now - l)
    if d < 0 then d = 0 end
  else
    last = l
  end
  debt = d
end
local after = debt + ARGV[4]
local over = after - ARGV[3]
if over <= 0 then
  local full = math.ceil((last + math.ceil(after / ARGV[1])) / 1000)
  local done = redis.pcall('SET', KEYS[1], struct.pack('>ddd', after, last, token), 'PXAT', full)
  if done.err then return done end
  return 0
end
return last - now + math.ceil(over / ARGV[1])
`)

// holdScript holds KEYS[1] for ARGV[1] microseconds from now on, unless it is
// held for longer already. The value is the microsecond at which the hold ends.
var holdScript = newScript(`local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ends = now + ARGV[1]
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value then
  local held = tonumber(string.match(value, '^%d+$'))
  if not held or held > 9007199254740992 then return redis.error_reply('CORRUPT the value of the key is not a hold') end
  if held >= ends then return 0 end
end
local done = redis.pcall('SET', KEYS[1], ends, 'PXAT', math.ceil(ends / 1000))
if done.err then return done end
return 1
`)

// heldScript returns for how many microseconds KEYS[1] is held from now on.
var heldScript = newScript(`local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'table' then return value end
local held = tonumber(string.match(value, '^%d+$'))
if not held or held > 9007199254740992 then return redis.error_reply('CORRUPT the value of the key is not a hold') end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
return math.max(held - now, 0)
`)

// A meter is the arithmetic of one Capacity and Rate. It counts in units small
// enough for both a microsecond's flow and a token to be whole numbers of them.
type meter struct {
	capacity int64
	flow     int64 // units a microsecond
	token    int64 // units a token
	size     int64 // units in a full bucket
}

// exact is up to where a script counts without rounding.
const exact = 1 << 53

// newMeter returns a *retryafter.ConfigError where the settings of owner make
// no sense, or where 2·size + flow would not be exact.
func newMeter(owner string, capacity int64, r retryafter.Rate) (meter, error) {
	bad := func(field, value, problem string) (meter, error) {
		return meter{}, &retryafter.ConfigError{Field: owner + "." + field, Value: value, Problem: problem}
	}
	switch {
	case capacity <= 0:
		return bad("Capacity", decimal(capacity), "must be positive")
	case r.Tokens <= 0:
		return bad("Rate.Tokens", decimal(r.Tokens), "must be positive")
	case r.Per <= 0:
		return bad("Rate.Per", r.Per.String(), "must be positive")
	}
	// Tokens/Per tokens a nanosecond are 1000·Tokens/Per a microsecond.
	g := gcd(r.Tokens, int64(r.Per))
	flow, token := r.Tokens/g, int64(r.Per)/g
	g = gcd(1000, token)
	token /= g
	over, low := bits.Mul64(uint64(flow), uint64(1000/g))
	if over != 0 || low >= exact || (exact-int64(low))/2 < token {
		return bad("Rate", r.String(), "can't be counted exactly in microseconds: there must be a simpler ratio")
	}
	flow = int64(low)
	if most := (exact - flow) / 2 / token; capacity > most {
		return bad("Capacity", decimal(capacity), fmt.Sprintf("must be at most %d at a rate of %v", most, r))
	}
	return meter{capacity, flow, token, capacity * token}, nil
}

func gcd(a, b int64) int64 {
	for a != 0 {
		a, b = b%a, a
	}
	return b
}

// cost is n tokens in units.
func (m *meter) cost(n int) (int64, error) {
	if n < 0 || int64(n) > m.capacity {
		return 0, &retryafter.CostError{Cost: int64(n), Capacity: m.capacity}
	}
	return int64(n) * m.token, nil
}

// microseconds is so many of them as a Duration. It saturates.
func microseconds(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Microsecond
}
