package clients

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"
	restyv3 "resty.dev/v3"

	"github.com/retryafter-go/retryafter"
)

func newResty(t *retryafter.Transport) *resty.Client {
	return resty.New().SetTransport(t).SetRetryCount(0)
}

func newRestyV3(t *retryafter.Transport) *restyv3.Client {
	return restyv3.New().SetTransport(t).SetRetryCount(0)
}

func TestRestyReadsAreRepeatedWhenTheServerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, "", "Retry-After", "60"), reply(200, "ok"))
		resp, err := newResty(&retryafter.Transport{Base: f}).R().SetContext(t.Context()).Get("http://api.test/")
		if err != nil || resp.String() != "ok" {
			t.Fatalf("%v, %v", resp, err)
		}
		wantWait(t, f.want(t, 2), 2, time.Minute)
		wantReport(t, resp.RawResponse, 2, retryafter.Final)
	})
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, "", "Retry-After", "60"), reply(200, "ok"))
		c := newRestyV3(&retryafter.Transport{Base: f})
		defer c.Close()
		resp, err := c.R().SetContext(t.Context()).Get("http://api.test/")
		if err != nil || resp.String() != "ok" {
			t.Fatalf("%v, %v", resp, err)
		}
		wantWait(t, f.want(t, 2), 2, time.Minute)
		wantReport(t, resp.RawResponse, 2, retryafter.Final)
	})
}

func TestRestyMultipliesTheAttemptsWhereItsOwnRetriesAreOn(t *testing.T) {
	f := answers(reply(503, ""))
	u, base := listen(t, f)
	c := newResty(atOnce(base)).SetRetryCount(2).SetRetryWaitTime(1).SetRetryMaxWaitTime(1)
	c.AddRetryCondition(func(r *resty.Response, err error) bool { return r.StatusCode() == 503 })
	if _, err := c.R().Get(u); err != nil {
		t.Fatal(err)
	}
	f.want(t, 9)
	c3 := restyv3.New()
	defer c3.Close()
	if resty.New().RetryCount != 0 || c3.RetryCount() != 0 {
		t.Error("its own retries are on by default")
	}
}

// bodies are the ways to give a PUT its body, and whether it can be sent again.
type bodies struct {
	body     any
	v2, v3   bool
	complete string
}

func restyBodies(t *testing.T) map[string]bodies {
	text := strings.Repeat("0123456789", 10_000)
	return map[string]bodies{
		"string":         {text, true, true, text},
		"bytes":          {[]byte(text), true, true, text},
		"struct":         {struct{ A string }{"a"}, true, true, `{"A":"a"}`},
		"*bytes.Buffer":  {bytes.NewBufferString(text), true, true, text},
		"*bytes.Reader":  {bytes.NewReader([]byte(text)), true, true, text},
		"another reader": {io.MultiReader(strings.NewReader(text)), true, false, text},
		"*os.File":       {file(t, text), true, false, text},
	}
}

func TestRestyBodiesAreSentAgainWhereRestyCanGiveThemAgain(t *testing.T) {
	check := func(t *testing.T, replayed bool, complete string, put func(u string, tr *retryafter.Transport) (*http.Response, error)) {
		t.Helper()
		f := answers(reply(503, "", "Retry-After", "0"), reply(200, ""))
		u, base := listen(t, f)
		resp, err := put(u, atOnce(base))
		if err != nil {
			t.Fatal(err)
		}
		n := 1
		if replayed {
			n = 2
			wantReport(t, resp, 2, retryafter.Final)
		} else {
			wantReport(t, resp, 1, retryafter.BodyNotReplayable)
		}
		for i, r := range f.want(t, n) {
			if got := strings.TrimSuffix(r.Body, "\n"); got != complete {
				t.Errorf("request %d came with %d bytes of body, want %d", i+1, len(got), len(complete))
			}
		}
	}
	for name, b := range restyBodies(t) {
		t.Run("v2 "+name, func(t *testing.T) {
			check(t, b.v2, b.complete, func(u string, tr *retryafter.Transport) (*http.Response, error) {
				resp, err := newResty(tr).R().SetBody(b.body).Put(u)
				return resp.RawResponse, err
			})
		})
	}
	for name, b := range restyBodies(t) {
		t.Run("v3 "+name, func(t *testing.T) {
			check(t, b.v3, b.complete, func(u string, tr *retryafter.Transport) (*http.Response, error) {
				c := newRestyV3(tr)
				defer c.Close()
				resp, err := c.R().SetBody(b.body).Put(u)
				return resp.RawResponse, err
			})
		})
	}
}

