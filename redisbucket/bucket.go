package redisbucket

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/retryafter-go/retryafter"
)

// Away says what to do with work while Redis is away. See the package
// documentation for when that is.
type Away uint8

const (
	// FailClosed refuses it, with an *UnavailableError.
	FailClosed Away = iota

	// FailLocal takes it from a bucket of this process with a Share of the
	// budget: Capacity/Share, rounded down, and Rate/Share. What such buckets
	// admit is in addition to what Redis admits before and after, or meanwhile
	// to those who do reach it. Work that costs more than they hold is refused
	// as by FailClosed.
	FailLocal

	// FailOpen admits it. Then nothing limits it.
	FailOpen
)

func (a Away) String() string {
	switch a {
	case FailClosed:
		return "FailClosed"
	case FailLocal:
		return "FailLocal"
	case FailOpen:
		return "FailOpen"
	}
	return "Away(" + strconv.Itoa(int(a)) + ")"
}

// An Event is a decision that was made without Redis.
type Event struct {
	Key      retryafter.Key
	Cost     int
	Away     Away          // by which it was made
	Admitted bool          // whether the work may begin
	Delay    time.Duration // what the local bucket told to wait, where it did
	Err      *UnavailableError
}

// A Bucket is a token bucket that all who use the same Prefix and Key share. It
// holds up to Capacity tokens, gains Rate, and is full at first.
//
// Capacity and Rate must be positive, and as a ratio simple enough for a script
// to count with: with T the time between tokens in units of which a microsecond
// is a whole number, some 4·10^15/T tokens are possible, as six million at five
// an hour, or 4·10^9 at 1 000 007 a second. Client must be set. Settings that
// make no sense are a *[retryafter.ConfigError] of every use, whatever WhenAway.
//
// A cost above Capacity, or below 0, is a *[retryafter.CostError]; one of 0 is
// met without asking. A Bucket is a [retryafter.Limiter]. It may be used from
// many goroutines at once; it must not be copied or have its fields changed
// after the first use.
type Bucket struct {
	Client   Client
	Key      retryafter.Key  // whose bucket it is
	Capacity int64           // the largest burst, in tokens
	Rate     retryafter.Rate // an exact ratio

	// Prefix begins the bucket's key in Redis. Give each budget its own. It
	// must not contain braces. "" means "retryafter:bucket:".
	Prefix string

	// Timeout bounds each question to Redis, making a connection included. It
	// should be well below the time that callers have left, else their own
	// deadlines hide that Redis is away. 0 means 100 ms.
	Timeout time.Duration

	// CoolOff is for how long Redis is left alone after three questions in a
	// row without an answer; see the package documentation. 0 means a second; a
	// negative one that each caller asks.
	CoolOff time.Duration

	// WhenAway says what to do while Redis is away. The zero value refuses.
	WhenAway Away

	// Share is how many processes share the budget while Redis is away, this
	// one included. FailLocal needs it.
	Share int64

	// Events is called with each decision that was made without Redis, before
	// the caller gets to know it, and maybe from many goroutines at once. nil
	// means that nobody wants to know.
	Events func(Event)

	core core
	name string
}

func (b *Bucket) open() error {
	return b.core.open("redisbucket.Bucket", settings{b.Client, b.Prefix, b.Capacity, b.Rate,
		b.Timeout, b.CoolOff, b.WhenAway, b.Share, b.Events}, func() { b.name = nameOf(b.core.prefix, b.Key) })
}

// Take takes n tokens if they are there, and returns 0. Else it takes nothing
// and returns the least wait after which they would be, to the microsecond, if
// nobody else took any until then: what a server says in Retry-After, rounded up to
// seconds.
//
// The error is that of ctx where it is done, a *CostError, a *ConfigError, an
// *[UnavailableError] (see [Away]) or a [ServerError].
func (b *Bucket) Take(ctx context.Context, n int) (time.Duration, error) {
	if err := b.open(); err != nil {
		return 0, err
	}
	return b.core.take(ctx, b.name, b.Key, n)
}

// Allow reports whether a token was taken. It is false where Take fails.
func (b *Bucket) Allow(ctx context.Context) bool {
	delay, err := b.Take(ctx, 1)
	return delay == 0 && err == nil
}

// Wait is WaitN for one token.
func (b *Bucket) Wait(ctx context.Context) error { return b.WaitN(ctx, 1) }

