package throttle_test

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

// The slow readers below share nothing with the real one. They go through the
// whole list from the left, and try what could be an element where.

const (
	slowToken  = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+"
	slowQuoted = `"(?:[\t !\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t -\x7e\x80-\xff])*"`
	slowPair   = slowToken + `=(?:` + slowToken + `|` + slowQuoted + `)`
)

var (
	slowElement = regexp.MustCompile(`^[ \t]*(?:` + slowPair + `)?(?:[ \t]*;[ \t]*(?:` + slowPair + `)?)*[ \t]*$`)
	slowPairs   = regexp.MustCompile(`(` + slowToken + `)=(` + slowToken + `|` + slowQuoted + `)`)
	slowEscape  = regexp.MustCompile(`\\(.)`)
	slowNode    = regexp.MustCompile(`^(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::(?:([0-9]{1,5})|_[0-9A-Za-z._-]+))?$`)
	slowPlain   = regexp.MustCompile(`^(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{1,5}))?$|^([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$`)
)

// latin1 makes one rune of each byte, for the expressions above to match.
func latin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// slowElements are the elements of all lines, the last first, until one can't
// be read. It stands as "?".
func slowElements(lines []string, quoted bool) (elements []string) {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := latin1(lines[i]); rest != ""; {
			element, before := "?", ""
			if !quoted {
				at := strings.LastIndex(rest, ",")
				element, before = rest[at+1:], rest[:max(at, 0)]
			} else {
				for at := len(rest) - 1; at >= -1; at-- {
					if (at == -1 || rest[at] == ',') && slowElement.MatchString(rest[at+1:]) {
						element, before = rest[at+1:], rest[:max(at, 0)]
						break
					}
				}
			}
			if element = strings.Trim(element, " \t"); element != "" {
				elements = append(elements, element)
			}
			if rest = before; element == "?" {
				return elements
			}
		}
	}
	return elements
}

func slowAddr(element string, forwarded bool) (netip.Addr, bool) {
	node := element
	if forwarded {
		node = ""
		seen := map[string]bool{}
		for _, m := range slowPairs.FindAllStringSubmatch(element, -1) {
			name, value := strings.ToLower(m[1]), m[2]
			if strings.HasPrefix(value, `"`) {
				value = slowEscape.ReplaceAllString(value[1:len(value)-1], "$1")
			}
			if seen[name] {
				return netip.Addr{}, false
			}
			if seen[name] = true; name == "for" {
				node = value
			}
		}
	}
	grammar := slowPlain
	if forwarded {
		grammar = slowNode
	}
	m := grammar.FindStringSubmatch(node)
	if m == nil || len(m[3]) == 5 && m[3] > "65535" {
		return netip.Addr{}, false
	}
	if a, err := netip.ParseAddr(m[1]); err == nil {
		return a, true
	}
	for _, text := range []string{m[2], m[len(m)-1]} {
		if a, err := netip.ParseAddr(text); err == nil && a.Is6() {
			return a.Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// slowWalk is what ClientAddr must say, "error" where it must refuse. settled
// reports whether nothing to the left could change it.
func slowWalk(lines []string, single, forwarded bool) (want string, settled bool) {
	elements := slowElements(lines, forwarded)
	if single {
		if len(elements) != 1 {
			return "error", len(elements) > 1
		}
		if a, ok := slowAddr(elements[0], forwarded); ok {
			return a.String(), false
		}
		return "error", true
	}
	want = "10.0.0.1"
	for _, e := range elements {
		a, ok := slowAddr(e, forwarded)
		if !ok {
			return "error", true
		}
		want = a.String()
		if a.Is4() && a.As4()[0] == 10 || a.Is6() && strings.HasPrefix(a.StringExpanded(), "2001:0db8:000f:") {
			continue
		}
		return want, true
	}
	return want, false
}

func fuzzField(t *testing.T, field, claim, first, second string, single bool) {
	if len(claim)+len(first)+len(second) > 400 {
		t.Skip("the slow reader is slow")
	}
	forwarded := field == "Forwarded"
	c := behind(field)
	c.Single = single
	lines := []string{first, second}
	want, settled := slowWalk(lines, single, forwarded)
	if got := addrOf(t, c, from(proxy, field, lines...)); got != want {
		t.Fatalf("%q is taken for %s, should be %s", lines, got, want)
	}
	if got := addrOf(t, c, from("192.0.2.7:1", field, lines...)); got != "192.0.2.7" {
		t.Fatalf("an untrusted peer is taken for %s", got)
	}
	if !settled {
		return
	}
	// Whatever a client sends ahead of what proxies add makes no difference.
	for _, more := range [][]string{{claim, first, second}, {claim + "," + first, second}} {
		if forwarded && want == "error" && len(more) == 2 {
			continue // an open quotation may reach into the claim
		}
		if got := addrOf(t, c, from(proxy, field, more...)); got != want {
			t.Fatalf("with the claim %q, %q is taken for %s, not %s", claim, lines, got, want)
		}
	}
}

func FuzzForwarded(f *testing.F) {
	for _, seed := range [][3]string{
		{"for=198.51.100.1", "for=192.0.2.1", "for=10.9.9.9"},
		{`for="`, `for="[2001:db8::1]:80"`, `for="[2001:db8:f::1]:_x"`},
		{`x="\`, `for="192.0.2.1:80";proto=https;by=_a`, ``},
		{"for=_hidden", "for=unknown", `for="\1\0.9.9.9" ; x="a,\"b\\"`},
		{"", `for=10.1.1.1, for=10.2.2.2`, `for="::ffff:192.0.2.1"`},
	} {
		f.Add(seed[0], seed[1], seed[2], false)
		f.Add(seed[0], seed[1], "", true)
	}
	f.Fuzz(func(t *testing.T, claim, first, second string, single bool) {
		fuzzField(t, "Forwarded", claim, first, second, single)
	})
}

func FuzzXForwardedFor(f *testing.F) {
	for _, seed := range [][3]string{
		{"198.51.100.1", "192.0.2.1", "10.9.9.9"},
		{`"`, "2001:DB8::1, 10.1.1.1", "::ffff:10.9.9.9,"},
		{"", "[2001:db8::1]:80", "10.9.9.9:443"},
		{"?", "192.0.2.1:", "fe80::1%eth0"},
		{",", "::, 10.0.0.0", "[::ffff:1.2.3.4]"},
	} {
		f.Add(seed[0], seed[1], seed[2], false)
		f.Add(seed[0], seed[1], "", true)
	}
	f.Fuzz(func(t *testing.T, claim, first, second string, single bool) {
		fuzzField(t, "X-Forwarded-For", claim, first, second, single)
	})
}

func TestSlowReadersReadTheExamplesOfRFC7239(t *testing.T) {
	for value, want := range map[string]string{
		`for=192.0.2.43`:                            "192.0.2.43",
		`for="[2001:db8:cafe::17]:4711"`:            "2001:db8:cafe::17",
		`for=192.0.2.60;proto=http;by=203.0.113.43`: "192.0.2.60",
		`for=192.0.2.43, for=198.51.100.17`:         "198.51.100.17",
		`for=_gazonk`:                               "error",
		`for=unknown`:                               "error",
	} {
		if got, _ := slowWalk([]string{value}, false, true); got != want {
			t.Errorf("%s: %s", value, got)
		}
		if got := addrOf(t, behind("Forwarded"), from(proxy, "Forwarded", value)); got != want {
			t.Errorf("%s is taken for %s", value, got)
		}
	}
}
