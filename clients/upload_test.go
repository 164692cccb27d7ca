package clients

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryafter-go/retryafter"
)

// newUpload is a PUT of a file that can be sent again.
func newUpload(ctx context.Context, url, name string) (*http.Request, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, "PUT", url, file) // which is closed by the client
	if err != nil {
		file.Close()
		return nil, err
	}
	req.ContentLength = info.Size() // a signed URL takes no chunked body
	req.GetBody = func() (io.ReadCloser, error) { return os.Open(name) }
	req.Header.Set("Expect", "100-continue") // spares the body where the header is refused
	return req, nil
}

func upload(t *testing.T) (name, text string) {
	t.Helper()
	text = strings.Repeat("0123456789abcdef", 1<<15)
	f := file(t, text)
	f.Close()
	return f.Name(), text
}

// openFiles are those of this process that are named name, where the system tells.
func openFiles(t *testing.T, name string) (n int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); target == name {
			n++
		}
	}
	return n
}

// wantClosed says that no descriptor of name is left. net/http closes bodies
// soon after RoundTrip, not before.
func wantClosed(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for openFiles(t, name) > 0 {
		if ctx.Err() != nil {
			t.Fatalf("%d descriptors of the file are open", openFiles(t, name))
		}
		runtime.Gosched()
	}
}

func TestUploadsAreSentWholeAgainAndLeaveNoFileOpen(t *testing.T) {
	name, text := upload(t)
	f := answers(reply(503, slowDown, "Retry-After", "0"), reply(503, slowDown, "Retry-After", "0"), reply(200, ""))
	u, base := listen(t, f)
	for range 5 {
		f.forget()
		req, err := newUpload(t.Context(), u+"/b/k?X-Amz-Signature=s", name)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: atOnce(base)}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		wantReport(t, resp, 3, retryafter.Final)
		f.wantBodies(t, 3, text)
		for _, r := range f.requests() {
			if r.ContentLength != int64(len(text)) || r.URI != "/b/k?X-Amz-Signature=s" {
				t.Errorf("%s with Content-Length %d", r.URI, r.ContentLength)
			}
		}
	}
	wantClosed(t, name)
}

func TestUploadsOfAFileWithoutGetBodyAreSentOnce(t *testing.T) {
	name, text := upload(t)
	f := answers(reply(503, slowDown, "Retry-After", "0"))
	u, base := listen(t, f)
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "PUT", u, file)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: atOnce(base)}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	wantReport(t, resp, 1, retryafter.BodyNotReplayable)
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != slowDown {
		t.Errorf("the refusal reads %q, %v", b, err)
	}
	resp.Body.Close()
	f.wantBodies(t, 1, text)
	if f.requests()[0].ContentLength != -1 {
		t.Error("the length of a file has come to be known without being set")
	}
	wantClosed(t, name)
}

func TestUploadsWithExpectContinueSendNothingToAServerThatRefuses(t *testing.T) {
	name, text := upload(t)
	var requests, read atomic.Int64
	u, base := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) < 3 {
			reply(503, slowDown, "Retry-After", "0")(w, r) // reads nothing, so says no 100 Continue
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		read.Add(n)
	}))
	if http.DefaultTransport.(*http.Transport).ExpectContinueTimeout == 0 {
		t.Error("http.DefaultTransport sends the body at once")
	}
	base.ExpectContinueTimeout = time.Minute
	opened := 0
	req, err := newUpload(t.Context(), u, name)
	if err != nil {
		t.Fatal(err)
	}
	sent := &counted{}
	open := req.GetBody
	req.Body = sent.of(req.Body)
	req.GetBody = func() (io.ReadCloser, error) {
		opened++
		b, err := open()
		if err != nil {
			return nil, err
		}
		return sent.of(b), nil
	}
	resp, err := (&http.Client{Transport: atOnce(base)}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || requests.Load() != 3 || opened != 2 {
		t.Errorf("status %d after %d requests, the file was opened again %d times", resp.StatusCode, requests.Load(), opened)
	}
	if want := int64(len(text)); read.Load() != want || sent.Load() != want {
		t.Errorf("%d bytes arrived and %d were read for it, want %d", read.Load(), sent.Load(), want)
	}
	wantClosed(t, name)
}

// counted counts the bytes that are read of several bodies.
type counted struct{ atomic.Int64 }

func (c *counted) of(b io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(b, c), b}
}

func (c *counted) Write(p []byte) (int, error) { c.Add(int64(len(p))); return len(p), nil }

func TestUploadsOfAFileThatIsGoneHandBackTheRefusal(t *testing.T) {
	name, _ := upload(t)
	f := answers(func(w http.ResponseWriter, r *http.Request) {
		os.Remove(name)
		reply(503, slowDown, "Retry-After", "0")(w, r)
	})
	u, base := listen(t, f)
	req, err := newUpload(t.Context(), u, name)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: atOnce(base)}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wantReport(t, resp, 1, retryafter.GetBodyFailed)
	if b, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(b, []byte(slowDown)) {
		t.Errorf("the refusal reads %q, %v", b, err)
	}
	if err := retryafter.ReportOf(resp).Err; !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

func TestUploadsThatAnEarlyAnswerCutsShortAreSentWholeAgain(t *testing.T) {
	name, text := upload(t)
	var requests, read atomic.Int64
	u, base := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Connection", "close")
			reply(503, slowDown, "Retry-After", "0")(w, r)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		read.Store(n)
	}))
	req, err := newUpload(t.Context(), u, name)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Del("Expect")
	resp, err := (&http.Client{Transport: atOnce(base)}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || read.Load() != int64(len(text)) {
		t.Errorf("status %d, %d bytes arrived", resp.StatusCode, read.Load())
	}
	wantClosed(t, name)
}

func TestNewRequestGivesThreeKindsOfBodyAgain(t *testing.T) {
	for _, c := range []struct {
		body io.Reader
		want bool
	}{
		{bytes.NewBufferString("b"), true},
		{bytes.NewReader([]byte("b")), true},
		{strings.NewReader("b"), true},
		{io.NopCloser(strings.NewReader("b")), false},
		{io.LimitReader(strings.NewReader("b"), 1), false},
		{file(t, "b"), false},
	} {
		req, err := http.NewRequest("PUT", "http://api.test/", c.body)
		if err != nil {
			t.Fatal(err)
		}
		if got := req.GetBody != nil; got != c.want {
			t.Errorf("%T: %v", c.body, got)
		}
	}
}
