package clients

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hints"
)

// azureByTheTransport has the Transport beneath the pipeline: all attempts
// carry the signature and the token of the first.
func azureByTheTransport(t *retryafter.Transport) policy.ClientOptions {
	return policy.ClientOptions{
		Transport: &http.Client{Transport: t},
		Retry:     policy.RetryOptions{MaxRetries: -1}, // 0 would mean 3
	}
}

// azureByThePipeline has it above what signs: each attempt runs the rest of
// the pipeline.
func azureByThePipeline(t retryafter.Transport) policy.ClientOptions {
	t.Hint = hints.Azure{}.Hint // delays in milliseconds, which the SDK's own retries read too
	return policy.ClientOptions{
		PerCallPolicies: []policy.Policy{azureRepeat{t}},
		Retry:           policy.RetryOptions{MaxRetries: -1},
	}
}

type azureRepeat struct{ transport retryafter.Transport }

func (p azureRepeat) Do(req *policy.Request) (*http.Response, error) {
	t := p.transport
	t.Base = pipeline(func(r *http.Request) (*http.Response, error) {
		attempt := req.Clone(r.Context())
		if b, ok := req.Body().(azureBody); ok {
			if err := attempt.SetBody(newAzureBody(b, b.Size()), r.Header.Get("Content-Type")); err != nil {
				return nil, err
			}
		}
		return attempt.Next()
	})
	return t.RoundTrip(req.Raw())
}

// azureBody is a body of which each attempt gets a reader of its own.
type azureBody struct{ *io.SectionReader }

func newAzureBody(r io.ReaderAt, size int64) azureBody {
	return azureBody{io.NewSectionReader(r, 0, size)}
}

func (azureBody) Close() error { return nil } // for whoever opened it

type pipeline func(*http.Request) (*http.Response, error)

func (p pipeline) RoundTrip(req *http.Request) (*http.Response, error) { return p(req) }

// dated is what a client of Azure does to sign: it stamps the request.
type dated struct{}

func (dated) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	req.Raw().Header.Add("Attempts", itoa(int64(retryafter.AttemptNumber(req.Raw().Context()))))
	return req.Next()
}

func azureDo(t *testing.T, o policy.ClientOptions, method, url string, body io.ReadSeekCloser) *http.Response {
	t.Helper()
	o.Telemetry.Disabled = true
	p := runtime.NewPipeline("clients", "v0", runtime.PipelineOptions{PerRetry: []policy.Policy{dated{}}}, &o)
	req, err := runtime.NewRequest(t.Context(), method, url)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		if err := req.SetBody(body, "application/octet-stream"); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := p.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestAzureByTheTransportRepeatsWithTheOldDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, "", "Retry-After", "60"), reply(200, ""))
		resp := azureDo(t, azureByTheTransport(&retryafter.Transport{Base: f}), "GET", "http://azure.test/", nil)
		got := f.want(t, 2)
		wantWait(t, got, 2, time.Minute)
		wantReport(t, resp, 2, retryafter.Final)
		if a, b := got[0].Header.Get("x-ms-date"), got[1].Header.Get("x-ms-date"); a != b {
			t.Errorf("%q, then %q", a, b)
		}
	})
}

func TestAzureByThePipelineGoesByAzuresOwnFieldsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(429, "", "x-ms-retry-after-ms", "45000"), reply(200, ""))
		o := azureByThePipeline(retryafter.Transport{})
		o.Transport = &http.Client{Transport: f}
		azureDo(t, o, "GET", "http://azure.test/", nil)
		wantWait(t, f.want(t, 2), 2, 45*time.Second)
	})
}

func TestAzureByThePipelineSignsEachAttemptAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, "", "Retry-After", "60"), reply(200, ""))
		o := azureByThePipeline(retryafter.Transport{})
		o.Transport = &http.Client{Transport: f}
		resp := azureDo(t, o, "GET", "http://azure.test/", nil)
		got := f.want(t, 2)
		wantWait(t, got, 2, time.Minute)
		if a, b := got[0].Header.Get("x-ms-date"), got[1].Header.Get("x-ms-date"); a == b {
			t.Errorf("%q, twice", a)
		}
		for i, r := range got {
			if n := r.Header.Values("Attempts"); len(n) != 1 || n[0] != itoa(int64(i+1)) {
				t.Errorf("attempt %d carries what the policies set for %q", i+1, n)
			}
		}
		wantReport(t, resp, 2, retryafter.Final)
	})
}

func TestAzureMultipliesTheAttemptsWhereItsOwnRetriesAreOn(t *testing.T) {
	f := answers(reply(503, ""))
	u, base := listen(t, f)
	o := azureByTheTransport(atOnce(base))
	o.Retry = policy.RetryOptions{MaxRetries: 2, RetryDelay: 1, MaxRetryDelay: 1}
	azureDo(t, o, "GET", u, nil)
	f.want(t, 9)
}

