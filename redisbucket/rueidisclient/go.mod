module github.com/retryafter-go/retryafter/redisbucket/rueidisclient

go 1.26.0

replace (
	github.com/retryafter-go/retryafter => ../..
	github.com/retryafter-go/retryafter/redisbucket => ..
)

require (
	github.com/redis/rueidis v1.0.79
	github.com/retryafter-go/retryafter v0.0.0-00010101000000-000000000000
	github.com/retryafter-go/retryafter/redisbucket v0.0.0-00010101000000-000000000000
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
