package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/throttle"
)

// A fixture is a request that has passed authentication and routing.
type fixture struct {
	tenant, account, operation string // verified
	peer, credential, claim    string // what else there is
}

type verified struct{}

var alice = fixture{"north", "alice", "export", "198.51.100.8", "key-a", "alice"}

func (f fixture) with(change func(*fixture)) fixture {
	change(&f)
	return f
}

func (f fixture) request() *http.Request {
	r := httptest.NewRequest("GET", "/export?account="+f.claim, nil)
	r.RemoteAddr = f.peer + ":1234"
	r.Header.Set("Authorization", "Bearer "+f.credential)
	r.Header.Set("Account", f.claim)
	r.Header.Set("X-Forwarded-For", f.claim)
	return r.WithContext(context.WithValue(r.Context(), verified{}, f))
}

func accountKey(r *http.Request) (retryafter.Key, error) {
	f, ok := r.Context().Value(verified{}).(fixture)
	if !ok {
		return "", errors.New("not authenticated")
	}
	return retryafter.NewKey("account", f.tenant, f.account, f.operation), nil
}

// twoEach admits two requests a key.
func twoEach(key func(*http.Request) (retryafter.Key, error)) func(...fixture) []bool {
	h := &Handler{Next: served, Key: key,
		Limit: Keyed(&retryafter.Keyed{Capacity: 2, Rate: retryafter.Every(time.Hour)})}
	return func(requests ...fixture) (admitted []bool) {
		for _, f := range requests {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, f.request())
			admitted = append(admitted, w.Code == 200)
		}
		return admitted
	}
}

func wantAdmitted(t *testing.T, got []bool, want ...bool) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("admitted (-want +got):\n%s", diff)
	}
}

func TestAnAccountsBudgetIsItsOwnWhateverElseChanges(t *testing.T) {
	bob := alice.with(func(f *fixture) { f.account, f.credential = "bob", "key-b" })
	byAddr, byAccount := twoEach((&ClientAddr{}).Key), twoEach(accountKey)

	// Two accounts behind one address collide in its budget, not in their own.
	wantAdmitted(t, byAddr(alice, alice, bob), true, true, false)
	wantAdmitted(t, byAccount(alice, alice, bob), true, true, true)

	// Another address is another address, but the same account.
	roaming := alice.with(func(f *fixture) { f.peer, f.credential = "203.0.113.9", "key-a-rotated" })
	wantAdmitted(t, byAddr(roaming), true)
	wantAdmitted(t, byAccount(roaming), false)
	for _, claim := range []string{"bob", "new-account", "admin"} {
		claims := roaming.with(func(f *fixture) { f.claim = claim })
		wantAdmitted(t, byAccount(claims), false)
		if a, b := keyFor(t, claims), keyFor(t, alice); a != b {
			t.Errorf("the claim %q makes another key: %q, %q", claim, a, b)
		}
	}

	// Tenant and operation are parts of the key.
	wantAdmitted(t, byAccount(
		alice.with(func(f *fixture) { f.tenant = "south" }),
		alice.with(func(f *fixture) { f.operation = "thumbnail" }),
	), true, true)
}

func keyFor(t *testing.T, f fixture) retryafter.Key {
	t.Helper()
	key, err := accountKey(f.request())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestPartsOfAKeyDoNotRunTogether(t *testing.T) {
	one := alice.with(func(f *fixture) { f.tenant, f.account = "a:b", "c" })
	two := alice.with(func(f *fixture) { f.tenant, f.account = "a", "b:c" })
	if keyFor(t, one) == keyFor(t, two) {
		t.Error("they do")
	}
}

// One proxy that replaces the field by exactly one address.
func TestUntrustedPeersCannotChooseAnIdentity(t *testing.T) {
	c := &ClientAddr{Proxies: prefixes("192.0.2.10/32"), Field: "X-Forwarded-For", Single: true, IPv6Bits: 128}
	networkKey := func(peer, replacement string) string {
		return addrOf(t, c, from("["+peer+"]:1", c.Field, replacement))
	}
	for _, test := range [][3]string{
		{"::ffff:198.51.100.8", "203.0.113.77", "198.51.100.8"},
		{"::ffff:198.51.100.8", "not-an-address", "198.51.100.8"},
		{"::ffff:192.0.2.10", "198.51.100.8", "198.51.100.8"},
		{"::ffff:192.0.2.10", "198.51.100.8, 203.0.113.9", "error"},
	} {
		if got := networkKey(test[0], test[1]); got != test[2] {
			t.Errorf("%s, %q: %s", test[0], test[1], got)
		}
	}
	long, err := c.Key(from("[2001:0db8:0:0::1]:1", c.Field, "ignored"))
	short, err2 := c.Key(from("[2001:db8::1]:1", c.Field, "ignored"))
	if err != nil || err2 != nil || long != short {
		t.Errorf("%q and %q, %v, %v", long, short, err, err2)
	}
}

func TestWithoutAnIdentityNobodyIsAdmitted(t *testing.T) {
	h := &Handler{Next: served, Limit: perSecond(100), Key: accountKey}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer of any kind")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 500 {
		t.Error(w.Code)
	}
}
