package redisbucket

import (
	"context"
	"errors"
	"math"
	"net/http"
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
// Capacity and Rate must be positive, and small enough for a script to count
// with exactly: at five an hour six million tokens are possible, at a million
// and seven a second four thousand million. Client must be set. Settings that
// make no sense are a *[retryafter.ConfigError] of every use, whatever WhenAway.
//
// A cost above Capacity, or below 0, is a *[retryafter.CostError]; one of 0 is
// met without asking. A Bucket is a [retryafter.RequestLimiter], so that a
// Transport knows in time how long it will have to wait. It may be used from
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
	// one included. FailLocal needs it, from 1 to Capacity; else it has no
	// meaning.
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

// Delay is what Take would return now, but takes nothing. While Redis is away it
// is not an Event: nothing is decided.
func (b *Bucket) Delay(ctx context.Context, n int) (time.Duration, error) {
	if err := b.open(); err != nil {
		return 0, err
	}
	return b.core.delay(ctx, b.name, b.Key, n)
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
	return b.core.waitN(ctx, b.name, b.Key, n, 0)
}

// ForRequest returns a Limiter of this bucket for a Transport's use. All
// requests are charged to the one Key, whatever their contexts say.
func (b *Bucket) ForRequest(req *http.Request) retryafter.Limiter {
	if b.open() != nil {
		return b // each use says what is wrong
	}
	return &requestLimiter{core: &b.core, name: b.name, key: b.Key, ctx: req.Context()}
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
	delay, err := c.ask(ctx, takeScript, name, n)
	if why, ok := errors.AsType[*UnavailableError](err); ok {
		return c.without(why, key, n)
	}
	return delay, err
}

// delay is take, but takes nothing.
func (c *core) delay(ctx context.Context, name string, key retryafter.Key, n int) (time.Duration, error) {
	delay, err := c.ask(ctx, lookScript, name, n)
	if why, ok := errors.AsType[*UnavailableError](err); ok {
		switch {
		case c.away == FailOpen:
			return 0, nil
		case c.away == FailLocal && int64(n) <= c.local.Capacity:
			return c.local.For(key).DelayN(time.Now(), n)
		}
		return 0, why
	}
	return delay, err
}

// ask runs a script for n tokens.
func (c *core) ask(ctx context.Context, s *script, name string, n int) (time.Duration, error) {
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
	wait, err := c.link.run(ctx, s, name, args)
	return microseconds(wait), err
}

// without decides while Redis is away.
func (c *core) without(why *UnavailableError, key retryafter.Key, n int) (time.Duration, error) {
	e := Event{Key: key, Cost: n, Away: c.away, Err: why}
	var err error = why
	switch {
	case c.away == FailOpen:
		e.Admitted, err = true, nil
	case c.away == FailLocal && int64(n) <= c.local.Capacity:
		e.Delay, err = c.local.For(key).TakeN(time.Now(), n)
		e.Admitted = err == nil && e.Delay == 0
	}
	if c.events != nil {
		c.events(e)
	}
	return e.Delay, err
}

// waitN takes n tokens, at the earliest after delay.
func (c *core) waitN(ctx context.Context, name string, key retryafter.Key, n int, delay time.Duration) (err error) {
	for {
		if delay == 0 {
			if delay, err = c.take(ctx, name, key, n); err != nil || delay == 0 {
				return err
			}
		}
		if err := contextError(ctx); err != nil {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= delay {
			return &retryafter.LimitError{Delay: delay, Err: context.DeadlineExceeded}
		}
		if err := sleep(ctx, delay); err != nil {
			return err
		}
		delay = 0
	}
}

// A requestLimiter is a bucket for one request. It has the methods by which a
// Transport finds out about waits before it makes them. They have no context,
// so the request's is kept for them; and the server has its own time, so theirs
// doesn't count.
type requestLimiter struct {
	core *core
	name string
	key  retryafter.Key
	ctx  context.Context

	// What TakeN came to, for the WaitN that follows: what may have been
	// charged must not be asked for again, and a wait is made without.
	delay time.Duration
	err   error
}

func (r *requestLimiter) TakeN(_ time.Time, n int) (time.Duration, error) {
	r.delay, r.err = r.core.take(r.ctx, r.name, r.key, n)
	return r.delay, r.err
}

func (r *requestLimiter) DelayN(_ time.Time, n int) (time.Duration, error) {
	return r.core.delay(r.ctx, r.name, r.key, n)
}

func (r *requestLimiter) WaitN(ctx context.Context, n int) error {
	delay, err := r.delay, r.err
	if r.delay, r.err = 0, nil; err != nil {
		return err
	}
	return r.core.waitN(ctx, r.name, r.key, n, delay)
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
