// Package redisbucket shares buckets and gates between machines through Redis
// or Valkey: however many processes take from one bucket, all that is admitted
// in any span of time t costs at most Capacity + Rate·t.
//
//	bucket := &redisbucket.Bucket{
//		Client:   goredisclient.New(rdb),
//		Key:      "reports",
//		Capacity: 10,
//		Rate:     retryafter.PerSecond(5),
//	}
//	client := &http.Client{Transport: &retryafter.Transport{Limiter: bucket}}
//
// [Bucket] is one bucket; [Keyed] keeps one a key, as a server does a tenant
// and a Transport a host. [Gate] lets the machines share what one of them was
// told by a Retry-After. Package goredisclient connects them to
// github.com/redis/go-redis, rueidisclient, a module of its own, to
// github.com/redis/rueidis; any other client takes the two methods of [Client].
// Redis 6.2 or later is needed, or any Valkey.
//
// # What holds
//
//  1. A decision is one script on one key. It counts in whole numbers that a
//     script can't round, and in the server's time, whatever the machines'
//     clocks say. Where that goes back, it counts as no time.
//  2. What is refused costs nothing and changes nothing, the key's time to live
//     included.
//  3. A wait is the least after which the cost fits, rounded up to a
//     microsecond, if nobody else takes anything until then.
//  4. A key lives at least until its bucket is full, and not much longer. A key
//     that isn't there is a full bucket.
//  5. A command whose reply was lost may have been carried out. It is not sent
//     again; the caller gets an *[UnavailableError].
//  6. A value that is no bucket's is an error that matches [ErrCorrupt], never
//     a full bucket.
//
// # What does not
//
// Redis forgets. A bucket whose key is lost, by FLUSHALL, eviction, a restart
// without persistence or a failover to a replica that had not heard of it yet,
// starts full: each such loss admits up to Capacity more. Set maxmemory-policy
// to noeviction, so that a full server refuses instead of forgetting.
//
// A token that was taken is spent, also where the caller is cancelled between
// the script and its reply, or dies. Nothing is given back, so nothing can be
// given back twice.
//
// Those who wait for a shared bucket are not served in the order in which they
// came: each asks again when its wait is over.
//
// # When Redis is away
//
// Each question to Redis ends within Timeout and the caller's deadline; that the
// caller has cancelled may be noticed no earlier, which is for the Client to say.
// Where it got no usable answer, [Away] says what then: an error (the default),
// a bucket of this process with its share of the budget, or admission. Each
// such decision is an [Event]. It is not taken where the caller's own context is done,
// and not for what no waiting cures: settings that make no sense, a
// [ServerError] such as NOAUTH or WRONGTYPE, a value that is no bucket's.
//
// After three questions in a row without an answer Redis is left alone for
// CoolOff; meanwhile decisions are made as if it had been asked in vain. Then
// one caller a CoolOff asks, until there is an answer again.
//
// # Keys
//
// A key in Redis is Prefix and, in braces, 128 bits of the SHA-256 of a
// [retryafter.Key]: the braces make it its own cluster slot, and the hash keeps
// names out of sight, though not from someone who can guess them. Whoever uses
// the same Prefix and Key shares the bucket. Capacity and Rate belong to
// whoever asks: they may differ between releases, and the debt stays.
package redisbucket
