package otelretryafter_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/otelretryafter"
)

// A call that is sent three times is three sibling spans below the caller's,
// which has the waits as events.
func Example() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))

	busy := 2 // a server that is busy twice
	server := roundTripper(func(req *http.Request) (*http.Response, error) {
		if busy--; busy >= 0 {
			return &http.Response{StatusCode: 503, Body: http.NoBody}, nil
		}
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	client := &http.Client{Transport: otelretryafter.Instrument{TracerProvider: provider}.Wrap(&retryafter.Transport{
		Base: server,
		Policy: retryafter.Policy{
			Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) },
			Jitter:  retryafter.NoJitter,
		},
	})}

	ctx, report := provider.Tracer("reports").Start(context.Background(), "fetch report")
	req, err := http.NewRequestWithContext(ctx, "GET", "https://example.com/report?token=secret", nil)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	report.End()

	show := func(attrs []attribute.KeyValue, keys ...attribute.Key) (text string) {
		set := attribute.NewSet(attrs...)
		for _, key := range keys {
			if v, ok := set.Value(key); ok {
				text += fmt.Sprintf(" %s=%v", key, v.AsInterface())
			}
		}
		return text
	}
	for _, s := range exporter.GetSpans() {
		if s.Parent.SpanID() == report.SpanContext().SpanID() {
			fmt.Print("└ ")
		}
		fmt.Println(s.Name + show(s.Attributes, "url.full", "http.response.status_code", "http.request.resend_count"))
		for _, e := range s.Events {
			fmt.Println("  " + e.Name + show(e.Attributes, "http.response.status_code", "retryafter.wait", "retryafter.source", "retryafter.stop"))
		}
	}
	// Output:
	// └ GET url.full=https://example.com/report http.response.status_code=503
	// └ GET url.full=https://example.com/report http.response.status_code=503 http.request.resend_count=1
	// └ GET url.full=https://example.com/report http.response.status_code=200 http.request.resend_count=2
	// fetch report
	//   retryafter.wait http.response.status_code=503 retryafter.wait=0.01 retryafter.source=local
	//   retryafter.wait http.response.status_code=503 retryafter.wait=0.01 retryafter.source=local
	//   retryafter.done retryafter.stop=Final
}

// Metrics by a label of one's own, of which there are few.
func ExampleInstrument_attributes() {
	i := otelretryafter.Instrument{
		Attributes: func(req *http.Request) []attribute.KeyValue {
			if req.URL.Hostname() == "payments.example.com" {
				return []attribute.KeyValue{attribute.String("upstream", "payments")}
			}
			return []attribute.KeyValue{attribute.String("upstream", "other")}
		},
	}
	http.DefaultClient.Transport = i.Wrap(&retryafter.Transport{})
}

// The spans and the durations of the attempts come from otelhttp, which Resends
// tells what is a resend.
func ExampleResends() {
	transport := otelretryafter.Instrument{NoSpans: true}.Wrap(&retryafter.Transport{
		Base: otelhttp.NewTransport(otelretryafter.Resends(http.DefaultTransport)),
	})
	http.DefaultClient.Transport = transport
}