// parts reads a multipart body, which ends with its closing boundary or not at all.
func parts(t *testing.T, r request) map[string]string {
	t.Helper()
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	mr := multipart.NewReader(strings.NewReader(r.Body), params["boundary"])
	for {
		p, err := mr.NextPart()
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		got[p.FormName()] = string(b)
	}
}

func TestRestyMultipartIsSentAgainByV2AndNotByV3(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	upload := func(replayed bool, put func(u string, tr *retryafter.Transport) (*http.Response, error)) {
		t.Helper()
		f := answers(reply(503, "", "Retry-After", "0"), reply(200, ""))
		u, base := listen(t, f)
		resp, err := put(u, atOnce(base))
		if err != nil {
			t.Fatal(err)
		}
		n := 1
		if replayed {
			n = 2
		} else {
			wantReport(t, resp, 1, retryafter.BodyNotReplayable)
		}
		for i, r := range f.want(t, n) {
			if p := parts(t, r); p["file"] != text || p["name"] != "n" {
				t.Errorf("request %d came with %d of %d bytes and the field %q", i+1, len(p["file"]), len(text), p["name"])
			}
		}
	}
	upload(true, func(u string, tr *retryafter.Transport) (*http.Response, error) {
		resp, err := newResty(tr).R().SetFileReader("file", "f", strings.NewReader(text)).SetFormData(map[string]string{"name": "n"}).Put(u)
		return resp.RawResponse, err
	})
	upload(false, func(u string, tr *retryafter.Transport) (*http.Response, error) {
		c := newRestyV3(tr)
		defer c.Close()
		resp, err := c.R().SetFileReader("file", "f", strings.NewReader(text)).SetFormData(map[string]string{"name": "n"}).Put(u)
		return resp.RawResponse, err
	})
}

func TestRestyPostsAreRepeatedWithAnIdempotencyKeyOnly(t *testing.T) {
	f := answers(reply(503, "", "Retry-After", "0"))
	u, base := listen(t, f)
	post := func(key string) *http.Response {
		r := newResty(atOnce(base)).R().SetBody("b")
		if key != "" {
			r.SetHeader("Idempotency-Key", key)
		}
		resp, err := r.Post(u)
		if err != nil {
			t.Fatal(err)
		}
		return resp.RawResponse
	}
	wantReport(t, post(""), 1, retryafter.MethodNotIdempotent)
	wantReport(t, post("k"), 3, retryafter.AttemptsUsed)
	c := newRestyV3(atOnce(base))
	defer c.Close()
	resp, err := c.R().SetBody("b").SetHeader("Idempotency-Key", "k").Post(u)
	if err != nil {
		t.Fatal(err)
	}
	wantReport(t, resp.RawResponse, 3, retryafter.AttemptsUsed)
	f.wantBodies(t, 7, "b")
	for _, r := range f.requests()[1:] {
		if r.Header.Get("Idempotency-Key") != "k" {
			t.Errorf("%v", r.Header)
		}
	}
}

func TestRestySetsTLSAndProxyOnAnHTTPTransportOnly(t *testing.T) {
	if _, err := newResty(&retryafter.Transport{}).Transport(); err == nil {
		t.Error("v2: no error")
	}
	c := newRestyV3(&retryafter.Transport{})
	defer c.Close()
	if _, err := c.HTTPTransport(); err == nil {
		t.Error("v3: no error")
	}
}
