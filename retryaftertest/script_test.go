package retryaftertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/retryaftertest"
)

type answer struct {
	Status     int
	RetryAfter []string
	Other      []string
	Body       string
}

func TestAScriptAnswersInOrder(t *testing.T) {
	eachDoor(t, func(t *testing.T, d door) {
		script := retryaftertest.NewScript(t,
			retryaftertest.Response{},
			retryaftertest.Response{Status: 503, RetryAfter: time.Second + 1, Body: "busy"},
			retryaftertest.Response{Status: 429, Header: http.Header{"retry-after": {"0", "3600"}, "X-Other": {"a", "b"}}},
			retryaftertest.Response{Body: "ok", Times: 2},
			retryaftertest.Response{Status: 204},
			retryaftertest.Response{Status: 599, Times: -1},
		)
		script.Key = func(*http.Request) retryafter.Key { return "" }
		base, url := d.open(t, script)
		c := &http.Client{Transport: base}
		var got []answer
		for range 8 {
			resp, body := send(t, c, "PUT", url+"/path?q", "hello")
			got = append(got, answer{resp.StatusCode, resp.Header["Retry-After"], resp.Header["X-Other"], body})
			if date, err := http.ParseTime(resp.Header.Get("Date")); err != nil || time.Since(date) < 0 || d.bubble && time.Since(date) > time.Second {
				t.Errorf("Date %v, %v", date, err)
			}
			if !strings.HasPrefix(resp.Status, fmt.Sprint(resp.StatusCode)) || resp.Request == nil || resp.ContentLength != int64(len(body)) {
				t.Errorf("%+v", resp)
			}
		}
		want := []answer{
			{Status: 200}, {503, []string{"2"}, nil, "busy"}, {429, []string{"0", "3600"}, []string{"a", "b"}, ""},
			{Status: 200, Body: "ok"}, {Status: 200, Body: "ok"}, {Status: 204}, {Status: 599}, {Status: 599},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
		for i, a := range script.Attempts() {
			if a.Method != "PUT" || a.URL != url+"/path?q" || string(a.Body) != "hello" || !a.Whole || a.BodyErr != nil || a.Status != want[i].Status {
				t.Errorf("recorded: %+v", a)
			}
		}
		script.CheckAttempts(1) // what has no key is not judged
		resp, body := send(t, c, "HEAD", url, "")
		if resp.StatusCode != 599 || body != "" {
			t.Errorf("HEAD: %s %q", resp.Status, body)
		}
	})
}

func TestAHeadGetsNoBody(t *testing.T) {
	eachDoor(t, func(t *testing.T, d door) {
		base, url := d.open(t, retryaftertest.NewScript(t, retryaftertest.Response{Body: "ok", Times: 2}))
		for range 2 {
			if _, body := send(t, &http.Client{Transport: base}, "HEAD", url, ""); body != "" {
				t.Errorf("body %q", body)
			}
		}
	})
}

// The client comes back when it was told; the script says the same.
func TestAScriptKnowsWhenARequestMayComeBack(t *testing.T) {
	for name, r := range map[string]retryaftertest.Response{
		"seconds": {Status: 429, RetryAfter: time.Second},
		"date":    {Status: 503, RetryAfterDate: time.Second, Delay: time.Millisecond},
		"header":  {Status: 503, Header: http.Header{"Retry-After": {"1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachDoor(t, func(t *testing.T, d door) {
				script := retryaftertest.NewScript(t, r, retryaftertest.Response{Delay: time.Millisecond, Body: "ok"})
				base, url := d.open(t, script)
				begin := time.Now()
				if resp, body := send(t, atOnce(base), "GET", url+"/x", ""); body != "ok" {
					t.Errorf("%s %q", resp.Status, body)
				}
				a := script.Attempts()
				if len(a) != 2 || a[0].Status != r.Status || a[1].Status != 200 || !a[1].NotBefore.Equal(a[0].Back) || !a[1].Back.IsZero() || !a[0].NotBefore.IsZero() {
					t.Fatalf("recorded: %+v", a)
				}
				d.since(t, "first", a[0].Came, begin)
				earliest := begin.Add(time.Second + r.Delay)
				if name == "date" { // in a whole second, which is the next but one here
					earliest = earliest.Add(time.Second - 1).Truncate(time.Second)
				}
				d.since(t, "back", a[0].Back, earliest)
				if d.bubble && a[1].Came.Sub(a[0].Back) > time.Second { // a date leaves a fraction out
					t.Errorf("came at %v, allowed at %v", a[1].Came, a[0].Back)
				}
				d.since(t, "over", time.Now(), a[1].Came.Add(time.Millisecond))
				script.CheckAttempts(2)
				script.CheckOnce()
				script.CheckBodies()
			})
		})
	}
}

func TestADateIsRoundedUpAndMayBeGoneBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Second / 2)
		script := retryaftertest.NewScript(t,
			retryaftertest.Response{Status: 503, RetryAfterDate: time.Minute},
			retryaftertest.Response{Status: 503, RetryAfterDate: -time.Minute},
			retryaftertest.Response{Status: 503, RetryAfterDate: time.Minute, Header: http.Header{"Date": nil}},
			retryaftertest.Response{Status: 503, RetryAfterDate: 0, Header: http.Header{"Date": {"Mon, 01 Jan 2024 00:00:00 GMT"}, "Retry-After": {"Mon, 01 Jan 2024 00:00:05 GMT"}}},
		)
		script.Key = func(*http.Request) retryafter.Key { return "" }
		for i := range 4 {
			resp, _ := send(t, &http.Client{Transport: script}, "GET", "http://example.com/", "")
			if date := resp.Header.Get("Date"); (date == "") != (i == 2) {
				t.Errorf("answer %d has Date %q", i+1, date)
			}
		}
		var got []string
		for _, a := range script.Attempts() {
			got = append(got, a.Back.Sub(a.Came).String()+" "+a.RetryAfter)
		}
		want := []string{
			"1m0.5s Sat, 01 Jan 2000 00:01:01 GMT", "0s Fri, 31 Dec 1999 23:59:01 GMT",
			"1m0.5s Sat, 01 Jan 2000 00:01:01 GMT", "5s Mon, 01 Jan 2024 00:00:05 GMT",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// cancelAt cancels when the whole of request i, counted from 0, is there; in a
// bubble 2 ms after it set out.
func cancelAt(script *retryaftertest.Script, i int, cancel func()) {
	go func() {
		time.Sleep(time.Millisecond)
		for a := script.Attempts(); len(a) <= i || !a[i].Whole; a = script.Attempts() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Millisecond)
		cancel()
	}()
}

func TestFaultsAreWhatTheClientSees(t *testing.T) {
	eachDoor(t, func(t *testing.T, d door) {
		script := retryaftertest.NewScript(t,
			retryaftertest.Response{Fault: retryaftertest.Close},
			retryaftertest.Response{Fault: retryaftertest.Reset, Delay: time.Millisecond},
			retryaftertest.Response{Fault: retryaftertest.Hang},
			retryaftertest.Response{Body: "ok"},
		)
		base, url := d.open(t, script)
		c := &http.Client{Transport: base}
		for fault, want := range []error{io.EOF, syscall.ECONNRESET, context.Canceled} {
			ctx, cancel := context.WithCancel(t.Context())
			if want == context.Canceled {
				cancelAt(script, fault, cancel)
			}
			begin := time.Now()
			resp, err := c.Do(request(t, "POST", url, "hello").WithContext(ctx))
			cancel()
			if err == nil || !errors.Is(err, want) && !(d.http2 && strings.Contains(err.Error(), "INTERNAL_ERROR")) {
				t.Errorf("fault %d: %v %v, want %v", fault+1, resp, err, want)
			}
			if d.bubble && time.Since(begin) != time.Duration(fault)*time.Millisecond {
				t.Errorf("fault %d after %v", fault+1, time.Since(begin))
			}
		}
		if _, body := send(t, c, "POST", url, "hello"); body != "ok" {
			t.Errorf("body %q", body)
		}
		script.CheckBodies()
		for i, a := range script.Attempts() {
			if string(a.Body) != "hello" || !a.Whole || (a.Status == 200) != (i == 3) {
				t.Errorf("recorded: %+v", a)
			}
		}
	})
}

func TestFaultsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := retryaftertest.NewScript(t,
			retryaftertest.Response{Fault: retryaftertest.Close}, retryaftertest.Response{Fault: retryaftertest.Reset},
			retryaftertest.Response{Fault: retryaftertest.Hang}, retryaftertest.Response{Body: "ok"})
		c := atOnce(script)
		c.Transport.(*retryafter.Transport).AttemptTimeout = time.Second
		begin := time.Now()
		if _, body := send(t, c, "GET", "http://example.com/", ""); body != "ok" || time.Since(begin) != time.Second {
			t.Errorf("%q after %v", body, time.Since(begin))
		}
		for i, a := range script.Attempts() {
			if (a.Err != nil) != (i < 3) {
				t.Errorf("recorded: %+v", a)
			}
		}
	})
}

func TestAWaitEndsWithTheClient(t *testing.T) {
	eachDoor(t, func(t *testing.T, d door) {
		script := retryaftertest.NewScript(t, retryaftertest.Response{Delay: time.Hour}, retryaftertest.Response{})
		base, url := d.open(t, script)
		errGone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancelAt(script, 0, func() { cancel(errGone) })
		if _, err := base.RoundTrip(request(t, "GET", url, "").WithContext(ctx)); !errors.Is(err, errGone) && !(d.http2 && errors.Is(err, context.Canceled)) {
			t.Errorf("%v, want %v", err, errGone)
		}
		send(t, &http.Client{Transport: base}, "GET", url, "")
	})
	script := retryaftertest.NewScript(t, retryaftertest.Response{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := script.RoundTrip(request(t, "GET", "http://example.com", "").WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

func TestAScriptThatIsOverFailsTheTest(t *testing.T) {
	eachDoor(t, func(t *testing.T, d door) {
		w := &witness{TB: t}
		script := retryaftertest.NewScript(w, retryaftertest.Response{Times: 2})
		base, url := d.open(t, script)
		c := &http.Client{Transport: base}
		for _, want := range []int{200, 200, 501, 501} {
			if resp, _ := send(t, c, "GET", url+"/x?secret", ""); resp.StatusCode != want {
				t.Errorf("%s, want %d", resp.Status, want)
			}
		}
		w.end()
		w.want(t, "request 3 came, GET "+url+"/x, want no more than 2", "request 4 came, GET "+url+"/x, want no more than 2")
	})
}

func TestAScriptThatIsNotOverFailsTheTest(t *testing.T) {
	for _, tc := range []struct {
		responses []retryaftertest.Response
		want      []string
	}{
		{nil, []string{"request 1 came, GET http://example.com, want no more than 0"}},
		{[]retryaftertest.Response{{Status: 200}}, nil},
		{[]retryaftertest.Response{{Status: 200, Times: -1}}, nil},
		{[]retryaftertest.Response{{Status: 200}, {Status: 503, Times: -1}}, nil},
		{[]retryaftertest.Response{{Times: 2}}, []string{"retryaftertest: 1 request came, want 1 more; the next was to get 200 OK"}},
		{[]retryaftertest.Response{{}, {Fault: retryaftertest.Hang, Times: 2}, {}, {Times: -1}}, []string{"1 request came, want 3 more; the next was to get Hang"}},
		{[]retryaftertest.Response{{}, {}, {Times: -1}}, []string{"1 request came, want 1 more; the next was to get 200 OK"}},
	} {
		w := &witness{TB: t}
		script := retryaftertest.NewScript(w, tc.responses...)
		send(t, &http.Client{Transport: script}, "GET", "http://example.com", "")
		w.end()
		w.want(t, tc.want...)
		for _, r := range tc.responses {
			if r.Times == 1 {
				t.Error("the caller's list was written to")
			}
		}
	}
}

func TestAScriptThatWasNotBegunFailsTheTest(t *testing.T) {
	w := &witness{TB: t}
	retryaftertest.NewScript(w, retryaftertest.Response{Times: 2})
	w.end()
	w.want(t, "retryaftertest: 0 requests came, want 2 more; the next was to get 200 OK")
}

func TestAResponseThatMakesNoSenseIsRefused(t *testing.T) {
	for want, rs := range map[string][]retryaftertest.Response{
		"response 1: Status is 103, must":                                        {{Status: 103}},
		"response 1: Status is 1000, must":                                       {{Status: 1000}},
		"response 2: Status is -1, must":                                         {{}, {Status: -1}},
		"response 1: RetryAfter is -1s, must not be negative":                    {{RetryAfter: -time.Second}},
		"response 1: Delay is -1ns, must not be negative":                        {{Delay: -1}},
		"response 1: Fault is Fault(4), must":                                    {{Fault: 4}},
		"response 1: Fault is Close, must…beside":                                {{Fault: retryaftertest.Close, Status: 200}},
		"response 1: Fault is Reset, must…beside":                                {{Fault: retryaftertest.Reset, Body: "x"}},
		"response 1: Fault is Hang, must…beside":                                 {{Fault: retryaftertest.Hang, RetryAfter: 1}},
		"response 1: Fault is Hang, must…beside one":                             {{Fault: retryaftertest.Hang, RetryAfterDate: 1}},
		"response 1: Fault is Hang, must stand…beside":                           {{Fault: retryaftertest.Hang, Header: http.Header{}}},
		"response 1: RetryAfterDate is 1m0s, must be 0 where RetryAfter is set":  {{RetryAfter: time.Minute, RetryAfterDate: time.Minute}},
		"response 1: RetryAfterDate is -1ns, must be 0":                          {{RetryAfter: 1, RetryAfterDate: -1}},
		`response 2: Header is Retry-After: ["0"], must have no Retry-After`:     {{}, {RetryAfter: 1, Header: http.Header{"Retry-After": {"0"}}}},
		`response 1: Header is retry-after: ["0" "1"], must have no Retry-After`: {{RetryAfterDate: -1, Header: http.Header{"X": {"1"}, "retry-after": {"0", "1"}}}},
		`response 1: Body is "x", must be empty where Status is 204`:             {{Status: 204, Body: "x"}},
		`response 1: Body is "x", must be empty where Status is 304`:             {{Status: 304, Body: "x"}},

		"response 1: Times is -1, which leaves nothing to the…": {{Times: -1}, {}},
	} {
		w := &witness{TB: t}
		func() {
			defer func() {
				if _, ok := recover().(fatal); !ok {
					t.Errorf("not refused: %v", rs)
				}
			}()
			retryaftertest.NewScript(w, rs...)
		}()
		w.want(t, "retryaftertest: "+want)
	}
}

// A client that used its body up is told so, as by http.Transport.
func TestAScriptNeedsTheWholeBody(t *testing.T) {
	script := retryaftertest.NewScript(t, retryaftertest.Response{Times: 2})
	req := request(t, "PUT", "http://example.com", "hello")
	for _, want := range []string{"", "ContentLength is 5, and the body has 0 bytes"} {
		_, err := script.RoundTrip(req)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if a := script.Attempts()[1]; a.Err == nil || a.Whole || a.BodyErr != io.ErrUnexpectedEOF {
		t.Errorf("recorded: %+v", a)
	}
}

func TestAScriptClosesTheBody(t *testing.T) {
	script := retryaftertest.NewScript(t, retryaftertest.Response{Times: 2})
	for _, content := range []io.Reader{strings.NewReader("hello"), iotest.ErrReader(io.ErrNoProgress)} {
		req, body := request(t, "PUT", "http://example.com", ""), &closer{Reader: content}
		req.Body = body
		resp, err := script.RoundTrip(req)
		if (resp == nil) != (err == io.ErrNoProgress) || body.closed != 1 {
			t.Errorf("%v %v, closed %d times", resp, err, body.closed)
		}
	}
}

type closer struct {
	io.Reader
	closed int
}

func (c *closer) Close() error { c.closed++; return nil }

// A server with a wrong clock names dates by that clock.
func TestARetryAfterDateGoesByTheDateBesideIt(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(300 * time.Millisecond)
			begin := time.Now()
			script := retryaftertest.NewScript(t,
				retryaftertest.Response{Status: 503, RetryAfterDate: 29500 * time.Millisecond,
					Header: http.Header{"Date": {begin.Add(off).UTC().Format(http.TimeFormat)}}},
				retryaftertest.Response{})
			c := &http.Client{Transport: &retryafter.Transport{Base: script, Policy: retryafter.Policy{Jitter: retryafter.NoJitter}}}
			resp, err := c.Get("http://example.com/")
			if err != nil || resp.StatusCode != 200 || time.Since(begin) != 30*time.Second {
				t.Errorf("%v off: %v, %v after %v", off, resp, err, time.Since(begin))
			}
		})
	}
}
