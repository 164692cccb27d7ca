package retryaftertest

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/redact"
)

// A Recorder keeps a record of the requests that pass it, and fails the test
// where one comes earlier than the server's latest Retry-After for the same key
// named, as [retryafter.FromHeader] reads it. The delay counts from when the
// response passed: a client that counts from when it has it is never early.
//
// The Retry-After of a status from 400 on holds the key of its request, that of
// a redirect the key of the request for its Location. On any other response it
// holds nothing, and is noted only.
//
// Put one beneath the client that is tested by Transport, or before a server by
// Handler. It may be used from many goroutines at once; its fields must not
// change after the first request.
type Recorder struct {
	// TB is the test that fails. It must be set: Transport, Handler and the
	// checks panic without it.
	TB testing.TB

	// Key tells which requests are attempts of the same call. It is called with
	// a request whose URL is absolute, at the server too. nil means by method,
	// host and path, for nothing in a request says whether it is another one's
	// repetition. Two calls of one method to one path, as two POSTs, are then
	// taken for one: CheckOnce fails, and CheckBodies where they differ. Where a
	// test makes such calls, let the key tell them apart, by a header field that
	// is one call's own or, in a client's process, a value in the context.
	// Calls with different keys do not share what one of them was told. What has
	// the key "" is recorded and not judged.
	Key func(*http.Request) retryafter.Key

	mu       sync.Mutex
	attempts []*entry
	holds    map[retryafter.Key]hold
}

// A hold is what a response asked for.
type hold struct {
	until  time.Time
	number int // of the attempt that it answered
}

// An entry is an Attempt that may still go on.
type entry struct {
	Attempt
	body *recordedBody // the last one; nil where there is none
}

// An Attempt is the record of one request.
type Attempt struct {
	Number int // 1 for the first that came
	Key    retryafter.Key
	Method string
	URL    string      // absolute
	Header http.Header // a copy
	Came   time.Time   // when it passed the Recorder

	// Body is what was read of the body by the transport or the handler. Whole
	// says that this is all, and as long as it was announced to be. BodyErr is
	// the error of reading it: io.ErrUnexpectedEOF where it is too short.
	Body    []byte
	Whole   bool
	BodyErr error

	length int64 // of the body as it was announced; negative where it was not

	// NotBefore is the instant that the last Retry-After for the key had named
	// when the attempt came. It is zero where there was none.
	NotBefore time.Time

	// Status is the response's. It is 0 until there is one, and where Err is
	// what came instead of one; a server has no such error.
	Status int
	Err    error

	// RetryAfter has the field lines of the response, with commas between them.
	// Back is the instant that they name; it is zero where none can be read.
	RetryAfter string
	Back       time.Time
}

// Attempts is a copy of the record, in the order in which requests came.
func (r *Recorder) Attempts() []Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempts := make([]Attempt, len(r.attempts))
	for i, a := range r.attempts {
		attempts[i] = a.Attempt
		attempts[i].Header = a.Header.Clone()
		if b := a.body; b != nil {
			attempts[i].Body, attempts[i].Whole, attempts[i].BodyErr = bytes.Clone(b.read), b.whole, b.err
		}
	}
	return attempts
}

// Transport returns a RoundTripper that records what it sends by base. A nil
// base means http.DefaultTransport. What base sends again by itself is not
// seen.
func (r *Recorder) Transport(base http.RoundTripper) http.RoundTripper {
	r.test() // here, and not in the middle of a call
	if base == nil {
		base = http.DefaultTransport
	}
	return &recordedTransport{r, base}
}

type recordedTransport struct {
	*Recorder
	base http.RoundTripper
}

func (t *recordedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.TB.Helper()
	a := t.begin(req)
	sent := t.withBody(a, req)
	resp, err := t.base.RoundTrip(sent)
	if err != nil || resp == nil {
		t.mu.Lock()
		a.Err = err
		t.mu.Unlock()
		return resp, err
	}
	t.answered(a, req, resp.StatusCode, resp.Header)
	if resp.Request == sent {
		resp.Request = req
	}
	return resp, nil
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
func (t *recordedTransport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// Handler returns a handler that records what next serves.
func (r *Recorder) Handler(next http.Handler) http.Handler {
	r.test() // here: net/http recovers from what its handlers panic with
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.TB.Helper()
		seen := req.WithContext(req.Context())
		seen.URL = absolute(req)
		a := r.begin(seen)
		rw := &recordedWriter{ResponseWriter: w, answered: func(status int) {
			r.answered(a, seen, status, w.Header())
		}}
		next.ServeHTTP(rw, r.withBody(a, req))
		if !rw.hijacked {
			rw.header(http.StatusOK)
		}
	})
}

