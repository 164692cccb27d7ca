package otelretryafter

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryafter-go/retryafter"
)

// The names of metrics, labels and events.
const (
	attemptsName = "retryafter.attempts"
	callsName    = "retryafter.calls"
	waitName     = "retryafter.wait.duration"
	limiterName  = "retryafter.limiter.duration"

	retryKey  = attribute.Key("retryafter.retry")
	stopKey   = attribute.Key("retryafter.stop")
	sourceKey = attribute.Key("retryafter.source")

	waitEvent = "retryafter.wait"
	doneEvent = "retryafter.done"
)

// seconds are the buckets of both histograms: from a Limiter's pause to what a
// server says when it is closed for the day.
var seconds = metric.WithExplicitBucketBoundaries(
	0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 86400)

// Trace returns hooks that write the events and the metrics, and make no spans,
// for who wants no more, or only for some calls, by retryafter.WithTrace. Wrap
// has set them already. Where a metric is not collected, or the span in the
// request's context is not recorded, they allocate nothing for it.
func (i Instrument) Trace() *retryafter.Trace {
	m := i.meter()
	r := &recorder{methods: i.methods(), attributes: i.Attributes}
	var errs [4]error
	r.attempts, errs[0] = m.Int64Counter(attemptsName, metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts to send a request."))
	r.calls, errs[1] = m.Int64Counter(callsName, metric.WithUnit("{call}"),
		metric.WithDescription("Calls, by what ended them."))
	r.wait, errs[2] = m.Float64Histogram(waitName, metric.WithUnit("s"), seconds,
		metric.WithDescription("Length of each wait before an attempt, as announced."))
	r.limiter, errs[3] = m.Float64Histogram(limiterName, metric.WithUnit("s"), seconds,
		metric.WithDescription("Time that a call waited for its limiter."))
	if err := errors.Join(errs[:]...); err != nil {
		otel.Handle(err)
	}
	return &retryafter.Trace{AttemptDone: r.attemptDone, Waiting: r.waiting, Done: r.done}
}

type recorder struct {
	methods    []string
	attributes func(*http.Request) []attribute.KeyValue
	attempts   metric.Int64Counter
	calls      metric.Int64Counter
	wait       metric.Float64Histogram
	limiter    metric.Float64Histogram
}

func (r *recorder) attemptDone(a retryafter.Attempt) {
	ctx := a.Request.Context()
	if !r.attempts.Enabled(ctx) {
		return
	}
	outcome := semconv.HTTPResponseStatusCode(knownStatus(a.StatusCode))
	if a.Err != nil {
		outcome = semconv.ErrorTypeKey.String(errorKind(a.Err))
	}
	r.attempts.Add(ctx, 1, r.labels(a.Request, outcome, retryKey.Bool(a.Number > 1)))
}

func (r *recorder) waiting(w retryafter.WaitInfo) {
	ctx := w.Request.Context()
	source := sourceKey.String(sourceOf(w))
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(waitEvent, trace.WithAttributes(append(attributesOf(w), source)...))
	}
	if !w.Limiter && r.wait.Enabled(ctx) {
		r.wait.Record(ctx, w.Wait.Seconds(), r.labels(w.Request, source))
	}
}

func (r *recorder) done(req *http.Request, report retryafter.Report) {
	ctx := req.Context()
	if settled := report.Attempts == 1 && report.Stop == retryafter.Final; !settled {
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			span.AddEvent(doneEvent, trace.WithAttributes(attributesOf(report)...))
		}
	}
	if r.calls.Enabled(ctx) {
		r.calls.Add(ctx, 1, r.labels(req, stopKey.String(report.Stop.String())))
	}
	if report.Limited > 0 && r.limiter.Enabled(ctx) {
		r.limiter.Record(ctx, report.Limited.Seconds(), r.labels(req))
	}
}

// labels are attrs, the method of req, and what Instrument.Attributes adds.
func (r *recorder) labels(req *http.Request, attrs ...attribute.KeyValue) metric.MeasurementOption {
	attrs = append(attrs, semconv.HTTPRequestMethodKey.String(method(req, r.methods)))
	if r.attributes != nil {
		attrs = append(attrs, r.attributes(req)...)
	}
	return metric.WithAttributes(attrs...)
}

// sourceOf tells who asked for the longest part of a wait.
func sourceOf(w retryafter.WaitInfo) string {
	switch d := w.Decision; {
	case w.Limiter:
		return "limiter"
	case d.Server > 0 && d.Server >= d.Local:
		return "server"
	}
	return "local"
}

// attributesOf is what retryafter logs of v, with the convention's name for a
// status, and seconds for all times.
func attributesOf(v slog.LogValuer) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	for _, a := range v.LogValue().Group() {
		key := attribute.Key("retryafter." + a.Key)
		switch a.Value.Kind() {
		case slog.KindDuration:
			attrs = append(attrs, key.Float64(a.Value.Duration().Seconds()))
		case slog.KindInt64:
			if a.Key == "status" {
				key = semconv.HTTPResponseStatusCodeKey
			}
			attrs = append(attrs, key.Int64(a.Value.Int64()))
		case slog.KindString:
			attrs = append(attrs, key.String(a.Value.String()))
		}
	}
	return attrs
}

// What is not known.
const other = "_OTHER"

var knownMethods = []string{"GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "QUERY", "CONNECT", "TRACE"}

func (i Instrument) methods() []string {
	if i.Methods == nil {
		return knownMethods
	}
	return slices.Clone(i.Methods)
}

func method(req *http.Request, known []string) string {
	switch {
	case req.Method == "":
		return http.MethodGet
	case slices.Contains(known, req.Method):
		return req.Method
	}
	return other
}

// knownStatus is code where it is registered, else the first of its class,
// which a client must take it for (RFC 9110, section 15).
func knownStatus(code int) int {
	switch {
	case http.StatusText(code) != "":
		return code
	case code < 100 || code >= 600:
		return 500
	}
	return code / 100 * 100
}

// errorKind is one of three words, whatever err is.
func errorKind(err error) string {
	switch {
	case isTimeout(err):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return other
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
