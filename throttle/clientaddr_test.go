package throttle_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/retryafter-go/retryafter"
	. "github.com/retryafter-go/retryafter/throttle"
)

func prefixes(s ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range s {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// behind is a ClientAddr behind proxies at 10.0.0.0/8 and 2001:db8:f::/48.
func behind(field string) *ClientAddr {
	return &ClientAddr{Proxies: prefixes("10.0.0.0/8", "2001:db8:f::/48"), Field: field}
}

func from(remote, field string, lines ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = remote
	if len(lines) > 0 {
		r.Header[http.CanonicalHeaderKey(field)] = lines
	}
	return r
}

// addrOf is the address that c takes, or "error".
func addrOf(t *testing.T, c *ClientAddr, r *http.Request) string {
	t.Helper()
	addr, err := c.Addr(r)
	if err == nil {
		return addr.String()
	}
	if _, ok := errors.AsType[*AddrError](err); !ok || addr.IsValid() {
		t.Errorf("%v and an error of type %T: %v", addr, err, err)
	}
	return "error"
}

const proxy = "10.0.0.1:443"

func TestThePeersOwnAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1234":                "192.0.2.1",
		"[2001:db8:0:0::1]:1":           "2001:db8::1",
		"[::ffff:192.0.2.1]:1":          "192.0.2.1",
		"[fe80::1%eth0]:1":              "fe80::1",
		"":                              "error",
		"@":                             "error",
		"/run/server.sock":              "error",
		"192.0.2.1":                     "error", // as middleware leaves it that believed a header field
		"192.0.2.1:":                    "error",
		"example.com:80":                "error",
		"192.0.2.1:1, 198.51.100.1:1":   "error",
		"192.0.2.01:1":                  "error",
		"[::ffff:192.0.2.1%eth0]:65535": "192.0.2.1",
	} {
		r := from(remote, "X-Forwarded-For", "198.51.100.1")
		r.Header.Set("Forwarded", "for=198.51.100.1")
		if got := addrOf(t, &ClientAddr{}, r); got != want {
			t.Errorf("%q: %s, want %s", remote, got, want)
		}
	}
}

