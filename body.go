//lint:file-ignore SA1019 Request.Cancel is old, and must be obeyed all the same

package retryafter

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

// What may be read of a response that is let go, so that its connection can
// serve the next attempt, and for how long.
const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
	drainLeast = 10 * time.Millisecond // where there is less to wait
)

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// release lets go of a response. It reads some of the body first, so that the
// connection can be used again, but no longer than drainTime or the wait that is
// left (a little where none is), also where the body stalls.
func release(resp *http.Response, req *http.Request, from time.Time, wait time.Duration) {
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		return
	}
	closeOnce := sync.OnceFunc(func() { resp.Body.Close() })
	if resp.ContentLength <= drainBytes {
		drained := within(min(max(wait-time.Since(from), drainLeast), drainTime), req, func() {
			io.CopyN(io.Discard, resp.Body, drainBytes)
			closeOnce()
		})
		if drained {
			return
		}
	}
	// Close ends the reading, unless the body makes it wait for that.
	within(drainLeast, nil, closeOnce)
}

// within reports whether f is done after d. It does not wait longer, nor than
// for the caller's cancel, where there is one to ask.
func within(d time.Duration, req *http.Request, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	var gone, canceled <-chan struct{}
	if req != nil {
		gone, canceled = req.Context().Done(), req.Cancel
	}
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-gone:
	case <-canceled:
	}
	return false
}

// trailedBody brings the trailer that the reader of a body has filled in, as it
// may until its end (net/http.Request.Trailer), to the clone that sends it.
type trailedBody struct {
	io.ReadCloser
	from, to http.Header
}

func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		maps.Copy(b.to, b.from)
	}
	return n, err
}

// timedBody releases an attempt's context when its body is done with.
type timedBody struct {
	io.ReadCloser
	release func()
}

func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b timedBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// timedReadWriter is the timedBody of a 101 response, which is written to.
type timedReadWriter struct {
	timedBody
	io.Writer
}

// CloseWrite half-closes the connection, as net/http's own body does.
func (b timedReadWriter) CloseWrite() error {
	if w, ok := b.Writer.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return fmt.Errorf("CloseWrite: %w", http.ErrNotSupported)
}
