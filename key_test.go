package retryafter_test

import (
	"fmt"
	"testing"

	"github.com/retryafter-go/retryafter"
)

func TestAKeyIsPrintedInQuotes(t *testing.T) {
	if got := fmt.Sprint(retryafter.Key("a\x00\"")); got != `"a\x00\""` {
		t.Error(got)
	}
}

func TestByHostIsTheKeyOfSchemeHostAndPort(t *testing.T) {
	for url, want := range map[string]retryafter.Key{
		"HTTPS://Example.com/a":     retryafter.NewKey("https", "example.com", "443"),
		"http://example.com":        retryafter.NewKey("http", "example.com", "80"),
		"http://example.com:80":     retryafter.NewKey("http", "example.com", "80"),
		"http://u@[::1]:8080/?q":    retryafter.NewKey("http", "::1", "8080"),
		"other://example.com/":      retryafter.NewKey("other", "example.com", ""),
		"https://example.com:/path": retryafter.NewKey("https", "example.com", "443"),
	} {
		if got := retryafter.ByHost(netRequest("GET", url)); got != want {
			t.Errorf("%s: %v, want %v", url, got, want)
		}
	}
}

func TestOnlyHTTPHasPortsByDefault(t *testing.T) {
	host := func(url string) retryafter.Key { return retryafter.ByHost(netRequest("GET", url)) }
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"http://h/", "http://h:80/", true},
		{"https://h/", "https://h:443/", true},
		{"http://h/", "http://h:443/", false},
		{"https://h/", "https://h:80/", false},
		{"other://h/", "other://h:443/", false},
		{"other://h/", "other://h:80/", false},
	} {
		if same := host(tc.a) == host(tc.b); same != tc.same {
			t.Errorf("%s and %s: one key: %v", tc.a, tc.b, same)
		}
	}
}
