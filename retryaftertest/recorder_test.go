package retryaftertest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

// again is a client that sends each request times times, and changes it and
// waits as it likes in between.
type again struct {
	base   http.RoundTripper
	times  int
	wait   time.Duration
	change func(*http.Request)
}

func (c again) RoundTrip(req *http.Request) (*http.Response, error) {
	for n := 1; ; n++ {
		resp, err := c.base.RoundTrip(req)
		if n == c.times || err != nil {
			return resp, err
		}
		resp.Body.Close()
		time.Sleep(c.wait)
		body := req.GetBody
		if req = req.Clone(req.Context()); body != nil {
			req.Body, _ = body()
		}
		if c.change != nil {
			c.change(req)
		}
	}
}

const busy = "retryaftertest: attempt 2, GET …/x at …, is …s early, want it at …: attempt 1, GET …/x at …, got 503 with Retry-After \"60\" (where"

func TestBadClientsFailTheTest(t *testing.T) {
	eachDoor(t, func(t *testing.T, d door) {
		for name, tc := range map[string]struct {
			client again
			method string
			status int
			after  time.Duration
			want   []string
		}{
			"early":         {client: again{times: 2, wait: 10 * time.Millisecond}, method: "GET", after: time.Minute, want: []string{busy}},
			"early twice":   {client: again{times: 3}, method: "GET", after: time.Minute, want: []string{busy, strings.NewReplacer("attempt 1", "attempt 2", "attempt 2", "attempt 3").Replace(busy)}},
			"a POST resent": {client: again{times: 2}, method: "POST", want: []string{"2 attempts of what is not safe to repeat, want 1 (where these are calls of their own, tell them apart by Recorder.Key): …attempt 1, POST …/x at …, got 503…attempt 2, POST …/x at …, got 503"}},
			"an empty body": {client: again{times: 2, change: func(r *http.Request) { r.Body, r.ContentLength = nil, 0 }},
				method: "PUT", want: []string{`the body of attempt 2, PUT …/x at …, got 503, is "", want "hello" as of attempt 1 (where these are calls of their own`}},
			"another body": {client: again{times: 2, change: func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("HELLO")) }},
				method: "PUT", want: []string{`is "HELLO", want "hello" as of`}},
			"a longer body": {client: again{times: 2, change: func(r *http.Request) {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("hello, "+strings.Repeat("o", 100))), -1
			}}, method: "PUT", want: []string{`is "hello, ooo…"… (107 bytes), want "hello" as of`}},
			"too many": {client: again{times: 4}, method: "DELETE", want: []string{"4 attempts, want at most 3 (where these are calls of their own, …): …DELETE …DELETE …DELETE …DELETE "}},
		} {
			w := &witness{TB: t}
			script := retryaftertest.NewScript(w, retryaftertest.Response{Status: 503, RetryAfter: tc.after, Times: -1})
			base, url := d.open(t, script)
			tc.client.base = base
			send(t, &http.Client{Transport: tc.client}, tc.method, url+"/x?secret", map[bool]string{false: "hello"}[tc.method == "GET"])
			script.CheckAttempts(3)
			script.CheckOnce()
			script.CheckBodies()
			w.end()
			if w.want(t, tc.want...); t.Failed() {
				t.Fatal(name)
			}
			if strings.Contains(strings.Join(w.failed, ""), "secret") {
				t.Errorf("a query is shown: %v", w.failed)
			}
		}
	})
}

func TestABodyThatBreaksOffFailsTheTest(t *testing.T) {
	w := &witness{TB: t}
	recorder := &retryaftertest.Recorder{TB: w}
	c := &http.Client{Transport: recorder.Transport(retryaftertest.Serve(t, http.NotFoundHandler()))}
	broken := errors.New("disk on fire")
	for _, r := range []io.Reader{
		io.MultiReader(strings.NewReader("he"), iotest.ErrReader(broken)),
		strings.NewReader("he"),
	} {
		req, err := http.NewRequest("PUT", "http://example.com/", io.NopCloser(r))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = 5
		if _, err := c.Do(req); err == nil {
			t.Error("sent")
		}
	}
	recorder.CheckBodies()
	w.want(t, "the body of attempt 1, PUT http://example.com/ at …, failed with …, broke off after 2 bytes: disk on fire", "broke off after 2 bytes: unexpected EOF")
}

