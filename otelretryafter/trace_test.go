package otelretryafter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryafter-go/retryafter"
)

var refused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// client is the span of an attempt at http://example.com/.
func client(status string, more attributes) span {
	s := span{Name: "GET", Kind: "client", Parent: "caller", Status: status, Attributes: attributes{
		"http.request.method": "GET", "url.full": "http://example.com/",
		"server.address": "example.com", "server.port": int64(80),
	}}
	for k, v := range more {
		s.Attributes[k] = v
	}
	return s
}

// caller is the span of the caller.
func caller(events ...event) span {
	return span{Name: "caller", Kind: "internal", Status: "Unset", Attributes: attributes{}, Events: events}
}

// call makes one call below a caller's span, and returns all spans.
func (o *telemetry) call(t *testing.T, ctx context.Context, rt http.RoundTripper, method, url string) ([]span, *http.Response, error) {
	t.Helper()
	ctx, s := o.caller(ctx)
	resp, err := rt.RoundTrip(request(t, ctx, method, url))
	if resp != nil {
		resp.Body.Close()
	}
	s.End()
	return o.spans(), resp, err
}

func TestEachAttemptIsASpanBesideTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		rt := o.instrument().Wrap(&retryafter.Transport{
			Policy: backoffOf(2 * time.Second),
			Base:   plays(answers(503, "Retry-After", "30"), fails(refused), answers(200)),
		})
		spans, _, err := o.call(t, t.Context(), rt, "GET", "http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		unreachable := client("Error", attributes{"http.request.resend_count": int64(1), "error.type": "*net.OpError"})
		unreachable.Text = "dial tcp: connection refused"
		want := []span{
			client("Error", attributes{"http.response.status_code": int64(503), "error.type": "503", "network.protocol.version": "1.1"}),
			unreachable,
			client("Unset", attributes{"http.request.resend_count": int64(2), "http.response.status_code": int64(200), "network.protocol.version": "1.1"}),
			caller(
				event{"retryafter.wait", attributes{"retryafter.attempt": int64(2), "retryafter.wait": 30.0, "retryafter.server": 30.0,
					"retryafter.source": "server", "http.response.status_code": int64(503)}},
				event{"retryafter.wait", attributes{"retryafter.attempt": int64(3), "retryafter.wait": 2.0,
					"retryafter.source": "local", "retryafter.error": "dial tcp: connection refused"}},
				event{"retryafter.done", attributes{"retryafter.attempts": int64(3), "retryafter.waited": 32.0, "retryafter.stop": "Final"}},
			),
		}
		if diff := cmp.Diff(want, spans); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		got := series(t, o.collect(t)["retryafter.wait.duration"])
		if diff := cmp.Diff(map[string]float64{
			"http.request.method=GET retryafter.source=server": 30,
			"http.request.method=GET retryafter.source=local":  2,
		}, got); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		ended := o.recorder.Ended()
		if gap := ended[1].StartTime().Sub(ended[0].EndTime()); gap != 30*time.Second {
			t.Errorf("%v between the spans of the first and the second attempt", gap)
		}
	})
}

func TestTheSourceOfAWaitIsWhoeverAskedForMore(t *testing.T) {
	for _, tt := range []struct {
		server string
		local  time.Duration
		want   string
	}{
		{"", 0, "local"}, {"0", 0, "local"}, {"0", time.Second, "local"}, {"1", 2 * time.Second, "local"},
		{"2", 2 * time.Second, "server"}, {"3", 2 * time.Second, "server"},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newTelemetry()
			busy := answers(503)
			if tt.server != "" {
				busy = answers(503, "Retry-After", tt.server)
			}
			rt := o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(tt.local), Base: plays(busy, answers(200))})
			spans, _, _ := o.call(t, t.Context(), rt, "GET", "http://example.com/")
			if got := spans[2].Events[0].Attributes["retryafter.source"]; got != tt.want {
				t.Errorf("server %q, local %v: %v", tt.server, tt.local, got)
			}
			labels := "http.request.method=GET retryafter.source=" + tt.want
			if got := series(t, o.collect(t)["retryafter.wait.duration"]); len(got) != 1 || got[labels] == 0 && tt.want == "server" {
				t.Errorf("server %q, local %v: %v", tt.server, tt.local, got)
			}
		})
	}
}

