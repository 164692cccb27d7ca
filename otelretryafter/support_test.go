package otelretryafter_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/otelretryafter"
)

// telemetry keeps all that is told to OpenTelemetry.
type telemetry struct {
	traces   *sdktrace.TracerProvider
	recorder *tracetest.SpanRecorder
	metrics  *metric.MeterProvider
	reader   *metric.ManualReader
}

func newTelemetry() *telemetry {
	recorder, reader := tracetest.NewSpanRecorder(), metric.NewManualReader()
	return &telemetry{
		traces:   sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)),
		recorder: recorder,
		metrics:  metric.NewMeterProvider(metric.WithReader(reader), metric.WithCardinalityLimit(0)),
		reader:   reader,
	}
}

func (o *telemetry) instrument() otelretryafter.Instrument {
	return otelretryafter.Instrument{
		TracerProvider: o.traces, MeterProvider: o.metrics, Propagator: propagation.TraceContext{},
	}
}

// caller starts the span of a caller.
func (o *telemetry) caller(ctx context.Context) (context.Context, trace.Span) {
	return o.traces.Tracer("test").Start(ctx, "caller")
}

type attributes map[string]any

func attributesOf(kvs []attribute.KeyValue) attributes {
	attrs := attributes{}
	for _, kv := range kvs {
		attrs[string(kv.Key)] = kv.Value.AsInterface()
	}
	return attrs
}

// span is what tests look at in a span.
type span struct {
	Name, Kind, Parent, Status, Text string
	Attributes                       attributes
	Events                           []event
}

type event struct {
	Name       string
	Attributes attributes
}

// spans are the ended spans, by the time of their end.
func (o *telemetry) spans() []span {
	ended, names := o.recorder.Ended(), map[trace.SpanID]string{}
	for _, s := range o.recorder.Started() {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	var spans []span
	for _, s := range ended {
		got := span{
			Name: s.Name(), Kind: s.SpanKind().String(), Parent: names[s.Parent().SpanID()],
			Status: s.Status().Code.String(), Text: s.Status().Description, Attributes: attributesOf(s.Attributes()),
		}
		for _, e := range s.Events() {
			got.Events = append(got.Events, event{e.Name, attributesOf(e.Attributes)})
		}
		spans = append(spans, got)
	}
	return spans
}

// attr is the attribute key of each span, nil where it has none.
func attr(spans []span, key string) []any {
	var values []any
	for _, s := range spans {
		values = append(values, s.Attributes[key])
	}
	return values
}

func (o *telemetry) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}

// series are the labels, written as "key=value key=value", of each series of a
// metric, with its count, or with the sum of its histogram.
func series(t *testing.T, m metricdata.Metrics) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	add := func(set attribute.Set, v float64) {
		all[strings.ReplaceAll(set.Encoded(attribute.DefaultEncoder()), ",", " ")] = v
	}
	switch data := m.Data.(type) {
	case nil:
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, p.Sum)
		}
	default:
		t.Fatalf("%s is a %T", m.Name, data)
	}
	return all
}

// roundTripper plays the server without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// script answers one request after another, and keeps them.
type script struct {
	steps []roundTripper
	mu    sync.Mutex
	sent  []*http.Request
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.sent = append(s.sent, req)
	step := s.steps[min(len(s.sent), len(s.steps))-1]
	s.mu.Unlock()
	if req.Body != nil {
		req.Body.Close()
	}
	return step(req)
}

func plays(steps ...roundTripper) *script { return &script{steps: steps} }

// answers with a status and pairs of header names and values.
func answers(status int, header ...string) roundTripper {
	return func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")),
		}
		for i := 0; i < len(header); i += 2 {
			resp.Header.Add(header[i], header[i+1])
		}
		return resp, nil
	}
}

func fails(err error) roundTripper {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// untilDone fails when the request's context is done.
func untilDone(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// backoffOf waits d after each attempt, if the server does not ask for more.
func backoffOf(d time.Duration) retryafter.Policy {
	return retryafter.Policy{
		Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(d) },
		Jitter:  retryafter.NoJitter,
	}
}

func request(t *testing.T, ctx context.Context, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