// WaitN waits until n tokens could be taken, and has taken them. It asks, waits
// as long as it was told, and asks again. Whoever gives up while it waits has
// paid nothing.
//
// A wait that would not end before the deadline of ctx does not begin: WaitN
// returns a *[retryafter.LimitError] at once. Its other errors are those of
// Take.
func (b *Bucket) WaitN(ctx context.Context, n int) error {
	if err := b.open(); err != nil {
		return err
	}
	return b.core.waitN(ctx, b.name, b.Key, n)
}

// settings are what Bucket and Keyed have in common.
type settings struct {
	client           Client
	prefix           string
	capacity         int64
	rate             retryafter.Rate
	timeout, coolOff time.Duration
	away             Away
	share            int64
	events           func(Event)
}

// A core makes the decisions of a Bucket or a Keyed.
type core struct {
	settings
	once  sync.Once
	err   error // a *ConfigError
	link  *link
	meter meter
	args  [3]string         // flow, token, size
	one   []string          // the arguments for one token
	local *retryafter.Keyed // of FailLocal
}

func (c *core) open(owner string, s settings, then func()) error {
	c.once.Do(func() {
		c.settings = s
		if c.err = c.begin(owner); c.err == nil && then != nil {
			then()
		}
	})
	return c.err
}

func (c *core) begin(owner string) (err error) {
	if c.link, err = newLink(owner, c.client, c.timeout, c.coolOff); err != nil {
		return err
	}
	if c.meter, err = newMeter(owner, c.capacity, c.rate); err != nil {
		return err
	}
	if c.prefix, err = prefixOf(owner, c.prefix, "retryafter:bucket:"); err != nil {
		return err
	}
	c.args = [3]string{decimal(c.meter.flow), decimal(c.meter.token), decimal(c.meter.size)}
	c.one = append(c.args[:3:3], decimal(c.meter.token))
	if c.away > FailOpen {
		return &retryafter.ConfigError{Field: owner + ".WhenAway", Value: c.away.String(), Problem: "must be FailClosed, FailLocal or FailOpen"}
	}
	if c.away == FailLocal {
		if c.share < 1 || c.share > c.capacity || c.share > math.MaxInt64/int64(c.rate.Per) {
			return &retryafter.ConfigError{Field: owner + ".Share", Value: decimal(c.share),
				Problem: "must be at least 1, for FailLocal, and leave each process a token"}
		}
		c.local = &retryafter.Keyed{
			Capacity: c.capacity / c.share,
			Rate:     retryafter.Rate{Tokens: c.rate.Tokens, Per: c.rate.Per * time.Duration(c.share)},
		}
		if _, err := c.local.For("").DelayN(time.Now(), 0); err != nil {
			return err
		}
	}
	return nil
}

// take takes n tokens from the bucket called name, or tells how long to wait.
func (c *core) take(ctx context.Context, name string, key retryafter.Key, n int) (time.Duration, error) {
	cost, err := c.meter.cost(n)
	if err != nil {
		return 0, err
	}
	if cost == 0 {
		return 0, contextError(ctx)
	}
	args := c.one
	if n != 1 {
		args = append(c.args[:3:3], decimal(cost))
	}
	wait, err := c.link.run(ctx, takeScript, name, args)
	if err == nil {
		return microseconds(wait), nil
	}
	unavailable, ok := errors.AsType[*UnavailableError](err)
	if !ok {
		return 0, err
	}
	return c.without(unavailable, key, n)
}

// without decides while Redis is away.
func (c *core) without(why *UnavailableError, key retryafter.Key, n int) (time.Duration, error) {
	e := Event{Key: key, Cost: n, Away: c.away, Err: why}
	switch {
	case c.away == FailOpen:
		e.Admitted = true
	case c.away == FailLocal && int64(n) <= c.local.Capacity:
		e.Delay = takeLocal(c.local.For(key), n)
		e.Admitted = e.Delay == 0
	}
	if c.events != nil {
		c.events(e)
	}
	if !e.Admitted && e.Delay == 0 {
		return 0, why
	}
	return e.Delay, nil
}

func takeLocal(b retryafter.KeyedBucket, n int) time.Duration {
	now := time.Now()
	if b.AllowN(now, n) {
		return 0
	}
	delay, err := b.DelayN(now, n)
	if err != nil {
		return math.MaxInt64 // its settings and cost are checked
	}
	return max(delay, 1)
}

func (c *core) waitN(ctx context.Context, name string, key retryafter.Key, n int) error {
	for {
		delay, err := c.take(ctx, name, key, n)
		if err != nil || delay == 0 {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= delay {
			return &retryafter.LimitError{Delay: delay, Err: context.DeadlineExceeded}
		}
		if err := sleep(ctx, delay); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}
