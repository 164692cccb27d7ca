package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/internal/redact"
)

// statusUnreached is for get alone.
const statusUnreached status = 3 // no final response, or not the whole of it

type getCommand struct {
	URL            []string       `arg:"" optional:"" help:"What to fetch, http or https. Several are fetched one after the other."`
	Request        *string        `short:"X" placeholder:"METHOD" help:"The method. Default: GET, or with --data POST."`
	Header         []string       `short:"H" sep:"none" placeholder:"LINE" help:"A header field to send, as in 'Accept: text/html'. May be repeated."`
	Data           []string       `short:"d" sep:"none" placeholder:"BODY" help:"The body to send, as it is: text, @FILE, or @- for standard input. Its Content-Type is application/x-www-form-urlencoded, as curl has it, unless --header names another."`
	IdempotencyKey *string        `placeholder:"KEY" help:"Send this Idempotency-Key, so that a POST may be repeated; auto makes one up for each URL."`
	Output         string         `short:"o" placeholder:"FILE" help:"Write to FILE, once all is there, and not to standard output."`
	Include        bool           `short:"i" help:"Write the final response's header too, before its body."`
	Fail           bool           `short:"f" help:"Write nothing of a final response whose status is 400 or above."`
	MaxAttempts    int            `default:"3" placeholder:"N" help:"Send so many attempts at most. Default: ${default}."`
	MaxWait        time.Duration  `default:"2m" placeholder:"DURATION" help:"Give up rather than make a longer wait, jitter aside. Default: ${default}."`
	Deadline       *time.Duration `placeholder:"DURATION" help:"Be done with a URL within so much time: all attempts, waits, redirects and the body."`
	AttemptTimeout *time.Duration `placeholder:"DURATION" help:"Bound each attempt until its response header has come."`
	MaxRedirects   int            `default:"10" placeholder:"N" help:"Follow so many redirects at most; with 0 the first is the final response. Default: ${default}."`
	Rate           *rate          `placeholder:"RATE" help:"Send no more attempts than that, as in 10/s, 100/m or 5/10s."`
	Burst          int64          `default:"1" placeholder:"N" help:"Let so many attempts go at once before --rate holds. Default: ${default}."`
	JSON           bool           `help:"Tell what happened, on standard error as ever, as one JSON object a URL."`
	Quiet          bool           `short:"q" xor:"tell" help:"Tell nothing but why a URL failed."`
	Verbose        bool           `short:"v" xor:"tell" help:"Tell of each attempt and redirect, also where nothing has to be repeated."`
}

// Help stands below the usage.
func (*getCommand) Help() string {
	return `The body of the final response goes to standard output, all else to standard error: each attempt that is repeated, each wait before it begins, why the call gave up. On a terminal a line counts the wait down.

What may be repeated is what the library repeats: not a POST without an Idempotency-Key. A body that breaks off is not fetched again. Standard input is read to its end first, 64 MiB at most, so that it can be sent again; a file is opened again.

With several URLs, --rate is for all of them together, and a 429 or 503 that asks to wait holds those that follow to the same server.

FILE is replaced only by a whole response; until then that lies in a temporary file beside it. Its permissions stay; what else is a hard link to it keeps the old content. Devices, pipes and descriptors such as /dev/stdout are written to as they are.

Of a URL, the user name, the password and the query are never told; header fields that were sent aren't either, but for --idempotency-key. A redirect is followed without a Referer, unless -H gives one.

Exit status, with several URLs the highest, but 2 and 130 end it all:

  0    the final response has a status below 400, and is written
  1    its status is 400 or above: that is final, or the call gave up on it
  2    wrong usage, or reading or writing failed
  3    no final response, or not the whole of it: not reached, no time left,
       too many redirects, broken off
  130  interrupted, by SIGINT or SIGTERM`
}

