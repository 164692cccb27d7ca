//go:build !plan9

package retryaftertest

import "syscall"

const errReset = syscall.ECONNRESET