func TestAzureBodiesAreSentAgain(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	for name, body := range map[string]func() io.ReadSeekCloser{
		"memory": func() io.ReadSeekCloser { return streaming.NopCloser(strings.NewReader(text)) },
		"file":   func() io.ReadSeekCloser { return streaming.NopCloser(file(t, text)) },
		"own":    func() io.ReadSeekCloser { return newAzureBody(file(t, text), int64(len(text))) },
	} {
		for seam, options := range map[string]func(*retryafter.Transport, http.RoundTripper) policy.ClientOptions{
			"transport": func(tr *retryafter.Transport, _ http.RoundTripper) policy.ClientOptions {
				return azureByTheTransport(tr)
			},
			"pipeline": func(tr *retryafter.Transport, base http.RoundTripper) policy.ClientOptions {
				o := azureByThePipeline(*tr)
				o.Transport = &http.Client{Transport: base}
				return o
			},
		} {
			t.Run(name+" by the "+seam, func(t *testing.T) {
				busy := reply(503, "", "Retry-After", "0")
				f := answers(busy, busy, reply(201, ""))
				u, base := listen(t, f)
				resp := azureDo(t, options(atOnce(base), base), "PUT", u, body())
				if resp.StatusCode != 201 {
					t.Errorf("status %d", resp.StatusCode)
				}
				f.wantBodies(t, 3, text)
				for i, r := range f.requests() {
					if kind := r.Header.Get("Content-Type"); kind != "application/octet-stream" {
						t.Errorf("attempt %d came as %q", i+1, kind)
					}
				}
			})
		}
	}
}

func TestAzureByTheTransportTakesAFileThatClosesOnceAgainOnly(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	f := answers(reply(503, "", "Retry-After", "0"))
	u, base := listen(t, f)
	resp := azureDo(t, azureByTheTransport(atOnce(base)), "PUT", u, file(t, text))
	wantReport(t, resp, 2, retryafter.GetBodyFailed)
	if err := retryafter.ReportOf(resp).Err; !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
	f.wantBodies(t, 2, text)
}

func TestAzurePostsAreSentOnce(t *testing.T) {
	f := answers(reply(503, "", "Retry-After", "0"))
	u, base := listen(t, f)
	o := azureByThePipeline(*atOnce(nil))
	o.Transport = &http.Client{Transport: base}
	for _, o := range []policy.ClientOptions{azureByTheTransport(atOnce(base)), o} {
		resp := azureDo(t, o, "POST", u, streaming.NopCloser(strings.NewReader("b")))
		wantReport(t, resp, 1, retryafter.MethodNotIdempotent)
	}
	f.want(t, 2)
}

func TestAzureTokensAreFetchedForEachAttemptByThePipelineOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seam, want := range map[string]string{"transport": "Bearer t1", "pipeline": "Bearer t2"} {
			f := answers(reply(503, "", "Retry-After", "600"), reply(200, ""))
			tr := retryafter.Transport{Policy: retryafter.Policy{MaxWait: time.Hour}}
			o := azureByThePipeline(tr)
			o.Transport = &http.Client{Transport: f}
			if seam == "transport" {
				tr.Base = f
				o = azureByTheTransport(&tr)
			}
			bearer := runtime.NewBearerTokenPolicy(&credential{}, []string{"scope"}, &policy.BearerTokenOptions{InsecureAllowCredentialWithHTTP: true})
			o.PerRetryPolicies = []policy.Policy{bearer}
			azureDo(t, o, "GET", "http://azure.test/", nil)
			got := f.want(t, 2)
			if a := got[1].Header.Get("Authorization"); a != want {
				t.Errorf("by the %s the second attempt came with %q, want %q", seam, a, want)
			}
		}
	})
}

// credential gives out tokens that live for ten minutes.
type credential struct{ n int }

func (c *credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.n++
	return azcore.AccessToken{Token: "t" + itoa(int64(c.n)), ExpiresOn: time.Now().Add(10 * time.Minute)}, nil
}

// TestAzureBodiesThatAttemptsShareComeShortAfterAnEarlyAnswer has an attempt
// whose body is still being read when its answer is there already, as that of
// a server that refuses at the sight of the header.
func TestAzureBodiesThatAttemptsShareComeShortAfterAnEarlyAnswer(t *testing.T) {
	const text, late = "0123456789", 4
	shared := func() io.ReadSeekCloser { return streaming.NopCloser(strings.NewReader(text)) }
	own := func() io.ReadSeekCloser { return newAzureBody(strings.NewReader(text), int64(len(text))) }
	for _, c := range []struct {
		seam string
		body func() io.ReadSeekCloser
		want string
	}{
		{"SDK", shared, text[late:]},
		{"transport", shared, text[late:]},
		{"pipeline", shared, text[late:]},
		{"pipeline", own, text},
	} {
		var first io.Reader
		var got string
		early := roundTripper(func(req *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if first == nil {
				first = req.Body
				w.WriteHeader(503)
			} else {
				io.CopyN(io.Discard, first, late)
				b, _ := io.ReadAll(req.Body)
				got = string(b)
				if req.ContentLength != int64(len(text)) {
					t.Errorf("Content-Length %d lets net/http send what came short", req.ContentLength)
				}
			}
			resp := w.Result()
			resp.Request = req
			return resp, nil
		})
		var o policy.ClientOptions
		switch c.seam {
		case "SDK":
			o.Retry = policy.RetryOptions{MaxRetries: 1, RetryDelay: 1, MaxRetryDelay: 1}
			o.Transport = &http.Client{Transport: early}
		case "transport":
			o = azureByTheTransport(atOnce(early))
		case "pipeline":
			o = azureByThePipeline(*atOnce(nil))
			o.Transport = &http.Client{Transport: early}
		}
		azureDo(t, o, "PUT", "http://azure.test/", c.body())
		if got != c.want {
			t.Errorf("by the %s the second attempt sent %q, want %q", c.seam, got, c.want)
		}
	}
}
