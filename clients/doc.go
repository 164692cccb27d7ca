// Package clients holds the tests of docs/clients.md: real clients of other
// projects over a [retryafter.Transport], against servers that refuse. Every
// statement there is a test here, and every block of code there is code that
// these tests run. It has no code to import.
package clients
