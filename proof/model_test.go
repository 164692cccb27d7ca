package proof

import (
	"context"
	"errors"
	"io"
	"math"
	"math/big"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/retryafter-go/retryafter"
)

// Facts are what rules 4 to 10 go by, as plain as they can be put.
type facts struct {
	gone, failed bool // the caller no longer wants it; the attempt gave an error
	worth        bool
	idempotent   bool
	replayable   bool
	number       int
	caps         []int // every cap on attempts that there is
	stopped      bool  // the local backoff said stop
	server       time.Duration
	local        time.Duration
	jitter       time.Duration // what the function returned, be it negative
	maxWait      time.Duration // negative: none
	reserve      time.Duration
	limiter      time.Duration
	left         *big.Int // nanoseconds from receipt to the deadline; nil: no deadline
	elapsed      time.Duration
	maxElapsed   time.Duration // 0 or less: none
}

// A verdict is what must follow from them.
type verdict struct {
	reason retryafter.Reason // 0: go on
	parts  bool              // whether there is a wait to speak of
	wait   time.Duration
	need   time.Duration // what must fit before the bounds
}

// judge is the rules once more, in exact arithmetic that saturates at the end.
func judge(f facts) verdict {
	if f.gone && f.failed { // 4
		return verdict{reason: retryafter.Canceled}
	}
	if !f.worth { // 5
		return verdict{reason: retryafter.Final}
	}
	floor := largest(f.server, f.local)
	v := verdict{parts: true, wait: saturated(new(big.Int).Add(floor, largest(f.jitter, 0)))}
	need := largest(v.wait, f.limiter)
	v.need = saturated(need.Add(need, largest(f.reserve, 0)))
	need = big.NewInt(int64(v.need))
	spent := big.NewInt(int64(saturated(new(big.Int).Add(big.NewInt(int64(f.elapsed)), need))))
	capped := false
	for _, n := range f.caps {
		capped = capped || f.number >= n
	}
	switch {
	case f.gone: // 4
		v.reason = retryafter.Canceled
	case !f.idempotent: // 6
		v.reason = retryafter.MethodNotIdempotent
	case !f.replayable:
		v.reason = retryafter.BodyNotReplayable
	case capped: // 7
		v.reason = retryafter.AttemptsUsed
	case f.stopped:
		v.reason = retryafter.BackoffStopped
	case f.maxWait >= 0 && floor.Cmp(big.NewInt(int64(f.maxWait))) > 0: // 8
		v.reason = retryafter.WaitTooLong
	case f.left != nil && need.Cmp(f.left) >= 0: // 10
		v.reason = retryafter.DeadlineTooNear
	case f.maxElapsed > 0 && spent.Cmp(big.NewInt(int64(f.maxElapsed))) >= 0:
		v.reason = retryafter.ElapsedTooLong
	}
	return v
}

func largest(a, b time.Duration) *big.Int {
	if a < b {
		a = b
	}
	return big.NewInt(int64(a))
}

// saturated is n, or the largest Duration where n is larger.
func saturated(n *big.Int) time.Duration {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(n.Int64())
}

// settings fills in what the zero Policy means.
func settings(p retryafter.Policy, caps ...int) (f facts) {
	switch {
	case p.MaxAttempts == 0:
		f.caps = []int{3}
	case p.MaxAttempts > 0:
		f.caps = []int{p.MaxAttempts}
	}
	f.caps = append(f.caps, caps...)
	f.maxWait = p.MaxWait
	if p.MaxWait == 0 {
		f.maxWait = 2 * time.Minute
	}
	f.reserve, f.maxElapsed = p.Reserve, p.MaxElapsed
	return f
}

// defaultBackoff is the table of DESIGN.md, 6.
func defaultBackoff(number, status int, told bool) time.Duration {
	table := []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 12800}
	d := 20 * time.Second
	if number <= len(table) {
		d = table[number-1] * time.Millisecond
	}
	if !told && (status == 429 || status == 503) && d < time.Second {
		d = time.Second
	}
	return d
}

func worthByDefault(status int, err error, told, keyed bool) bool {
	if err != nil {
		for _, cure := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNREFUSED, os.ErrDeadlineExceeded,
			dnsTemporary, retryafter.ErrAttemptTimeout} {
			if err == cure {
				return true
			}
		}
		return false
	}
	switch status {
	case 408, 425, 429, 500, 502, 503, 504:
		return true
	case 413:
		return told
	case 409:
		return keyed
	}
	return false
}

func repeatable(method string, key http.Header) bool {
	for _, m := range []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"} {
		if method == m {
			return true
		}
	}
	return len(key) > 0
}

// An outcome is what must be seen of a call.
type outcome struct {
	Spans    []span
	Waits    []time.Duration // announced
	WaitedAt []time.Duration
	Attempts int
	Stop     retryafter.Reason
	Waited   time.Duration
	End      time.Duration
	Status   int   // of the response handed back; 0: an error instead
	Err      error // found in that error
	Whole    bool  // the first attempt settled it
	Last     retryafter.Decision
	GetBody  bool // a body could not be had
}

