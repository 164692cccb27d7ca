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
