package hashicorpretry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/hashicorpretry"
)

const text = "all of the file"

// upload is an open file with size bytes of text, or just text.
func upload(t *testing.T, size int) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(name, []byte(strings.Repeat(text, max(size/len(text), 1))), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// put sends body as go-retryablehttp does that of NewRequest.
func put(t *testing.T, c *retryablehttp.Client, body any) (*http.Response, error) {
	t.Helper()
	req, err := retryablehttp.NewRequestWithContext(t.Context(), "PUT", "http://example.com/", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if resp != nil {
		resp.Body.Close()
	}
	return resp, err
}

// TestABodyOfOneReaderIsWholeInEachAttempt: an *os.File is one reader for all
// attempts, and a server may refuse a request while its body is still read.
func TestABodyOfOneReaderIsWholeInEachAttempt(t *testing.T) {
	var sent list
	c := quiet(&retryafter.Transport{Policy: atOnce(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		if len(sent) == 2 {
			whole, err := io.ReadAll(req.Body)
			sent.add("%s, %v", whole, err)
			return &http.Response{StatusCode: 201, Body: http.NoBody, Request: req}, nil
		}
		some := make([]byte, 3)
		n, err := io.ReadFull(req.Body, some)
		sent.add("%s, %v", some[:n], err)
		return &http.Response{StatusCode: 503, Body: &reading{from: req.Body}, Request: req}, nil
	})})
	if _, err := put(t, c, upload(t, 0)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list{"all, <nil>", "all, <nil>", text + ", <nil>"}, sent); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// reading is the body of an early response: the request's body is read on
// until it is closed.
type reading struct{ from io.Reader }

func (r *reading) Read([]byte) (int, error) { return 0, io.EOF }

func (r *reading) Close() error {
	_, err := io.ReadFull(r.from, make([]byte, 5))
	return err
}

// TestTheReaderOfABodyServesOneAttempt: what net/http still reads for an attempt
// that was answered is not missing in the next, of the same call or after a
// redirect, and does not look like an end.
func TestTheReaderOfABodyServesOneAttempt(t *testing.T) {
	for _, status := range []int{307, 308, 503} {
		for _, before := range []int{0, 3} {
			t.Run(fmt.Sprint(status, " after ", before), func(t *testing.T) {
				var old io.Reader
				var sent string
				late := func() {
					if n, err := old.Read(make([]byte, 5)); n != 0 || err == nil || errors.Is(err, io.EOF) {
						t.Errorf("an attempt that is over read %d bytes, %v", n, err)
					}
				}
				c := quiet(&retryafter.Transport{Policy: atOnce(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
					if old == nil {
						old = req.Body
						if _, err := io.ReadFull(old, make([]byte, before)); err != nil {
							t.Error(err)
						}
						return &http.Response{StatusCode: status, Header: http.Header{"Location": {"/there"}}, Body: http.NoBody, Request: req}, nil
					}
					if status != 503 {
						late() // the reader is rewound already
					}
					some := make([]byte, 7)
					if _, err := io.ReadFull(req.Body, some); err != nil {
						t.Error(err)
					}
					late()
					rest, err := io.ReadAll(req.Body)
					if err != nil {
						t.Error(err)
					}
					sent = string(some) + string(rest)
					return &http.Response{StatusCode: 201, Body: http.NoBody, Request: req}, nil
				})})
				if resp, err := put(t, c, upload(t, 0)); err != nil || resp.StatusCode != 201 || sent != text {
					t.Errorf("%v, %v; sent %q", resp, err, sent)
				}
			})
		}
	}
}

// TestAnUploadGoesOnWhileItsResponseIsInHand: to cut it could end the
// connection, and so the response's body.
func TestAnUploadGoesOnWhileItsResponseIsInHand(t *testing.T) {
	for _, last := range []int{503, 404} {
		var reading io.Reader
		c := quiet(&retryafter.Transport{Policy: atOnce(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			status := last
			if retryafter.AttemptNumber(req.Context()) == 1 {
				status = 503
			}
			reading = req.Body
			return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
		})})
		shown := 0
		c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) {
			shown++
			if sent, err := io.ReadAll(reading); string(sent) != text || err != nil {
				t.Errorf("response %d: %q, %v", shown, sent, err)
			}
		}
		if _, err := put(t, c, upload(t, 0)); err != nil || shown < 2 {
			t.Errorf("%v after %d", err, shown)
		}
	}
}