func TestACallThatItsFirstAttemptSettlesIsOneSpanWithoutEvents(t *testing.T) {
	o := newTelemetry()
	rt := o.instrument().Wrap(&retryafter.Transport{Base: plays(answers(404))})
	spans, _, _ := o.call(t, t.Context(), rt, "GET", "http://example.com/")
	want := []span{
		client("Error", attributes{"http.response.status_code": int64(404), "error.type": "404", "network.protocol.version": "1.1"}),
		caller(),
	}
	if diff := cmp.Diff(want, spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"http.request.method=GET retryafter.stop=Final": 1}, series(t, o.collect(t)["retryafter.calls"])); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestWithoutACallersSpanEachAttemptIsATraceOfItsOwn(t *testing.T) {
	o := newTelemetry()
	rt := o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: plays(answers(503), answers(200))})
	if _, err := rt.RoundTrip(request(t, t.Context(), "GET", "http://example.com/")); err != nil {
		t.Fatal(err)
	}
	ended := o.recorder.Ended()
	if len(ended) != 2 || ended[0].SpanContext().TraceID() == ended[1].SpanContext().TraceID() || ended[1].Parent().IsValid() {
		t.Errorf("%d spans, the second below %v", len(ended), ended[1].Parent())
	}
}

func TestEachAttemptCarriesItsOwnTraceContext(t *testing.T) {
	o := newTelemetry()
	base := plays(answers(503), answers(503), answers(200))
	rt := o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: base})
	ctx, s := o.caller(t.Context())
	req := request(t, ctx, "GET", "http://example.com/")
	req.Header.Set("Traceparent", "00-the-callers-own-01")
	if _, err := rt.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	s.End()
	for i, sent := range base.sent {
		span := o.recorder.Ended()[i].SpanContext()
		if want, got := fmt.Sprintf("00-%s-%s-01", span.TraceID(), span.SpanID()), sent.Header["Traceparent"]; !slices.Equal(got, []string{want}) {
			t.Errorf("attempt %d carries %q, not %q", i+1, got, want)
		}
		if got := trace.SpanContextFromContext(sent.Context()); !got.Equal(span) {
			t.Errorf("attempt %d has %v in its context, not %v", i+1, got, span)
		}
		if got := retryafter.AttemptNumber(sent.Context()); got != i+1 {
			t.Errorf("attempt %d takes itself for %d", i+1, got)
		}
	}
	if got := req.Header.Get("Traceparent"); got != "00-the-callers-own-01" {
		t.Errorf("the caller's header now says %q", got)
	}
}