// How early: to the nanosecond, and by each form of the header.
func TestEarlyIsBeforeTheInstantThatWasNamed(t *testing.T) {
	date := func(d time.Duration) string {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(http.TimeFormat)
	}
	header := func(values ...string) http.Header { return http.Header{"Retry-After": values} }
	for name, tc := range map[string]struct {
		response retryaftertest.Response
		at       time.Duration // since the response
	}{
		"seconds":            {retryaftertest.Response{Status: 429, RetryAfter: time.Minute}, time.Minute},
		"the longest counts": {retryaftertest.Response{Status: 429, Header: header("5", "60, 7")}, time.Minute},
		"other statuses":     {retryaftertest.Response{Status: 404, Header: header("60")}, time.Minute},
		"a date":             {retryaftertest.Response{Status: 503, Header: header(date(time.Minute))}, time.Minute - time.Second/2},
		"a date without Date": {retryaftertest.Response{Status: 503, Header: http.Header{"Date": nil, "Retry-After": {date(time.Minute)}}},
			time.Minute - time.Second/2},
		"a date by another clock": {retryaftertest.Response{Status: 503, Header: http.Header{"Date": {date(time.Hour)}, "Retry-After": {date(time.Hour + time.Minute)}}},
			time.Minute},
		"none":           {retryaftertest.Response{Status: 503}, 0},
		"zero":           {retryaftertest.Response{Status: 503, Header: header("0")}, 0},
		"unreadable":     {retryaftertest.Response{Status: 503, Header: header("soon")}, 0},
		"on a success":   {retryaftertest.Response{Header: header("60")}, 0},
		"not redirected": {retryaftertest.Response{Status: 304, Header: header("60")}, 0},
	} {
		for _, d := range doors[:3] {
			for _, early := range []time.Duration{0, 1} {
				t.Run(fmt.Sprint(name, " ", d.name, " ", early), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(time.Second / 2)
						w := &witness{TB: t}
						script := retryaftertest.NewScript(w, tc.response, retryaftertest.Response{})
						base, url := d.open(t, script)
						send(t, &http.Client{Transport: again{base: base, times: 2, wait: tc.at - early}}, "GET", url, "")
						w.end()
						if tc.at > 0 && early > 0 {
							w.want(t, fmt.Sprint(" is ", early, " early"))
						} else {
							w.want(t)
						}
						if a := script.Attempts(); tc.at > 0 && (!a[1].NotBefore.Equal(a[0].Came.Add(tc.at)) || !a[0].Back.Equal(a[1].NotBefore)) {
							t.Errorf("recorded: %+v", a)
						}
					})
				})
			}
		}
	}
}

// A client that waits for a date by its own clock, and one that waits as long as
// FromHeader says, are both in time.
func TestAnHonestClientIsNeverEarly(t *testing.T) {
	t.Parallel()
	eachDoor(t, func(t *testing.T, d door) {
		script := retryaftertest.NewScript(t,
			retryaftertest.Response{Status: 503, RetryAfterDate: time.Second},
			retryaftertest.Response{Status: 503, RetryAfter: time.Second},
			retryaftertest.Response{Status: 302, RetryAfter: time.Second, Header: http.Header{"Location": {"/moved"}}},
			retryaftertest.Response{},
		)
		base, url := d.open(t, script)
		resp, err := base.RoundTrip(request(t, "GET", url, ""))
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
		at, err := http.ParseTime(resp.Header.Get("Retry-After"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(at) + time.Nanosecond)
		send(t, atOnce(base), "GET", url, "")
		script.CheckAttempts(3)
	})
}

func TestARedirectHoldsWhereItLeads(t *testing.T) {
	const to = "http://other.example/there"
	for _, tc := range []struct {
		status           int
		method, then, at string
		early            bool
	}{
		{301, "POST", "GET", to, true},
		{302, "POST", "POST", to, true},
		{303, "PUT", "GET", to, true},
		{307, "POST", "POST", to, true},
		{307, "POST", "GET", to, false},
		{308, "GET", "GET", to, true},
		{302, "GET", "GET", "http://example.com/", false},
		{302, "GET", "GET", to + "/else", false},
		{503, "GET", "GET", to, false},
		{202, "GET", "GET", to, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &witness{TB: t}
			script := retryaftertest.NewScript(w,
				retryaftertest.Response{Status: tc.status, RetryAfter: time.Minute, Header: http.Header{"Location": {to}}}, retryaftertest.Response{Times: 2})
			c := &http.Client{Transport: script, CheckRedirect: stay}
			send(t, c, tc.method, "http://example.com/", "")
			send(t, c, tc.then, tc.at, "")
			time.Sleep(time.Minute)
			send(t, c, tc.then, tc.at, "")
			w.end()
			if tc.early {
				w.want(t, tc.then+" "+to+" at …, is 1m0s early…got "+fmt.Sprint(tc.status))
			} else {
				w.want(t)
			}
		})
	}
}

