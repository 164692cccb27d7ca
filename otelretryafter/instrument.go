package otelretryafter

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryafter-go/retryafter"
)

// scope is the name of this instrumentation.
const scope = "github.com/retryafter-go/retryafter/otelretryafter"

// An Instrument says where spans and metrics go. The zero Instrument uses the
// global providers and propagator of package otel. It is a value: copy it, use
// it for any number of Transports, and from many goroutines at once.
type Instrument struct {
	TracerProvider trace.TracerProvider          // nil: the global one
	MeterProvider  metric.MeterProvider          // nil: the global one
	Propagator     propagation.TextMapPropagator // writes the trace context of each attempt into its header; nil: the global one

	// NoSpans leaves the spans of the attempts to Transport.Base, as where that
	// is an otelhttp.Transport. See Resends.
	NoSpans bool

	// Methods are the methods that may be named, case-sensitively; all others
	// are "_OTHER". nil means those of RFC 9110, PATCH and QUERY.
	Methods []string

	// Attributes adds labels to all metrics of a request, as a tenant's name.
	// It is called once a measurement, in the goroutine of the call. What it
	// returns must be bounded: each combination is a series that stays in
	// memory. nil adds none.
	Attributes func(*http.Request) []attribute.KeyValue
}

// Wrap returns t with the spans of its attempts, and with Trace's events and
// metrics before the hooks of t.Trace. It works on a copy: t must not have been
// used before, and t itself tells nothing. The result keeps to all that
// retryafter.Transport promises, and has its CloseIdleConnections.
func (i Instrument) Wrap(t *retryafter.Transport) http.RoundTripper {
	t2 := *t
	t2.Base = on(t.Base).base
	if !i.NoSpans {
		t2.Base = i.attempts(t2.Base)
	}
	t2.Trace = both(i.Trace(), t.Trace)
	return &transport{&t2}
}

// both runs the hooks of a, which has all, and then those of b.
func both(a, b *retryafter.Trace) *retryafter.Trace {
	if b == nil {
		return a
	}
	t := *a
	if b.AttemptDone != nil {
		t.AttemptDone = func(x retryafter.Attempt) { a.AttemptDone(x); b.AttemptDone(x) }
	}
	if b.Waiting != nil {
		t.Waiting = func(w retryafter.WaitInfo) { a.Waiting(w); b.Waiting(w) }
	}
	if b.Done != nil {
		t.Done = func(req *http.Request, r retryafter.Report) { a.Done(req, r); b.Done(req, r) }
	}
	return &t
}

// transport tells the attempts of a redirect hop how many requests were sent
// before it.
type transport struct{ *retryafter.Transport }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, sent := req.Context(), 0
	if r := req.Response; r != nil {
		sent = retryafter.ReportOf(r).Attempts
		if r.Request != nil {
			sent += sentBefore(r.Request.Context())
		}
	}
	if sent != sentBefore(ctx) { // also where ctx is borrowed from a hop
		req = req.WithContext(context.WithValue(ctx, sentKey{}, sent))
	}
	return t.Transport.RoundTrip(req)
}

type sentKey struct{}

// sentBefore is how many requests were sent for the hops before that of ctx.
func sentBefore(ctx context.Context) int {
	n, _ := ctx.Value(sentKey{}).(int)
	return n
}

// resend adds http.request.resend_count to attrs where the attempt of ctx is not
// the first.
func resend(ctx context.Context, attrs []attribute.KeyValue) []attribute.KeyValue {
	if n := sentBefore(ctx) + retryafter.AttemptNumber(ctx) - 1; n > 0 {
		return append(attrs, semconv.HTTPRequestResendCount(n))
	}
	return attrs
}

// Resends adds http.request.resend_count to the span in the context of each
// request that is a resend, and passes it on to base. It belongs below a
// RoundTripper that makes a span for each attempt, below a Transport; where
// Instrument.Wrap has wrapped that, the attempts of redirect hops are counted in
// full. A nil base is http.DefaultTransport.
func Resends(base http.RoundTripper) http.RoundTripper {
	return &resends{on(base)}
}

type resends struct{ below }

func (r *resends) RoundTrip(req *http.Request) (*http.Response, error) {
	trace.SpanFromContext(req.Context()).SetAttributes(resend(req.Context(), nil)...)
	return r.base.RoundTrip(req)
}

func (i Instrument) tracer() trace.Tracer {
	p := i.TracerProvider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return p.Tracer(scope, trace.WithInstrumentationVersion(version()), trace.WithSchemaURL(semconv.SchemaURL))
}

func (i Instrument) meter() metric.Meter {
	p := i.MeterProvider
	if p == nil {
		p = otel.GetMeterProvider()
	}
	return p.Meter(scope, metric.WithInstrumentationVersion(version()), metric.WithSchemaURL(semconv.SchemaURL))
}
