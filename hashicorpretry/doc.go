// Package hashicorpretry lets a program that has a client of
// github.com/hashicorp/go-retryablehttp keep it, and have its calls repeated by
// package retryafter:
//
//	client := retryablehttp.NewClient()
//	hashicorpretry.Use(client, &retryafter.Transport{})
//
// There is nothing else to change: Do, Get, Post, StandardClient and the rest
// go on to serve, and the promises and rules of package retryafter hold for
// what they send. So a POST without an Idempotency-Key is sent once. A call that
// gives up with a response in hand returns it with
// its body unread, and [retryafter.ReportOf] tells why; one that gives up
// without returns a [*retryafter.Error] within a *url.Error. WithMaxAttempts,
// WithTrace and the other per-call settings of retryafter are taken from the
// request's context.
//
// # How
//
// go-retryablehttp's callbacks are not given enough to decide by: CheckRetry
// does not see the request, and Backoff sees nothing at all where there is no
// response. So its loop is left to make one round, and the Transport repeats
// beneath it, in the place of HTTPClient.Transport. What the client calls
// before and after an attempt is called for each of them all the same:
//
//   - RequestLogHook and PrepareRetry before each retry. They get a copy of the
//     request that is theirs to write to. An error of PrepareRetry is the
//     outcome of the attempt that it was to prepare. What it does to the Body
//     has no effect where the request has one: that is had anew after it.
//   - ResponseLogHook with each response: before the wait, where a retry
//     follows.
//   - Logger with each wait that a retry makes.
//   - HTTPClient.Timeout goes on to bound each attempt, and not the call: until
//     the body of its response has been read. The error is a timeout, a
//     [context.DeadlineExceeded] and a [retryafter.ErrAttemptTimeout]. To bound a
//     call, give its context a deadline.
//   - ErrorHandler where a call ends in an error. It is told how many attempts
//     there were, of the last redirect hop, and what it returns is returned.
//
// # What is no longer asked
//
// CheckRetry, Backoff, RetryMax, RetryWaitMin and RetryWaitMax: see
// [retryafter.Policy] for Retry, Backoff, MaxAttempts and MaxWait. ErrorHandler
// is not asked where a call gives up with a response, which is no error here.
//
// # What go-retryablehttp does in its own way still
//
// These differences from a client with a Transport alone remain:
//
//   - It sets the Body of the request that it is given, and StandardClient so
//     that of its caller.
//   - It holds what an io.Reader has to give in memory, and does not close it.
//     A body made by retryablehttp.NewRequest can so be repeated, whatever it
//     was made from. A request that comes by StandardClient, or by FromRequest,
//     needs GetBody to be repeated.
//   - A call that ends in an error closes the idle connections of the client.
//   - A ResponseHandlerFunc is called once, with the last response, also where
//     the call gives up with it. Its error is returned beside the response, and
//     is not retried.
//   - A client of StandardClient does not see redirects: HTTPClient follows
//     them. Each hop is a call of its own, as with any Transport, and is
//     repeated from there, not from the first URL on.
//   - Its own log lines tell the whole URL, but for a password.
//   - An ErrorHandler that is set after Use is told 1 as the number of tries:
//     see the Report in its error.
//
// # Bodies of one reader
//
// Of an io.ReadSeeker that retryablehttp.NewRequest is given, as an *os.File or
// a *strings.Reader, go-retryablehttp makes one body for all attempts, and
// net/http may still read it for an attempt that was answered early. Here the
// attempts read it in turn: it is rewound when the next one begins to read, and
// a Read for an earlier one fails from then on. So each attempt sends all of it
// or fails, also after a redirect; and an upload that a 307 or 308 answers is
// cut there. A redirect waits for a Read that has begun, for 10 s at most, and
// is an error after that. A Seek that fails is an error of the attempt.
//
// Two things remain the caller's. Do rewinds the reader: to send a request of
// such a body again while its last response came early, give it another body.
// And a function that is given to NewRequest, or a GetBody, must return a new
// reader each time, not one that it has rewound: see [retryafter.Replayable].
// A []byte, a *bytes.Buffer, a *bytes.Reader and any other io.Reader are safe in
// all this, for each attempt has a reader of its own.
package hashicorpretry
