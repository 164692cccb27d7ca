package peers

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	resty2 "github.com/go-resty/resty/v2"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/imroc/req/v3"
	"github.com/sethgrid/pester"
	resty3 "resty.dev/v3"
)

// Heimdall is gojek/heimdall's httpclient.
var Heimdall = Peer{
	Name:   "heimdall",
	Module: "github.com/gojek/heimdall/v7",
	SetUp:  "`httpclient.NewClient` with `WithRetryCount` and a `NewConstantBackoff`",
	Client: func(base http.RoundTripper, s Settings) Do {
		return httpclient.NewClient(
			httpclient.WithHTTPClient(&http.Client{Transport: base, Timeout: s.AttemptTimeout}),
			httpclient.WithRetryCount(s.Attempts-1),
			httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewConstantBackoff(s.Backoff, 0))),
		).Do
	},
}

// Pester is sethgrid/pester.
var Pester = Peer{
	Name:   "pester",
	Module: "github.com/sethgrid/pester",
	SetUp:  "`NewExtendedClient` with `RetryOnHTTP429`",
	Client: func(base http.RoundTripper, s Settings) Do {
		c := pester.NewExtendedClient(&http.Client{Transport: base, Timeout: s.AttemptTimeout})
		c.MaxRetries = s.Attempts // what it calls so are attempts
		c.Backoff = func(int) time.Duration { return s.Backoff }
		c.RetryOnHTTP429 = true
		return c.Do
	},
}

// seconds reads a Retry-After as the users of those clients do that leave it to
// them: 0 where it is no number.
func seconds(h http.Header) time.Duration {
	n, _ := strconv.Atoi(h.Get("Retry-After"))
	return time.Duration(n) * time.Second
}

// content is req's body as one would give it to a client that makes its requests
// itself: as bytes where req has it as bytes, else as the stream that it is.
func content(r *http.Request) (body any, err error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, nil
	case r.GetBody == nil:
		return r.Body, nil
	}
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = r.Body.Close()
	}
	return b, err
}

// answer is a response whose body was read before.
func answer(raw *http.Response, body []byte) *http.Response {
	r := *raw
	r.Body = io.NopCloser(bytes.NewReader(body))
	return &r
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// Resty2 is go-resty v2.
var Resty2 = Peer{
	Name:   "resty v2",
	Module: "github.com/go-resty/resty/v2",
	SetUp:  "`SetRetryCount`, `SetRetryWaitTime`, `SetRetryMaxWaitTime(20 * time.Second)` and `AddRetryCondition` as in its README; `SetRetryAfter` with a function that reads seconds",
	Client: func(base http.RoundTripper, s Settings) Do {
		c := resty2.New().
			SetTransport(base).
			SetLogger(silent{}).
			SetTimeout(s.AttemptTimeout).
			SetRetryCount(s.Attempts - 1).
			SetRetryWaitTime(s.Backoff).
			SetRetryMaxWaitTime(20 * time.Second).
			SetRetryAfter(func(_ *resty2.Client, resp *resty2.Response) (time.Duration, error) {
				return seconds(resp.Header()), nil
			}).
			AddRetryCondition(func(resp *resty2.Response, err error) bool {
				return err != nil || slices.Contains(worthAnother, resp.StatusCode())
			})
		return func(r *http.Request) (*http.Response, error) {
			body, err := content(r)
			if err != nil {
				return nil, err
			}
			call := c.R().SetContext(r.Context()).SetHeaderMultiValues(r.Header)
			if body != nil {
				call.SetBody(body)
			}
			resp, err := call.Execute(r.Method, r.URL.String())
			if err != nil {
				return nil, err
			}
			return answer(resp.RawResponse, resp.Body()), nil
		}
	},
}

// Resty3 is go-resty v3.
var Resty3 = Peer{
	Name:   "resty v3",
	Module: "resty.dev/v3",
	SetUp:  "`SetRetryCount`, `SetRetryWaitTime`, and `AddRetryConditions` with its own for 429 and 5xx",
	Client: func(base http.RoundTripper, s Settings) Do {
		c := resty3.New().
			SetTransport(base).
			SetLogger(silent{}).
			SetTimeout(s.AttemptTimeout).
			SetRetryCount(s.Attempts-1).
			SetRetryWaitTime(s.Backoff).
			SetRetryMaxWaitTime(s.Backoff).
			AddRetryConditions(resty3.RetryConditionStatusTooManyRequests, resty3.RetryConditionStatus5XX)
		return func(r *http.Request) (*http.Response, error) {
			body, err := content(r)
			if err != nil {
				return nil, err
			}
			call := c.R().SetContext(r.Context()).SetHeaderMultiValues(r.Header)
			if body != nil {
				call.SetBody(body)
			}
			resp, err := call.Execute(r.Method, r.URL.String())
			if err != nil {
				return nil, err
			}
			return answer(resp.RawResponse, resp.Bytes()), nil
		}
	},
}

// Req is imroc/req.
var Req = Peer{
	Name:   "req",
	Module: "github.com/imroc/req/v3",
	SetUp:  "`SetCommonRetryCount`, `SetCommonRetryCondition`, and a `SetCommonRetryInterval` with a function that reads seconds",
	Client: func(base http.RoundTripper, s Settings) Do {
		c := req.C().
			SetTimeout(s.AttemptTimeout).
			SetCommonRetryCount(s.Attempts - 1).
			SetCommonRetryInterval(func(resp *req.Response, _ int) time.Duration {
				if resp.Response != nil {
					if d := seconds(resp.Header); d > 0 {
						return d
					}
				}
				return s.Backoff
			}).
			SetCommonRetryCondition(func(resp *req.Response, err error) bool {
				return err != nil || slices.Contains(worthAnother, resp.StatusCode)
			})
		c.GetTransport().WrapRoundTripFunc(func(http.RoundTripper) req.HttpRoundTripFunc { return base.RoundTrip })
		return func(r *http.Request) (*http.Response, error) {
			body, err := content(r)
			if err != nil {
				return nil, err
			}
			call := c.R().SetContext(r.Context())
			for name, values := range r.Header {
				for _, v := range values {
					call.SetHeader(name, v)
				}
			}
			if body != nil {
				call.SetBody(body)
			}
			resp, err := call.Send(r.Method, r.URL.String())
			if err != nil {
				return nil, err
			}
			return answer(resp.Response, resp.Bytes()), nil
		}
	},
}

// Azcore is the pipeline of Azure's SDK.
var Azcore = Peer{
	Name:   "azcore",
	Module: "github.com/Azure/azure-sdk-for-go/sdk/azcore",
	SetUp:  "`runtime.NewPipeline` with `RetryOptions`, without telemetry",
	Client: func(base http.RoundTripper, s Settings) Do {
		o := policy.RetryOptions{MaxRetries: int32(s.Attempts - 1), RetryDelay: s.Backoff, TryTimeout: s.AttemptTimeout}
		if s.Backoff == 0 {
			o.RetryDelay = 1 // a negative one, which should mean none, waits for MaxRetryDelay
		}
		p := runtime.NewPipeline("bench", "v1.0.0", runtime.PipelineOptions{}, &policy.ClientOptions{
			Transport: &http.Client{Transport: base},
			Retry:     o,
			Telemetry: policy.TelemetryOptions{Disabled: true}, // it writes to the caller's header, more with each call
		})
		return func(r *http.Request) (*http.Response, error) {
			call, err := runtime.NewRequestFromRequest(r)
			if err != nil {
				return nil, err
			}
			return p.Do(call)
		}
	},
}
