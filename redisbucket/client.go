package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Client runs scripts on a server. It must send each command once: a command
// whose reply is lost must not be sent again by the Client or by what it is
// made of. A redirect, as in a cluster, is no loss: the server that gives it
// has done nothing.
//
// Both methods name one key and return the integer that the script returned.
// An error reply is a [ServerError]. A call should end soon after its ctx is
// done. A Client is used from many goroutines at once.
type Client interface {
	// Eval sends EVAL script 1 key args.
	Eval(ctx context.Context, script, key string, args []string) (int64, error)

	// EvalSHA sends EVALSHA digest 1 key args.
	EvalSHA(ctx context.Context, digest, key string, args []string) (int64, error)
}

// A ServerError is an error reply: its text, which begins with a code as in
// "READONLY You can't write against a read only replica."
type ServerError string

func (e ServerError) Error() string { return "redisbucket: the server said: " + string(e) }

// Is reports whether target is what the reply's code stands for: [ErrCorrupt].
func (e ServerError) Is(target error) bool {
	return target == ErrCorrupt && strings.HasPrefix(string(e), "CORRUPT ")
}

// ErrCorrupt is found in the error of a key whose value is not what belongs
// there. Delete the key to start anew, with a full bucket or no hold.
var ErrCorrupt = errors.New("redisbucket: the value of the key is corrupt")

// unable are the codes by which a server says that it can't serve now. What
// another code says is not cured by the time that passes.
var unable = []string{
	"LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "TRYAGAIN",
	"NOREPLICAS", "MISCONF", "OOM", "MOVED", "ASK", "ERR max number of clients",
}

func (e ServerError) unable() bool {
	for _, code := range unable {
		if strings.HasPrefix(string(e), code+" ") {
			return true
		}
	}
	return false
}

// An UnavailableError is a decision that Redis didn't make: it could not be
// reached, gave no answer in time, or can't serve now. What was asked for may
// have been charged all the same, unless Resting.
type UnavailableError struct {
	// Err is why Redis didn't answer the last one who asked. It is never a
	// context's error, which would be the caller's.
	Err error

	// Resting: Redis was not asked this time, because of those before.
	Resting bool
}

func (e *UnavailableError) Error() string {
	if e.Resting {
		return "redisbucket: Redis is left alone for a while: " + e.Err.Error()
	}
	return "redisbucket: Redis gave no answer: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout.
func (e *UnavailableError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// noReply is the end of a question by its own Timeout.
type noReply time.Duration

func (d noReply) Error() string { return fmt.Sprintf("no reply within %v", time.Duration(d)) }
func (d noReply) Timeout() bool { return true }

// opaque has the text of an error, and hides what it is.
type opaque string

func (e opaque) Error() string { return string(e) }

const (
	defaultTimeout = 100 * time.Millisecond
	defaultCoolOff = time.Second
	strikes        = 3 // questions in a row without an answer, and Redis rests
)

// A link asks Redis, and leaves it alone for a while where it is away.
type link struct {
	client           Client
	timeout, coolOff time.Duration

	failures atomic.Int32 // in a row

	mu    sync.Mutex
	rest  time.Time // nobody asks before
	cause error     // of the last failure
}

func newLink(owner string, c Client, timeout, coolOff time.Duration) (*link, error) {
	switch {
	case c == nil:
		return nil, &retryafter.ConfigError{Field: owner + ".Client", Value: "nil", Problem: "must be set"}
	case timeout < 0:
		return nil, &retryafter.ConfigError{Field: owner + ".Timeout", Value: timeout.String(), Problem: "must not be negative"}
	case timeout == 0:
		timeout = defaultTimeout
	}
	if coolOff == 0 {
		coolOff = defaultCoolOff
	}
	return &link{client: c, timeout: timeout, coolOff: coolOff}, nil
}

// run returns what s returns for key. The error is that of ctx where it is
// done, else an *UnavailableError or a ServerError.
func (l *link) run(ctx context.Context, s *script, key string, args []string) (int64, error) {
	if err := contextError(ctx); err != nil {
		return 0, err
	}
	if err := l.enter(); err != nil {
		return 0, &UnavailableError{Err: err, Resting: true}
	}
	within, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	reply, err := l.client.EvalSHA(within, s.digest, key, args)
	if e, ok := errors.AsType[ServerError](err); ok && strings.HasPrefix(string(e), "NOSCRIPT") {
		reply, err = l.client.Eval(within, s.text, key, args)
	}
	if err == nil {
		l.answered()
		return reply, contextError(ctx)
	}
	if e, ok := errors.AsType[ServerError](err); ok && !e.unable() {
		l.answered()
		return 0, err
	}
	// An end by the caller is not held against Redis, nor does it open anything.
	if err := endOf(ctx, within, err); err != nil {
		l.unasked()
		return 0, err
	}
	switch {
	case within.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		err = noReply(l.timeout)
	case errors.Is(err, context.Canceled):
		err = opaque(err.Error())
	}
	l.failed(err)
	return 0, &UnavailableError{Err: err}
}

// enter returns why Redis is not to be asked, or nil.
func (l *link) enter() error {
	if l.failures.Load() < strikes {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.rest) {
		return l.cause
	}
	l.rest = now.Add(l.coolOff) // this caller asks, the others of this while don't
	return nil
}

func (l *link) answered() {
	if l.failures.Load() != 0 {
		l.failures.Store(0)
	}
}

func (l *link) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cause = err
	if l.coolOff > 0 && l.failures.Add(1) >= strikes {
		l.rest = time.Now().Add(l.coolOff)
	}
}

// unasked lets the next caller ask where this one came to no end.
func (l *link) unasked() {
	if l.failures.Load() >= strikes {
		l.mu.Lock()
		l.rest = time.Time{}
		l.mu.Unlock()
	}
}

// contextError is why ctx is done, or nil. Both what ctx.Err and what
// context.Cause return are found in it.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// endOf is contextError, a moment earlier: a connection whose deadline is that
// of ctx may time out before ctx says so. within has the earliest deadline.
func endOf(ctx, within context.Context, err error) error {
	if err := contextError(ctx); err != nil {
		return err
	}
	deadline, ok := ctx.Deadline()
	if first, _ := within.Deadline(); !ok || deadline.After(first) {
		return nil
	}
	var t interface{ Timeout() bool }
	if left := time.Until(deadline); left <= 0 || left <= moment && errors.As(err, &t) && t.Timeout() {
		return context.DeadlineExceeded
	}
	return nil
}

// moment is how much earlier. A timeout before that is one of Redis's client.
const moment = 10 * time.Millisecond

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
