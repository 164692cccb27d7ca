package compare

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"
)

// A check is a row.
type check struct {
	id   string
	what string // that must hold
	read bool   // it is about how Retry-After is read
	do   func(*run) verdict
}

type section struct {
	title, about string
	checks       []check
}

func sections() []section {
	return []section{
		{
			"Reading Retry-After",
			"The local backoff is 1 s, and 20 s where a value can't be read. A wait may be longer than what is named, never shorter.",
			[]check{
				{id: "seconds", what: "`10` is 10 s", do: after(10*time.Second, "10")},
				{id: "imf", what: "`Sat, 01 Jan 2000 00:00:30 GMT`, an IMF-fixdate", read: true, do: after(30*time.Second, "Sat, 01 Jan 2000 00:00:30 GMT")},
				{id: "rfc850", what: "`Saturday, 01-Jan-00 00:00:30 GMT`, an rfc850-date", read: true, do: after(30*time.Second, "Saturday, 01-Jan-00 00:00:30 GMT")},
				{id: "asctime", what: "`Sat Jan  1 00:00:30 2000`, an asctime-date", read: true, do: after(30*time.Second, "Sat Jan  1 00:00:30 2000")},
				{id: "second-60", what: "second 60 of a leap second", read: true, do: after(time.Minute, "Sat, 01 Jan 2000 00:00:60 GMT")},
				{id: "two-digits", what: "an rfc850-date's `70`, told in 2069, is 2070", read: true, do: func(r *run) verdict {
					time.Sleep(time.Until(time.Date(2069, 12, 31, 23, 59, 50, 0, time.UTC)))
					return after(30*time.Second, "Wednesday, 01-Jan-70 00:00:20 GMT")(r)
				}},
				{id: "huge", what: "`9223372037` and `18446744074`, more than a Duration holds, are not cut short", read: true, do: each(
					atLeast(10*year, "9223372037"), atLeast(10*year, "18446744074"))},
				{id: "immense", what: "nor is `99999999999999999999`, more than 64 bits hold", read: true, do: atLeast(10*year, "99999999999999999999")},
				{id: "negative", what: "`-1` is unreadable: nobody is back before the local backoff", read: true, do: localHolds("-1")},
				{id: "plus", what: "nor after `+10`", read: true, do: localHolds("+10")},
				{id: "junk", what: "nor after `1.5` and `soon`", read: true, do: each(localHolds("1.5"), localHolds("soon"))},
				{id: "lines", what: "field lines `1` and `10`: the longest", read: true, do: after(10*time.Second, "1", "10")},
				{id: "merged", what: "`1, 10` in one line: the longest", read: true, do: after(10*time.Second, "1, 10")},
				{id: "junk-line", what: "field lines `soon` and `10`: the readable one", read: true, do: after(10*time.Second, "soon", "10")},
				{id: "other-status", what: "`10` counts with a 502 too", read: true, do: func(r *run) verdict {
					r.serve(settings, func(n int, _ *http.Request) (*http.Response, error) {
						if n > 1 {
							return response(200, "ok"), nil
						}
						resp := response(502, "busy")
						resp.Header.Set("Retry-After", "10")
						return resp, nil
					})
					return r.waited(r.get(), 10*time.Second)
				}},
				{id: "clock", what: "a date is measured on the server's clock where the client's is 1 h fast", read: true, do: func(r *run) verdict {
					r.serve(settings, func(n int, _ *http.Request) (*http.Response, error) {
						if n > 1 {
							return response(200, "ok"), nil
						}
						theirs := time.Now().Add(-time.Hour)
						resp := r.busy(n, theirs.Add(30*time.Second).UTC().Format(http.TimeFormat))
						resp.Header.Set("Date", theirs.UTC().Format(http.TimeFormat))
						return resp, nil
					})
					return r.waited(r.get(), 30*time.Second)
				}},
			},
		},
		{
			"Waiting",
			"",
			[]check{
				{id: "max", what: "max(server, local): with a local 20 s, `0`, `5` and a date gone by bring nobody back sooner", do: each(
					localHolds("0"), localHolds("5"), localHolds("Fri, 31 Dec 1999 23:59:59 GMT"))},
				{id: "spread", what: "of 50 callers told 10 s, at most half come back in the same 100 ms", read: true, do: func(r *run) verdict {
					returns := r.herd()
					if len(returns) < 50 {
						return wrong("%d come back", len(returns))
					}
					worst := 0
					for i, at := range returns {
						j, _ := slices.BinarySearch(returns, at+100*time.Millisecond)
						worst = max(worst, j-i)
					}
					if worst > 25 {
						return wrong("%d at once", worst)
					}
					return right
				}},
				{id: "never-early", what: "and none comes back before, with jitter on", read: true, do: func(r *run) verdict {
					returns := r.herd()
					switch {
					case len(returns) < 50:
						return wrong("%d come back", len(returns))
					case returns[0] < 10*time.Second:
						return wrong("too early")
					}
					return right
				}},
				{id: "deadline", what: "a wait of 10 s that overruns the context's deadline, 5 s away, is not begun: the response is handed back at once", do: func(r *run) verdict {
					s := settings
					s.Backoff = 10 * time.Second
					r.once(s, "10")
					ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
					defer cancel()
					resp, err := r.do(r.request("GET", "/", nil).WithContext(ctx))
					took := time.Since(r.server.began)
					switch {
					case took > 5*time.Second:
						return wrong("slept %s past it", span(took-5*time.Second))
					case took == 5*time.Second:
						return wrong("slept until it")
					case took > 0:
						return wrong("tried again")
					case err != nil:
						return wrong("an error, no response")
					case resp.StatusCode != r.busyStatus():
						return wrong("status %d", resp.StatusCode)
					}
					return right
				}},
				{id: "client-timeout", what: "nor one that overruns http.Client.Timeout", do: func(r *run) verdict {
					s := settings
					s.Backoff, s.Timeout = 10*time.Second, 5*time.Second
					r.once(s, "10")
					r.get()
					switch took := time.Since(r.server.began); {
					case took > 5*time.Second:
						return wrong("slept %s past it", span(took-5*time.Second))
					case took == 5*time.Second:
						return wrong("slept until it")
					case took > 0:
						return wrong("tried again")
					}
					return right
				}},
				{id: "not-cut", what: "`300` is waited for, or the call given up: never a part of it", do: atLeast(300*time.Second, "300")},
				{id: "elapsed", what: "nor is it cut to a limit of 60 s on the whole call", do: func(r *run) verdict {
					s := settings
					s.MaxElapsed = time.Minute
					r.once(s, "300")
					return r.orGivenUp(r.get(), 300*time.Second)
				}},
				{id: "cancel", what: "a cancellation ends a wait at once, with an error that is context.Canceled", do: func(r *run) verdict {
					s := settings
					s.Backoff = 10 * time.Second
					r.once(s, "10")
					ctx, cancel := context.WithCancel(r.ctx)
					stop := time.AfterFunc(3*time.Second, cancel)
					defer stop.Stop()
					resp, err := r.do(r.request("GET", "/", nil).WithContext(ctx))
					took := time.Since(r.server.began)
					switch {
					case took > 3*time.Second:
						return wrong("slept on for %s", span(took-3*time.Second))
					case took < 3*time.Second:
						return wrong("no wait")
					case err == nil:
						return wrong("status %d", resp.StatusCode)
					case !errors.Is(err, context.Canceled):
						return wrong("another error")
					}
					return right
				}},
				{id: "redirect", what: "a redirect whose 301 says `10` is followed after 10 s", do: func(r *run) verdict {
					r.serve(settings, func(_ int, req *http.Request) (*http.Response, error) {
						if req.URL.Path != "/" {
							return response(200, "ok"), nil
						}
						resp := response(301, "")
						resp.Header.Set("Location", "/next")
						resp.Header.Set("Retry-After", "10")
						return resp, nil
					})
					asked := r.get()
					next := r.server.arrived("/next")
					switch {
					case len(asked) > 1:
						return wrong("asks again instead")
					case len(next) == 0:
						return wrong("not followed")
					case next[0].at < 10*time.Second:
						return wrong("after %s", span(next[0].at))
					}
					return right
				}},
				{id: "stalled", what: "a refusal whose body stalls for 1 h holds the next attempt up for 5 s at most", do: func(r *run) verdict {
					return r.refusedBy(&stalledBody{closed: make(chan struct{})}, func(all []arrival) verdict {
						if at := all[1].at; at > 5*time.Second {
							return wrong("for %s", span(at))
						}
						return right
					})
				}},
				{id: "drain", what: "of a refusal's endless body at most 1 MiB is read", do: func(r *run) verdict {
					body := &countedBody{Reader: io.LimitReader(endless{}, 16<<20)}
					return r.refusedBy(body, func([]arrival) verdict {
						if body.bytes > 1<<20 {
							return wrong("%d MiB, all there was", body.bytes>>20)
						}
						return right
					})
				}},
			},
		},
		{
			"What is sent, and how often",
			"3 attempts are allowed, the local backoff is 1 s, and the refusal says `1`.",
			[]check{
				{id: "cap", what: "a server that is always busy sees 3 attempts", do: func(r *run) verdict {
					r.alwaysBusy()
					return times(r.get(), 3)
				}},
				{id: "last", what: "and the last response is handed back, with its body", do: func(r *run) verdict {
					r.alwaysBusy()
					resp, err := r.do(r.request("GET", "/", nil))
					if err != nil {
						return wrong("an error instead")
					}
					defer resp.Body.Close()
					body, err := io.ReadAll(resp.Body)
					switch {
					case err != nil:
						return wrong("its body can't be read")
					case resp.StatusCode != r.busyStatus() || string(body) != r.busyBody(3):
						return wrong("status %d, %q", resp.StatusCode, body)
					}
					return right
				}},
				{id: "put", what: "a PUT is sent again, with its whole body", do: func(r *run) verdict {
					r.once(settings, "1")
					r.send(r.request("PUT", "/", strings.NewReader(payload)))
					all := r.server.arrived("/")
					for _, a := range all {
						if a.body != payload {
							return wrong("a body of %d bytes", len(a.body))
						}
					}
					return times(all, 2)
				}},
				{id: "opaque", what: "a body that can't be had again is never sent as an empty one", do: func(r *run) verdict {
					r.once(settings, "1")
					r.send(r.request("PUT", "/", struct{ io.Reader }{strings.NewReader(payload)}))
					all := r.server.arrived("/")
					for _, a := range all {
						if a.body != payload {
							return wrong("empty the second time")
						}
					}
					if len(all) == 0 {
						return verdict{right: true, saw: "not sent"}
					}
					return right
				}},
				{id: "post-503", what: "a refused POST is sent once", do: func(r *run) verdict {
					r.once(settings, "1")
					r.send(r.request("POST", "/", strings.NewReader(payload)))
					return times(r.server.arrived("/"), 1)
				}},
				{id: "post-key", what: "with an Idempotency-Key it is sent again, with the same", do: func(r *run) verdict {
					r.once(settings, "1")
					req := r.request("POST", "/", strings.NewReader(payload))
					req.Header.Set("Idempotency-Key", "one")
					r.send(req)
					all := r.server.arrived("/")
					for _, a := range all {
						if got := a.header.Get("Idempotency-Key"); got != "one" || a.body != payload {
							return wrong("with key %q, body %q", got, a.body)
						}
					}
					return times(all, 2)
				}},
				{id: "post-dead", what: "a POST whose connection is reset after it was sent is sent once", do: func(r *run) verdict {
					r.resetOnce()
					r.send(r.request("POST", "/", strings.NewReader(payload)))
					return times(r.server.arrived("/"), 1)
				}},
				{id: "get-dead", what: "a GET whose connection is reset is sent again", do: func(r *run) verdict {
					r.resetOnce()
					return times(r.get(), 2)
				}},
				{id: "certificate", what: "a certificate that can't be verified is not tried again", do: func(r *run) verdict {
					r.serve(settings, func(int, *http.Request) (*http.Response, error) {
						return nil, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
					})
					return times(r.get(), 1)
				}},
				{id: "not-found", what: "400, 401, 403, 404, 422 are final", do: func(r *run) verdict {
					for _, status := range []int{400, 401, 403, 404, 422} {
						r.serve(settings, func(int, *http.Request) (*http.Response, error) { return response(status, "no"), nil })
						if v := times(r.get(), 1); !v.right {
							v.saw = fmt.Sprint(status, " ", v.saw)
							return v
						}
					}
					return right
				}},
				{id: "ok", what: "so is a 200 with Retry-After", do: func(r *run) verdict {
					r.serve(settings, func(int, *http.Request) (*http.Response, error) {
						resp := response(200, "ok")
						resp.Header.Set("Retry-After", "1")
						return resp, nil
					})
					return times(r.get(), 1)
				}},
				{id: "concurrent", what: "50 calls at once each have their own attempts and waits", do: func(r *run) verdict {
					r.serve(settings, func(n int, _ *http.Request) (*http.Response, error) {
						if n < 3 {
							return r.busy(n, "1"), nil
						}
						return response(200, "ok"), nil
					})
					r.fifty()
					for i := range 50 {
						all := r.server.arrived(fmt.Sprint("/", i))
						if len(all) != 3 {
							return times(all, 3)
						}
						for i := range 2 {
							if gap := all[i+1].at - all[i].at; gap < r.localLeast(time.Second) {
								return wrong("a wait of %s", span(gap))
							}
						}
					}
					return right
				}},
			},
		},
		{
			"The contract of net/http",
			"",
			[]check{
				{id: "left-alone", what: "the caller's request is not written to", do: func(r *run) verdict {
					r.once(settings, "1")
					req := r.request("PUT", "/", strings.NewReader(payload))
					req.Header.Set("Accept", "text/plain")
					was, header := *req, req.Header.Clone()
					r.send(req)
					switch {
					case req.Body != was.Body:
						return wrong("Body replaced")
					case !reflect.DeepEqual(req.Header, header):
						return wrong("Header changed")
					case req.ContentLength != was.ContentLength || req.URL != was.URL || req.Host != was.Host || req.Context() != was.Context():
						return wrong("changed")
					case (req.GetBody == nil) != (was.GetBody == nil):
						return wrong("GetBody replaced")
					}
					return right
				}},
				{id: "closed", what: "its body is closed", do: func(r *run) verdict {
					r.once(settings, "1")
					req := r.request("PUT", "/", nil)
					body := &countedBody{Reader: strings.NewReader(payload)}
					req.Body, req.ContentLength = body, int64(len(payload))
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(payload)), nil }
					r.send(req)
					synctest.Wait()
					if body.closes == 0 {
						return wrong("never closed")
					}
					return right
				}},
				{id: "connections", what: "100 calls of a 503 and a 200, one after the other, need one connection", do: func(r *run) verdict {
					n, _ := r.hundred()
					if n > 1 {
						return wrong("%d connections", n)
					}
					return right
				}},
				{id: "goroutines", what: "and leave no goroutines", do: func(r *run) verdict {
					_, n := r.hundred()
					if n >= 10 { // a few may be on their way out, or the runtime's
						return wrong("%d left", (n+5)/10*10)
					}
					return right
				}},
				{id: "attempt-timeout", what: "a timeout of 2 s for an attempt lets a body be read that takes 5 s", do: func(r *run) verdict {
					s := settings
					s.AttemptTimeout = 2 * time.Second
					r.serve(s, func(_ int, req *http.Request) (*http.Response, error) {
						resp := response(200, "")
						resp.Body, resp.ContentLength = &slowBody{ctx: req.Context(), left: 5}, -1
						return resp, nil
					})
					resp, err := r.do(r.request("GET", "/", nil))
					if err != nil {
						return wrong("an error")
					}
					defer resp.Body.Close()
					if _, err := io.ReadAll(resp.Body); err != nil {
						return wrong("cut after %s", span(time.Since(r.server.began)))
					}
					return right
				}},
				{id: "upgrade", what: "the body of a 101 can still be written to", do: func(r *run) verdict {
					r.serve(settings, func(int, *http.Request) (*http.Response, error) {
						resp := response(101, "")
						resp.Body = upgraded{resp.Body, io.Discard}
						return resp, nil
					})
					resp, err := r.do(r.request("GET", "/", nil))
					if err != nil {
						return wrong("an error")
					}
					defer resp.Body.Close()
					if _, ok := resp.Body.(io.Writer); !ok {
						return wrong("wrapped")
					}
					return right
				}},
				{id: "idle", what: "http.Client.CloseIdleConnections reaches the transport", do: func(r *run) verdict {
					base := &closer{}
					(&http.Client{Transport: r.Transport(base, settings)}).CloseIdleConnections()
					if !base.closed {
						return wrong("")
					}
					return right
				}},
				{id: "secrets", what: "what the client puts into an error shows no password and no query", do: func(r *run) verdict {
					for _, serve := range []func(){r.alwaysBusy, r.alwaysReset} {
						serve()
						req := r.request("GET", "/", nil)
						req.URL.User = url.UserPassword("user", "hunter2")
						req.URL.RawQuery = "token=s3cret"
						resp, err := r.do(req)
						if err == nil {
							resp.Body.Close()
							continue
						}
						if outer, ok := err.(*url.Error); ok {
							err = outer.Err // net/http's, not the client's
						}
						for _, secret := range []string{"hunter2", "s3cret"} {
							if strings.Contains(err.Error(), secret) {
								return wrong("shows %s", map[string]string{"hunter2": "the password", "s3cret": "the query"}[secret])
							}
						}
					}
					return right
				}},
			},
		},
	}
}