// predict follows the script by the rules alone. start is when the call began.
// draws are the jitters that were in fact drawn where the script has the
// default, which is random.
func (s *script) predict(start time.Time, draws []time.Duration) outcome {
	var (
		o         outcome
		now       time.Duration
		goneAt    = s.cancel
		cause     = map[string]error{"cancel": context.Canceled, "cause": errCause, "request": nil}[s.how]
		asked     int // of the backoff
		gets      int
		deadline  = s.deadline != 0
		exhausted bool
	)
	if deadline && s.deadline < goneAt {
		goneAt, cause = s.deadline, context.DeadlineExceeded
	}
	gone := func(at time.Duration) bool { return at >= goneAt }
	jitter := func(server, local time.Duration) (j time.Duration) {
		if s.jitter >= 0 {
			return jitters[s.jitter](max(server, local), server > 0 && server >= local)
		}
		if len(draws) == 0 {
			exhausted = true
			return 0
		}
		j, draws = draws[0], draws[1:]
		return j
	}
	left := func() *big.Int {
		if !deadline {
			return nil
		}
		return big.NewInt(int64(s.deadline - now))
	}
	// wait is the wait after now, which ends the call where it returns false.
	wait := func(d time.Duration) bool {
		if s.traces != 0 {
			for bit := 1; bit <= 4; bit *= 2 {
				if s.traces&bit != 0 {
					o.Waits, o.WaitedAt = append(o.Waits, d), append(o.WaitedAt, now)
				}
			}
		}
		until := now + d
		if gone(now) || until < now || gone(until) {
			o.Waited += max(goneAt-now, 0)
			now = max(goneAt, now)
			o.Stop, o.Err = retryafter.Canceled, cause
			return false
		}
		o.Waited += d
		now = until
		return true
	}
	finish := func() outcome {
		o.End = now
		if o.Last.Retry { // it came to nothing
			o.Last.Retry, o.Last.Reason = false, o.Stop
		}
		if exhausted {
			panic("not as many jitters as decisions")
		}
		return o
	}

	if gone(now) {
		o.Stop, o.Err = retryafter.Canceled, cause
		return finish()
	}
	if s.hop != nil && s.hop.status/100 == 3 {
		if delay, ok := s.hop.server.means(start, start); ok {
			f := settings(s.policy)
			f.worth, f.idempotent, f.replayable, f.caps, f.maxElapsed = true, true, true, nil, 0
			f.server, f.left = delay, left()
			f.jitter = jitter(delay, 0)
			v := judge(f)
			o.Last = retryafter.Decision{Retry: v.reason == 0, Wait: v.wait, Server: delay, Jitter: max(f.jitter, 0), Reason: v.reason}
			if v.reason != 0 {
				o.Stop = v.reason
				return finish()
			}
			if !wait(v.wait) {
				return finish()
			}
		}
	}
	first := now
	for n := 1; ; n++ {
		o.Attempts = n
		r, begin := s.reply(n), now
		status, err := r.status, r.err
		if err != nil {
			status = 0
		}
		far := begin + r.wire
		late := time.Duration(math.MaxInt64)
		if s.timeout > 0 {
			late = begin + s.timeout
		}
		switch {
		case s.deaf:
			now = far
		case gone(begin):
			now, status, err = begin, 0, cause
		case gone(far) && goneAt < late:
			now, status, err = goneAt, 0, cause
		case late < far:
			now, status, err = late, 0, retryafter.ErrAttemptTimeout
		default:
			now = far
		}
		if err == nil && status == 0 {
			err = errRequest // by Request.Cancel
		}
		o.Spans = append(o.Spans, span{begin, now})

		var server time.Duration
		told := false
		if status != 0 {
			server, told = r.server.means(start.Add(begin), start.Add(now))
		}
		f := settings(s.policy, s.caps...)
		f.gone, f.failed, f.number = gone(now), err != nil, n
		f.server, f.elapsed, f.left = server, now-first, left()
		f.worth = worthByDefault(status, err, told, len(s.key["Idempotency-Key"]) > 0 || len(s.key["X-Idempotency-Key"]) > 0)
		if s.retry != nil {
			f.worth = s.again(n)
		}
		f.idempotent = repeatable(s.method, s.key)
		f.replayable = s.body != "opaque"
		if judge(f).parts {
			switch s.backoff {
			case "default":
				f.local = defaultBackoff(n, status, told)
			case "nil":
				f.stopped = true
			case "list":
				f.local = s.steps[min(asked, len(s.steps)-1)]
				asked++
				if f.local == backoff.Stop {
					f.local, f.stopped = 0, true
				}
			}
			f.jitter = jitter(server, f.local)
		}
		v := judge(f)
		o.Last = retryafter.Decision{Retry: v.reason == 0, Reason: v.reason}
		if v.parts {
			o.Last.Wait, o.Last.Server, o.Last.Local, o.Last.Jitter = v.wait, server, f.local, max(f.jitter, 0)
		}
		o.Stop = v.reason
		if v.reason == 0 && s.body != "none" && s.body != "nobody" {
			if gets++; s.body == "once" || s.body == "failing" && gets == 2 {
				o.Stop, o.GetBody = retryafter.GetBodyFailed, true
			}
		}
		if o.Stop != 0 {
			o.Status, o.Err = status, err
			o.Whole = o.Stop == retryafter.Final && n == 1
			return finish()
		}
		if !wait(v.wait) {
			return finish()
		}
	}
}

// timeoutOf tells what net/http asks of an error.
func timeoutOf(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
