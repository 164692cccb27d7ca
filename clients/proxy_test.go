package clients

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/retryafter-go/retryafter"
)

// newProxy repeats for its clients what it can, as long as they would wait.
func newProxy(to *url.URL, t *retryafter.Transport) *httputil.ReverseProxy {
	t.MaxWait = 2 * time.Second // the client of the proxy is told what is longer
	t.MaxElapsed = 10 * time.Second
	return &httputil.ReverseProxy{
		Transport: t,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
		},
	}
}

// behind serves backend behind a proxy and returns the proxy's URL.
func behind(t *testing.T, backend http.Handler, tune func(*retryafter.Transport)) string {
	t.Helper()
	u, base := listen(t, backend)
	to, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	tr := atOnce(base)
	p := newProxy(to, tr)
	if tune != nil {
		tune(tr)
	}
	p.ErrorLog = log.New(io.Discard, "", 0)
	front, _ := listen(t, p)
	return front
}

func send(t *testing.T, method, url, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return resp, string(b)
}

func TestAProxyRepeatsReads(t *testing.T) {
	f := answers(reply(503, "", "Retry-After", "0"), reply(200, "ok"))
	u := behind(t, f, nil)
	if resp, b := send(t, "GET", u+"/p?q=1", "", "Connection", "X-Hop", "X-Hop", "hop", "X-End", "end", "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 200 || b != "ok" {
		t.Errorf("%s, %q", resp.Status, b)
	}
	for i, r := range f.want(t, 2) {
		if r.URI != "/p?q=1" || r.Header.Get("X-End") != "end" || r.Header.Get("X-Hop") != "" || r.Header.Get("X-Forwarded-For") != "127.0.0.1" {
			t.Errorf("attempt %d: %s %v", i+1, r.URI, r.Header)
		}
	}
}

func TestAProxySendsBodiesOnce(t *testing.T) {
	f := answers(reply(503, "busy", "Retry-After", "7"))
	reports := make(chan retryafter.Report, 3)
	u := behind(t, f, func(tr *retryafter.Transport) {
		tr.Trace = &retryafter.Trace{Done: func(_ *http.Request, r retryafter.Report) { reports <- r }}
	})
	for _, c := range []struct {
		method string
		fields []string
		stop   retryafter.Reason
	}{
		{"PUT", nil, retryafter.BodyNotReplayable},
		{"POST", nil, retryafter.MethodNotIdempotent},
		{"POST", []string{"Idempotency-Key", "k"}, retryafter.BodyNotReplayable},
	} {
		resp, b := send(t, c.method, u, "body", c.fields...)
		if resp.StatusCode != 503 || b != "busy" || resp.Header.Get("Retry-After") != "7" {
			t.Errorf("the client was told %s, %q, %v", resp.Status, b, resp.Header)
		}
		if r := <-reports; r.Stop != c.stop || r.Attempts != 1 {
			t.Errorf("%s: %v", c.method, r)
		}
	}
	f.wantBodies(t, 3, "body")
}

func TestAProxyTellsItsClientTheWaitThatItRefuses(t *testing.T) {
	f := answers(reply(503, "busy", "Retry-After", "5"))
	resp, b := send(t, "GET", behind(t, f, nil), "")
	if resp.StatusCode != 503 || b != "busy" || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("the client was told %s, %q, %v", resp.Status, b, resp.Header)
	}
	f.want(t, 1)
}

func TestAProxyStopsWaitingWhenItsClientIsGone(t *testing.T) {
	f := answers(reply(503, "", "Retry-After", "3600"))
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	u := behind(t, f, func(tr *retryafter.Transport) {
		tr.MaxWait, tr.MaxElapsed = time.Hour, 0
		tr.Trace = &retryafter.Trace{
			Waiting: func(retryafter.WaitInfo) { leave() },
			Done:    func(_ *http.Request, r retryafter.Report) { done <- r.Err },
		}
	})
	req, err := http.NewRequestWithContext(ctx, "GET", u, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	f.want(t, 1)
}

func TestAProxyStreamsWhatItIsSent(t *testing.T) {
	more := make(chan struct{})
	var n atomic.Int32
	u := behind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			reply(503, "", "Retry-After", "0")(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-more
		io.WriteString(w, "data: 2\n\n")
	}), func(tr *retryafter.Transport) { tr.AttemptTimeout = 5 * time.Second })
	req, err := http.NewRequestWithContext(t.Context(), "GET", u, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "data: 1\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	close(more) // only now, so that the first event can't have waited for the second
	if rest, err := io.ReadAll(body); string(rest) != "\ndata: 2\n\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestAProxyPassesInformationalResponsesOfEveryAttemptOn(t *testing.T) {
	var n atomic.Int32
	u := behind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		if n.Add(1) == 1 {
			reply(503, "", "Retry-After", "0")(w, r)
			return
		}
		reply(200, "ok")(w, r)
	}), nil)
	var hints atomic.Int32
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code == 103 && h.Get("Link") != "" {
			hints.Add(1)
		}
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, "GET", u, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || hints.Load() != 2 {
		t.Errorf("%s after %d hints", resp.Status, hints.Load())
	}
}

// echo accepts a websocket at its second request, and sends back what it gets.
func echo(t *testing.T) http.Handler {
	var n atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			reply(503, "", "Retry-After", "0")(w, r)
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		kind, b, err := c.Read(r.Context())
		if err == nil {
			err = c.Write(r.Context(), kind, b)
		}
		if err != nil {
			t.Error(err)
		}
		c.Read(r.Context()) // until the other side closes
	})
}

func talk(t *testing.T, u string, c *http.Client) {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), u, &websocket.DialOptions{HTTPClient: c})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := conn.Read(t.Context()); err != nil || string(b) != "hello" {
		t.Fatalf("%q, %v", b, err)
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

func TestAProxyPassesUpgradesThrough(t *testing.T) {
	for _, timeout := range []time.Duration{0, 5 * time.Second} {
		u := behind(t, echo(t), func(tr *retryafter.Transport) { tr.AttemptTimeout = timeout })
		talk(t, u, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	}
}

func TestAWebsocketIsDialledAgain(t *testing.T) {
	for _, timeout := range []time.Duration{0, 5 * time.Second} {
		u, base := listen(t, echo(t))
		tr := atOnce(base)
		tr.AttemptTimeout = timeout
		talk(t, u, &http.Client{Transport: tr})
	}
}

func TestAProxyGivesUpBeforeItsClientDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(append(slices.Repeat([]answer{reply(503, "busy", "Retry-After", "1")}, 20), reply(200, ""))...)
		to, err := url.Parse("http://backend.test")
		if err != nil {
			t.Fatal(err)
		}
		tr := atOnce(f)
		tr.MaxAttempts = -1
		front := &http.Client{Transport: answers(newProxy(to, tr).ServeHTTP)}
		start := time.Now()
		resp, err := front.Get("http://front.test/")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || took >= 10*time.Second {
			t.Errorf("%s, %v after %v", resp.Status, resp.Header, took)
		}
		f.want(t, 10)
	})
}

func TestAProxyAnswersBadGatewayWhereThereIsNoResponse(t *testing.T) {
	u := behind(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), nil)
	if resp, _ := send(t, "GET", u, ""); resp.StatusCode != 502 {
		t.Errorf("%s", resp.Status)
	}
}