const (
	year    = 365 * 24 * time.Hour
	payload = "what is to be stored"
)

// span is a time in few words, cut to whole units so that jitter doesn't show.
func span(d time.Duration) string {
	switch {
	case d >= year:
		return fmt.Sprint(int(d/year), " y")
	case d >= time.Hour:
		return fmt.Sprint(int(d/time.Hour), " h")
	}
	return fmt.Sprint(int(d/time.Second), " s")
}

func times(all []arrival, want int) verdict {
	if len(all) == want {
		return right
	}
	switch len(all) {
	case 0:
		return wrong("not sent")
	case 1:
		return wrong("sent once")
	case 2:
		return wrong("sent twice")
	}
	return wrong("sent %d times", len(all))
}

// each is the first of checks that is wrong.
func each(checks ...func(*run) verdict) func(*run) verdict {
	return func(r *run) verdict {
		var v verdict
		for _, check := range checks {
			if v = check(r); !v.right {
				break
			}
		}
		return v
	}
}

// after checks that a refusal with the given fields is followed by an attempt,
// want later.
func after(want time.Duration, retryAfter ...string) func(*run) verdict {
	return func(r *run) verdict {
		r.once(settings, retryAfter...)
		return r.waited(r.get(), want)
	}
}

func (r *run) waited(all []arrival, want time.Duration) verdict {
	if len(all) < 2 {
		return wrong("not repeated")
	}
	return r.orGivenUp(all, want)
}

