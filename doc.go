// Package retryafter is a transport for HTTP clients that comes back when the
// server said, never earlier, and gives up at once, with its reason, when it
// can't. Wrap the transport of any http.Client:
//
//	client := &http.Client{
//		Transport: &retryafter.Transport{},
//		Timeout:   time.Minute,
//	}
//
// # Promises
//
//  1. Never early. Whatever the header, the clocks and the random draws: no
//     attempt leaves before the instant that the server named, and none before
//     the local backoff has passed.
//  2. Never shortened. A wait that can't be made is not cut: the call ends at
//     once, without sleeping, with the last response, its body untouched, or
//     with a typed error; either way with the reason and the uncut delay.
//  3. Never unsafe. A request that is not safe to repeat is sent once. (What
//     net/http repeats beneath a Transport is not its doing.)
//  4. Never over budget. What a Bucket admits in any interval of length t is at
//     most its Capacity plus its Rate times t, exactly; and so for each key of a
//     Keyed, however many there are.
//  5. Never in the dark. Attempts, waits and the reason for stopping are there
//     for the caller: before a wait begins for hooks, after the call for code.
//
// # The rules of one call
//
// One RoundTrip is one call. These rules are applied in this order; the code
// stands in the same order.
//
//  1. Where the caller's context is done, nothing is sent. A redirect hop whose
//     3xx response carried a Retry-After waits for it before its first attempt
//     (RFC 9110, section 10.2.3): http.Client puts that into Request.Response,
//     so whoever sends such a request again clears it first.
//  2. Every attempt, the first included, waits as long as the Gate holds its
//     key, and then for its token from the Limiter: the server's wait first,
//     then the token, then the attempt. All waits count together against the
//     deadline.
//  3. The first attempt sends the caller's own request, or with an
//     AttemptTimeout a shallow copy of it; each later one sends a deep clone with
//     a fresh body from GetBody.
//  4. Where the caller's context is done by now, the call ends.
//  5. The outcome must be worth another attempt: see [DefaultRetry].
//  6. The request must be safe to repeat: see [Replayable].
//  7. Attempts must be left: by Policy.MaxAttempts and [WithMaxAttempts], the
//     smaller.
//  8. The floor is the larger of the server's delay (of this response, or what
//     the Gate was told) and the local backoff. It must not exceed
//     Policy.MaxWait.
//  9. The wait is the floor plus the jitter, drawn once. This one number is
//     tested, announced, slept and reported.
//  10. The wait, and Policy.Reserve after it, must end before the deadline and
//     within Policy.MaxElapsed; ending on them is too late. Else the call ends
//     without sleeping. The same holds for the time that the Limiter is known
//     to need, where that is longer than the wait.
//  11. The RetryBudget must have a retry left.
//  12. GetBody must give the next attempt's body.
//  13. The wait is announced (Trace.Waiting), and only now the response is let
//     go: up to 64 KiB of its body are read, for 50 ms at most and within the
//     wait (or 10 ms), so that the connection can serve again, and it is
//     closed.
//  14. The wait is made. It counts from when the response's header arrived, and
//     a cancellation ends it at once. Then context and deadline are looked at
//     again.
//
// A call that stops with a response in hand returns it with a nil error;
// [ReportOf] tells why. A call that stops without returns an *[Error] around its
// cause. A call that its first attempt settles returns what Base returned. It
// costs no allocation, unless there is an AttemptTimeout, a Gate, a RetryBudget,
// or a Limiter that keeps a budget a key or is waited for, or the request has a
// trailer, or the context of another call's attempt.
//
// # What to set
//
// A [Transport] and its [Policy] say how calls are repeated; a deadline, and
// [WithMaxAttempts], bound one call. [Bucket] and [Keyed] limit what this client
// sends, [Gate] shares among calls what one of them was told, and [RetryBudget]
// bounds what retries add to an outage. [Trace], [Report] and [Error] tell what
// was done. [Parse] and [FromHeader] read Retry-After for other uses, and
// [Policy.Decide] makes every decision of this package, without a clock.
package retryafter
