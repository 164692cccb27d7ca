// Package goredisclient lets redisbucket run its scripts through
// github.com/redis/go-redis.
package goredisclient

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/retryafter-go/retryafter/redisbucket"
)

// New returns a Client that sends through c, which may be a *redis.Client, a
// *redis.ClusterClient or a *redis.Ring, in use for other things too.
//
// Whatever MaxRetries and MaxRedirects say, a command whose reply was lost is
// not sent again: each command forbids it (redis.Cmder's NoRetry). Redirects
// within a cluster are followed.
//
// With its option ContextTimeoutEnabled, which is off by default, c minds
// deadlines by itself; a caller's cancellation is noticed with the reply or at the
// deadline. Without, each command runs in a goroutine, which
// outlives a caller who has gone, by c's ReadTimeout at most.
//
// A Ring that loses a server asks another, which does not know the bucket: it
// starts full there.
func New(c redis.UniversalClient) redisbucket.Client {
	minds := false
	switch c := c.(type) {
	case *redis.Client:
		minds = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		minds = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		minds = c.Options().ContextTimeoutEnabled
	}
	return client{c, minds}
}

type client struct {
	redis redis.UniversalClient
	minds bool // deadlines
}

func (c client) Eval(ctx context.Context, script, key string, args []string) (int64, error) {
	return c.run(ctx, "eval", script, key, args)
}

func (c client) EvalSHA(ctx context.Context, digest, key string, args []string) (int64, error) {
	return c.run(ctx, "evalsha", digest, key, args)
}

func (c client) run(ctx context.Context, name, script, key string, args []string) (int64, error) {
	all := make([]any, 4, 4+len(args))
	all[0], all[1], all[2], all[3] = name, script, 1, key
	for _, a := range args {
		all = append(all, a)
	}
	if c.minds {
		return c.send(ctx, all)
	}
	type result struct {
		reply int64
		err   error
	}
	done := make(chan result, 1)
	go func() {
		reply, err := c.send(ctx, all)
		done <- result{reply, err}
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (c client) send(ctx context.Context, args []any) (int64, error) {
	cmd := &once{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	_ = c.redis.Process(ctx, cmd)
	reply, err := cmd.Int64()
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return 0, redisbucket.ServerError(reply.Error())
	}
	return reply, err
}

// once is a command that go-redis does not repeat.
type once struct{ *redis.Cmd }

func (*once) NoRetry() bool { return true }

func (o *once) Clone() redis.Cmder {
	if cmd, ok := o.Cmd.Clone().(*redis.Cmd); ok {
		return &once{cmd}
	}
	return o
}
