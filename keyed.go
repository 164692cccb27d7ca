package retryafter

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Keyed is one Bucket a key, in bounded memory: where they are many, about 60
// bytes a key, and nothing for a key that was only refused.
//
// It remembers at most MaxKeys keys. A key whose bucket is full is as good as
// unknown and makes way. Where none is full, the one with the least debt makes
// way, and from then on unknown keys start with that debt instead of full,
// until it is paid by the time that passes. So no key ever gets more than
// Capacity + Rate·t by being forgotten, whatever the number of keys; see Stats
// for whether MaxKeys is large enough. Those who wait are remembered beside
// MaxKeys.
//
// Keyed is a Limiter and a RequestLimiter: a Transport whose Limiter it is
// charges each request to its key. Where there is no request, the key is that
// of the context (WithKey), and one bucket serves all that have none. It may
// be used from many goroutines at once; it must not be copied or have its
// fields changed after the first use. Capacity and Rate are as for [Bucket].
type Keyed struct {
	// Key is the key of a request whose context has none. nil means ByHost.
	Key func(*http.Request) Key

	Capacity int64 // of each bucket, in tokens
	Rate     Rate  // of each bucket

	// MaxKeys is how many keys are remembered at most. The keys are spread over
	// up to 64 parts by chance, so leave some room above what is needed. 0 means
	// 65536; a negative number, or more than 2^30, is a *ConfigError.
	MaxKeys int

	once   sync.Once
	err    error // a *ConfigError
	base   time.Time
	meter  meter
	shards []keyedShard
}

// KeyedStats tell whether a Keyed is large enough.
type KeyedStats struct {
	Keys    int // remembered now
	MaxKeys int

	// Evicted counts keys that made way though they were not full, and
	// StartedBelow unknown keys that started below full for that. While both
	// are 0 every key has had its own bucket.
	Evicted, StartedBelow uint64
}

const (
	defaultMaxKeys = 1 << 16
	largestMaxKeys = 1 << 30
	keysPerShard   = 1 << 10 // at least, so that a shard's share of the keys is near the average
	maxShards      = 1 << 6
)

type keyedShard struct {
	mu     sync.Mutex
	levels levels
	queues map[hash]*queuedBucket // of the keys that someone waits for
	_      [64]byte               // of their own cache line
}

// A queuedBucket keeps the level of a key while someone waits for it.
type queuedBucket struct {
	Bucket
	users int
	began level // what the key had; worth remembering only where it was, or is not what it has
	seen  bool
}

// open makes k ready at its first use.
func (k *Keyed) open() error {
	k.once.Do(func() {
		if k.meter, k.err = newMeter("Keyed", k.Capacity, k.Rate); k.err != nil {
			return
		}
		most := k.MaxKeys
		if most == 0 {
			most = defaultMaxKeys
		}
		switch {
		case most < 0:
			k.err = &ConfigError{"Keyed.MaxKeys", strconv.Itoa(most), "must not be negative"}
			return
		case most > largestMaxKeys:
			k.err = &ConfigError{"Keyed.MaxKeys", strconv.Itoa(most), "must be at most " + strconv.Itoa(largestMaxKeys)}
			return
		}
		k.base = time.Now()
		k.shards = make([]keyedShard, max(1, min(maxShards, most/keysPerShard)))
		for i := range k.shards {
			s := &k.shards[i]
			s.levels = levels{meter: &k.meter, unseen: k.meter.start(false, 0), limit: share(most, i, len(k.shards))}
		}
	})
	return k.err
}

// share is the i-th of n parts of most.
func share(most, i, n int) int {
	if i < most%n {
		return most/n + 1
	}
	return most / n
}

// For returns the bucket of key, as a Limiter with the methods of Bucket.
func (k *Keyed) For(key Key) KeyedBucket { return KeyedBucket{k, hashOf(key)} }

// ForRequest returns the bucket that req is charged to, a [KeyedBucket].
func (k *Keyed) ForRequest(req *http.Request) Limiter {
	if key, ok := ContextKey(req.Context()); ok {
		return k.For(key)
	}
	return k.For(keyBy(req, k.Key))
}

// Allow is AllowN for one token now.
func (k *Keyed) Allow() bool { return k.AllowN(time.Now(), 1) }

// AllowN is for the bucket of those without a key.
func (k *Keyed) AllowN(t time.Time, n int) bool { return k.For("").AllowN(t, n) }

// TakeN is for the bucket of those without a key.
func (k *Keyed) TakeN(t time.Time, n int) (time.Duration, error) { return k.For("").TakeN(t, n) }

// DelayN is for the bucket of those without a key.
func (k *Keyed) DelayN(t time.Time, n int) (time.Duration, error) { return k.For("").DelayN(t, n) }

// Wait is WaitN for one token.
func (k *Keyed) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN is KeyedBucket.WaitN for the key of ctx, or for the bucket of those
// without a key.
func (k *Keyed) WaitN(ctx context.Context, n int) error { return k.ForContext(ctx).WaitN(ctx, n) }

// ForContext returns the bucket of the key of ctx (WithKey), a [KeyedBucket], or
// that of those without a key.
func (k *Keyed) ForContext(ctx context.Context) Limiter {
	key, _ := ContextKey(ctx)
	return k.For(key)
}