// Whatever a Location looks like, http.Client's hop is the one that it holds.
func TestAHopIsKnownAtBothEnds(t *testing.T) {
	for _, location := range []string{
		"/b", "//other.example/b", "http://other.example", "http://other.example?x=1", "http://other.example/", "http://Other.example/b",
		"http://other.example:80/b", "http://other.example./b", "http://bücher.example/b", "http://BÜCHER.example:80", "?x=1", "b#c", "http://[fe80::1%25en0]/b",
	} {
		for _, host := range []string{"", "api.internal", "Bücher.internal"} {
			for _, end := range []string{"client", "server"} {
				if end == "server" && host != "" && strings.HasPrefix(location, "//") {
					continue // a client keeps the Host of its own, which a server can't know for one
				}
				synctest.Test(t, func(t *testing.T) {
					w := &witness{TB: t}
					recorder := &retryaftertest.Recorder{TB: w}
					first := true
					var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if first {
							w.Header().Set("Retry-After", "5")
							w.Header().Set("Location", location)
							w.WriteHeader(http.StatusTemporaryRedirect)
						}
						first = false
					})
					if end == "server" {
						h = recorder.Handler(h)
					}
					var rt http.RoundTripper = retryaftertest.Serve(t, h)
					if end == "client" {
						rt = recorder.Transport(rt)
					}
					req := request(t, "GET", "http://first.example/a", "")
					req.Host = host
					resp, err := (&http.Client{Transport: rt}).Do(req)
					if err != nil {
						t.Fatal(err)
					}
					read(t, resp)
					if len(w.failed) != 1 || !strings.Contains(w.failed[0], "5s early") {
						t.Errorf("Location %q, Host %q, at the %s: %v", location, host, end, w.failed)
					}
				})
			}
		}
	}
}

// One URL has one key, in whichever way it is written.
func TestAKeyIsOfWhatIsSent(t *testing.T) {
	for _, key := range []func(*http.Request) retryafter.Key{nil, retryafter.ByHost, func(r *http.Request) retryafter.Key { return retryafter.Key(r.URL.Host + r.URL.Path) }} {
		for _, d := range doors[:2] { // over HTTP/2 in the clear, http.Transport dials an IDN without end
			synctest.Test(t, func(t *testing.T) {
				w := &witness{TB: t}
				script := retryaftertest.NewScript(w, retryaftertest.Response{Status: 503, RetryAfter: 5 * time.Second}, retryaftertest.Response{Times: 3})
				script.Key = key
				base, _ := d.open(t, script)
				for _, url := range []string{"http://bücher.example", "http://bücher.example/", "http://xn--bcher-kva.example", "http://Bücher.example/?a#b"} {
					send(t, &http.Client{Transport: base}, "GET", url, "")
				}
				w.want(t, "5s early", "5s early", "5s early")
			})
		}
	}
}

func TestWhatNobodyFollowsHoldsNothing(t *testing.T) {
	for _, status := range []int{300, 304, 305} {
		w := &witness{TB: t}
		script := retryaftertest.NewScript(w,
			retryaftertest.Response{Status: status, RetryAfter: time.Minute, Header: http.Header{"Location": {"/b"}}},
			retryaftertest.Response{})
		for _, path := range []string{"/a", "/b"} {
			if _, err := script.RoundTrip(request(t, "GET", "http://example.com"+path, "")); err != nil {
				t.Error(err)
			}
		}
		w.want(t)
	}
}

func TestPathsAreToldApartAsTheyAreSent(t *testing.T) {
	w := &witness{TB: t}
	script := retryaftertest.NewScript(w, retryaftertest.Response{Times: 2})
	for _, path := range []string{"/a%2Fb", "/a/b"} {
		if _, err := script.RoundTrip(request(t, "POST", "http://example.com"+path, path)); err != nil {
			t.Error(err)
		}
	}
	script.CheckOnce()
	script.CheckBodies()
	w.want(t)
}

