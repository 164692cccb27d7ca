package model

import (
	"math/big"
	"time"
)

// A Bucket says what a token bucket must decide. It shares no arithmetic with
// the real one: it counts the credit that is there, in exact fractions of a
// token, where the real one counts the debt, in whole units.
//
// Instants are nanoseconds from wherever the caller counts. Costs must be
// positive and at most the capacity.
type Bucket struct {
	capacity *big.Rat
	rate     *big.Rat // tokens a nanosecond
	credit   *big.Rat
	updated  *big.Int // nil until the first take from a full bucket
}

// NewBucket is a full bucket, or an empty one that begins to fill at start.
func NewBucket(capacity, tokens int64, per time.Duration, empty bool, start int64) *Bucket {
	b := &Bucket{
		capacity: new(big.Rat).SetInt64(capacity),
		rate:     big.NewRat(tokens, int64(per)),
	}
	b.credit = b.capacity
	if empty {
		b.credit, b.updated = new(big.Rat), big.NewInt(start)
	}
	return b
}

// Credit returns the tokens that are there at an instant. Before the last
// change they are what they were then.
func (b *Bucket) Credit(at int64) *big.Rat {
	if b.updated == nil {
		return b.capacity
	}
	elapsed := new(big.Int).Sub(big.NewInt(at), b.updated)
	if elapsed.Sign() < 0 {
		return b.credit
	}
	credit := new(big.Rat).SetInt(elapsed)
	credit.Mul(credit, b.rate).Add(credit, b.credit)
	if credit.Cmp(b.capacity) > 0 {
		return b.capacity
	}
	return credit
}

// Take admits a cost that the credit covers, and then only changes the bucket.
func (b *Bucket) Take(at, cost int64) bool {
	left := new(big.Rat).SetInt64(cost)
	left.Sub(b.Credit(at), left)
	if left.Sign() < 0 {
		return false
	}
	b.credit = left
	if now := big.NewInt(at); b.updated == nil || now.Cmp(b.updated) > 0 {
		b.updated = now
	}
	return true
}

// Wait returns the nanoseconds from an instant to the first at which the
// credit covers a cost. They may be more than an int64 holds.
func (b *Bucket) Wait(at, cost int64) *big.Int {
	missing := new(big.Rat).SetInt64(cost)
	missing.Sub(missing, b.Credit(at))
	if missing.Sign() <= 0 {
		return new(big.Int)
	}
	missing.Quo(missing, b.rate)
	wait, rest := new(big.Int).QuoRem(missing.Num(), missing.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		wait.Add(wait, big.NewInt(1))
	}
	if ahead := new(big.Int).Sub(b.updated, big.NewInt(at)); ahead.Sign() > 0 {
		wait.Add(wait, ahead)
	}
	return wait
}
