module github.com/retryafter-go/retryafter/bench

go 1.26.0

replace github.com/retryafter-go/retryafter => ..

require (
	github.com/PuerkitoBio/rehttp v1.4.0
	github.com/cenkalti/backoff/v4 v4.3.0
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/retryafter-go/retryafter v0.0.0
	github.com/sethvargo/go-limiter v0.7.1
	github.com/throttled/throttled/v2 v2.15.0
	golang.org/x/time v0.16.0
)

require (
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/golang-lru v0.5.4 // indirect
	github.com/stretchr/testify v1.8.0 // indirect
	golang.org/x/net v0.30.0 // indirect
)
