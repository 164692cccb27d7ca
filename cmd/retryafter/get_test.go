package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A scripted server is told by each path what to say: after a name come the
// answers in turn, of which the last stays. An answer is a status, which may be
// followed by @ and a Retry-After: a number of seconds, the word date, or anything
// else, of which + makes several lines; or one of
//
//	drop   no answer, the connection breaks
//	hang   no answer, as long as the client waits
//	cut    the header of a 200, ten bytes of a longer body, and it breaks
//	stall  the same, but it goes on as long as the client waits
//	after  a 503 with a Retry-After of 1 second, and then more that nobody asked for
//	bad    a 302 with a Location that holds a control byte, and a query
//	worse  no response, but a URL with userinfo
//
// A redirect (any 3xx but 304) leads elsewhere, but where the name is loop to
// itself, and where it is astray, a 304 too, nowhere; where it is absolute the
// Location names the host. Where the name is twice a Retry-After is followed by
// another of 0. An attempt that comes early is told so in the answer to it.
type scripted struct {
	mu    sync.Mutex
	paths map[string]*record
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	body, _ := io.ReadAll(req.Body)
	s.mu.Lock()
	r := s.paths[req.URL.Path]
	if r == nil {
		r = &record{}
		s.paths[req.URL.Path] = r
		for _, word := range strings.Split(req.URL.Path, "/")[2:] {
			r.answers = append(r.answers, answerOf(word))
		}
	}
	a, _, broken := r.arrive(now)
	number := len(r.arrivals)
	if a.back != nil {
		value, named := a.back(now)
		w.Header()["Retry-After"] = strings.Split(value, "+")
		r.named = latest(r.named, named)
	}
	s.mu.Unlock()
	w.Header()["Date"] = nil // of now, which is not the same
	switch {
	case len(broken) > 0:
		http.Error(w, broken[0], http.StatusTeapot)
	case a.location == "drop":
		panic(http.ErrAbortHandler)
	case raw[a.location] != "":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(conn, raw[a.location])
		io.Copy(io.Discard, conn)
		conn.Close()
	case a.location == "hang":
		<-req.Context().Done()
	case a.location != "":
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "ten bytes\n")
		http.NewResponseController(w).Flush()
		if a.location == "cut" {
			panic(http.ErrAbortHandler)
		}
		<-req.Context().Done()
	default:
		switch name := strings.Split(req.URL.Path, "/")[1]; {
		case name == "twice" && a.back != nil:
			w.Header().Add("Retry-After", "0")
		case a.status/100 != 3:
		case name == "astray":
			w.Header().Set("Location", "http://[?token=hunter2")
		case name == "absolute":
			w.Header().Set("Location", "http://"+req.Host+"/followed/200")
		case name == "loop":
			w.Header().Set("Location", req.URL.Path+"?token=hunter2")
		case a.status != http.StatusNotModified:
			w.Header().Set("Location", "/followed/200?token=hunter2")
		}
		w.WriteHeader(a.status)
		fmt.Fprintf(w, "%d to %s %d", a.status, req.Method, number)
		for _, name := range []string{"Idempotency-Key", "Content-Type", "X-Test", "Host", "User-Agent", "Accept-Encoding", "Referer", "Authorization"} {
			value := strings.Join(req.Header[name], "+")
			if name == "Host" && !strings.HasPrefix(req.Host, "127.") {
				value = req.Host
			}
			if value != "" && value != "retryafter" {
				fmt.Fprintf(w, ", %s %s", name, value)
			}
		}
		if len(body) > 0 {
			fmt.Fprintf(w, ", body %.20q of %d", body, len(body))
		}
		fmt.Fprintln(w)
	}
}

// raw are answers that no Handler could give.
var raw = map[string]string{
	"after": "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\nhunter2",
	"bad":   "HTTP/1.1 302 Found\r\nLocation: /followed/200?token=hunter2\x01 \"hunter2\r\n\r\n",
	"worse": "http://user:hunter2@example.com/\r\n\r\n",
}

func answerOf(word string) answer {
	code, back, some := strings.Cut(word, "@")
	status, err := strconv.Atoi(code)
	if err != nil {
		return answer{location: word}
	}
	a := answer{status: status}
	if seconds, err := strconv.Atoi(back); err == nil {
		a.back = inSeconds(seconds)
	} else if back == "date" {
		a.back = onDate(http.TimeFormat, 2*time.Second)
	} else if some {
		a.back = func(time.Time) (string, time.Time) { return back, time.Time{} }
	}
	return a
}

// what differs from run to run.
var drawn = regexp.MustCompile(`(waits |plus |in |after |Key was |wait is )(?:\d+[hm])*[0-9.]+(?:[mµn]?s|\b)(: the| jitter| or more|, for|; --)`)

// told FILE compares what the last program told on standard error with FILE, but
// for what differs from run to run.
func told(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: told FILE")
	}
	got := strings.ReplaceAll(ts.ReadFile("stderr"), ts.Getenv("URL"), "URL")
	got = drawn.ReplaceAllString(got, "${1}T$2")
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("told:\n%s\nwant:\n%s", got, want)
	}
}
func TestErrorsAreToldWithoutTheSecretsOfURLs(t *testing.T) {
	u := &url.Error{Op: "parse", URL: "http://me:hunter2@example.com/?hunter2", Err: io.EOF}
	got := (&getCommand{}).errorText(fmt.Errorf("the proxy %s: %w", u.URL, u))
	if strings.Contains(got, "hunter2") || !strings.HasSuffix(got, "EOF") {
		t.Errorf("told as %s", got)
	}
}