// TestAnAttemptThatFailedIsReadNoMore: its caller may send the request again.
func TestAnAttemptThatFailedIsReadNoMore(t *testing.T) {
	var old io.Reader
	c := quiet(&retryafter.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		old = req.Body
		return nil, failures["x509"]
	})})
	if _, err := put(t, c, upload(t, 0)); err == nil {
		t.Fatal("no error")
	}
	if n, err := old.Read(make([]byte, 5)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// TestABodyOfItsOwnIsReadOn: what shares no reader is not cut.
func TestABodyOfItsOwnIsReadOn(t *testing.T) {
	var old []io.Reader
	c := quiet(&retryafter.Transport{Policy: atOnce(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		old = append(old, req.Body)
		return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
	})})
	if _, err := put(t, c, []byte(text)); err != nil || len(old) != 3 {
		t.Fatal(err)
	}
	for i := range old {
		if sent, err := io.ReadAll(old[len(old)-1-i]); string(sent) != text || err != nil {
			t.Errorf("%q, %v", sent, err)
		}
	}
}

func TestAFileWithoutGetBodyIsSentOnce(t *testing.T) {
	s := &script{replies: []reply{{status: 503}}}
	c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
	req, err := http.NewRequest("PUT", "http://example.com/", upload(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.StandardClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if r := retryafter.ReportOf(resp); r.Stop != retryafter.BodyNotReplayable || len(s.attempts) != 1 || s.attempts[0].Body != text {
		t.Errorf("%v, %v", r, s.attempts)
	}
}

// slow is a reader whose Read takes a while, or for ever.
type slow struct {
	io.ReadSeeker
	takes time.Duration
	until time.Time // when the last Read ended
}

func (s *slow) Read(p []byte) (int, error) {
	if s.takes > 0 {
		time.Sleep(s.takes)
	}
	s.until = time.Now()
	return s.ReadSeeker.Read(p)
}

func (s *slow) Seek(offset int64, whence int) (int64, error) {
	if time.Now().Before(s.until) {
		panic("rewound under a Read")
	}
	return s.ReadSeeker.Seek(offset, whence)
}

// TestARedirectWaitsForARead, but not for ever: http.Client rewinds the reader.
func TestARedirectWaitsForARead(t *testing.T) {
	gone := errors.New("the caller is gone")
	for _, test := range []struct {
		name                string
		takes, cancel, ends time.Duration
		want                string
	}{
		{name: "short", takes: 2 * time.Second, ends: 2 * time.Second},
		{name: "canceled", takes: time.Minute, cancel: time.Second, ends: time.Second, want: gone.Error()},
		{name: "stuck", takes: time.Minute, ends: 10 * time.Second, want: "a Read of it does not return"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, sent := &slow{ReadSeeker: strings.NewReader(text), takes: test.takes}, ""
				redirect := &body{Reader: strings.NewReader("")}
				c := quiet(&retryafter.Transport{Policy: atOnce(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
					if req.URL.Path == "/there" {
						from.takes = 0
						b, err := io.ReadAll(req.Body)
						sent = string(b)
						return &http.Response{StatusCode: 201, Body: http.NoBody, Request: req}, err
					}
					go req.Body.Read(make([]byte, 3))
					synctest.Wait()
					return &http.Response{StatusCode: 307, Header: http.Header{"Location": {"/there"}}, Body: redirect, Request: req}, nil
				})})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.cancel > 0 {
					time.AfterFunc(test.cancel, func() { cancel(gone) })
				}
				req, err := retryablehttp.NewRequestWithContext(ctx, "PUT", "http://example.com/", from)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				resp, err := c.Do(req)
				if took := time.Since(begin); took != test.ends || !redirect.closed {
					t.Errorf("took %v, want %v; closed: %v", took, test.ends, redirect.closed)
				}
				if test.want == "" {
					if err != nil || resp.StatusCode != 201 || sent != text {
						t.Errorf("%v, %v; sent %q", resp, err, sent)
					}
				} else if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %s", err, test.want)
				}
				time.Sleep(time.Hour) // the Read returns
			})
		})
	}
}

