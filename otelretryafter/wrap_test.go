package otelretryafter_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/oauth2"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/otelretryafter"
)

func (o *telemetry) otelhttp(base http.RoundTripper) *otelhttp.Transport {
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(o.traces), otelhttp.WithMeterProvider(o.metrics),
		otelhttp.WithPropagators(propagation.TraceContext{}))
}

var token = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "token"})

// redirected is a call of five attempts on two hops.
func redirected() *script {
	return plays(answers(503), answers(302, "Location", "/b"), answers(503), answers(503), answers(200))
}

func TestItWorksWithOtherRoundTrippers(t *testing.T) {
	counted := []any{nil, int64(1), int64(2), int64(3), int64(4)}
	for _, tt := range []struct {
		name string
		wrap func(o *telemetry, base http.RoundTripper) http.RoundTripper
		want []any // the resend counts of the client spans, in the order in which they end
	}{
		{"oauth2 inside", func(o *telemetry, base http.RoundTripper) http.RoundTripper {
			return o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: &oauth2.Transport{Source: token, Base: base}})
		}, counted},
		{"oauth2 outside", func(o *telemetry, base http.RoundTripper) http.RoundTripper {
			return &oauth2.Transport{Source: token, Base: o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: base})}
		}, counted},
		{"otelhttp inside", func(o *telemetry, base http.RoundTripper) http.RoundTripper {
			i := o.instrument()
			i.NoSpans = true
			return i.Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: o.otelhttp(otelretryafter.Resends(base))})
		}, counted},
		{"otelhttp outside", func(o *telemetry, base http.RoundTripper) http.RoundTripper {
			return o.otelhttp(o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: base}))
		}, []any{nil, int64(1), nil, int64(2), int64(3), int64(4), nil}}, // and a span for each hop
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, base := newTelemetry(), redirected()
			client := &http.Client{Transport: tt.wrap(o, base)}
			ctx, s := o.caller(t.Context())
			resp, err := client.Do(request(t, ctx, "GET", "http://example.com/a"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			s.End()
			spans := o.spans()
			if diff := cmp.Diff(tt.want, attr(spans[:len(spans)-1], "http.request.resend_count")); diff != "" {
				t.Errorf("resend counts (-want +got):\n%s", diff)
			}
			if report := retryafter.ReportOf(resp); report.Attempts != 3 || report.Stop != retryafter.Final {
				t.Errorf("the report is lost: %v", report)
			}
			parents := map[string]bool{}
			for _, sent := range base.sent {
				parents[sent.Header.Get("Traceparent")] = true
			}
			if len(parents) != 5 {
				t.Errorf("five attempts have %d parents", len(parents))
			}
			metrics := o.collect(t)
			if diff := cmp.Diff(map[string]float64{
				"http.request.method=GET http.response.status_code=503 retryafter.retry=false": 2,
				"http.request.method=GET http.response.status_code=302 retryafter.retry=true":  1,
				"http.request.method=GET http.response.status_code=503 retryafter.retry=true":  1,
				"http.request.method=GET http.response.status_code=200 retryafter.retry=true":  1,
			}, series(t, metrics["retryafter.attempts"])); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]float64{"http.request.method=GET retryafter.stop=Final": 2}, series(t, metrics["retryafter.calls"])); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// What otelhttp measures is each attempt, where it is inside.
func TestOtelhttpInsideMeasuresEachAttempt(t *testing.T) {
	o := newTelemetry()
	i := o.instrument()
	i.NoSpans = true
	rt := i.Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: o.otelhttp(otelretryafter.Resends(plays(answers(503), answers(503), answers(200))))})
	spans, _, err := o.call(t, t.Context(), rt, "GET", "http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	if len(spans) != 4 {
		t.Errorf("%d spans of three attempts and their caller", len(spans))
	}
	attempts := map[any]uint64{}
	for _, p := range o.collect(t)["http.client.request.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		status, _ := p.Attributes.Value("http.response.status_code")
		attempts[status.AsInt64()] += p.Count
	}
	if diff := cmp.Diff(map[any]uint64{int64(503): 2, int64(200): 1}, attempts); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

// duplex is the body of a protocol switch.
type duplex struct{ io.ReadWriteCloser }

func TestResponsesAreUntouched(t *testing.T) {
	o := newTelemetry()
	body := &duplex{}
	base := plays(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 101, Body: body, Request: req}, nil
	})
	rt := o.instrument().Wrap(&retryafter.Transport{Base: base})
	req := request(t, t.Context(), "GET", "http://example.com/")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body != io.ReadCloser(body) {
		t.Errorf("the body is a %T", resp.Body)
	}
	if resp.Request != req {
		t.Error("the response is of another request")
	}
	if len(req.Header) != 0 {
		t.Errorf("the caller's header was written to: %v", req.Header)
	}
	if len(o.spans()) != 1 {
		t.Error("the span has not ended with the header")
	}
}

