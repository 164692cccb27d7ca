package throttle

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// The types of problem in the bodies of refusals (RFC 9457, section 3.1.1).
const (
	// QuotaExceeded is the type of a 429, titled "Quota Exceeded". It is
	// defined by draft-ietf-httpapi-ratelimit-headers-11, sections 5.1 and
	// 10.2.1. Its member violated-policies has Handler.Policy, where that is
	// set.
	QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

	// CostTooHigh is the type of a 403, titled "Cost Too High": the request
	// costs more than a full budget, so that no wait will ever do. It has no
	// Retry-After. A smaller request may be admitted.
	//
	// It is not a 429 or 503, which clients repeat, and not a 413, for its
	// content need not be what costs so much. 403 is for what is understood and
	// refused for good, whatever the credentials (RFC 9110, section 15.5.4).
	CostTooHigh = "https://pkg.go.dev/github.com/retryafter-go/retryafter/throttle#CostTooHigh"
)

// A problem is the body of a refusal.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// problem describes d to those it concerns.
func (h *Handler) problem(d Decision) problem {
	p := problem{Type: "about:blank", Title: http.StatusText(d.Status), Status: d.Status}
	switch d.Status {
	case http.StatusTooManyRequests:
		p.Type, p.Title = QuotaExceeded, "Quota Exceeded"
		p.Detail = "There is room for this request in " + inSeconds(d.Delay) + "."
		if h.Policy != "" {
			p.Violated = []string{h.Policy}
		}
	case http.StatusForbidden:
		p.Type, p.Title = CostTooHigh, "Cost Too High"
		p.Detail = "This request costs more than can be admitted at once, however long it waits. A smaller one may be admitted."
	case http.StatusBadRequest:
		p.Detail = "It can't be told where this request comes from."
	}
	return p
}

// write sends p. A HEAD request gets the header that a GET would have got.
func (p problem) write(w http.ResponseWriter, r *http.Request, status int) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and a number
	}
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

func inSeconds(d time.Duration) string {
	s := seconds(d)
	if s == 1 {
		return "1 second"
	}
	return strconv.FormatInt(s, 10) + " seconds"
}

// seconds is d as delay-seconds (RFC 9110, section 10.2.3): rounded up, so
// that it is never too short, and at least 1, for 0 would mean at once.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(s, 1)
}
