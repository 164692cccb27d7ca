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
	// Key is the key of a request whose context has none (see WithKey). nil
	// means ByHost.
	Key func(*http.Request) Key

	// Retries is what a budget begins with, and the most that it holds. 0 means
	// 100.
	Retries int

	// SuccessesPerRetry is how many calls that succeed at their first attempt
	// earn one retry. 0 means 10.
	SuccessesPerRetry int

	// MaxKeys is how many keys are remembered at most. A full budget makes way
	// for others; else the least spent one does, and unknown keys then begin as
	// much spent, so that nothing is gained by being forgotten. 0 means 65536.
	MaxKeys int

	once   sync.Once
	err    error
	meter  meter
	mu     sync.Mutex
	levels levels
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
			{"MaxKeys", &most, defaultMaxKeys, 1 << 30},
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
		// A bucket without flow: a retry is a token, a success a unit of it.
		b.meter = meter{token: uint64(successes), size: uint64(retries) * uint64(successes)}
		b.levels = levels{meter: &b.meter, limit: most}
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
	l, _ := b.levels.get(h)
	l, ok := b.meter.take(l, 0, b.meter.token)
	if ok {
		b.levels.put(h, l, 0)
	}
	return ok
}

// Refund gives a withdrawal back.
func (b *RetryBudget) Refund(key Key) { b.pay(key, func() uint64 { return b.meter.token }) }

// Deposit pays in for a call that succeeded at its first attempt.
func (b *RetryBudget) Deposit(key Key) { b.pay(key, func() uint64 { return 1 }) }

func (b *RetryBudget) pay(key Key, units func() uint64) {
	if b.open() != nil {
		return
	}
	h := hashOf(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, _ := b.levels.get(h); l.debt > 0 {
		l.debt -= min(units(), l.debt)
		b.levels.put(h, l, 0)
	}
}

// Left is how many retries the budget of key has left.
func (b *RetryBudget) Left(key Key) int {
	if b.open() != nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, _ := b.levels.get(hashOf(key))
	return int((b.meter.size - l.debt) / b.meter.token)
}