func TestWhatTheBaseSaysOfAResponseIsKept(t *testing.T) {
	o := newTelemetry()
	other := request(t, t.Context(), "GET", "http://example.com/cached")
	rt := o.instrument().Wrap(&retryafter.Transport{Base: plays(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: other}, nil
	})})
	resp, err := rt.RoundTrip(request(t, t.Context(), "GET", "http://example.com/"))
	if err != nil || resp.Request != other {
		t.Errorf("%v, %v", resp, err)
	}
	if v, ok := o.spans()[0].Attributes["network.protocol.version"]; ok {
		t.Errorf("the protocol, which nobody knows, is %v", v)
	}
}

// A response's request must not end with the time that its attempt had.
func TestAnAttemptTimeoutDoesNotEndTheRequestOfItsResponse(t *testing.T) {
	rt := newTelemetry().instrument().Wrap(&retryafter.Transport{AttemptTimeout: time.Minute, Base: plays(answers(200))})
	resp, err := rt.RoundTrip(request(t, t.Context(), "GET", "http://example.com/"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := resp.Request.Context().Err(); err != nil {
		t.Error(err)
	}
}

// A Base that breaks the contract of RoundTripper is the Transport's concern.
func TestABaseWithoutAnOutcomeIsPassedOn(t *testing.T) {
	o := newTelemetry()
	rt := o.instrument().Wrap(&retryafter.Transport{Base: plays(func(*http.Request) (*http.Response, error) { return nil, nil })})
	req := request(t, t.Context(), "GET", "http://example.com/")
	req.Header, req.URL = nil, nil
	if resp, err := rt.RoundTrip(req); err == nil || resp != nil {
		t.Errorf("%v, %v", resp, err)
	}
	if len(o.spans()) != 1 {
		t.Error("no span")
	}
}

type closer struct {
	http.RoundTripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	base := &closer{RoundTripper: plays(answers(200))}
	i := newTelemetry().instrument()
	(&http.Client{Transport: i.Wrap(&retryafter.Transport{Base: base})}).CloseIdleConnections()
	i.NoSpans = true
	(&http.Client{Transport: i.Wrap(&retryafter.Transport{Base: otelretryafter.Resends(base)})}).CloseIdleConnections()
	if base.closed != 2 {
		t.Errorf("closed %d times", base.closed)
	}
	(&http.Client{Transport: i.Wrap(&retryafter.Transport{Base: otelretryafter.Resends(plays())})}).CloseIdleConnections()
}

func TestItMayBeTheDefaultTransport(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, noSpans := range []bool{false, true} {
		o := newTelemetry()
		i := o.instrument()
		i.NoSpans = noSpans
		http.DefaultTransport = before
		http.DefaultTransport = i.Wrap(&retryafter.Transport{})
		resp, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := len(o.spans()); (got == 0) != noSpans {
			t.Errorf("%d spans where NoSpans is %v", got, noSpans)
		}
	}
}

func TestTheTransportsOwnHooksRunToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		var ran []string
		own := &retryafter.Transport{
			Policy: backoffOf(time.Second),
			Base:   plays(answers(503), answers(200)),
			Trace: &retryafter.Trace{
				AttemptDone: func(a retryafter.Attempt) { ran = append(ran, fmt.Sprint("attempt ", a.Number)) },
				Waiting:     func(w retryafter.WaitInfo) { ran = append(ran, fmt.Sprint("wait ", w.Wait)) },
				Done:        func(_ *http.Request, r retryafter.Report) { ran = append(ran, fmt.Sprint("done ", r.Stop)) },
			},
		}
		before := *own.Trace
		spans, _, err := o.call(t, t.Context(), o.instrument().Wrap(own), "GET", "http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"attempt 1", "wait 1s", "attempt 2", "done Final"}, ran); diff != "" {
			t.Errorf("own hooks (-want +got):\n%s", diff)
		}
		if len(spans) != 3 || len(spans[2].Events) != 2 || len(o.collect(t)) != 3 {
			t.Errorf("%d spans, %d metrics, events %v", len(spans), len(o.collect(t)), spans[len(spans)-1].Events)
		}
		if fmt.Sprint(before) != fmt.Sprint(*own.Trace) {
			t.Error("the Transport's own Trace was written to")
		}
		// One that has some hooks only.
		o.instrument().Wrap(&retryafter.Transport{Base: plays(answers(200)), Trace: &retryafter.Trace{}}).RoundTrip(request(t, t.Context(), "GET", "http://example.com/"))
		if got := series(t, o.collect(t)["retryafter.calls"])["http.request.method=GET retryafter.stop=Final"]; got != 2 {
			t.Errorf("%v calls", got)
		}
	})
}