func TestAnOperationKeepsItsIdempotencyKey(t *testing.T) {
	type headers []http.Header
	key := func(values ...string) http.Header { return http.Header{"Idempotency-Key": values} }
	for name, tc := range map[string]struct {
		method  string
		headers headers
		want    []string
	}{
		"the same":        {"POST", headers{key("a"), key("a"), key("a")}, nil},
		"another":         {"POST", headers{key("a"), key("a"), key("b")}, []string{"3 attempts with different Idempotency-Keys, want 1 (where …): …POST …POST …POST "}},
		"another X":       {"POST", headers{{"X-Idempotency-Key": {"a"}}, {"X-Idempotency-Key": {"b"}}}, []string{"2 attempts with different"}},
		"one of two":      {"POST", headers{{"X-Idempotency-Key": {"a"}, "Idempotency-Key": {"a"}}, key("a")}, []string{"2 attempts with different"}},
		"not any more":    {"POST", headers{key("a"), {}}, []string{"2 attempts of what is not safe to repeat, want 1 (where "}},
		"only later":      {"POST", headers{{}, key("a")}, []string{"2 attempts of what is not safe to repeat, want 1 (where "}},
		"unsent":          {"POST", headers{key(), key()}, nil},
		"once":            {"POST", headers{key("a")}, nil},
		"a safe method's": {"PUT", headers{key("a"), key("b"), {}}, nil},
	} {
		w := &witness{TB: t}
		script := retryaftertest.NewScript(w, retryaftertest.Response{Status: 503, Times: -1})
		for _, h := range tc.headers {
			req := request(t, tc.method, "http://example.com", "x")
			req.Header = h
			resp, err := script.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			read(t, resp)
		}
		script.CheckOnce()
		if w.want(t, tc.want...); t.Failed() {
			t.Fatal(name)
		}
	}
}

// A server that reads no body has seen how long it is.
func TestABodyThatIsNotReadHasALength(t *testing.T) {
	const ten = "xxxxxxxxxx"
	for name, tc := range map[string]struct {
		bodies []io.Reader
		want   []string
	}{
		"the same":      {[]io.Reader{strings.NewReader(ten), strings.NewReader(ten)}, nil},
		"none":          {[]io.Reader{strings.NewReader(ten), nil}, []string{"is announced to have 0 bytes, want 10 as of attempt 1"}},
		"none at first": {[]io.Reader{nil, strings.NewReader(ten)}, []string{"is announced to have 10 bytes, want 0 as of"}},
		"shorter":       {[]io.Reader{strings.NewReader(ten), strings.NewReader(ten[1:])}, []string{"is announced to have 9 bytes, want 10 as of"}},
		"not said":      {[]io.Reader{strings.NewReader(ten), io.MultiReader(strings.NewReader(ten))}, nil},
		"not said at first": {[]io.Reader{io.MultiReader(strings.NewReader(ten)), strings.NewReader(ten), strings.NewReader(ten[1:])},
			[]string{"is announced to have 9 bytes, want 10 as of"}},
	} {
		for _, end := range []string{"client", "server"} {
			synctest.Test(t, func(t *testing.T) {
				w := &witness{TB: t}
				recorder := &retryaftertest.Recorder{TB: w}
				refuses := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) })
				var rt http.RoundTripper
				if end == "server" {
					rt = retryaftertest.Serve(t, recorder.Handler(refuses))
				} else {
					rt = recorder.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
					}))
				}
				for _, body := range tc.bodies {
					req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://example.com", body)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := rt.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					read(t, resp)
				}
				recorder.CheckBodies()
				if w.want(t, tc.want...); t.Failed() {
					t.Fatal(name, end)
				}
			})
		}
	}
}