func TestXForwardedForIsWalkedFromTheRight(t *testing.T) {
	for name, test := range map[string]struct {
		remote string
		lines  []string
		want   string
	}{
		"one":                        {proxy, []string{"192.0.2.1"}, "192.0.2.1"},
		"claims to the left":         {proxy, []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		"garbage to the left":        {proxy, []string{"\x00\",,;[, 192.0.2.1"}, "192.0.2.1"},
		"two proxies":                {proxy, []string{"192.0.2.1, 10.9.9.9"}, "192.0.2.1"},
		"proxies of both kinds":      {proxy, []string{"192.0.2.1 ,\t2001:db8:f::2,10.9.9.9"}, "192.0.2.1"},
		"a claim of a proxy":         {proxy, []string{"10.1.1.1, 192.0.2.1, 10.9.9.9"}, "192.0.2.1"},
		"lines are one list":         {proxy, []string{"198.51.100.1", "192.0.2.1", "10.9.9.9"}, "192.0.2.1"},
		"the last line counts":       {proxy, []string{"198.51.100.1, 10.9.9.9", "192.0.2.1"}, "192.0.2.1"},
		"untrusted peer":             {"198.51.100.7:1", []string{"192.0.2.1"}, "198.51.100.7"},
		"untrusted peer and garbage": {"198.51.100.7:1", []string{"?"}, "198.51.100.7"},
		"mapped peer":                {"[::ffff:10.0.0.1]:1", []string{"192.0.2.1"}, "192.0.2.1"},
		"mapped element":             {proxy, []string{"192.0.2.1, ::ffff:10.9.9.9"}, "192.0.2.1"},
		"mapped client":              {proxy, []string{"::FFFF:c000:0201"}, "192.0.2.1"},
		"IPv6 text":                  {proxy, []string{"2001:0DB8:0:0::1"}, "2001:db8::1"},
		"port":                       {proxy, []string{"192.0.2.1:8080"}, "192.0.2.1"},
		"IPv6 port":                  {proxy, []string{"[2001:db8::1]:8080"}, "2001:db8::1"},
		"brackets":                   {proxy, []string{"[2001:db8::1]"}, "2001:db8::1"},
		"empty elements":             {proxy, []string{", ,192.0.2.1, ,", ""}, "192.0.2.1"},
		"no field":                   {proxy, nil, "10.0.0.1"},
		"empty field":                {proxy, []string{""}, "10.0.0.1"},
		"all are trusted":            {proxy, []string{"10.7.7.7, 10.9.9.9"}, "10.7.7.7"},
		"name":                       {proxy, []string{"192.0.2.1, unknown"}, "error"},
		"name beyond a proxy":        {proxy, []string{"192.0.2.1, client, 10.9.9.9"}, "error"},
		"zone":                       {proxy, []string{"fe80::1%eth0"}, "error"},
		"quotes":                     {proxy, []string{`"192.0.2.1"`}, "error"},
		"no port after a colon":      {proxy, []string{"192.0.2.1:"}, "error"},
		"port too large":             {proxy, []string{"192.0.2.1:65536"}, "error"},
		"port with a sign":           {proxy, []string{"192.0.2.1:+80"}, "error"},
		"hidden port":                {proxy, []string{"192.0.2.1:_x"}, "error"},
		"IPv4 in brackets":           {proxy, []string{"[192.0.2.1]"}, "error"},
		"bracket left open":          {proxy, []string{"[2001:db8::1"}, "error"},
		"text after a bracket":       {proxy, []string{"[2001:db8::1]8080"}, "error"},
		"leading zeros":              {proxy, []string{"192.0.2.010"}, "error"},
		"a prefix":                   {proxy, []string{"192.0.2.0/24"}, "error"},
		"blank within":               {proxy, []string{"192.0.2.1 198.51.100.1"}, "error"},
		"for parameter":              {proxy, []string{"for=192.0.2.1"}, "error"},
	} {
		if got := addrOf(t, behind("X-Forwarded-For"), from(test.remote, "X-Forwarded-For", test.lines...)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestForwardedIsWalkedFromTheRight(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		want  string
	}{
		"one":                       {[]string{"for=192.0.2.1"}, "192.0.2.1"},
		"parameters":                {[]string{`proto=http;For=192.0.2.1;by="_hidden";host=example.com;x=""`}, "192.0.2.1"},
		"quoted":                    {[]string{`for="192.0.2.1"`}, "192.0.2.1"},
		"quoted pairs":              {[]string{`for="\1\9\2.0.2.1"`}, "192.0.2.1"},
		"port":                      {[]string{`for="192.0.2.1:47011"`}, "192.0.2.1"},
		"IPv6":                      {[]string{`for="[2001:DB8:0:0::1]"`}, "2001:db8::1"},
		"IPv6 port":                 {[]string{`for="[2001:db8::1]:4711"`}, "2001:db8::1"},
		"hidden port":               {[]string{`for="[2001:db8::1]:_a.-1"`}, "2001:db8::1"},
		"mapped":                    {[]string{`for="[::ffff:192.0.2.1]"`}, "192.0.2.1"},
		"two proxies":               {[]string{`for=192.0.2.1, for="10.9.9.9:1"`}, "192.0.2.1"},
		"lines are one list":        {[]string{"for=198.51.100.1", "for=192.0.2.1", "for=10.9.9.9"}, "192.0.2.1"},
		"blanks at semicolons":      {[]string{"for=192.0.2.1 ; proto=https;"}, "192.0.2.1"},
		"empty pairs":               {[]string{";;for=192.0.2.1;;"}, "192.0.2.1"},
		"no field":                  {nil, "10.0.0.1"},
		"commas in quotes":          {[]string{`for=198.51.100.1, for=192.0.2.1;x="a, for=10.9.9.9"`}, "192.0.2.1"},
		"quotes in quotes":          {[]string{`for=192.0.2.1;x="\", for=10.9.9.9;y=\"\\"`}, "192.0.2.1"},
		"an open quote to the left": {[]string{`for=198.51.100.1;x=", for="[2001:db8::1]"`}, "2001:db8::1"},
		"a backslash to the left":   {[]string{`for="198.51.100.1\, for="[2001:db8::1]"`}, "2001:db8::1"},
		"an open quote a line up":   {[]string{`for=198.51.100.1;x="`, `for=192.0.2.1;y="`, `for="192.0.2.7"`}, "192.0.2.7"},
		"an open quote on the way":  {[]string{`for=192.0.2.1;x=", for=10.9.9.9`}, "error"},
		"a quote begun a line up":   {[]string{`for="192.0.2.1`, `", for=10.9.9.9`}, "error"},
		"hidden":                    {[]string{"for=_hidden"}, "error"},
		"hidden, quoted":            {[]string{`for="_hidden:80"`}, "error"},
		"unknown":                   {[]string{"for=192.0.2.1, for=Unknown"}, "error"},
		"hidden beyond a proxy":     {[]string{"for=192.0.2.1, for=_x, for=10.9.9.9"}, "error"},
		"hidden, but a claim":       {[]string{"for=_x, for=192.0.2.1, for=10.9.9.9"}, "192.0.2.1"},
		"no for":                    {[]string{"for=192.0.2.1, proto=https"}, "error"},
		"no pair":                   {[]string{";"}, "error"},
		"two for":                   {[]string{"for=192.0.2.1;FOR=192.0.2.2"}, "error"},
		"two of another":            {[]string{"for=192.0.2.1;by=a;by=a"}, "error"},
		"port, unquoted":            {[]string{"for=192.0.2.1:80"}, "error"},
		"IPv6, unquoted":            {[]string{"for=[2001:db8::1]"}, "error"},
		"IPv6, no brackets":         {[]string{`for="2001:db8::1"`}, "error"},
		"IPv4 in brackets":          {[]string{`for="[192.0.2.1]"`}, "error"},
		"zone":                      {[]string{`for="[fe80::1%eth0]"`}, "error"},
		"empty":                     {[]string{`for=""`}, "error"},
		"empty, unquoted":           {[]string{`for=`}, "error"},
		"blank at equals":           {[]string{`for= 192.0.2.1`}, "error"},
		"blank before a name":       {[]string{`fo r=192.0.2.1`}, "error"},
		"no name":                   {[]string{`=192.0.2.1`}, "error"},
		"no value":                  {[]string{`for`}, "error"},
		"text after a quote":        {[]string{`for="192.0.2.1"x`}, "error"},
		"a bare address":            {[]string{`192.0.2.1`}, "error"},
		"control":                   {[]string{"for=192.0.2.1;x=\"\x01\""}, "error"},
		"quoted control":            {[]string{"for=192.0.2.1;x=\"\\\x7f\""}, "error"},
		"hidden port, bad":          {[]string{`for="192.0.2.1:_"`}, "error"},
		"port too long":             {[]string{`for="192.0.2.1:000080"`}, "error"},
		"empty hidden port":         {[]string{`for="192.0.2.1:_a b"`}, "error"},
	} {
		if got := addrOf(t, behind("forwarded"), from(proxy, "Forwarded", test.lines...)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestOnlyTheConfiguredFieldIsRead(t *testing.T) {
	r := from(proxy, "X-Forwarded-For", "192.0.2.1")
	r.Header.Set("Forwarded", "for=192.0.2.2")
	r.Header.Set("X-Real-IP", "192.0.2.3")
	for field, want := range map[string]string{"x-forwarded-for": "192.0.2.1", "Forwarded": "192.0.2.2", "X-Real-IP": "192.0.2.3"} {
		if got := addrOf(t, behind(field), r); got != want {
			t.Errorf("%s: %s", field, got)
		}
	}
}

func TestASingleProxyWritesExactlyOneAddress(t *testing.T) {
	for field, tests := range map[string]map[string]string{
		"X-Forwarded-For": {
			"192.0.2.1": "192.0.2.1", " 192.0.2.1,": "192.0.2.1", "10.2.2.2": "10.2.2.2",
			"": "error", "192.0.2.1, 192.0.2.2": "error", "10.2.2.2, 10.2.2.3": "error", "?, 192.0.2.2": "error", "192.0.2.1, ?": "error",
		},
		"Forwarded": {
			"for=192.0.2.1": "192.0.2.1", "for=192.0.2.1, for=192.0.2.2": "error", `", for=192.0.2.2`: "error",
		},
	} {
		c := behind(field)
		c.Single = true
		for value, want := range tests {
			if got := addrOf(t, c, from(proxy, field, value)); got != want {
				t.Errorf("%s: %q: %s, want %s", field, value, got, want)
			}
		}
		if got := addrOf(t, c, from(proxy, field)); got != "error" {
			t.Errorf("no %s: %s", field, got)
		}
		if got := addrOf(t, c, from(proxy, field, "192.0.2.1", "192.0.2.2")); got != "error" {
			t.Errorf("two lines of %s: %s", field, got)
		}
	}
}

func TestAUnixSocketIsTrustedOnlyOnDemand(t *testing.T) {
	for _, remote := range []string{"", "@", "@abstract", "/run/server.sock"} {
		c := &ClientAddr{Field: "X-Forwarded-For", TrustUnix: true}
		for value, want := range map[string]string{"192.0.2.1": "192.0.2.1", "198.51.100.1, 192.0.2.1": "192.0.2.1", "": "error", "?": "error"} {
			if got := addrOf(t, c, from(remote, c.Field, value)); got != want {
				t.Errorf("%q, %q: %s, want %s", remote, value, got, want)
			}
		}
		if got := addrOf(t, c, from(remote, c.Field)); got != "error" {
			t.Errorf("%q without the field: %s", remote, got)
		}
		if got := addrOf(t, c, from("192.0.2.7:1", c.Field, "192.0.2.1")); got != "192.0.2.7" {
			t.Errorf("a peer with an address was trusted: %s", got)
		}
		if got := addrOf(t, behind(c.Field), from(remote, c.Field, "192.0.2.1")); got != "error" {
			t.Errorf("%q was trusted: %s", remote, got)
		}
	}
	c := &ClientAddr{Field: "X-Forwarded-For", TrustUnix: true}
	if got := addrOf(t, c, from("192.0.2.1", c.Field, "192.0.2.2")); got != "error" {
		t.Errorf("what is no socket was taken for one: %s", got)
	}
}

func TestProxiesMayBeGivenAsMapped(t *testing.T) {
	c := &ClientAddr{Proxies: prefixes("::ffff:10.0.0.0/104"), Field: "X-Forwarded-For"}
	for remote, want := range map[string]string{"10.0.0.1:1": "192.0.2.1", "[::ffff:10.0.0.1]:1": "192.0.2.1", "11.0.0.1:1": "11.0.0.1"} {
		if got := addrOf(t, c, from(remote, c.Field, "192.0.2.1")); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

func TestAddressesShareAKeyAsFarAsTheBitsReach(t *testing.T) {
	for _, test := range []struct {
		ip4, ip6 int
		one, two string
		same     bool
	}{
		{0, 0, "192.0.2.1", "::ffff:192.0.2.1", true},
		{0, 0, "192.0.2.1", "192.0.2.2", false},
		{32, 0, "192.0.2.1", "192.0.2.2", false},
		{24, 0, "192.0.2.1", "192.0.2.2", true},
		{24, 0, "192.0.2.1", "::ffff:192.0.2.2", true},
		{24, 0, "192.0.2.1", "192.0.3.1", false},
		{0, 0, "2001:db8::1", "2001:0db8:0:0::1", true},
		{0, 128, "2001:db8::1", "2001:0db8:0:0::1", true},
		{0, 0, "2001:db8::1", "2001:db8::ffff:1:2:3", true},
		{0, 128, "2001:db8::1", "2001:db8::2", false},
		{0, 0, "2001:db8::1", "2001:db8:0:1::1", false},
		{0, 56, "2001:db8::1", "2001:db8:0:1::1", true},
		{0, 0, "0.0.0.0", "::", false},
	} {
		c := &ClientAddr{Proxies: prefixes("10.0.0.0/8"), Field: "X-Forwarded-For", IPv4Bits: test.ip4, IPv6Bits: test.ip6}
		one, err := c.Key(from(proxy, c.Field, test.one))
		two, err2 := c.Key(from(proxy, c.Field, test.two))
		if err != nil || err2 != nil || (one == two) != test.same {
			t.Errorf("%+v: %q and %q, %v, %v", test, one, two, err, err2)
		}
	}
	p, err := (&ClientAddr{IPv6Bits: 48}).Prefix(from("[2001:db8:1:2::3]:1", ""))
	if err != nil || p.String() != "2001:db8:1::/48" {
		t.Error(p, err)
	}
	if _, err := (&ClientAddr{}).Key(from("@", "")); err == nil {
		t.Error("a key of no address")
	}
}

func TestAnAddressIsNoAccountsKey(t *testing.T) {
	key, err := (&ClientAddr{}).Key(from("192.0.2.1:1", ""))
	if err != nil || key == retryafter.Key("192.0.2.1/32") || key == retryafter.NewKey("192.0.2.1/32") {
		t.Errorf("%q, %v", key, err)
	}
}

func TestSenselessAddressSettingsAreAnError(t *testing.T) {
	for name, c := range map[string]*ClientAddr{
		"Proxies without Field":   {Proxies: prefixes("10.0.0.0/8")},
		"Single without Field":    {Single: true},
		"TrustUnix without Field": {TrustUnix: true},
		"no prefix":               {Proxies: []netip.Prefix{{}}, Field: "Forwarded"},
		"bits of no prefix":       {Proxies: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33)}, Field: "Forwarded"},
		"part of mapped":          {Proxies: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 90)}, Field: "Forwarded"},
		"IPv4Bits":                {IPv4Bits: 33},
		"negative IPv4Bits":       {IPv4Bits: -1},
		"IPv6Bits":                {IPv6Bits: 129},
		"negative IPv6Bits":       {IPv6Bits: -1},
	} {
		for range 2 {
			_, err := c.Key(from("192.0.2.1:1", ""))
			if _, ok := errors.AsType[*retryafter.ConfigError](err); !ok {
				t.Errorf("%s: %v", name, err)
			}
		}
		h := &Handler{Next: served, Limit: perSecond(1), Key: c.Key}
		if w := serve(h, "GET"); w.Code != 500 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

func TestAnErrorIsOfTheFieldAtFaultAndShort(t *testing.T) {
	long := strings.Repeat("x", 1000) + "\n"
	for _, r := range []*http.Request{from(proxy, "Forwarded", long), from(long, "Forwarded")} {
		_, err := behind("Forwarded").Addr(r)
		e, ok := errors.AsType[*AddrError](err)
		if !ok || len(e.Error()) > 200 || strings.Contains(e.Error(), "\n") {
			t.Fatal(err)
		}
		want := map[bool]string{true: "Forwarded", false: "RemoteAddr"}[r.RemoteAddr == proxy]
		if e.Field != want {
			t.Errorf("%s, want %s", e.Field, want)
		}
	}
}

func TestTheHeaderIsOnlyRead(t *testing.T) {
	lines := []string{"for=192.0.2.1, for=10.1.1.1", "for=10.2.2.2, for=10.3.3.3"}
	r := from(proxy, "Forwarded", lines...)
	for range 2 {
		if got := addrOf(t, behind("Forwarded"), r); got != "192.0.2.1" {
			t.Error(got)
		}
	}
	if lines[0] != "for=192.0.2.1, for=10.1.1.1" || lines[1] != "for=10.2.2.2, for=10.3.3.3" || len(r.Header["Forwarded"]) != 2 {
		t.Error(lines)
	}
}
