// Package compare puts retryafter and other retrying clients through one table
// of checks, and writes down who does what: docs/comparison.md.
//
//	go test -count=1 ./compare    # is the page still right?
//	go test ./compare -update     # write it anew
//
// Both fail where retryafter is wrong in any row. (The page lies outside of this
// module, where go test does not see that a file has changed: hence -count=1.) Each check runs in a bubble of
// testing/synctest, on a virtual clock, with a RoundTripper of its own as server
// or with a server in memory.
package compare
