// Package otelretryafter shows what a retryafter.Transport does to
// OpenTelemetry: each attempt as a client span, the waits between them and what
// ended the call as events, and all of it as metrics.
//
//	transport := otelretryafter.Instrument{}.Wrap(&retryafter.Transport{})
//	client := &http.Client{Transport: transport}
//
// # Traces
//
// A call that is sent three times is three sibling spans below the caller's own
// span, each with its status, the second with http.request.resend_count 1 and
// the third with 2. There is no HTTP span around them. Each attempt carries its
// own trace context to the server, so the server's spans lie below the attempt
// that caused them. Names and attributes are those of the HTTP semantic
// conventions, version 1.43.0, and the instrumentation scope has the version of
// this module. What the convention leaves open:
//
//   - A span ends when the response header has arrived, as the convention
//     prefers where a body may be left unread. The body is not touched; what
//     fails while it is read is not in the span.
//   - error.type is the status, "timeout", or the Go type of the error.
//   - A redirect that http.Client follows counts as a resend, also for the
//     attempts of the hop.
//
// From the convention it deviates on purpose in two things, and leaves out one
// that it recommends:
//
//   - url.full has neither userinfo nor query nor fragment. The convention wants
//     the fragment, REDACTED in the place of userinfo, and the query but for the
//     values of a short list of names. What in a query or a fragment is secret
//     is known to its API alone, and a trace is read by more people than may see
//     it. For the same reason the URL of a *url.Error, in whatever text, has
//     neither userinfo nor query. Paths and other texts of errors are told as
//     they are.
//   - An attempt that its caller cancels is no error, and its status stays unset.
//     The convention takes a canceled request for a failed one; but it was the
//     caller's will, and would count against a server that did nothing wrong.
//   - network.peer.address and network.peer.port are not set: a response does not
//     tell them, and a hook into each connection is more than they are worth.
//
// What happens between attempts is told by events of the caller's span, the one
// in the request's context: "retryafter.wait" as a wait begins and
// "retryafter.done" as the call ends, where it was not settled by its first
// attempt. A wait lasts from its event until the next span or the end. Without a
// span of the caller's, each attempt is a trace of its own, and the events are
// lost; a [retryafter.Trace] that logs has them still.
//
// # Metrics
//
//   - retryafter.attempts counts attempts: by method, status or kind of error,
//     and whether it repeats another.
//   - retryafter.calls counts calls: by method and [retryafter.Reason].
//   - retryafter.wait.duration is how long, in seconds, each wait between
//     attempts was announced to be: by method, and by "server" or "local",
//     whichever asked for more.
//   - retryafter.limiter.duration is how long, in seconds, a call waited for
//     its Limiter: by method.
//
// http.client.request.duration and http.client.request.body.size are not among
// them: see below for who records those.
//
// No label is taken from a URL, a key, or the text of an error, and unknown
// methods and statuses are put together, so the number of series is bounded
// whatever is called and whatever it answers. Who wants hosts in them says so by
// Instrument.Attributes.
//
// # With otelhttp
//
// Programs that use go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp
// can keep its spans, and have its http.client.request.duration and
// http.client.request.body.size of each attempt. It belongs inside, as Transport.Base, with [Resends] below it:
//
//	transport := otelretryafter.Instrument{NoSpans: true}.Wrap(&retryafter.Transport{
//		Base: otelhttp.NewTransport(otelretryafter.Resends(http.DefaultTransport)),
//	})
//
// It writes the query of a URL into url.full, and it does not forward
// CloseIdleConnections. Around a Transport instead, it makes one HTTP span of all
// attempts, which the convention advises against.
package otelretryafter
