// Package retryaftertest helps to test HTTP clients that heed Retry-After, be
// they built on package retryafter or not, and implementations of its
// interfaces. It needs the standard library and package retryafter only.
//
// A [Script] plays the server: it answers each request as it is told, and notes
// what came. It fails the test where a request comes earlier than the script
// had told it to, where more requests come than the script has answers, and
// where fewer do. It is an http.RoundTripper, for tests without connections;
// and an http.Handler, for [Serve], which needs no network and may be used in a
// bubble of testing/synctest, and for httptest.NewServer.
//
// A [Recorder] watches over the traffic of a client or a server of your own in
// the same way.
//
// [TestLimiter], [TestRequestLimiter] and [TestHolds] check implementations of
// [retryafter.Limiter], [retryafter.RequestLimiter] and [retryafter.Holds].
package retryaftertest
