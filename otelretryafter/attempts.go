package otelretryafter

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/redact"
)

// below is the RoundTripper that another one stands on.
type below struct{ base http.RoundTripper }

// on stands on base, or on what is http.DefaultTransport now, so that it may be
// made http.DefaultTransport itself.
func on(base http.RoundTripper) below {
	if base == nil {
		base = http.DefaultTransport
	}
	return below{base}
}

func (b below) CloseIdleConnections() {
	if c, ok := b.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// attempts makes a client span of each request.
type attempts struct {
	below
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	methods    []string
}

func (i Instrument) attempts(base http.RoundTripper) *attempts {
	p := i.Propagator
	if p == nil {
		p = otel.GetTextMapPropagator()
	}
	return &attempts{on(base), i.tracer(), p, i.methods()}
}

func (a *attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	method := method(req, a.methods)
	name := method
	if method == other {
		name = "HTTP"
	}
	ctx, span := a.tracer.Start(req.Context(), name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(describe(req, method)...))
	defer span.End()

	sent := req.WithContext(ctx)
	if sent.Header = req.Header.Clone(); sent.Header == nil {
		sent.Header = http.Header{}
	}
	a.propagator.Inject(ctx, propagation.HeaderCarrier(sent.Header))
	resp, err := a.base.RoundTrip(sent)
	switch {
	case err != nil:
		fail(ctx, span, err)
	case resp != nil:
		answer(span, resp)
	}
	if resp != nil && resp.Request == sent {
		resp.Request = req
	}
	return resp, err
}

// describe is what the convention wants to be known as a span starts.
func describe(req *http.Request, method string) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, semconv.HTTPRequestMethodKey.String(method))
	if method == other {
		attrs = append(attrs, semconv.HTTPRequestMethodOriginal(req.Method))
	}
	if u := req.URL; u != nil {
		authority := url.URL{Host: req.Host}
		if req.Host == "" {
			authority.Host = u.Host
		}
		attrs = append(attrs, semconv.URLFull(redact.URL(u)), semconv.ServerAddress(authority.Hostname()))
		port, err := strconv.Atoi(authority.Port())
		switch {
		case err == nil:
			attrs = append(attrs, semconv.ServerPort(port))
		case u.Scheme == "https":
			attrs = append(attrs, semconv.ServerPort(443))
		case u.Scheme == "http":
			attrs = append(attrs, semconv.ServerPort(80))
		}
	}
	return resend(req.Context(), attrs)
}

func answer(span trace.Span, resp *http.Response) {
	span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode))
	if resp.ProtoMajor > 0 {
		version := strconv.Itoa(resp.ProtoMajor)
		if resp.ProtoMajor == 1 {
			version += "." + strconv.Itoa(resp.ProtoMinor)
		}
		span.SetAttributes(semconv.NetworkProtocolVersion(version))
	}
	if resp.StatusCode >= 400 || resp.StatusCode < 100 {
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(resp.StatusCode)))
		span.SetStatus(codes.Error, "")
	}
}

func fail(ctx context.Context, span trace.Span, err error) {
	// http.Client.Timeout may end an attempt before its context knows.
	deadline, bounded := ctx.Deadline()
	switch {
	case isTimeout(err), bounded && !time.Now().Before(deadline), context.Cause(ctx) == retryafter.ErrAttemptTimeout:
		span.SetAttributes(semconv.ErrorTypeKey.String("timeout"))
	case ctx.Err() != nil:
		return // it was the caller's will
	default:
		span.SetAttributes(semconv.ErrorType(err))
	}
	span.SetStatus(codes.Error, redact.Error(err))
}