// atLeast checks that a refusal with the given fields is followed by no attempt
// sooner than that. No call lasts longer than 100 years.
func atLeast(want time.Duration, retryAfter ...string) func(*run) verdict {
	return func(r *run) verdict {
		r.once(settings, retryAfter...)
		ctx, cancel := context.WithTimeout(r.ctx, 100*year)
		defer cancel()
		r.send(r.request("GET", "/", nil).WithContext(ctx))
		return r.orGivenUp(r.server.arrived("/"), want)
	}
}

func (r *run) orGivenUp(all []arrival, want time.Duration) verdict {
	if len(all) < 2 {
		return right
	}
	switch gap := all[1].at - all[0].at; {
	case gap >= want:
		return right
	case gap > 0 && gap <= 2*settings.Backoff:
		return wrong("not heeded")
	default:
		return wrong("after %s", span(gap))
	}
}

// localHolds checks that after a refusal with the given fields a local backoff
// of 20 s holds. A random one is looked at often enough to tell it from none.
func localHolds(retryAfter ...string) func(*run) verdict {
	return func(r *run) verdict {
		s := settings
		s.Backoff = 20 * time.Second
		var gaps []time.Duration
		for range 40 {
			r.once(s, retryAfter...)
			if all := r.get(); len(all) > 1 {
				gaps = append(gaps, all[1].at-all[0].at)
			}
		}
		if len(gaps) == 0 {
			return right // the call was given up
		}
		if least, most := slices.Min(gaps), slices.Max(gaps); least < r.localLeast(s.Backoff) || most <= s.Backoff*6/10 {
			return wrong("after %s", span(least))
		}
		return right
	}
}