// What ended a call is told where there is nothing else to see of it.
func TestWhyACallStoppedIsTold(t *testing.T) {
	for _, tt := range []struct {
		name      string
		method    string // GET where empty
		transport retryafter.Transport
		timeout   time.Duration
		statuses  []any
		done      attributes
	}{
		{
			name:      "a wait that is too long",
			transport: retryafter.Transport{Base: plays(answers(429, "Retry-After", "3600"))},
			statuses:  []any{int64(429)},
			done: attributes{"retryafter.stop": "WaitTooLong", "retryafter.attempts": int64(1), "retryafter.waited": 0.0,
				"retryafter.wait": 3600.0, "retryafter.server": 3600.0},
		},
		{
			name:      "a deadline that is too near",
			transport: retryafter.Transport{Base: plays(answers(503, "Retry-After", "20"))},
			timeout:   10 * time.Second,
			statuses:  []any{int64(503)},
			done: attributes{"retryafter.stop": "DeadlineTooNear", "retryafter.attempts": int64(1), "retryafter.waited": 0.0,
				"retryafter.wait": 20.0, "retryafter.server": 20.0},
		},
		{
			name:      "a method that is not safe to repeat",
			method:    "POST",
			transport: retryafter.Transport{Base: plays(answers(503, "Retry-After", "20"))},
			statuses:  []any{int64(503)},
			done: attributes{"retryafter.stop": "MethodNotIdempotent", "retryafter.attempts": int64(1), "retryafter.waited": 0.0,
				"retryafter.wait": 20.0, "retryafter.server": 20.0},
		},
		{
			name:      "the last attempt",
			transport: retryafter.Transport{Policy: retryafter.Policy{MaxAttempts: 2}, Base: plays(answers(503, "Retry-After", "20"))},
			statuses:  []any{int64(503), int64(503)},
			done: attributes{"retryafter.stop": "AttemptsUsed", "retryafter.attempts": int64(2), "retryafter.waited": 20.0,
				"retryafter.wait": 20.0, "retryafter.server": 20.0},
		},
		{
			name: "a limiter before the first attempt",
			transport: retryafter.Transport{
				Base:    plays(answers(200)),
				Limiter: retryafter.Deny(&retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Minute), StartEmpty: true}),
			},
			done: attributes{"retryafter.stop": "Limited", "retryafter.attempts": int64(0), "retryafter.waited": 0.0},
		},
		{
			name:      "a setting that makes no sense",
			transport: retryafter.Transport{Base: plays(answers(200)), AttemptTimeout: -1},
			done:      attributes{"retryafter.stop": "Misconfigured", "retryafter.attempts": int64(0), "retryafter.waited": 0.0},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, ctx := newTelemetry(), t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				tt.transport.Jitter = retryafter.NoJitter
				if tt.method == "" {
					tt.method = "GET"
				}
				spans, _, _ := o.call(t, ctx, o.instrument().Wrap(&tt.transport), tt.method, "http://example.com/")
				attempts, last := spans[:len(spans)-1], spans[len(spans)-1]
				if diff := cmp.Diff(tt.statuses, attr(attempts, "http.response.status_code")); diff != "" {
					t.Errorf("statuses (-want +got):\n%s", diff)
				}
				got := last.Events[len(last.Events)-1]
				delete(got.Attributes, "retryafter.error") // its words are not ours
				delete(got.Attributes, "retryafter.limited")
				delete(got.Attributes, "retryafter.limiter")
				if diff := cmp.Diff(event{"retryafter.done", tt.done}, got); diff != "" {
					t.Errorf("event (-want +got):\n%s", diff)
				}
				calls := series(t, o.collect(t)["retryafter.calls"])
				want := fmt.Sprintf("http.request.method=%s retryafter.stop=%s", tt.method, tt.done["retryafter.stop"])
				if diff := cmp.Diff(map[string]float64{want: 1}, calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A happening is what events tell of.
type happening struct {
	name      string
	transport retryafter.Transport
	calls     int   // 1 where 0
	waits     []any // retryafter.server of each retryafter.wait
	done      []any // and of each retryafter.done
}

// happenings bring about everything that events tell.
func happenings() []happening {
	return []happening{
		{name: "seconds", waits: []any{30.0}, done: []any{nil},
			transport: retryafter.Transport{Base: plays(answers(503, "Retry-After", "30"), answers(200))}},
		{name: "no seconds", waits: []any{0.0}, done: []any{0.0},
			transport: retryafter.Transport{Policy: retryafter.Policy{MaxAttempts: 2}, Base: plays(answers(503, "Retry-After", "0"))}},
		{name: "unreadable", waits: []any{nil}, done: []any{nil},
			transport: retryafter.Transport{Policy: retryafter.Policy{MaxAttempts: 2}, Base: plays(answers(503, "Retry-After", "soon"))}},
		{name: "nothing", waits: []any{nil}, done: []any{nil},
			transport: retryafter.Transport{Policy: retryafter.Policy{MaxAttempts: 2}, Base: plays(answers(503))}},
		{name: "no response", waits: []any{nil, nil}, done: []any{nil},
			transport: retryafter.Transport{Base: plays(fails(refused))}},
		{name: "a wait that is too long", done: []any{3600.0},
			transport: retryafter.Transport{Base: plays(answers(429, "Retry-After", "3600"))}},
		{name: "a Gate", calls: 2, waits: []any{30.0}, done: []any{30.0},
			transport: retryafter.Transport{Policy: retryafter.Policy{MaxAttempts: 1}, Gate: &retryafter.Gate{}, Base: plays(answers(503, "Retry-After", "30"), answers(200))}},
		{name: "a Gate that is closed too long", calls: 2, done: []any{3600.0, 3600.0},
			transport: retryafter.Transport{Gate: &retryafter.Gate{}, Base: plays(answers(503, "Retry-After", "3600"))}},
		{name: "a Limiter", waits: []any{nil, nil, nil}, done: []any{nil}, transport: retryafter.Transport{
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(8 * time.Second), StartEmpty: true}, Base: plays(answers(503), answers(200))}},
		{name: "a Limiter that refuses", done: []any{nil}, transport: retryafter.Transport{
			Limiter: retryafter.Deny(&retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(time.Minute), StartEmpty: true})}},
		{name: "a setting that makes no sense", done: []any{nil},
			transport: retryafter.Transport{AttemptTimeout: -1}},
	}
}