// A recordedWriter notes the final response header before it is sent.
type recordedWriter struct {
	http.ResponseWriter
	answered        func(status int)
	noted, hijacked bool
}

func (w *recordedWriter) header(status int) {
	if final := status >= 200 || status == http.StatusSwitchingProtocols; final && !w.noted {
		w.noted = true
		w.answered(status)
	}
}

func (w *recordedWriter) WriteHeader(status int) {
	w.header(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *recordedWriter) Write(p []byte) (int, error) {
	w.header(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// FlushError, Hijack and Unwrap are for http.ResponseController, Flush for what
// is older.
func (w *recordedWriter) FlushError() error {
	w.header(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *recordedWriter) Flush() { w.FlushError() }

func (w *recordedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return c, rw, err
}

func (w *recordedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin records a request whose URL is absolute, and says where it is early.
func (r *Recorder) begin(req *http.Request) *entry {
	r.TB.Helper()
	now := time.Now()
	key := r.key(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.holds[key]
	a := &entry{Attempt: Attempt{
		Number: len(r.attempts) + 1, Key: key, Method: method(req), URL: req.URL.String(), Header: req.Header.Clone(), Came: now,
		NotBefore: held.until, Whole: true, length: announced(req),
	}}
	if r.holds == nil {
		r.holds = make(map[retryafter.Key]hold)
	}
	r.attempts = append(r.attempts, a)
	if now.Before(held.until) {
		told := r.attempts[held.number-1]
		r.TB.Errorf("retryaftertest: %s, is %v early, want it at %s: %s%s",
			a.Attempt, held.until.Sub(now), instant(held.until), told.Attempt, r.hint(key))
	}
	return a
}

// withBody is req with a body that records what is read of it.
func (r *Recorder) withBody(a *entry, req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	recorded := func(body io.ReadCloser) io.ReadCloser {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.body = &recordedBody{ReadCloser: body, mu: &r.mu, length: req.ContentLength}
		return a.body
	}
	with := req.WithContext(req.Context())
	with.Body = recorded(req.Body)
	if req.GetBody != nil {
		with.GetBody = func() (io.ReadCloser, error) {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			return recorded(body), nil
		}
	}
	return with
}

// A recordedBody keeps what is read of a body.
type recordedBody struct {
	io.ReadCloser
	length int64
	mu     *sync.Mutex // guards what follows
	read   []byte
	whole  bool
	err    error
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = append(b.read, p[:n]...)
	switch short := b.length > 0 && int64(len(b.read)) < b.length; {
	case err == io.EOF && short:
		b.err = io.ErrUnexpectedEOF
	case err == io.EOF || b.length > 0 && !short:
		b.whole = true
	case err != nil:
		b.err = err
	}
	return n, err
}

// answered records the response to req, whose URL is absolute, just before it is
// passed on.
func (r *Recorder) answered(a *entry, req *http.Request, status int, header http.Header) {
	now := time.Now()
	hint, err := retryafter.FromHeader(header, now)
	held := r.heldBy(a.Key, req, status, header)
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Status, a.RetryAfter = status, strings.Join(header.Values("Retry-After"), ", ")
	if err != nil {
		return
	}
	a.Back = now.Add(hint.Delay)
	// A Date leaves out the fraction of its second. Where it is of the clock
	// here, the instant of the hint is exact.
	if ahead := a.Back.Sub(hint.Date); !hint.Date.IsZero() && ahead > 0 && ahead < time.Second {
		a.Back = hint.Date
	}
	number := slices.Index(r.attempts, a) + 1
	for _, key := range held {
		if key != "" {
			r.holds[key] = hold{a.Back, number}
		}
	}
}

// heldBy lists the keys that a response holds.
func (r *Recorder) heldBy(own retryafter.Key, req *http.Request, status int, header http.Header) []retryafter.Key {
	if status >= 400 {
		return []retryafter.Key{own}
	}
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default: // which nobody follows
		return nil
	}
	location := header.Get("Location")
	if location == "" {
		return nil
	}
	ref, err := url.Parse(location)
	if err != nil {
		return nil
	}
	hop := req.WithContext(req.Context())
	hop.URL = req.URL.ResolveReference(ref)
	if own := cmp.Or(req.Host, req.URL.Host) != req.URL.Host; !own || ref.IsAbs() { // as http.Client does
		hop.Host = hop.URL.Host
	}
	keys := []retryafter.Key{r.key(hop)}
	if hop.Method = http.MethodGet; status <= http.StatusSeeOther { // as http.Client sends it on
		keys = append(keys, r.key(hop))
	}
	return keys
}

func (r *Recorder) key(req *http.Request) retryafter.Key {
	req = asSent(req)
	if r.Key != nil {
		return r.Key(req)
	}
	return retryafter.NewKey(method(req), cmp.Or(req.Host, req.URL.Host), req.URL.EscapedPath())
}

// asSent is req with the path and the hosts that a server sees, so that its key
// is the same at both ends, and whichever way a Location is written.
func asSent(req *http.Request) *http.Request {
	sent, u := req.WithContext(req.Context()), *req.URL
	if u.Path == "" && u.Opaque == "" {
		u.Path = "/"
	}
	u.Host = hostAsSent(u.Host)
	sent.URL, sent.Host = &u, hostAsSent(req.Host)
	return sent
}

// hostAsSent is host in small letters and, for only net/http can do it, as it
// writes and reads it: without a zone, and in ASCII.
func hostAsSent(host string) string {
	var wire bytes.Buffer
	if (&http.Request{URL: &url.URL{Path: "/"}, Host: host}).Write(&wire) == nil {
		if read, err := http.ReadRequest(bufio.NewReader(&wire)); err == nil {
			host = cmp.Or(read.Host, host)
		}
	}
	return strings.ToLower(host)
}

// hint says how it is told that the attempts of a message are of one call.
func (r *Recorder) hint(key retryafter.Key) string {
	if r.Key == nil {
		return " (where these are calls of their own, tell them apart by Recorder.Key)"
	}
	return fmt.Sprintf(" (of key %v)", key)
}

// test is the test that fails.
func (r *Recorder) test() testing.TB {
	if r.TB == nil {
		panic("retryaftertest: Recorder.TB is nil, must be the test that fails")
	}
	return r.TB
}

// CheckAttempts fails the test where more than most attempts have one key.
func (r *Recorder) CheckAttempts(most int) {
	t := r.test()
	t.Helper()
	for _, all := range r.byKey() {
		if len(all) > most {
			t.Errorf("retryaftertest: %s, want at most %d%s: %s", count(len(all), "attempt"), most, r.hint(all[0].Key), list(all))
		}
	}
}

// CheckOnce fails the test where several attempts have one key that were not
// safe to repeat, by method and header: see [retryafter.Replayable]. Where only
// an Idempotency-Key, or an X-Idempotency-Key, makes them so, each must have the
// same. One that is set without being sent is not seen at a server. Where the
// test makes several such calls to one path, see Key.
func (r *Recorder) CheckOnce() {
	t := r.test()
	t.Helper()
	for _, all := range r.byKey() {
		all = slices.DeleteFunc(all, func(a Attempt) bool {
			return retryafter.Replayable(&http.Request{Method: a.Method})
		})
		what := ""
		for _, a := range all {
			switch {
			case !retryafter.Replayable(&http.Request{Method: a.Method, Header: a.Header}):
				what = "of what is not safe to repeat"
			case what == "" && !a.sameOperation(all[0]):
				what = "with different Idempotency-Keys"
			}
		}
		if len(all) > 1 && what != "" {
			t.Errorf("retryaftertest: %d attempts %s, want 1%s: %s", len(all), what, r.hint(all[0].Key), list(all))
		}
	}
}

// sameOperation tells whether a and b are the same by their Idempotency-Keys.
func (a Attempt) sameOperation(b Attempt) bool {
	const x = "X-Idempotency-Key"
	return slices.Equal(a.Header[x[2:]], b.Header[x[2:]]) && slices.Equal(a.Header[x], b.Header[x])
}

// CheckBodies fails the test where a request's body broke off, and where the
// bodies of attempts with one key differ. Of a body that was not read to its
// end, as where the server answers before that, what was read is compared, and
// its length where that was announced. Where the test makes several calls of one
// method to one path, see Key.
func (r *Recorder) CheckBodies() {
	t := r.test()
	t.Helper()
	for _, all := range r.byKey() {
		all = slices.DeleteFunc(all, func(a Attempt) bool {
			if a.BodyErr != nil {
				t.Errorf("retryaftertest: the body of %s, broke off after %s: %v", a, count(len(a.Body), "byte"), a.BodyErr)
			}
			return a.BodyErr != nil
		})
		first := max(0, slices.IndexFunc(all, func(a Attempt) bool { return a.Whole }))
		sized := max(0, slices.IndexFunc(all, func(a Attempt) bool { return a.length >= 0 }))
		for _, a := range all {
			if want := all[first]; !a.sameBody(want) {
				t.Errorf("retryaftertest: the body of %s, is %s, want %s as of attempt %d%s",
					a, brief(a.Body), brief(want.Body), want.Number, r.hint(a.Key))
			} else if want := all[sized]; a.length >= 0 && a.length != want.length {
				t.Errorf("retryaftertest: the body of %s, is announced to have %s, want %d as of attempt %d%s",
					a, count(int(a.length), "byte"), want.length, want.Number, r.hint(a.Key))
			}
		}
	}
}

// sameBody tells whether what is known of the bodies may be of the same.
func (a Attempt) sameBody(b Attempt) bool {
	if len(a.Body) > len(b.Body) {
		a, b = b, a
	}
	return bytes.HasPrefix(b.Body, a.Body) && (len(a.Body) == len(b.Body) || !a.Whole)
}

// byKey lists the attempts of each key, but for those that are not judged.
func (r *Recorder) byKey() [][]Attempt {
	var lists [][]Attempt
	at := make(map[retryafter.Key]int)
	for _, a := range r.Attempts() {
		if a.Key == "" {
			continue
		}
		i, known := at[a.Key]
		if !known {
			i = len(lists)
			at[a.Key] = i
			lists = append(lists, nil)
		}
		lists[i] = append(lists[i], a)
	}
	return lists
}

func list(all []Attempt) string {
	var lines strings.Builder
	for _, a := range all {
		fmt.Fprintf(&lines, "\n\t%s", a)
	}
	return lines.String()
}

// String says what was sent, and what came of it, as in
//
//	attempt 1, GET http://example.com/ at 10:00:00.000000, got 503 with Retry-After "60"
//
// It has nothing of a URL's userinfo and query.
func (a Attempt) String() string {
	u, err := url.Parse(a.URL)
	if err != nil { // a URL's own text
		u = &url.URL{}
	}
	text := fmt.Sprintf("attempt %d, %s %s at %s", a.Number, a.Method, redact.URL(u), instant(a.Came))
	switch {
	case a.Err != nil:
		text += ", failed with " + redact.Error(a.Err)
	case a.Status != 0:
		text += fmt.Sprintf(", got %d", a.Status)
	}
	if a.RetryAfter != "" {
		text += fmt.Sprintf(" with Retry-After %q", a.RetryAfter)
	}
	return text
}

// method is req's, where "" is GET.
func method(req *http.Request) string { return cmp.Or(req.Method, http.MethodGet) }

// announced is how long req's body is to be, at a client or a server; negative
// where that is not said.
func announced(req *http.Request) int64 {
	if req.ContentLength == 0 && req.Body != nil && req.Body != http.NoBody {
		return -1
	}
	return req.ContentLength
}

// absolute is the URL that req is for, at a client or a server.
func absolute(req *http.Request) *url.URL {
	u := *req.URL
	if u.Host == "" {
		u.Scheme, u.Host = "http", req.Host
		if req.TLS != nil {
			u.Scheme = "https"
		}
	}
	return &u
}

// count is n things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func instant(t time.Time) string { return t.Format("15:04:05.000000") }

// brief is the beginning of a body.
func brief(body []byte) string {
	const most = 64
	if len(body) > most {
		return fmt.Sprintf("%q… (%d bytes)", body[:most], len(body))
	}
	return fmt.Sprintf("%q", body)
}