// fifty makes 50 calls at once, to paths of their own.
func (r *run) fifty() {
	var wg sync.WaitGroup
	for i := range 50 {
		req := r.request("GET", fmt.Sprint("/", i), nil)
		wg.Go(func() { r.send(req) })
	}
	wg.Wait()
}

// herd gives when 50 callers come back who were told 10 s at the same time, in
// order.
func (r *run) herd() []time.Duration {
	s := settings
	s.Jitter = true
	r.once(s, "10")
	r.fifty()
	var returns []time.Duration
	for i := range 50 {
		if all := r.server.arrived(fmt.Sprint("/", i)); len(all) > 1 {
			returns = append(returns, all[1].at-all[0].at)
		}
	}
	slices.Sort(returns)
	return returns
}

func (r *run) alwaysBusy() {
	r.serve(settings, func(n int, _ *http.Request) (*http.Response, error) {
		if n > 20 {
			return response(200, "ok"), nil
		}
		return r.busy(n, "1"), nil
	})
}

// reset is what http.Transport returns when a connection is reset.
var reset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

func (r *run) alwaysReset() {
	r.serve(settings, func(int, *http.Request) (*http.Response, error) { return nil, reset })
}

func (r *run) resetOnce() {
	r.serve(settings, func(n int, _ *http.Request) (*http.Response, error) {
		if n == 1 {
			return nil, reset
		}
		return response(200, "ok"), nil
	})
}