// each calls check with the attributes of the events of each happening, by the
// events' names.
func each(t *testing.T, check func(h happening, events map[string][]attributes)) {
	for _, h := range happenings() {
		synctest.Test(t, func(t *testing.T) {
			o, events := newTelemetry(), map[string][]attributes{}
			h.transport.Jitter = retryafter.NoJitter
			rt := o.instrument().Wrap(&h.transport)
			ctx, s := o.caller(t.Context())
			for range max(1, h.calls) {
				if resp, err := rt.RoundTrip(request(t, ctx, "GET", "http://example.com/")); err == nil {
					resp.Body.Close()
				}
			}
			s.End()
			spans := o.spans()
			for _, e := range spans[len(spans)-1].Events {
				events[e.Name] = append(events[e.Name], e.Attributes)
			}
			check(h, events)
		})
	}
}

func TestWhatTheServerAskedForIsToldWhereItDid(t *testing.T) {
	each(t, func(h happening, events map[string][]attributes) {
		for name, want := range map[string][]any{"retryafter.wait": h.waits, "retryafter.done": h.done} {
			var servers []any
			for _, attrs := range events[name] {
				servers = append(servers, attrs["retryafter.server"])
			}
			if diff := cmp.Diff(want, servers); diff != "" {
				t.Errorf("%s: retryafter.server of %s (-want +got):\n%s", h.name, name, diff)
			}
		}
	})
}