func TestTraceAloneMakesNoSpans(t *testing.T) {
	o := newTelemetry()
	ctx := retryafter.WithTrace(t.Context(), o.instrument().Trace())
	spans, _, _ := o.call(t, ctx, &retryafter.Transport{Policy: backoffOf(0), Base: plays(answers(503), answers(200))}, "GET", "http://example.com/")
	if len(spans) != 1 || len(spans[0].Events) != 2 {
		t.Errorf("spans %v", spans)
	}
}

// Labels come from a closed set, whatever is called and whatever it answers.
func TestThousandsOfHostsPathsMethodsAndStatusesAddNoSeries(t *testing.T) {
	o := newTelemetry()
	n := 0
	rt := o.instrument().Wrap(&retryafter.Transport{
		Policy: retryafter.Policy{MaxAttempts: 1},
		Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			if n%3 == 0 {
				return nil, fmt.Errorf("error %d", n)
			}
			return answers(n)(req)
		}),
	})
	for n = range 1000 {
		ctx := retryafter.WithKey(t.Context(), retryafter.NewKey(fmt.Sprint(n)))
		for _, method := range []string{"GET", fmt.Sprint("M", n)} {
			rt.RoundTrip(request(t, ctx, method, fmt.Sprintf("http://host%d.example/path%d", n, n)))
		}
	}
	registered := 0
	for code := range 1000 {
		if http.StatusText(code) != "" {
			registered++
		}
	}
	metrics := o.collect(t)
	attempts, total := series(t, metrics["retryafter.attempts"]), 0.0
	for labels, count := range attempts {
		total += count
		if !regexp.MustCompile(`^(error.type=_OTHER )?http.request.method=(GET|_OTHER)( http.response.status_code=[1-5]\d\d)? retryafter.retry=false$`).MatchString(labels) {
			t.Errorf("series %q", labels)
		}
	}
	if most := 2 * (registered + 1); total != 2000 || len(attempts) > most {
		t.Errorf("%v attempts in %d series, more than %d", total, len(attempts), most)
	}
	for code, want := range map[int]int{299: 200, 499: 400, 529: 500, 999: 500, 7: 500, 429: 429} {
		o := newTelemetry()
		o.call(t, t.Context(), o.instrument().Wrap(&retryafter.Transport{Policy: retryafter.Policy{MaxAttempts: 1}, Base: plays(answers(code))}), "GET", "http://example.com/")
		labels := fmt.Sprintf("http.request.method=GET http.response.status_code=%d retryafter.retry=false", want)
		if diff := cmp.Diff(map[string]float64{labels: 1}, series(t, o.collect(t)["retryafter.attempts"])); diff != "" {
			t.Errorf("%d (-want +got):\n%s", code, diff)
		}
	}
}

func TestLabelsAndMethodsAreTheUsersToAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		i := o.instrument()
		i.Methods = []string{"PURGE"}
		i.Attributes = func(req *http.Request) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("tenant", req.Header.Get("Tenant"))}
		}
		rt := i.Wrap(&retryafter.Transport{
			Policy:  backoffOf(time.Second),
			Base:    plays(answers(503), answers(200)),
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Second)},
		})
		i.Methods[0] = "GET" // too late
		for _, method := range []string{"PURGE", "GET"} {
			req := request(t, t.Context(), method, "http://example.com/")
			req.Header.Set("Tenant", "a")
			req.Header["Idempotency-Key"] = nil
			if _, err := rt.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]map[string]float64{}
		for name, m := range o.collect(t) {
			got[name] = series(t, m)
		}
		want := map[string]map[string]float64{
			"retryafter.attempts": {
				"http.request.method=PURGE http.response.status_code=503 retryafter.retry=false tenant=a":  1,
				"http.request.method=PURGE http.response.status_code=200 retryafter.retry=true tenant=a":   1,
				"http.request.method=_OTHER http.response.status_code=200 retryafter.retry=false tenant=a": 1,
			},
			"retryafter.calls": {
				"http.request.method=PURGE retryafter.stop=Final tenant=a":  1,
				"http.request.method=_OTHER retryafter.stop=Final tenant=a": 1,
			},
			"retryafter.wait.duration":    {"http.request.method=PURGE retryafter.source=local tenant=a": 1},
			"retryafter.limiter.duration": {"http.request.method=_OTHER tenant=a": 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		if got := o.spans()[0].Name; got != "PURGE" {
			t.Errorf("the span is named %s", got)
		}
	})
}