func (c *getCommand) Run() error {
	g, err := c.getter()
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	ctx, stop := interruptible()
	defer stop()
	out, err := openOutput(c.Output)
	if err != nil {
		return fmt.Errorf("get: --output: %w", err)
	}
	defer out.discard()
	worst := status(0)
	for _, u := range g.urls {
		f := g.fetch(ctx, u, out)
		if worst = max(worst, f.Exit); f.Exit == statusTrouble || f.Exit == statusInterrupted {
			worst = f.Exit
			break
		}
	}
	if worst != 0 {
		return worst
	}
	return nil
}

// makesKeys reports whether each URL gets an Idempotency-Key of its own.
func (c *getCommand) makesKeys() bool { return c.IdempotencyKey != nil && *c.IdempotencyKey == "auto" }

// A getter makes the calls of one command line.
type getter struct {
	*getCommand
	method string
	urls   []*url.URL
	header http.Header
	body   payload
	send   func(*http.Request) (*http.Response, error)
	teller *teller
}

// getter finds what is wrong with the command line before anything is sent.
func (c *getCommand) getter() (*getter, error) {
	g := &getter{getCommand: c, method: http.MethodGet, header: http.Header{"User-Agent": {"retryafter"}}}
	switch {
	case len(c.URL) == 0:
		return nil, errors.New("no URL (see retryafter get --help)")
	case len(c.URL) > 1 && c.Output != "":
		return nil, fmt.Errorf("--output: takes one URL, got %d", len(c.URL))
	case len(c.Data) > 1:
		return nil, fmt.Errorf("--data: a request has one body, got %d", len(c.Data))
	case c.MaxAttempts < 1:
		return nil, fmt.Errorf("--max-attempts: %d is less than 1", c.MaxAttempts)
	case c.Burst < 1:
		return nil, fmt.Errorf("--burst: %d is less than 1", c.Burst)
	case c.Burst != 1 && c.Rate == nil:
		return nil, errors.New("--burst: there is no --rate")
	case c.MaxRedirects < 0:
		return nil, fmt.Errorf("--max-redirects: %d is less than 0", c.MaxRedirects)
	}
	for name, d := range map[string]*time.Duration{"max-wait": &c.MaxWait, "deadline": c.Deadline, "attempt-timeout": c.AttemptTimeout} {
		if d != nil && *d <= 0 {
			return nil, fmt.Errorf("--%s: %v is not more than 0", name, *d)
		}
	}
	for i, raw := range c.URL {
		scheme, _, _ := strings.Cut(strings.ToLower(raw), "://")
		u, err := url.Parse(raw)
		switch { // what is told of raw may not be secret
		case scheme != "http" && scheme != "https":
			return nil, fmt.Errorf("URL %d must begin with http:// or https://, as https://example.com/ does", i+1)
		case err != nil:
			return nil, fmt.Errorf("URL %d can't be read", i+1)
		case u.Host == "":
			return nil, fmt.Errorf("URL %d: it names no host, as https://example.com/ does", i+1)
		}
		g.urls = append(g.urls, u)
	}
	if err := g.fields(); err != nil {
		return nil, err
	}
	if len(c.Data) > 0 {
		g.method = http.MethodPost
		var err error
		if g.body, err = payloadOf(c.Data[0]); err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
	}
	if c.Request != nil {
		if g.method = *c.Request; !isToken(g.method) {
			return nil, fmt.Errorf("--request: %q is not a method", g.method)
		}
	}
	return g, g.connect()
}

