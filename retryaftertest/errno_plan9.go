package retryaftertest

import "errors"

var errReset = errors.New("connection reset by peer")