func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func TestAKeyTellsCallsApart(t *testing.T) {
	for name, tc := range map[string]struct {
		key  func(*http.Request) retryafter.Key
		want []string
	}{
		"by method, host and path": {nil, []string{"GET http://a.example/x", "GET http://a.example/x"}},
		"by host":                  {retryafter.ByHost, []string{"GET http://a.example/x", "PUT http://a.example/x", "GET http://a.example/y", "GET http://a.example/x"}},
		"by header":                {func(r *http.Request) retryafter.Key { return retryafter.NewKey(r.Header.Get("Call")) }, nil},
		"not judged":               {func(*http.Request) retryafter.Key { return "" }, nil},
	} {
		for _, d := range doors[:3] {
			t.Run(name+" "+d.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &witness{TB: t}
					script := retryaftertest.NewScript(w, retryaftertest.Response{Status: 503, RetryAfter: time.Minute}, retryaftertest.Response{Times: -1})
					script.Key = tc.key
					base, _ := d.open(t, script)
					for i, what := range []string{"GET http://a.example/x", "GET http://a.example/x", "GET http://b.example/x", "PUT http://a.example/x", "GET http://a.example/y", "GET http://a.example/x"} {
						method, url, _ := strings.Cut(what, " ")
						req := request(t, method, url, "")
						req.Header.Set("Call", fmt.Sprint(i))
						resp, err := base.RoundTrip(req)
						if err != nil {
							t.Fatal(err)
						}
						read(t, resp)
					}
					script.CheckAttempts(6)
					w.end()
					w.want(t, tc.want...)
				})
			})
		}
	}
}

// What is safe to repeat, and calls of their own, fail nothing.
func TestChecksPassWhatIsRight(t *testing.T) {
	recorder := &retryaftertest.Recorder{TB: t}
	script := retryaftertest.NewScript(t, retryaftertest.Response{Times: 7})
	twice := &http.Client{Transport: again{times: 2, base: recorder.Transport(script)}}
	send(t, twice, "GET", "http://example.com", "")
	send(t, twice, "PUT", "http://example.com", "hello")
	req := request(t, "POST", "http://example.com", "hello")
	req.Header.Set("Idempotency-Key", "1")
	resp, err := twice.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp)
	send(t, &http.Client{Transport: recorder.Transport(script)}, "POST", "http://example.com/other", "other")
	recorder.CheckAttempts(3)
	recorder.CheckOnce()
	recorder.CheckBodies()
}

// The Recorder changes nothing of what passes it.
func TestATransportIsPassedThrough(t *testing.T) {
	var sent []*http.Request
	answer := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
	base := &idler{RoundTripper: roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = append(sent, req)
		answer.Request = req
		if req.Body != nil {
			io.Copy(io.Discard, req.Body)
			if body, err := req.GetBody(); err == nil { // as http.Transport does
				io.CopyN(io.Discard, body, 3)
			}
		}
		return answer, nil
	})}
	recorder := &retryaftertest.Recorder{TB: t}
	rt := recorder.Transport(base)
	plain := request(t, "GET", "http://example.com", "")
	full := request(t, "PUT", "http://example.com", "hello")
	for _, req := range []*http.Request{plain, full} {
		before := req.Body
		if resp, err := rt.RoundTrip(req); resp != answer || err != nil || resp.Request != req || req.Body != before {
			t.Errorf("%v %v", resp, err)
		}
	}
	if sent[0] != plain || sent[1].ContentLength != 5 || sent[1].Context() != full.Context() {
		t.Error("sent another request")
	}
	if a := recorder.Attempts()[1]; string(a.Body) != "hel" || a.Whole || a.BodyErr != nil {
		t.Errorf("the last body counts; recorded %+v", a)
	}
	full.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrClosedPipe }
	sent[1].GetBody = nil
	rt.RoundTrip(full)
	if _, err := sent[2].GetBody(); err != io.ErrClosedPipe {
		t.Error(err)
	}
	(&http.Client{Transport: rt}).CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("idle connections were closed %d times", base.closed)
	}
	(&http.Client{Transport: recorder.Transport(roundTripper(nil))}).CloseIdleConnections()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if resp, _ := send(t, &http.Client{Transport: recorder.Transport(nil)}, "GET", s.URL, ""); resp.StatusCode != 404 {
		t.Errorf("by the default transport: %s", resp.Status)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

// A body that the server did not read is compared as far as it was read.
func TestABodyThatIsNotReadIsNotBroken(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second []byte
		want          []string
	}{
		"the same":      {make([]byte, 1<<20), make([]byte, 1<<20), nil},
		"another":       {[]byte("hello"), []byte("HELLO"), []string{`is "HELL", want "hello"`}},
		"a shorter one": {[]byte("hello"), []byte("hel"), []string{`is "hel", want "hello"`}},
		"empty":         {[]byte("hello"), nil, []string{`is "", want "hello"`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &witness{TB: t}
				recorder := &retryaftertest.Recorder{TB: w}
				all := true
				tr := retryaftertest.Serve(t, recorder.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if all {
						io.Copy(io.Discard, r.Body)
					} else {
						io.CopyN(io.Discard, r.Body, 4)
					}
					all = false
				})))
				for _, body := range [][]byte{tc.first, tc.second} {
					resp, err := tr.RoundTrip(request(t, "PUT", "http://example.com", string(body)))
					if err != nil {
						t.Fatal(err)
					}
					read(t, resp)
				}
				recorder.CheckBodies()
				w.want(t, tc.want...)
			})
		})
	}
}

