module github.com/retryafter-go/retryafter

go 1.26.0

require github.com/cenkalti/backoff/v4 v4.3.0

require github.com/google/go-cmp v0.7.0
