// Package compare puts retryafter and other retrying clients through one table
// of checks, and writes down who does what: docs/comparison.md.
//
//	go test ./compare           # is the page still right?
//	go test ./compare -update   # write it anew
//
// Both fail where retryafter is wrong in any row. Each check runs in a bubble of
// testing/synctest, on a virtual clock, with a RoundTripper of its own as server
// or with a server in memory.
package compare