// TestABodyThatCantBeHadIsAnError, not an empty body, and nothing panics.
func TestABodyThatCantBeHadIsAnError(t *testing.T) {
	t.Run("GetBody returns nothing", func(t *testing.T) {
		for name, file := range map[string]bool{"bytes": false, "file": true} {
			for _, prepare := range []retryablehttp.PrepareRetry{nil, func(*http.Request) error { return nil }} {
				s := &script{replies: []reply{{status: 503}}}
				c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
				c.PrepareRetry = prepare
				req, err := http.NewRequest("PUT", "http://example.com/", strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				if file {
					req.Body = upload(t, 0)
				}
				req.GetBody = func() (io.ReadCloser, error) { return nil, nil }
				resp, err := c.StandardClient().Do(req)
				if file != (err != nil) || len(s.attempts) != 1 {
					t.Errorf("%s: %v, %v after %d attempts", name, resp, err, len(s.attempts))
				}
				if err == nil && retryafter.ReportOf(resp).Stop != retryafter.GetBodyFailed {
					t.Errorf("%s: %v", name, retryafter.ReportOf(resp))
				}
			}
		}
	})
	t.Run("GetBody returns nothing once more", func(t *testing.T) {
		s := &script{replies: []reply{{status: 503}}}
		c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
		c.PrepareRetry = func(*http.Request) error { return nil }
		req, err := http.NewRequest("PUT", "http://example.com/", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		given := 0
		req.GetBody = func() (io.ReadCloser, error) {
			if given++; given > 1 {
				return nil, nil
			}
			return io.NopCloser(strings.NewReader(text)), nil
		}
		if resp, err := c.StandardClient().Do(req); err == nil || len(s.attempts) != 1 {
			t.Errorf("%v, %v after %d attempts", resp, err, len(s.attempts))
		}
	})
	readers := map[string]func() io.Reader{
		"one of bytes":   func() io.Reader { return bytes.NewReader([]byte(text)) },
		"one of strings": func() io.Reader { return strings.NewReader(text) },
	}
	for name, reader := range readers {
		for fails := 2; fails <= 3; fails++ { // the first call is NewRequest's own
			s := &script{replies: []reply{{status: 503}}}
			c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
			calls := 0
			resp, err := put(t, c, func() (io.Reader, error) {
				if calls++; calls >= fails {
					return nil, nil
				}
				return reader(), nil
			})
			if err == nil || len(s.attempts) != fails-2 {
				t.Errorf("a function returns %s: %v, %v after %d attempts", name, resp, err, len(s.attempts))
			}
		}
	}
	t.Run("a file is closed", func(t *testing.T) {
		s := &script{replies: []reply{{status: 503}}}
		c := quiet(&retryafter.Transport{Base: s, Policy: atOnce()})
		file := upload(t, 0)
		c.ResponseLogHook = func(retryablehttp.Logger, *http.Response) { file.Close() }
		if resp, err := put(t, c, file); !errors.Is(err, os.ErrClosed) || len(s.attempts) != 1 {
			t.Errorf("%v, %v after %d attempts", resp, err, len(s.attempts))
		}
	})
}

// TestAFileThatGetBodyOpensIsClosed, whether it is read or not.
func TestAFileThatGetBodyOpensIsClosed(t *testing.T) {
	var opened []*os.File
	var bodies []io.ReadCloser
	c := quiet(&retryafter.Transport{Policy: atOnce(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		if bodies = append(bodies, req.Body); len(bodies) != 2 { // the second is closed unread
			if sent, err := io.ReadAll(req.Body); string(sent) != text || err != nil {
				t.Errorf("attempt %d: %q, %v", len(bodies), sent, err)
			}
		}
		req.Body.Close()
		if n, err := req.Body.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
			t.Errorf("attempt %d was read after its end: %d, %v", len(bodies), n, err)
		}
		return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
	})})
	file := upload(t, 0)
	req, err := http.NewRequest("PUT", "http://example.com/", file)
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = func() (io.ReadCloser, error) {
		f, err := os.Open(file.Name())
		opened = append(opened, f)
		return f, err
	}
	resp, err := c.StandardClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(bodies) != 3 || len(opened) != 1 {
		t.Errorf("%d attempts, %d files", len(bodies), len(opened))
	}
	for _, f := range opened {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("left open: %v", err)
		}
	}
}

// TestAnUploadIsWholeOrFails plays on connections what a server does that
// answers before it has read the body.
func TestAnUploadIsWholeOrFails(t *testing.T) {
	const size, rounds = 1 << 20, 12
	for _, status := range []int{307, 503} {
		for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
			t.Run(fmt.Sprint(status, " over ", name), func(t *testing.T) {
				file := upload(t, size)
				want, err := os.ReadFile(file.Name())
				if err != nil {
					t.Fatal(err)
				}
				var answered, stored atomic.Int32
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if answered.Add(1) == 1 {
						w.Header().Set("Location", "/there")
						w.WriteHeader(status)
						return
					}
					got, err := io.ReadAll(r.Body)
					if err == nil && !bytes.Equal(got, want) {
						t.Errorf("%d of %d bytes stored as whole", len(got), len(want))
					}
					if err == nil {
						stored.Add(1)
					}
				}))
				s.EnableHTTP2 = h2
				s.StartTLS()
				defer s.Close()
				for range rounds {
					c := retryablehttp.NewClient()
					c.Logger, c.HTTPClient = nil, s.Client()
					hashicorpretry.Use(c, &retryafter.Transport{Policy: atOnce()})
					answered.Store(0)
					req, err := retryablehttp.NewRequest("PUT", s.URL, file)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := c.Do(req)
					if err != nil {
						t.Error(err)
						continue
					}
					resp.Body.Close()
				}
				if stored.Load() != rounds {
					t.Errorf("%d of %d stored", stored.Load(), rounds)
				}
			})
		}
	}
}
