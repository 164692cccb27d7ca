package peers

import (
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/cenkalti/backoff/v4"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/justinrixx/retryhttp"
	"github.com/retryafter-go/retryafter"
	"github.com/ybbus/httpretry"
)

// Ours is what the others stand beside.
var Ours = Peer{
	Name:   "retryafter",
	Module: "github.com/retryafter-go/retryafter",
	SetUp:  "the zero `Transport` with `MaxAttempts` and a constant `Backoff`",
	Transport: func(base http.RoundTripper, s Settings) http.RoundTripper {
		return &retryafter.Transport{
			Base:           base,
			AttemptTimeout: s.AttemptTimeout,
			Policy: retryafter.Policy{
				MaxAttempts: s.Attempts,
				MaxElapsed:  s.MaxElapsed,
				Backoff:     func() backoff.BackOff { return backoff.NewConstantBackOff(s.Backoff) },
			},
		}
	},
}

// Hashicorp is go-retryablehttp.
var Hashicorp = Peer{
	Name:   "go-retryablehttp",
	Module: "github.com/hashicorp/go-retryablehttp",
	SetUp:  "`NewClient` and its `RoundTripper`, without a logger, `ErrorHandler: PassthroughErrorHandler`",
	Transport: func(base http.RoundTripper, s Settings) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.HTTPClient = &http.Client{Transport: base, Timeout: s.AttemptTimeout}
		c.Logger = nil
		c.ErrorHandler = retryablehttp.PassthroughErrorHandler
		c.RetryMax = s.Attempts - 1
		c.RetryWaitMin, c.RetryWaitMax = s.Backoff, s.Backoff
		return &retryablehttp.RoundTripper{Client: c}
	},
}

// Failsafe is failsafehttp.
var Failsafe = Peer{
	Name:   "failsafehttp",
	Module: "github.com/failsafe-go/failsafe-go",
	SetUp:  "`NewRetryPolicyBuilder` with `WithMaxAttempts`, `WithDelay` and `ReturnLastFailure`",
	Transport: func(base http.RoundTripper, s Settings) http.RoundTripper {
		b := failsafehttp.NewRetryPolicyBuilder().WithMaxAttempts(s.Attempts).ReturnLastFailure()
		if s.Backoff > 0 {
			b = b.WithDelay(s.Backoff)
		}
		if s.Jitter {
			b = b.WithJitterFactor(0.25)
		}
		if s.MaxElapsed > 0 {
			b = b.WithMaxDuration(s.MaxElapsed)
		}
		policies := []failsafe.Policy[*http.Response]{b.Build()}
		if s.AttemptTimeout > 0 {
			policies = append(policies, timeout.New[*http.Response](s.AttemptTimeout))
		}
		return failsafehttp.NewRoundTripper(base, policies...)
	},
}

// Rehttp is PuerkitoBio/rehttp.
var Rehttp = Peer{
	Name:   "rehttp",
	Module: "github.com/PuerkitoBio/rehttp",
	SetUp:  "`RetryAll` of `RetryMaxRetries`, `RetryHTTPMethods` with the idempotent methods, and either of `RetryStatuses` and `RetryTemporaryErr`; `ConstDelay`",
	Transport: func(base http.RoundTripper, s Settings) http.RoundTripper {
		t := rehttp.NewTransport(base,
			rehttp.RetryAll(
				rehttp.RetryMaxRetries(s.Attempts-1),
				rehttp.RetryHTTPMethods("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"),
				rehttp.RetryAny(rehttp.RetryStatuses(worthAnother...), rehttp.RetryTemporaryErr()),
			),
			rehttp.ConstDelay(s.Backoff))
		t.PerAttemptTimeout = s.AttemptTimeout
		return t
	},
}

// Retryhttp is justinrixx/retryhttp.
var Retryhttp = Peer{
	Name:   "retryhttp",
	Module: "github.com/justinrixx/retryhttp",
	SetUp:  "`New` with `CustomizedDelayFn`, without jitter except where jitter is looked at",
	Transport: func(base http.RoundTripper, s Settings) http.RoundTripper {
		delay := func(retryhttp.Attempt) time.Duration { return 0 }
		if s.Backoff > 0 { // CustomizedDelayFn panics with a Base of 0
			o := retryhttp.CustomizedDelayFnOptions{Base: s.Backoff, Cap: s.Backoff}
			if s.Jitter {
				o.JitterMagnitude = 0.333 // as in DefaultDelayFn
			}
			delay = retryhttp.CustomizedDelayFn(o)
		}
		return retryhttp.New(
			retryhttp.WithTransport(base),
			retryhttp.WithMaxRetries(s.Attempts-1),
			retryhttp.WithDelayFn(delay),
			retryhttp.WithAttemptTimeout(s.AttemptTimeout))
	},
}

// Httpretry is ybbus/httpretry.
var Httpretry = Peer{
	Name:   "httpretry",
	Module: "github.com/ybbus/httpretry",
	SetUp:  "`NewCustomClient` with `ConstantBackoff`",
	Transport: func(base http.RoundTripper, s Settings) http.RoundTripper {
		return httpretry.NewCustomClient(&http.Client{Transport: base},
			httpretry.WithMaxRetryCount(s.Attempts-1),
			httpretry.WithBackoffPolicy(httpretry.ConstantBackoff(s.Backoff, 0))).Transport
	},
}
