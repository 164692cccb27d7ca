package redact_test

import (
	"net/url"
	"testing"

	"github.com/retryafter-go/retryafter/internal/redact"
)

func TestNoFormOfAURLTellsWhatIsSecret(t *testing.T) {
	urls := map[string][]*url.URL{}
	for raw, want := range map[string]string{
		"http://u:secret@h/a?secret#secret": "http://h/a",
		"http:u:secret@h/a?secret":          "http:h/a",
		"//u:secret@h/a%2Fb":                "//h/a%2Fb",
		"/a?":                               "/a",
		"mailto:secret@h":                   "mailto:h",
		"http://h/a#secret%2F":              "http://h/a",
		"mailto:a/secret@h":                 "mailto:h",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		urls[want] = append(urls[want], u)
	}
	for raw, want := range map[string]string{ // as callers set it, for a path with %2F
		"//h/a%2Fb?secret":        "https://h/a%2Fb",
		"//u:secret@h/a@b?secret": "https://h/a@b",
		"//u:secret@h#secret":     "https://h",
		"/a@b?secret@":            "https:/a@b",
	} {
		urls[want] = append(urls[want], &url.URL{Scheme: "https", Host: "other", Opaque: raw})
	}
	for want, all := range urls {
		for _, u := range all {
			before, raw := *u, u.String()
			if got := redact.URL(u); got != want {
				t.Errorf("%s is told as %s, want %s", raw, got, want)
			}
			if *u != before {
				t.Errorf("%s was changed", raw)
			}
		}
	}
}
