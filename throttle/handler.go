package throttle

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/retryafter-go/retryafter"
)

// A Handler is an http.Handler that hands a request on to Next where its key's
// budget has room for its cost, and refuses it else, as the package
// documentation says. It judges a request before its body is read: one that
// waits for a 100 (Continue) is refused without having been sent.
//
// Handlers can be nested, as one by address before authentication and one by
// account behind it. The outer one's charge stands where the inner one refuses.
//
// A Handler may be used from many goroutines at once. It must not be copied or
// have its fields changed after the first use.
type Handler struct {
	// Next serves what is admitted. It must be set.
	Next http.Handler

	// Limit keeps the budgets. It must be set.
	Limit Limiter

	// Key says whose budget a request is charged to; it runs after
	// authentication and must use only what the server has verified. Its error
	// refuses the request: with 400 where it is an *[AddrError] of a forwarding
	// field, which was at fault for the request; else with 500, for a Handler
	// that finds no identity where authentication should have left one stands
	// in the wrong place. nil means one budget for all requests together.
	Key func(*http.Request) (retryafter.Key, error)

	// Cost is what a request costs, in tokens. 0 is admitted without a charge.
	// A negative cost, which would be a gift, is refused with 500. nil means
	// that each costs 1.
	Cost func(*http.Request) int

	// Policy, where it is not empty, is the name under which the quota is
	// published, in RateLimit-Policy and RateLimit fields on every response
	// that depends on it and in the body of a 429: see the constants of this
	// package. It must be printable ASCII, and Limit a QuotaLimiter. Empty
	// publishes nothing.
	Policy string

	// QuotaUnit is what a token stands for, where that is not a request: a
	// name from the registry of the RateLimit draft, as "content-bytes". It is
	// sent in RateLimit-Policy.
	QuotaUnit string

	// FailOpen is asked where Limit failed, and says whether to admit the
	// request without a charge. It is not asked about a cost or settings that
	// can't be right, nor where the request's own context is done. nil never
	// does: the request is refused with 503.
	FailOpen func(*http.Request, error) bool

	// Decided runs once a request, before Next or the refusal. It is where
	// errors are seen, for no response shows them. nil means nobody looks.
	Decided func(*http.Request, Decision)

	// Refuse writes a refusal: d.Status, and a body of its own. The header
	// fields of the refusal are set already, all but those about the body. nil
	// writes a problem body.
	Refuse func(w http.ResponseWriter, r *http.Request, d Decision)

	once   sync.Once
	err    error        // a *retryafter.ConfigError
	quota  QuotaLimiter // Limit, where Policy is set
	policy string       // the RateLimit-Policy field
	item   string       // Policy as the beginning of a RateLimit field
}

// A Decision is what a Handler found about one request.
type Decision struct {
	Key  retryafter.Key
	Cost int

	// Status is that of the refusal. 0 means that the request was admitted.
	Status int

	// Delay is the exact wait that a 429's Retry-After rounds up; else 0.
	Delay time.Duration

	// Err is why the request could not be judged, or why its cost never fits.
	// It is set too where FailOpen admitted the request. It is for the server's
	// own eyes.
	Err error
}

// ServeHTTP hands r on to Next or refuses it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := h.judge(w.Header(), r)
	if h.Decided != nil {
		h.Decided(r, d)
	}
	if d.Status == 0 {
		h.Next.ServeHTTP(w, r)
		return
	}
	h.refuse(w, r, d)
}

// judge charges r, and publishes the quota in header where that is wanted.
func (h *Handler) judge(header http.Header, r *http.Request) (d Decision) {
	d.Cost = 1
	if d.Err = h.open(); d.Err != nil {
		d.Status = http.StatusInternalServerError
		return d
	}
	if h.Key != nil {
		if d.Key, d.Err = h.Key(r); d.Err != nil {
			d.Status = statusWithoutKey(d.Err)
			return d
		}
	}
	if h.Cost != nil {
		d.Cost = h.Cost(r)
	}
	if d.Cost < 0 {
		d.Err = &retryafter.CostError{Cost: int64(d.Cost)}
		d.Status = http.StatusInternalServerError
		return d
	}
	var left Left
	if h.quota != nil {
		d.Delay, left, d.Err = h.quota.TakeLeft(r.Context(), d.Key, d.Cost)
		header[policyField] = append(header[policyField], h.policy)
	} else {
		d.Delay, d.Err = h.Limit.Take(r.Context(), d.Key, d.Cost)
	}
	switch {
	case d.Err != nil:
		d.Delay = 0
		d.Status = h.statusWithoutAnswer(r, d.Err)
		return d
	case d.Delay != 0:
		d.Status = http.StatusTooManyRequests
		left.Next = min(left.Next, d.Delay) // though others may have come in between
	}
	if h.quota != nil {
		header[limitField] = append(header[limitField], h.left(left))
	}
	return d
}

func statusWithoutKey(err error) int {
	if addr, ok := errors.AsType[*AddrError](err); ok && addr.Field != remoteAddr {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func (h *Handler) statusWithoutAnswer(r *http.Request, err error) int {
	if cost, ok := errors.AsType[*retryafter.CostError](err); ok && cost.Cost >= 0 {
		return http.StatusForbidden
	} else if ok {
		return http.StatusInternalServerError
	}
	if _, ok := errors.AsType[*retryafter.ConfigError](err); ok {
		return http.StatusInternalServerError
	}
	if h.FailOpen != nil && r.Context().Err() == nil && h.FailOpen(r, err) {
		return 0
	}
	return http.StatusServiceUnavailable
}

// open makes h ready at its first use.
func (h *Handler) open() error {
	h.once.Do(func() { h.err = h.begin() })
	return h.err
}

func (h *Handler) begin() error {
	unset := func(field string) error {
		return &retryafter.ConfigError{Field: "Handler." + field, Value: "nil", Problem: "must be set"}
	}
	switch {
	case h.Next == nil:
		return unset("Next")
	case h.Limit == nil:
		return unset("Limit")
	case h.Policy == "" && h.QuotaUnit == "":
		return nil
	}
	return h.beginPolicy()
}

// refuse answers r as d says.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, d Decision) {
	header := w.Header()
	for _, field := range staleFields {
		header.Del(field)
	}
	header.Set("Cache-Control", "no-store")
	if d.Status == http.StatusTooManyRequests {
		header.Set("Retry-After", strconv.FormatInt(seconds(d.Delay), 10))
	}
	if h.Refuse != nil {
		h.Refuse(w, r, d)
		return
	}
	h.problem(d).write(w, r, d.Status)
}

// staleFields are about a response that will not be sent, as they are for
// http.Error, or say when to come back where this Handler does not.
var staleFields = []string{"Cdn-Cache-Control", "Content-Length", "Content-Encoding", "Content-Range", "Etag", "Expires", "Last-Modified", "Retry-After"}
