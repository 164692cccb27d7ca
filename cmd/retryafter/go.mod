module github.com/retryafter-go/retryafter/cmd/retryafter

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/retryafter-go/retryafter v0.0.0-00010101000000-000000000000
	github.com/rogpeppe/go-internal v1.16.0
	golang.org/x/term v0.48.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/tools v0.26.0 // indirect
)

replace github.com/retryafter-go/retryafter => ../..
