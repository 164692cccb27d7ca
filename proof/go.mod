module github.com/retryafter-go/retryafter/proof

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/retryafter-go/retryafter v0.0.0-00010101000000-000000000000
	golang.org/x/net v0.61.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0
	go.uber.org/goleak v1.3.0
	golang.org/x/time v0.16.0
)

require golang.org/x/text v0.43.0 // indirect

require golang.org/x/tools v0.52.0

replace github.com/retryafter-go/retryafter => ..
