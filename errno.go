//go:build !plan9

package retryafter

import "syscall"

// brokenConnection lists what a system says of a connection that could not be
// made or was lost.
var brokenConnection = []error{
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
	syscall.EADDRNOTAVAIL, // no local port is free just now
}