// fields reads what is to be sent in the header.
func (g *getter) fields() error {
	seen := map[string]bool{}
	for i, line := range g.Header {
		name, value, err := field(line)
		if err != nil {
			return fmt.Errorf("--header: line %d %w", i+1, err)
		}
		if !seen[name] {
			g.header.Del(name) // that of the command itself
			seen[name] = true
		}
		g.header.Add(name, value)
	}
	if key := g.IdempotencyKey; key != nil {
		_, value, err := field("Idempotency-Key: " + *key)
		if err != nil || value == "" {
			return fmt.Errorf("--idempotency-key: %q can't be sent", *key)
		}
		g.header.Set("Idempotency-Key", value)
	}
	if len(g.Data) > 0 && !seen["Content-Type"] {
		g.header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return nil
}

// field reads one line of a header. The error doesn't tell its value, which may
// be secret.
func field(line string) (name, value string, err error) {
	if strings.ContainsAny(line, "\r\n") {
		return "", "", errors.New("has an end of line in it")
	}
	h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(line + "\r\n\r\n"))).ReadMIMEHeader()
	for name, values := range h {
		if err == nil && isToken(name) {
			return name, values[0], nil
		}
	}
	return "", "", errors.New("is not a field such as 'Accept: text/html'")
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		alphanumeric := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// connect makes the client that all URLs share.
func (g *getter) connect() error {
	g.teller = newTeller(g.getCommand, os.Stderr)
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DisableCompression = true // what was sent is written
	t := &retryafter.Transport{
		Base:   announcing{base, g.teller.sends},
		Policy: retryafter.Policy{MaxAttempts: g.MaxAttempts, MaxWait: g.MaxWait},
		Gate:   &retryafter.Gate{},
		Trace:  &retryafter.Trace{AttemptDone: g.teller.attemptDone, Waiting: g.teller.waiting, Done: g.teller.done},
	}
	if g.AttemptTimeout != nil {
		t.AttemptTimeout = *g.AttemptTimeout
	}
	if g.Rate != nil {
		b := &retryafter.Bucket{Capacity: g.Burst, Rate: g.Rate.Rate}
		if _, err := b.DelayN(time.Now(), 1); err != nil {
			if bad, ok := errors.AsType[*retryafter.ConfigError](err); ok {
				err = errors.New(bad.Problem) // of the burst, for the rate makes sense
			}
			return fmt.Errorf("--burst: %d %w", g.Burst, err)
		}
		t.Limiter = b
	}
	if g.MaxRedirects == 0 {
		g.send = t.RoundTrip // http.Client reads a Location even where it doesn't follow it
		return nil
	}
	client := &http.Client{Transport: locating{t}, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) > g.MaxRedirects {
			return fmt.Errorf("%s to %s: one redirect more than --max-redirects, %d", statusText(next.Response.StatusCode), redact.URL(next.URL), g.MaxRedirects)
		}
		if _, given := g.header["Referer"]; !given {
			next.Header.Del("Referer") // the URL before, its query included
		}
		return nil
	}}
	g.send = client.Do
	return nil
}

// announcing tells of each attempt before it is sent.
type announcing struct {
	base http.RoundTripper
	tell func(*http.Request)
}

func (a announcing) RoundTrip(req *http.Request) (*http.Response, error) {
	a.tell(req)
	return a.base.RoundTrip(req)
}

// locating reads where http.Client is about to go, whose own error would tell the
// query.
type locating struct{ base http.RoundTripper }

func (l locating) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case 301, 302, 303, 307, 308:
		if _, err := resp.Location(); err != nil && err != http.ErrNoLocation {
			resp.Body.Close()
			return nil, fmt.Errorf("the Location of the %d can't be read", resp.StatusCode)
		}
	}
	return resp, nil
}

// fetch gets u into out.
func (g *getter) fetch(ctx context.Context, u *url.URL, out *output) *fetch {
	f := g.teller.begin(u)
	interrupted := ctx
	if g.Deadline != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *g.Deadline)
		defer cancel()
	}
	req, err := g.request(ctx, u)
	if err != nil {
		return g.teller.end(statusTrouble, err.Error())
	}
	if g.IdempotencyKey != nil {
		f.Key = req.Header.Get("Idempotency-Key")
	}
	resp, err := g.send(req)
	switch {
	case interrupted.Err() != nil:
		if err == nil {
			resp.Body.Close()
		}
		return g.teller.end(statusInterrupted, g.teller.interrupted())
	case err != nil:
		return g.teller.end(statusUnreached, g.why(ctx, err))
	}
	defer resp.Body.Close()
	f.Status = resp.StatusCode
	refused := resp.StatusCode >= 400
	if !refused || !g.Fail {
		if e := g.write(out, resp, f); e.err != nil {
			switch {
			case interrupted.Err() != nil:
				return g.teller.end(statusInterrupted, fmt.Sprintf("interrupted after %d bytes of the body", f.Bytes))
			case e.reading:
				return g.teller.end(statusUnreached, fmt.Sprintf("the body broke off after %d bytes: %s", f.Bytes, g.why(ctx, e.err)))
			}
			return g.teller.end(statusTrouble, e.err.Error())
		}
	}
	if refused {
		text := statusText(resp.StatusCode)
		if r := retryafter.ReportOf(resp); r.Stop != retryafter.Final {
			text += ": " + g.ending(r, nil) + g.hint(ctx, r)
		}
		if unreadable := g.teller.last.Unreadable; unreadable != "" {
			text += "; " + unreadable
		}
		return g.teller.end(statusNo, text)
	}
	return g.teller.end(0, "")
}