func TestEventsHaveTheAttributesThatTheReadmeNames(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	told, got := map[string][]string{}, map[string][]string{}
	name := regexp.MustCompile("`([^`]+\\.[^`]+)`")
	for line := range strings.Lines(string(readme)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `retryafter.") || !strings.Contains(cells[1], ", as ") {
			continue
		}
		event := name.FindStringSubmatch(cells[1])[1]
		for _, m := range name.FindAllStringSubmatch(cells[2], -1) {
			told[event] = append(told[event], m[1])
		}
		slices.Sort(told[event])
	}
	each(t, func(_ happening, events map[string][]attributes) {
		for event, all := range events {
			for _, attrs := range all {
				got[event] = slices.AppendSeq(got[event], maps.Keys(attrs))
			}
		}
	})
	for event := range got {
		slices.Sort(got[event])
		got[event] = slices.Compact(got[event])
	}
	if diff := cmp.Diff(told, got); diff != "" {
		t.Errorf("attributes of events (-README +got):\n%s", diff)
	}
}

func TestACancelledWaitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(12*time.Second, cancel)
		rt := o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: plays(answers(503, "Retry-After", "60"))})
		spans, _, err := o.call(t, ctx, rt, "GET", "http://example.com/")
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		events := spans[len(spans)-1].Events
		done := events[len(events)-1].Attributes
		if len(spans) != 2 || len(events) != 2 || events[0].Attributes["retryafter.wait"] != 60.0 ||
			done["retryafter.stop"] != "Canceled" || done["retryafter.waited"] != 12.0 {
			t.Errorf("%d spans, events %v", len(spans), events)
		}
	})
}

func TestTheLimitersTimeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		rt := o.instrument().Wrap(&retryafter.Transport{
			Base:    plays(answers(200)),
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.Every(8 * time.Second), StartEmpty: true},
		})
		spans, _, err := o.call(t, t.Context(), rt, "GET", "http://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		want := caller(event{"retryafter.wait", attributes{"retryafter.attempt": int64(1), "retryafter.wait": 8.0, "retryafter.source": "limiter"}})
		if diff := cmp.Diff(want, spans[len(spans)-1]); diff != "" {
			t.Errorf("caller's span (-want +got):\n%s", diff)
		}
		metrics := o.collect(t)
		if diff := cmp.Diff(map[string]float64{"http.request.method=GET": 8}, series(t, metrics["retryafter.limiter.duration"])); diff != "" {
			t.Errorf("limiter (-want +got):\n%s", diff)
		}
		if got := series(t, metrics["retryafter.wait.duration"]); len(got) > 0 {
			t.Errorf("the limiter's wait counts as one between attempts: %v", got)
		}
	})
}

func TestWhatAnAttemptFailedOfIsTold(t *testing.T) {
	for _, tt := range []struct {
		name         string
		base         roundTripper
		timeout      time.Duration // of the attempt
		deadline     time.Duration
		cancel       bool
		status, kind string // of the span
		label        string // of the metric
	}{
		{name: "a refused connection", base: fails(refused), status: "Error", kind: "*net.OpError", label: "_OTHER"},
		{name: "an error of no type of its own", base: fails(errors.New("odd")), status: "Error", kind: "*errors.errorString", label: "_OTHER"},
		{name: "a timeout of the base", base: fails(&net.DNSError{IsTimeout: true}), status: "Error", kind: "timeout", label: "timeout"},
		{name: "AttemptTimeout", base: untilDone, timeout: time.Second, status: "Error", kind: "timeout", label: "timeout"},
		{name: "the caller's deadline", base: untilDone, deadline: time.Second, status: "Error", kind: "timeout", label: "timeout"},
		{name: "the caller's cancel", base: untilDone, cancel: true, status: "Unset", label: "canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newTelemetry()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				if tt.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				rt := o.instrument().Wrap(&retryafter.Transport{
					Policy: retryafter.Policy{MaxAttempts: 1}, Base: tt.base, AttemptTimeout: tt.timeout,
				})
				spans, resp, err := o.call(t, ctx, rt, "GET", "http://example.com/")
				if err == nil || resp != nil {
					t.Fatalf("%v, %v", resp, err)
				}
				got, _ := spans[0].Attributes["error.type"].(string)
				if spans[0].Status != tt.status || got != tt.kind {
					t.Errorf("status %s, error.type %q; want %s, %q", spans[0].Status, got, tt.status, tt.kind)
				}
				want := "error.type=" + tt.label + " http.request.method=GET retryafter.retry=false"
				if diff := cmp.Diff(map[string]float64{want: 1}, series(t, o.collect(t)["retryafter.attempts"])); diff != "" {
					t.Errorf("attempts (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// http.Client.Timeout closes Request.Cancel as the deadline comes, and the error
// of that is no timeout.
func TestATimeoutOfTheClientIsNotTakenForAnotherError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		client := &http.Client{Timeout: time.Second, Transport: o.instrument().Wrap(&retryafter.Transport{
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return nil, errors.New("request canceled")
			}),
		})}
		if _, err := client.Get("http://example.com/"); err == nil {
			t.Fatal("no error")
		}
		if got := o.spans()[0]; got.Status != "Error" || got.Attributes["error.type"] != "timeout" {
			t.Errorf("status %s, error.type %v", got.Status, got.Attributes["error.type"])
		}
	})
}

func TestSpansNameWhatTheConventionSays(t *testing.T) {
	for _, tt := range []struct {
		method, url, host string
		name              string
		want              attributes
	}{
		{"GET", "https://example.com/a%2Fb", "", "GET", attributes{"http.request.method": "GET",
			"url.full": "https://example.com/a%2Fb", "server.address": "example.com", "server.port": int64(443)}},
		{"QUERY", "http://example.com:8080/a", "", "QUERY", attributes{"http.request.method": "QUERY",
			"url.full": "http://example.com:8080/a", "server.address": "example.com", "server.port": int64(8080)}},
		{"get", "http://[::1]:81/", "", "HTTP", attributes{"http.request.method": "_OTHER", "http.request.method_original": "get",
			"url.full": "http://[::1]:81/", "server.address": "::1", "server.port": int64(81)}},
		{"", "http://192.0.2.1/", "", "GET", attributes{"http.request.method": "GET",
			"url.full": "http://192.0.2.1/", "server.address": "192.0.2.1", "server.port": int64(80)}},
		{"GET", "http://192.0.2.1/", "virtual.example:82", "GET", attributes{"http.request.method": "GET",
			"url.full": "http://192.0.2.1/", "server.address": "virtual.example", "server.port": int64(82)}},
		{"GET", "http://user:password@example.com/a?token=t#fragment", "", "GET", attributes{"http.request.method": "GET",
			"url.full": "http://example.com/a", "server.address": "example.com", "server.port": int64(80)}},
	} {
		o := newTelemetry()
		rt := o.instrument().Wrap(&retryafter.Transport{Base: plays(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Proto: "HTTP/2.0", ProtoMajor: 2, Body: http.NoBody}, nil
		})})
		req := request(t, t.Context(), "GET", tt.url)
		req.Method = tt.method
		if tt.host != "" {
			req.Host = tt.host
		}
		if _, err := rt.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		tt.want["http.response.status_code"] = int64(204)
		tt.want["network.protocol.version"] = "2"
		if diff := cmp.Diff(span{Name: tt.name, Kind: "client", Status: "Unset", Attributes: tt.want}, o.spans()[0]); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.method, tt.url, diff)
		}
	}
}

type sampler func(sdktrace.SamplingParameters)

func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s(p)
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}
func (sampler) Description() string { return "sampler" }

func TestASamplerSeesWhatARequestIs(t *testing.T) {
	var seen attributes
	o := newTelemetry()
	i := o.instrument()
	i.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler(func(p sdktrace.SamplingParameters) {
		seen = attributesOf(p.Attributes)
	})))
	rt := i.Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: plays(answers(503), answers(200))})
	if _, err := rt.RoundTrip(request(t, t.Context(), "GET", "http://example.com/")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(client("", attributes{"http.request.resend_count": int64(1)}).Attributes, seen); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestAStatusBeyondTheRangeIsAnError(t *testing.T) {
	for status, want := range map[int]string{101: "Unset", 304: "Unset", 399: "Unset", 400: "Error", 599: "Error", 600: "Error", 999: "Error", 99: "Error"} {
		o := newTelemetry()
		spans, _, _ := o.call(t, t.Context(), o.instrument().Wrap(&retryafter.Transport{Base: plays(answers(status))}), "GET", "http://example.com/")
		kind, _ := spans[0].Attributes["error.type"].(string)
		if spans[0].Status != want || (kind != "") != (want == "Error") || spans[0].Text != "" {
			t.Errorf("%d: status %s %q, error.type %q", status, spans[0].Status, spans[0].Text, kind)
		}
	}
}

func TestRedirectsAndRetriesAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTelemetry()
		base := plays(
			answers(503),
			answers(302, "Location", "/b", "Retry-After", "5"),
			answers(503),
			answers(503),
			answers(302, "Location", "/c"),
			answers(200),
		)
		client := &http.Client{Transport: o.instrument().Wrap(&retryafter.Transport{Policy: backoffOf(0), Base: base})}
		ctx, _ := o.caller(t.Context())
		resp, err := client.Do(request(t, ctx, "GET", "http://example.com/a"))
		if err != nil {
			t.Fatal(err)
		}
		spans := o.spans()
		if diff := cmp.Diff([]any{nil, int64(1), int64(2), int64(3), int64(4), int64(5)}, attr(spans, "http.request.resend_count")); diff != "" {
			t.Errorf("resend counts (-want +got):\n%s", diff)
		}
		if got := spans[5].Attributes["url.full"]; got != "http://example.com/c" {
			t.Errorf("the last attempt went to %v", got)
		}
		// A call that borrows the context of what came before is no part of it.
		again := request(t, resp.Request.Context(), "GET", "http://example.com/d")
		if _, err := client.Do(again); err != nil {
			t.Fatal(err)
		}
		if got := o.spans()[6].Attributes["http.request.resend_count"]; got != nil {
			t.Errorf("a call of its own is a resend: %v", got)
		}
	})
}

func TestNothingSecretIsExported(t *testing.T) {
	const secret = "hunter2"
	address := "https://user:" + secret + "@example.com/path?token=" + secret + "#" + secret
	failure := fmt.Errorf("wrapped: %w", &url.Error{Op: "Get", URL: address, Err: refused})
	for name, base := range map[string]*script{
		"answers":  plays(answers(503, "X-Secret", secret), answers(200, "Set-Cookie", secret)),
		"failures": plays(fails(failure)),
		"refusals": plays(answers(429, "Retry-After", "3600", "Location", address)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newTelemetry()
				ctx, s := o.caller(retryafter.WithKey(t.Context(), secret))
				rt := o.instrument().Wrap(&retryafter.Transport{
					Base: base, Gate: &retryafter.Gate{}, Limiter: &retryafter.Keyed{Capacity: 1, Rate: retryafter.Every(time.Second)},
				})
				req, err := http.NewRequestWithContext(ctx, "PUT", address, strings.NewReader(secret))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", secret)
				req.GetBody = func() (io.ReadCloser, error) { return nil, failure }
				rt.RoundTrip(req)
				req.Body, req.GetBody = nil, nil
				rt.RoundTrip(req)
				s.End()
				metrics, err := json.Marshal(o.collect(t))
				if err != nil {
					t.Fatal(err)
				}
				exported := fmt.Sprintf("%+v\n%s", o.spans(), metrics)
				for _, part := range []string{"example.com/path", "retryafter.done", "retryafter.calls", "http.request.method"} {
					if !strings.Contains(exported, part) {
						t.Errorf("%s is not exported: %s", part, exported)
					}
				}
				if at := strings.Index(exported, secret); at >= 0 {
					t.Errorf("exported: … %s", exported[max(0, at-200):at+len(secret)])
				}
			})
		})
	}
}
