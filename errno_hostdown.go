//go:build !plan9 && !wasip1

package retryafter

import "syscall"

func init() { brokenConnection = append(brokenConnection, syscall.EHOSTDOWN) }
