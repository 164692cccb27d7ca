// Package rueidisclient lets redisbucket run its scripts through
// github.com/redis/rueidis. It is a module of its own, so that only who wants
// rueidis gets it.
package rueidisclient

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/retryafter-go/retryafter/redisbucket"
)

// New returns a Client that sends through c, in use for other things too.
//
// rueidis repeats only what it knows to be read-only, so a command whose reply
// was lost is not sent again, whatever DisableRetry says. It minds deadlines by
// itself. A caller's cancellation it may notice only with the reply or at the
// deadline: a caller who is cancelled in the middle of a question comes back
// within redisbucket's Timeout.
func New(c rueidis.Client) redisbucket.Client { return client{c} }

type client struct{ redis rueidis.Client }

func (c client) Eval(ctx context.Context, script, key string, args []string) (int64, error) {
	return c.send(ctx, c.redis.B().Eval().Script(script).Numkeys(1).Key(key).Arg(args...).Build())
}

func (c client) EvalSHA(ctx context.Context, digest, key string, args []string) (int64, error) {
	return c.send(ctx, c.redis.B().Evalsha().Sha1(digest).Numkeys(1).Key(key).Arg(args...).Build())
}

func (c client) send(ctx context.Context, cmd rueidis.Completed) (int64, error) {
	reply, err := c.redis.Do(ctx, cmd).ToInt64()
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return 0, redisbucket.ServerError(reply.Error())
	}
	return reply, err
}