// refusedBy refuses the first attempt with body, and looks at what arrived once
// there was another.
func (r *run) refusedBy(body io.ReadCloser, look func([]arrival) verdict) verdict {
	r.serve(settings, func(n int, _ *http.Request) (*http.Response, error) {
		if n > 1 {
			return response(200, "ok"), nil
		}
		resp := r.busy(n, "1")
		if r.body != nil { // it begins as the contender wants it
			body = &prefixed{io.MultiReader(strings.NewReader(r.busyBody(n)), body), body}
		}
		resp.Body, resp.ContentLength = body, -1
		return resp, nil
	})
	all := r.get()
	v := look(append(all, arrival{}))
	if v.right && len(all) < 2 {
		return wrong("not repeated")
	}
	return v
}

// hundred makes 100 calls to a server in memory, which is busy every other
// time, and counts the connections and the goroutines that are left.
func (r *run) hundred() (connections, goroutines int) {
	synctest.Wait()
	before := runtime.NumGoroutine()
	requests := 0
	n := newNetwork(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests%2 == 0 {
			io.WriteString(w, "ok")
			return
		}
		busy := r.busy(requests, "1")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(busy.StatusCode)
		io.Copy(w, busy.Body)
	})
	do := r.Do(n.Transport, settings)
	for range 100 {
		resp, err := do(r.request("GET", "/", nil))
		if err != nil {
			continue
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	n.stop()
	return n.dials, runtime.NumGoroutine() - before
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

type prefixed struct {
	io.Reader
	io.Closer
}

// A countedBody counts what is read of it, and how often it is closed.
type countedBody struct {
	io.Reader
	bytes, closes int
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.bytes += n
	return n, err
}

func (b *countedBody) Close() error { b.closes++; return nil }

// A stalledBody gives a few bytes, and the rest an hour later, unless it is
// closed.
type stalledBody struct {
	begun  bool
	closed chan struct{}
	once   sync.Once
}

func (b *stalledBody) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		return copy(p, "    "), nil
	}
	select {
	case <-b.closed:
		return 0, errors.New("closed")
	case <-time.After(time.Hour):
		return 0, io.EOF
	}
}

func (b *stalledBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// A slowBody gives a byte a second until the context of its request is done, as
// those of http.Transport.
type slowBody struct {
	ctx  context.Context
	left int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(time.Second):
		b.left--
		return copy(p, "x"), nil
	}
}

func (b *slowBody) Close() error { return nil }

// upgraded is the body of a 101 as http.Transport gives it.
type upgraded struct {
	io.ReadCloser
	io.Writer
}

type closer struct{ closed bool }

func (c *closer) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("unused") }
func (c *closer) CloseIdleConnections()                           { c.closed = true }
