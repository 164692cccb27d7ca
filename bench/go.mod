module github.com/retryafter-go/retryafter/bench

go 1.26.0

replace (
	github.com/retryafter-go/retryafter => ..
	github.com/retryafter-go/retryafter/redisbucket => ../redisbucket
	github.com/retryafter-go/retryafter/redisbucket/rueidisclient => ../redisbucket/rueidisclient
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.2.0
	github.com/PuerkitoBio/rehttp v1.4.0
	github.com/cenkalti/backoff/v4 v4.3.0
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/retryafter-go/retryafter v0.0.0
	github.com/retryafter-go/retryafter/redisbucket v0.0.0
	github.com/retryafter-go/retryafter/redisbucket/rueidisclient v0.0.0
	github.com/sethvargo/go-limiter v0.7.1
	github.com/throttled/throttled/v2 v2.15.0
	golang.org/x/time v0.16.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/golang-lru v0.5.4 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
