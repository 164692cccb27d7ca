package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-logr/logr"
	"github.com/gofri/go-github-ratelimit/v2/github_ratelimit"
	"github.com/retryafter-go/retryafter/bench/internal/peers"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

// A contender is a peer with what has to be known to be fair to it.
type contender struct {
	peers.Peer
	status int              // that tells it to come back later; 0: 503
	body   func(int) string // of that response, by the number of the attempt; nil: a line of text
	reads  string           // why nothing is to be found out about how it reads the field; "": it does so itself
	least  float64          // the part of its local backoff that jitter leaves; 0: all of it
	lacks  map[string]string
	notes  map[string]string
}

// localLeast is the least that c waits for a local backoff of d.
func (c contender) localLeast(d time.Duration) time.Duration {
	if c.least == 0 {
		return d
	}
	return time.Duration(c.least * float64(d))
}

func (c contender) busyStatus() int {
	if c.status == 0 {
		return http.StatusServiceUnavailable
	}
	return c.status
}

func (c contender) busyBody(n int) string {
	if c.body == nil {
		return fmt.Sprint("busy ", n)
	}
	return c.body(n)
}

// busy is the response to attempt n that asks c to come back.
func (c contender) busy(n int, retryAfter ...string) *http.Response {
	r := response(c.busyStatus(), c.busyBody(n))
	r.Header["Retry-After"] = retryAfter
	return r
}

// both merges reasons.
func both(all ...map[string]string) map[string]string {
	m := map[string]string{}
	for _, one := range all {
		maps.Copy(m, one)
	}
	return m
}

// because gives all of checks one reason.
func because(reason string, checks ...string) map[string]string {
	m := map[string]string{}
	for _, c := range checks {
		m[c] = reason
	}
	return m
}

const (
	readsNone = "doesn't read it"
	readsUser = "its user reads it"
)

