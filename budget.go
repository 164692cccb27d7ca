package retryafter

import (
	"net/http"
	"strconv"
	"sync"
)

// A RetryBudget bounds what retries add to the load of a server that fails.
// Each retry withdraws from it, and is not made where it is spent; each call
// that succeeds at its first attempt deposits a share of a retry; and a retry
// that succeeds gets its withdrawal back. A success is a response that Policy
// takes for final and whose status is below 500. Settings below 0 make the
// calls fail with a *ConfigError.
//
// In an outage in which every attempt fails, n calls send at most n + Retries
// attempts in all. While a part of them still succeeds at the first attempt,
// those add one retry for every SuccessesPerRetry: the extra load is at most
// Retries in a burst and 1/SuccessesPerRetry in the long run. By default that
// is 100 attempts, and one in ten.
//
// There is one budget a key, so that the outage of one server leaves the
// retries to others alone. The zero RetryBudget works. It may be used from many
// goroutines at once, and by several Transports; it must not be copied or have
// its fields changed after the first use.
type RetryBudget struct {
	// Key is the key of a request. nil means ByHost.
	Key func(*http.Request) Key

	// Retries is what a budget begins with, and the most that it holds. 0 means
	// 100.
	Retries int

	// SuccessesPerRetry is how many calls that succeed at their first attempt
	// earn one retry. 0 means 10.
	SuccessesPerRetry int

	// MaxKeys is how many keys have a budget of their own. A full one makes way
	// for another; where none is full, further keys share one, until that is
	// full again. So nothing is gained by being forgotten, and nothing that is
	// paid back is lost. 0 means 65536.
	MaxKeys int

	once  sync.Once
	err   error
	most  int
	retry uint64 // units a retry; a success is one
	size  uint64 // units in a full budget

	mu    sync.Mutex
	spent map[hash]uint64   // units missing from full; of keys that miss none only while the rest misses any
	full  map[hash]struct{} // those keys
	rest  uint64            // units missing from the budget that further keys share
}

func (b *RetryBudget) open() error {
	b.once.Do(func() {
		retries, successes, most := b.Retries, b.SuccessesPerRetry, b.MaxKeys
		for _, setting := range []struct {
			name    string
			value   *int
			unsaid  int
			largest int
		}{
			{"Retries", &retries, 100, 1 << 30},
			{"SuccessesPerRetry", &successes, 10, 1 << 30},
			{"MaxKeys", &most, defaultMaxKeys, largestMaxKeys},
		} {
			switch v := *setting.value; {
			case v < 0:
				b.err = &ConfigError{"RetryBudget." + setting.name, strconv.Itoa(v), "must not be negative"}
				return
			case v > setting.largest:
				b.err = &ConfigError{"RetryBudget." + setting.name, strconv.Itoa(v), "must be at most " + strconv.Itoa(setting.largest)}
				return
			case v == 0:
				*setting.value = setting.unsaid
			}
		}
		b.most = most
		b.retry, b.size = uint64(successes), uint64(retries)*uint64(successes)
		b.spent = make(map[hash]uint64)
	})
	return b.err
}

// Withdraw takes one retry from the budget of key, and reports whether there
// was one. A RetryBudget whose settings make no sense has none.
func (b *RetryBudget) Withdraw(key Key) bool {
	if b.open() != nil {
		return false
	}
	h := hashOf(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	spent := b.of(h)
	if spent+b.retry > b.size {
		return false
	}
	b.set(h, spent+b.retry)
	return true
}

// Refund gives a withdrawal back.
func (b *RetryBudget) Refund(key Key) {
	if b.open() == nil {
		b.pay(key, b.retry)
	}
}

// Deposit pays in for a call that succeeded at its first attempt.
func (b *RetryBudget) Deposit(key Key) {
	if b.open() == nil {
		b.pay(key, 1)
	}
}

func (b *RetryBudget) pay(key Key, units uint64) {
	h := hashOf(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if spent := b.of(h); spent > 0 {
		b.set(h, spent-min(units, spent))
	}
}

// Left is how many retries the budget of key has left.
func (b *RetryBudget) Left(key Key) int {
	if b.open() != nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return int((b.size - b.of(hashOf(key))) / b.retry)
}

// of is what is missing from the budget of h.
func (b *RetryBudget) of(h hash) uint64 {
	if spent, ok := b.spent[h]; ok {
		return spent
	}
	return b.rest
}

// set says what is missing from the budget of h, in a place of its own or in
// that of the rest: where there is no place, or the rest may be h's.
func (b *RetryBudget) set(h hash, spent uint64) {
	_, own := b.spent[h]
	switch {
	case !own && len(b.spent) >= b.most: // as ever while the rest misses any
		if b.rest = spent; spent == 0 {
			for h := range b.full { // now they are as if they were never seen
				delete(b.spent, h)
			}
			b.full = nil
		}
	case spent > 0:
		b.spent[h] = spent
		delete(b.full, h)
	case b.rest == 0:
		delete(b.spent, h)
	default:
		b.spent[h] = 0
		if b.full == nil {
			b.full = make(map[hash]struct{})
		}
		b.full[h] = struct{}{}
	}
}
