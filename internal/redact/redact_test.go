package redact_test

import (
	"net/url"
	"testing"

	"github.com/retryafter-go/retryafter/internal/redact"
)

func TestNoFormOfAURLTellsWhatIsSecret(t *testing.T) {
	for raw, want := range map[string]string{
		"http://u:secret@h/a?secret#secret": "http://h/a",
		"http:u:secret@h/a?secret":          "http:h/a",
		"//u:secret@h/a%2Fb":                "//h/a%2Fb",
		"/a?":                               "/a",
		"mailto:secret@h":                   "mailto:h",
		"http://h/a#secret%2F":              "http://h/a",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		before := *u
		if got := redact.URL(u); got != want {
			t.Errorf("%s is told as %s, want %s", raw, got, want)
		}
		if *u != before {
			t.Errorf("%s was changed", raw)
		}
	}
}