func TestBodiesAreComparedWithOneThatIsWhole(t *testing.T) {
	w := &witness{TB: t}
	recorder := &retryaftertest.Recorder{TB: w}
	var reads int64
	rt := recorder.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
		io.CopyN(io.Discard, req.Body, reads)
		return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}))
	for i, body := range []string{"hello", "hello", "hell!"} {
		reads = []int64{4, 100, 100}[i]
		if _, err := rt.RoundTrip(request(t, "PUT", "http://example.com", body)); err != nil {
			t.Fatal(err)
		}
	}
	recorder.CheckBodies()
	w.want(t, `is "hell!", want "hello"`)
	reads = 5 // and not the end after it
	if _, err := rt.RoundTrip(request(t, "PUT", "http://example.com", "hello")); err != nil || !recorder.Attempts()[3].Whole {
		t.Errorf("%v; recorded %+v", err, recorder.Attempts()[3])
	}
}

func TestAHandlerIsPassedThrough(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    string // status, body
		status  int    // as recorded
	}{
		"nothing":     {func(http.ResponseWriter, *http.Request) {}, "200 ", 200},
		"a body":      {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok"); w.Header().Set("Retry-After", "60") }, "200 ok", 200},
		"a status":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(429); w.Header().Set("Retry-After", "60") }, "429 ", 429},
		"early hints": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, "404 ", 404},
		"Flush": {func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			w.Header().Set("Retry-After", "60")
		}, "200 ", 200},
		"a controller": {func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			w.Header().Set("Retry-After", "60")
		}, "200 ", 200},
		"a deadline": {func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				w.WriteHeader(500)
			}
		}, "200 ", 200},
		"an abort": {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, "EOF", 0},
		"Hijack": {func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			fmt.Fprint(c, "HTTP/1.1 418 Teapot\r\nConnection: close\r\n\r\nhi")
			c.Close()
		}, "418 hi", 0},
		"no body is NoBody": {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Body == http.NoBody, r.URL) }, "200 true /", 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := &retryaftertest.Recorder{TB: t}
				tr := retryaftertest.Serve(t, recorder.Handler(tc.handler))
				resp, err := tr.RoundTrip(request(t, "GET", "http://example.com/", ""))
				got := fmt.Sprint(err)
				if err == nil {
					got = fmt.Sprint(resp.StatusCode, " ", read(t, resp))
				}
				if got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
				if a := recorder.Attempts(); len(a) != 1 || a[0].Status != tc.status || a[0].URL != "http://example.com/" || !a[0].Whole || a[0].RetryAfter != "" {
					t.Errorf("recorded: %+v", a)
				}
			})
		})
	}
}

// The record is a copy.
func TestARecordIsTheCallers(t *testing.T) {
	script := retryaftertest.NewScript(t, retryaftertest.Response{Times: 2})
	req := request(t, "PUT", "http://example.com", "hello")
	if _, err := script.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X", "y")
	a := script.Attempts()
	a[0].Body[0], a[0].Method = 'j', "GET"
	a[0].Header.Set("X", "y")
	send(t, &http.Client{Transport: script}, "PUT", "http://example.com", "hello")
	if diff := cmp.Diff("PUT hello", script.Attempts()[0].Method+" "+string(script.Attempts()[0].Body)); diff != "" || len(a) != 1 || script.Attempts()[0].Header.Get("X") != "" {
		t.Error(diff)
	}
	script.CheckBodies()
}

