package hashicorpretry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errNoBody = errors.New("hashicorpretry: GetBody, or the request's function, returned neither a body nor an error")
	errOver   = errors.New("hashicorpretry: the attempt is over, and its body's reader serves another")
	errStuck  = errors.New("hashicorpretry: redirected, but the body can't be rewound: a Read of it does not return")
)

// A rewound is the one reader that the bodies of a call share, as an *os.File
// that was given to retryablehttp.NewRequest. Its bodies read in turn: the first
// Read of a body rewinds the reader, and ends the bodies made before, whose next
// Read fails, so that the attempt of each is cut short where a server sees it.
type rewound struct {
	getBody func() (io.ReadCloser, error) // rewinds
	reading chan struct{}                 // holds one while a body reads
	least   int64                         // the body that may still read; under reading
	bodies  atomic.Int64
	ended   atomic.Bool
}

// share returns req, or a copy of it whose bodies read in turn. net/http may
// read from the body of an attempt that has been answered.
func share(req *http.Request) (*http.Request, *rewound) {
	r, ok := unwrapped(req.Body)
	if _, inMemory := r.(*bytes.Reader); !ok || inMemory || req.GetBody == nil {
		return req, nil // each attempt has a reader of its own, or there is one attempt
	}
	if _, ok := r.(io.Seeker); !ok {
		return req, nil
	}
	s := &rewound{getBody: req.GetBody, reading: make(chan struct{}, 1)}
	shared := *req
	shared.Body = s.body(req.Body)
	shared.GetBody = func() (io.ReadCloser, error) { return s.body(nil), nil }
	return &shared, s
}

// body makes the next body, of which opened is what it reads, if it is rewound
// already.
func (s *rewound) body(opened io.ReadCloser) *turn {
	return &turn{rewound: s, number: s.bodies.Add(1), opened: opened}
}

// endTime is how long a Read may take that a redirect comes into.
const endTime = 10 * time.Second

// end ends all bodies, and returns when none reads any more. Its error is that
// it can't wait for that.
func (s *rewound) end(ctx context.Context) error {
	s.ended.Store(true)
	ctx, cancel := context.WithTimeoutCause(ctx, endTime, errStuck)
	defer cancel()
	select {
	case s.reading <- struct{}{}:
		<-s.reading
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A turn is one body of those that share a reader.
type turn struct {
	*rewound
	number int64
	mu     sync.Mutex
	opened io.ReadCloser // nil before the first Read
	closed bool
}

func (t *turn) Read(p []byte) (int, error) {
	t.reading <- struct{}{}
	defer func() { <-t.reading }()
	body, err := t.open()
	if err != nil {
		return 0, err
	}
	return body.Read(p)
}

func (t *turn) open() (io.ReadCloser, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, http.ErrBodyReadAfterClose
	case t.ended.Load() || t.number < t.least:
		return nil, errOver
	case t.opened != nil:
		return t.opened, nil
	}
	t.least = t.number
	body, err := t.getBody()
	if err == nil && (body == nil || missing(body)) {
		err = errNoBody
	}
	if err != nil {
		return nil, err
	}
	t.opened = body
	return body, nil
}

func (t *turn) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed = true; t.opened == nil {
		return nil
	}
	return t.opened.Close()
}

var nopClosers = [...]reflect.Type{
	reflect.TypeOf(io.NopCloser(nil)), reflect.TypeOf(io.NopCloser(new(bytes.Buffer))), // with a WriteTo
}

// unwrapped returns what io.NopCloser was given: go-retryablehttp wraps every
// reader that is no io.Closer so, and the one io.ReadSeeker that it has.
func unwrapped(body io.ReadCloser) (io.Reader, bool) {
	if t := reflect.TypeOf(body); t != nopClosers[0] && t != nopClosers[1] {
		return nil, false
	}
	r, _ := reflect.ValueOf(body).Field(0).Interface().(io.Reader)
	return r, true
}

// missing reports whether body is made of no reader at all: to read from it
// would panic.
func missing(body io.ReadCloser) bool {
	r, ok := unwrapped(body)
	return ok && r == nil
}