// Stats returns what k holds now.
func (k *Keyed) Stats() KeyedStats {
	var all KeyedStats
	if k.open() != nil {
		return all
	}
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		all.Keys += len(s.levels.entries) + len(s.queues)
		all.MaxKeys += s.levels.limit
		all.Evicted += s.levels.evicted
		all.StartedBelow += s.levels.below
		s.mu.Unlock()
	}
	return all
}

// A KeyedBucket is the bucket of one key of a Keyed. It is a small value; it
// holds nothing, so it can be made anew for each use.
type KeyedBucket struct {
	keyed *Keyed
	hash  hash
}

func (b KeyedBucket) shard() *keyedShard {
	return &b.keyed.shards[b.hash[1]%uint64(len(b.keyed.shards))]
}

// AllowN is [Bucket.AllowN].
func (b KeyedBucket) AllowN(t time.Time, n int) bool {
	k := b.keyed
	if k.open() != nil {
		return false
	}
	cost, ok := k.meter.cost(int64(n))
	if !ok || cost == 0 {
		return ok
	}
	s := b.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[b.hash]; q != nil {
		return q.AllowN(t, n)
	}
	return s.take(k, b.hash, int64(t.Sub(k.base)), cost)
}

// Allow is AllowN for one token now.
func (b KeyedBucket) Allow() bool { return b.AllowN(time.Now(), 1) }

// take charges the bucket of a key that nobody waits for.
func (s *keyedShard) take(k *Keyed, h hash, now int64, cost uint64) bool {
	l, _ := s.levels.get(h, now)
	l, ok := k.meter.take(l, now, cost)
	if ok {
		s.levels.put(h, l, now, false)
	}
	return ok
}

// DelayN is [Bucket.DelayN].
func (b KeyedBucket) DelayN(t time.Time, n int) (time.Duration, error) {
	k := b.keyed
	cost, err := b.cost(n)
	if err != nil {
		return 0, err
	}
	s := b.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[b.hash]; q != nil {
		return q.DelayN(t, n)
	}
	now := int64(t.Sub(k.base))
	l, _ := s.levels.get(b.hash, now)
	return k.meter.wait(l, now, cost), nil
}

// TakeN is [Bucket.TakeN].
func (b KeyedBucket) TakeN(t time.Time, n int) (time.Duration, error) {
	k := b.keyed
	cost, err := b.cost(n)
	if err != nil || cost == 0 {
		return 0, err
	}
	s := b.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[b.hash]; q != nil {
		return q.TakeN(t, n)
	}
	now := int64(t.Sub(k.base))
	if s.take(k, b.hash, now, cost) {
		return 0, nil
	}
	l, _ := s.levels.get(b.hash, now)
	return k.meter.wait(l, now, cost), nil
}

func (b KeyedBucket) cost(n int) (uint64, error) {
	k := b.keyed
	if err := k.open(); err != nil {
		return 0, err
	}
	cost, ok := k.meter.cost(int64(n))
	if !ok {
		return 0, &CostError{Cost: int64(n), Capacity: k.Capacity}
	}
	return cost, nil
}

// Wait is WaitN for one token.
func (b KeyedBucket) Wait(ctx context.Context) error { return b.WaitN(ctx, 1) }

// WaitN is [Bucket.WaitN]; those who wait for one key are served in the order
// in which they came.
func (b KeyedBucket) WaitN(ctx context.Context, n int) error {
	cost, err := b.cost(n)
	if err != nil {
		return err
	}
	if err := contextError(ctx); err != nil {
		return err
	}
	if cost == 0 {
		return nil
	}
	q, err := b.join(ctx, cost)
	if q == nil {
		return err
	}
	defer b.leave(q)
	return q.WaitN(ctx, n)
}

// join charges cost at once, or refuses it for the deadline, or returns the
// queue to wait in.
func (b KeyedBucket) join(ctx context.Context, cost uint64) (*queuedBucket, error) {
	k, s := b.keyed, b.shard()
	deadline, hasDeadline := ctx.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[b.hash]
	if q == nil {
		now := int64(time.Since(k.base))
		l, _ := s.levels.get(b.hash, now)
		wait := k.meter.wait(l, now, cost)
		switch {
		case hasDeadline && later(now, wait) >= int64(deadline.Sub(k.base)):
			return nil, &LimitError{Delay: wait, Err: context.DeadlineExceeded}
		case wait == 0:
			s.take(k, b.hash, now, cost)
			return nil, nil
		}
		l, seen := s.levels.take(b.hash, now)
		q = &queuedBucket{Bucket: Bucket{Capacity: k.Capacity, Rate: k.Rate, base: k.base, meter: k.meter, level: l}, began: l, seen: seen}
		if s.queues == nil {
			s.queues = make(map[hash]*queuedBucket)
		}
		s.queues[b.hash] = q
	}
	q.users++
	return q, nil
}

func (b KeyedBucket) leave(q *queuedBucket) {
	k, s := b.keyed, b.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(s.queues, b.hash)
		if q.seen || q.level != q.began {
			s.levels.put(b.hash, q.level, int64(time.Since(k.base)), q.seen)
		}
	}
}