func contenders() []contender {
	const (
		httpClientTimeout = "Its timeout of an attempt is an http.Client's, which is documented to cover the body."
		wholeBody         = "It reads every response whole, to hand its body out as bytes."
		byMethods         = "By RetryHTTPMethods; without, it goes by status and error alone."
		anyError          = "Its documentation's condition, err != nil, takes every error."
	)
	noLimit := because("has no such limit", "elapsed")
	ownRequest := because("makes its own request", "left-alone", "closed")
	readsBody := because("reads the body first", "upgrade", "attempt-timeout")
	attemptsOnly := because("its timeout is an attempt's", "client-timeout")
	notTold := because(readsNone, "not-cut", "max")
	seconds := because("reads seconds alone", "second-60", "two-digits", "clock")
	isClient := because("is a client itself", "idle")
	return []contender{
		{Peer: peers.Ours},
		{
			Peer:  peers.Hashicorp,
			lacks: noLimit,
			notes: map[string]string{
				"other-status":    "Documented: it reads the field of a 429 and a 503.",
				"last":            "By PassthroughErrorHandler; by default it drops the response and returns an error.",
				"secrets":         "By PassthroughErrorHandler; the default error shows the query.",
				"attempt-timeout": httpClientTimeout,
			},
		},
		{
			Peer:  peers.Failsafe,
			lacks: seconds,
			notes: map[string]string{
				"imf":          "It reads seconds alone.",
				"other-status": "It reads the field of a 429 and a 503.",
				"last":         "By ReturnLastFailure; by default it returns an error that holds the response.",
				"spread":       "By WithJitterFactor, which adds or subtracts: see the next row.",
				"never-early":  "Documented: WithJitterFactor adds or subtracts. Without it all come back at once.",
				"elapsed":      "By WithMaxDuration.",
			},
		},
		{
			Peer:  peers.Rehttp,
			reads: readsUser,
			lacks: both(noLimit, because("goes by the method", "post-key"), because("its DelayFn is its user's", "seconds", "not-cut", "max")),
			notes: map[string]string{
				"post-503":        byMethods,
				"post-dead":       byMethods,
				"get-dead":        "RetryTemporaryErr doesn't take a reset for temporary. RetryIsErr with a function of its user's could.",
				"attempt-timeout": "Documented: PerAttemptTimeout cancels the attempt.",
			},
		},
		{
			Peer:  peers.Retryhttp,
			least: 1e-9, // full jitter
			lacks: noLimit,
			notes: map[string]string{
				"seconds":     "Without its jitter; see under waiting.",
				"spread":      "By the jitter of DefaultDelayFn, which adds or subtracts: see the next row.",
				"never-early": "Documented: DefaultDelayFn adds or subtracts up to a third. Without jitter all come back at once.",
				"redirect":    "Documented: every response with Retry-After is asked for again.",
				"ok":          "Documented: every response with Retry-After is asked for again.",
				"post-503":    "Documented: every response with Retry-After is asked for again.",
				"get-dead":    "Documented: of errors it repeats timeouts and those of DNS.",
			},
		},
		{
			Peer:  peers.Httpretry,
			reads: readsNone,
			lacks: both(noLimit, notTold, because("has none", "attempt-timeout")),
		},
		{
			Peer:  peers.Heimdall,
			reads: readsNone,
			lacks: both(noLimit, notTold, attemptsOnly, isClient),
			notes: map[string]string{
				"attempt-timeout": httpClientTimeout,
				"secrets":         "It joins the texts of net/http's own errors, which show it, to one.",
			},
		},
		{
			Peer:  peers.Pester,
			reads: readsNone,
			lacks: both(noLimit, notTold, attemptsOnly, isClient),
			notes: map[string]string{"attempt-timeout": httpClientTimeout},
		},
		{
			Peer:  peers.Resty2,
			reads: readsUser,
			lacks: both(noLimit, attemptsOnly, isClient, ownRequest, readsBody),
			notes: map[string]string{
				"seconds":     "By its user's SetRetryAfter.",
				"max":         "It raises what its user's SetRetryAfter returns to SetRetryWaitTime.",
				"not-cut":     "Documented: SetRetryMaxWaitTime, 2 s unless set, bounds every wait.",
				"certificate": anyError,
				"drain":       wholeBody,
				"stalled":     wholeBody,
			},
		},
		{
			Peer:  peers.Resty3,
			lacks: both(noLimit, attemptsOnly, isClient, ownRequest, readsBody, because("goes by the method", "post-key")),
			notes: map[string]string{
				"other-status": "It reads the field of a 429 and a 503.",
				"get-dead":     "RetryConditionStatusZero would, and for certificates too.",
			},
		},
		{
			Peer:  peers.Req,
			reads: readsUser,
			lacks: both(noLimit, attemptsOnly, isClient, ownRequest, readsBody, because("its interval is its user's", "seconds", "not-cut", "max")),
			notes: map[string]string{
				"opaque":      "It refuses to send one with retries on.",
				"certificate": anyError,
				"drain":       wholeBody,
				"stalled":     wholeBody,
			},
		},
		{
			Peer:  peers.Azcore,
			least: 0.8,
			lacks: both(noLimit, isClient, readsBody, because("has none", "client-timeout"), because("takes the request over", "left-alone")),
			notes: map[string]string{
				"not-cut": "It gives up above MaxRetryDelay, 60 s unless set.",
				"drain":   "It reads every response whole unless told not to.",
				"stalled": "It reads every response whole unless told not to.",
			},
		},
		{
			Peer:  kube,
			lacks: both(noLimit, isClient, ownRequest, readsBody, seconds),
			notes: map[string]string{
				"imf":     "It reads seconds alone, and asks again where it could.",
				"last":    "Its callers get a StatusError, with status and delay.",
				"max":     "With a URLBackoff, as by KUBE_CLIENT_BACKOFF_BASE; by default it has no backoff of its own.",
				"plus":    "It reads 10 s; its URLBackoff is longer.",
				"stalled": "It reads up to 2 KiB.",
			},
		},
		{
			Peer:   recipe,
			status: http.StatusTooManyRequests,
			lacks: both(
				because("its request is its user's", "post-503", "post-key", "post-dead", "put", "opaque", "left-alone", "closed"),
				because("takes every error to be passing", "certificate", "get-dead"),
				because("reads that of a 429", "other-status"),
				seconds, isClient, because("has none", "client-timeout", "attempt-timeout")),
			notes: map[string]string{
				"imf":         "It reads seconds alone, and asks again where it could.",
				"elapsed":     "By WithMaxElapsedTime.",
				"last":        "Its operation returns an error.",
				"connections": "Its body is closed unread.",
			},
		},
		{
			Peer:   github,
			status: http.StatusForbidden,
			body: func(n int) string {
				return fmt.Sprintf(`{"message": "You have exceeded a secondary rate limit (%d)", "documentation_url": "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`, n)
			},
			lacks: both(noLimit, seconds, because("has no local backoff", "max"), because("sets no number", "cap", "last"),
				because("is for rate limits alone", "get-dead", "other-status"), because("has none", "attempt-timeout"),
				because("GitHub refuses before it does anything", "post-503", "post-key")),
			notes: map[string]string{
				"imf":       githubSends,
				"rfc850":    githubSends,
				"asctime":   githubSends,
				"merged":    githubSends,
				"junk-line": githubSends,
				"lines":     githubSends,
				"put":       "It sends the same request again, whose body is spent.",
				"opaque":    "It sends the same request again, whose body is spent.",
				"drain":     "It looks into the body for the kind of the limit.",
				"stalled":   "It looks into the body for the kind of the limit.",
			},
		},
	}
}