func (g *getter) request(ctx context.Context, u *url.URL) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, g.method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = g.header.Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if g.makesKeys() {
		req.Header.Set("Idempotency-Key", rand.Text())
	}
	if u.User != nil && req.Header["Authorization"] == nil && g.MaxRedirects == 0 { // else http.Client does it
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	if g.body.size > 0 {
		if req.Body, err = g.body.open(); err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
		req.GetBody, req.ContentLength = g.body.open, g.body.size
	}
	return req, nil
}

// A copyError is why a response could not be written.
type copyError struct {
	err     error
	reading bool // it is the response that failed
}

// write puts resp where it belongs.
func (g *getter) write(out *output, resp *http.Response, f *fetch) copyError {
	if g.Include {
		header, err := httputil.DumpResponse(resp, false)
		if err != nil {
			return copyError{err, true}
		}
		if _, err := out.Write(header); err != nil {
			return copyError{err, false}
		}
	}
	src := &source{r: resp.Body}
	var err error
	if f.Bytes, err = io.Copy(out, src); err != nil {
		return copyError{err, src.failed}
	}
	return copyError{out.commit(), false}
}

// A source knows whether it was reading that failed.
type source struct {
	r      io.Reader
	failed bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.failed = err != nil && err != io.EOF
	return n, err
}

// why is err's text without the URL, which is told apart.
func (g *getter) why(ctx context.Context, err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if e, ok := errors.AsType[*retryafter.Error](err); ok {
		return g.ending(e.Report, e.Err) + g.hint(ctx, e.Report)
	}
	return g.errorText(err) + g.hint(ctx, retryafter.Report{})
}

// ending is r in one line, with what caused it beside the attempts, or else err.
func (c *getCommand) ending(r retryafter.Report, err error) string {
	if r.Err != nil {
		r.Err, err = nil, r.Err
		if r.Stop == retryafter.WaitTooLong {
			err = nil // it says no more than the hint
		}
	}
	text := strings.Replace(r.String(), ", the limiter needs ", ", --rate needs ", 1)
	if err != nil {
		text += ": " + c.errorText(err)
	}
	return text
}

// quoted is what net/http quotes of what a server sent.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// errorText is err's text in the words of the command line, without what may be
// the userinfo or the query of a URL.
func (c *getCommand) errorText(err error) string {
	text := redact.Error(err)
	if c.AttemptTimeout != nil {
		text = strings.ReplaceAll(text, retryafter.ErrAttemptTimeout.Error(),
			fmt.Sprintf("no response header within --attempt-timeout, %v", *c.AttemptTimeout))
	}
	text = strings.TrimPrefix(text, "retryafter: ")
	return quoted.ReplaceAllStringFunc(text, func(q string) string {
		if strings.ContainsAny(q, "?@") {
			return `"…"`
		}
		return q
	})
}

// hint tells what on the command line a call ended by.
func (g *getter) hint(ctx context.Context, r retryafter.Report) string {
	switch {
	case r.Stop == retryafter.MethodNotIdempotent:
		return "; --idempotency-key would let it be repeated"
	case r.Stop == retryafter.WaitTooLong:
		return fmt.Sprintf("; --max-wait is %v", g.MaxWait)
	case g.Deadline != nil && (r.Stop == retryafter.DeadlineTooNear || r.Stop == retryafter.Limited || ctx.Err() != nil):
		return fmt.Sprintf("; --deadline is %v", *g.Deadline)
	}
	return ""
}
