// Package redact takes what may be secret out of URLs: userinfo, query and
// fragment.
package redact

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// URL is u without what may be secret in it.
func URL(u *url.URL) string {
	v := *u
	v.User, v.RawQuery, v.ForceQuery, v.Fragment, v.RawFragment = nil, "", false, "", ""
	v.Opaque = opaque(v.Opaque)
	return v.String()
}

// opaque is s without what may be secret: userinfo stands before the last @, but
// in what begins as a path does only in the authority, which // begins.
func opaque(s string) string {
	s, _, _ = strings.Cut(s, "#")
	s, _, _ = strings.Cut(s, "?")
	rest, begins := strings.CutPrefix(s, "//")
	switch {
	case begins:
		host := strings.IndexByte(rest+"/", '/')
		return "//" + rest[strings.LastIndexByte(rest[:host], '@')+1:]
	case strings.HasPrefix(s, "/"):
		return s
	}
	return s[strings.LastIndexByte(s, '@')+1:]
}

// Error is err's text with each URL of a *url.Error in its tree redacted,
// however the errors around that one quote it.
func Error(err error) string {
	text := err.Error()
	urls := urlsIn(err, nil)
	// One may begin with another.
	slices.SortFunc(urls, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, raw := range urls {
		safe := "(unreadable URL)"
		if u, err := url.Parse(raw); err == nil {
			safe = URL(u)
		}
		// Quoted as url.Error does it, or once more by who quotes that.
		once := quoted(raw)
		for _, written := range []string{quoted(once), once, raw} {
			text = strings.ReplaceAll(text, written, safe)
		}
	}
	return text
}

// quoted is s as strconv.Quote writes it, without the marks.
func quoted(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// urlsIn appends the URLs of every *url.Error in err's tree.
func urlsIn(err error, urls []string) []string {
	if u, ok := err.(*url.Error); ok && u.URL != "" {
		urls = append(urls, u.URL)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		urls = urlsIn(e.Unwrap(), urls)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			urls = urlsIn(inner, urls)
		}
	}
	return urls
}