// recipe is the HTTP example of cenkalti/backoff's documentation.
var recipe = peers.Peer{
	Name:   "backoff recipe",
	Module: "github.com/cenkalti/backoff/v5",
	SetUp:  "the HTTP request of `ExampleRetry`, with the caller's request and a constant backoff",
	Client: func(base http.RoundTripper, s peers.Settings) peers.Do {
		client := &http.Client{Transport: base}
		return func(r *http.Request) (*http.Response, error) {
			options := []backoff.RetryOption{
				backoff.WithBackOff(backoff.NewConstantBackOff(s.Backoff)),
				backoff.WithMaxTries(uint(s.Attempts)),
			}
			if s.MaxElapsed > 0 {
				options = append(options, backoff.WithMaxElapsedTime(s.MaxElapsed))
			}
			return backoff.Retry(r.Context(), func() (*http.Response, error) {
				resp, err := client.Do(r)
				if err != nil {
					return nil, err
				}
				if resp.StatusCode == http.StatusBadRequest {
					resp.Body.Close()
					return nil, backoff.Permanent(errors.New("bad request"))
				}
				if resp.StatusCode == http.StatusTooManyRequests {
					seconds, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
					if err == nil {
						resp.Body.Close()
						return nil, backoff.RetryAfter(int(seconds))
					}
				}
				return resp, nil
			}, options...)
		}
	},
}

const githubSends = "It reads one field line of seconds alone, as GitHub sends it."

// github is gofri's limiter for GitHub's secondary rate limits.
var github = peers.Peer{
	Name:   "go-github-ratelimit",
	Module: "github.com/gofri/go-github-ratelimit/v2",
	SetUp:  "`github_ratelimit.New`, told of a secondary rate limit as GitHub does",
	Transport: func(base http.RoundTripper, _ peers.Settings) http.RoundTripper {
		return github_ratelimit.New(base)
	},
}

// kube is the REST client of Kubernetes.
var kube = peers.Peer{
	Name:   "client-go",
	Module: "k8s.io/client-go",
	SetUp:  "`rest.UnversionedRESTClientForConfigAndClient` and its `Request.Do`, with `MaxRetries` and a `URLBackoff`",
	Client: func(base http.RoundTripper, s peers.Settings) peers.Do {
		klog.SetLogger(logr.Discard())
		config := &rest.Config{Host: "http://stub.example", ContentConfig: rest.ContentConfig{
			GroupVersion:         &schema.GroupVersion{Version: "v1"},
			NegotiatedSerializer: serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion(),
		}}
		client, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: base})
		if err != nil {
			panic(err)
		}
		return func(r *http.Request) (*http.Response, error) {
			call := client.Verb(r.Method).RequestURI(r.URL.RequestURI()).MaxRetries(s.Attempts - 1).
				BackOffWithContext(&rest.URLBackoff{Backoff: flowcontrol.NewBackOff(s.Backoff, s.Backoff)})
			for name, values := range r.Header {
				call.SetHeader(name, values...)
			}
			if s.Timeout > 0 {
				call.Timeout(s.Timeout)
			}
			switch {
			case r.Body == nil:
			case r.GetBody == nil:
				call.Body(io.Reader(r.Body))
			default:
				b, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				call.Body(b)
			}
			var status int
			b, err := call.Do(r.Context()).StatusCode(&status).Raw()
			if err != nil {
				return nil, err
			}
			return response(status, string(b)), nil
		}
	},
}

// response is a response with a whole body.
func response(status int, body string) *http.Response {
	return &http.Response{
		Status:        fmt.Sprint(status, " ", http.StatusText(status)),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{},
		Body:          io.NopCloser(bytes.NewReader([]byte(body))),
		ContentLength: int64(len(body)),
	}
}

var background = context.Background()
