// Package proof holds the tests of retryafter that need more than its own
// module may require: properties over random calls, agreement with models that
// are slow and obvious, compatibility with golang.org/x/time/rate, and the
// search for what a call leaves behind. It has no code to import.
//
// Calls run against a RoundTripper that follows a script, under the clock of
// testing/synctest. A property looks only at what a caller and a server can
// see. What a header means is known because the test wrote it; what a call
// must do, because a second implementation in these files says so.
//
// TestChaos is the exception: random calls meet a server that fails in every
// way it knows, over real sockets, and what the server recorded must agree with
// what a call may do. Its rounds play again by their seeds. Tests named
// TestNetHTTP hold what the documents say of net/http against it.
//
// To look harder than the default does:
//
//	go test -rapid.checks=100000
//	go test -run TestChaos -chaos.time=10m
//
// The command mutate breaks the root package, and tells what no test notices.
package proof