func TestManyMayUseAScript(t *testing.T) {
	eachDoor(t, func(t *testing.T, d door) {
		script := retryaftertest.NewScript(t, retryaftertest.Response{Body: "ok", Times: 40})
		base, url := d.open(t, script)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 5 {
					resp, err := base.RoundTrip(request(t, "PUT", url, "hello"))
					if err != nil {
						t.Error(err)
						return
					}
					read(t, resp)
					script.Attempts()
				}
			})
		}
		all.Wait()
		script.CheckBodies()
		script.CheckAttempts(40)
	})
}

func TestAnAttemptSaysWhatCameOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := &retryaftertest.Recorder{TB: t}
		script := retryaftertest.NewScript(t,
			retryaftertest.Response{Status: 429, RetryAfter: time.Minute},
			retryaftertest.Response{Header: http.Header{"Retry-After": {"5", "soon"}}},
			retryaftertest.Response{},
			retryaftertest.Response{Fault: retryaftertest.Close},
		)
		script.Key = func(*http.Request) retryafter.Key { return "" }
		recorder.Key = script.Key
		var during []string
		client := &http.Client{Transport: recorder.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
			during = append(during, recorder.Attempts()[len(during)].String())
			resp, err := script.RoundTrip(req)
			if err != nil {
				err = &url.Error{Op: "Get", URL: "http://example.com/?secret", Err: err}
			}
			return resp, err
		}))}
		for range 4 {
			if resp, err := client.Get("http://user:secret@example.com/a?secret#secret"); err == nil {
				resp.Body.Close()
			}
		}
		for i, a := range recorder.Attempts() {
			sent := fmt.Sprintf("attempt %d, GET http://example.com/a at 00:00:00.000000", i+1)
			want := sent + []string{
				`, got 429 with Retry-After "60"`, `, got 200 with Retry-After "5, soon"`, ", got 200", `, failed with Get "http://example.com/": EOF`,
			}[i]
			if got := fmt.Sprint(a); a.Number != i+1 || got != want || during[i] != sent {
				t.Errorf("%s, and before that %s; want %s", got, during[i], want)
			}
		}
	})
}

// Where a Key was set, messages name it.
func TestAMessageNamesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &witness{TB: t}
		script := retryaftertest.NewScript(w, retryaftertest.Response{Status: 503, RetryAfter: time.Minute, Times: -1})
		script.Key = func(*http.Request) retryafter.Key { return "orders" }
		for _, body := range []string{"a", "b"} {
			send(t, &http.Client{Transport: script}, "POST", "http://example.com", body)
		}
		script.CheckAttempts(1)
		script.CheckOnce()
		script.CheckBodies()
		w.want(t, `early, want it at …"60" (of key "orders")`, `2 attempts, want at most 1 (of key "orders"): `,
			`want 1 (of key "orders"): `, `want "a" as of attempt 1 (of key "orders")`)
	})
}

func TestNumbersAgreeWithWhatIsCounted(t *testing.T) {
	w := &witness{TB: t}
	recorder := &retryaftertest.Recorder{TB: w}
	req := request(t, "PUT", "http://example.com", "h")
	req.ContentLength = 2
	if _, err := recorder.Transport(retryaftertest.NewScript(w, retryaftertest.Response{})).RoundTrip(req); err == nil || !strings.Contains(err.Error(), "the body has 1 byte") || strings.Contains(err.Error(), "bytes") {
		t.Error(err)
	}
	recorder.CheckAttempts(0)
	recorder.CheckBodies()
	w.want(t, "1 attempt, want at most 0", "broke off after 1 byte: ")
}

// Without a test to fail, a Recorder says so before anything is sent or served.
func TestARecorderNeedsATest(t *testing.T) {
	var none retryaftertest.Recorder
	for name, use := range map[string]func(){
		"Transport":      func() { none.Transport(nil) },
		"Handler":        func() { none.Handler(http.NotFoundHandler()) },
		"CheckAttempts":  func() { none.CheckAttempts(1) },
		"CheckOnce":      func() { none.CheckOnce() },
		"CheckBodies":    func() { none.CheckBodies() },
		"another Script": func() { new(retryaftertest.Script).RoundTrip(request(t, "GET", "http://example.com", "")) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, "Recorder.TB is nil, must be the test that fails") {
					t.Errorf("%s: %s", name, got)
				}
			}()
			use()
		}()
	}
	if a := none.Attempts(); len(a) != 0 {
		t.Errorf("recorded: %v", a)
	}
}