func TestTheScopeHasNameVersionAndSchema(t *testing.T) {
	o := newTelemetry()
	o.call(t, t.Context(), o.instrument().Wrap(&retryafter.Transport{Base: plays(answers(200))}), "GET", "http://example.com/")
	var all metricdata.ResourceMetrics
	if err := o.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for what, scope := range map[string]instrumentation.Scope{
		"spans": o.recorder.Ended()[0].InstrumentationScope(), "metrics": all.ScopeMetrics[0].Scope,
	} {
		if scope.Name != "github.com/retryafter-go/retryafter/otelretryafter" || scope.Version == "" || !strings.HasSuffix(scope.SchemaURL, "/1.43.0") {
			t.Errorf("%s: %+v", what, scope)
		}
	}
}

func TestUnitsAndBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		o.call(t, t.Context(), o.instrument().Wrap(&retryafter.Transport{
			Policy:  backoffOf(90 * time.Second),
			Base:    plays(answers(503), answers(200)),
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Second), StartEmpty: true},
		}), "GET", "http://example.com/")
		units := map[string]string{}
		for name, m := range o.collect(t) {
			units[name] = m.Unit
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
				if bounds := h.DataPoints[0].Bounds; bounds[0] != 0.01 || bounds[len(bounds)-1] != 86400 {
					t.Errorf("%s has buckets %v", name, bounds)
				}
			}
			if m.Description == "" {
				t.Errorf("%s has no description", name)
			}
		}
		want := map[string]string{"retryafter.attempts": "{attempt}", "retryafter.calls": "{call}", "retryafter.wait.duration": "s", "retryafter.limiter.duration": "s"}
		if diff := cmp.Diff(want, units); diff != "" {
			t.Errorf("units (-want +got):\n%s", diff)
		}
	})
}

func TestCallsAtTheSameTimeDoNotMixUp(t *testing.T) {
	o := newTelemetry()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Fail") != "" && r.Header.Get("Attempt") != "3" {
			w.WriteHeader(503)
		}
		io.WriteString(w, strings.Repeat("x", 1000))
	}))
	defer server.Close()
	rt := o.instrument().Wrap(&retryafter.Transport{
		Policy: backoffOf(0),
		Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set("Attempt", fmt.Sprint(retryafter.AttemptNumber(req.Context())))
			return server.Client().Transport.RoundTrip(req)
		}),
	})
	client := &http.Client{Transport: rt}
	const calls = 40
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			ctx, s := o.traces.Tracer("test").Start(t.Context(), fmt.Sprint("caller ", i%2))
			defer s.End()
			req := request(t, ctx, "GET", server.URL)
			if i%2 == 1 {
				req.Header.Set("Fail", "twice")
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); n != 1000 || err != nil {
				t.Errorf("%d bytes: %v", n, err)
			}
		})
	}
	wg.Wait()
	count := map[string]int{}
	for _, s := range o.spans() {
		if s.Kind == "client" {
			count[fmt.Sprint(s.Parent, " ", s.Attributes["http.response.status_code"], " ", s.Attributes["http.request.resend_count"])]++
		}
	}
	want := map[string]int{"caller 0 200 <nil>": calls / 2, "caller 1 503 <nil>": calls / 2, "caller 1 503 1": calls / 2, "caller 1 200 2": calls / 2}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestHooksCostNothingWhereNobodyListens(t *testing.T) {
	hooks := otelretryafter.Instrument{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
		Attributes: func(*http.Request) []attribute.KeyValue { t.Error("asked in vain"); return nil },
	}.Trace()
	req := request(t, trace.ContextWithSpan(context.Background(), tracenoop.Span{}), "GET", "http://example.com/")
	if n := testing.AllocsPerRun(100, func() {
		hooks.AttemptDone(retryafter.Attempt{Number: 1, Request: req, StatusCode: 503})
		hooks.Waiting(retryafter.WaitInfo{Request: req, Attempt: 2, Wait: time.Second})
		hooks.Done(req, retryafter.Report{Attempts: 2, Stop: retryafter.AttemptsUsed, Limited: time.Second})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var jittered = regexp.MustCompile(`("retryafter\.(?:wait|waited)"):[0-9.]+`)

func TestTheProgramInTheReadmePrintsWhatItSays(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(package main.*?)```\n\n[^\n]+\n\n((?:    [^\n]*\n)+)").FindAllSubmatch(readme, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d programs in the README", len(blocks))
	}
	program := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(program, blocks[0][1], 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", program)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	got, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	shown := func(text string) string { return jittered.ReplaceAllString(text, "$1:…") }
	want := strings.ReplaceAll("\n"+string(blocks[0][2]), "\n    ", "\n")[1:]
	if diff := cmp.Diff(shown(want), shown(string(got))); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}
