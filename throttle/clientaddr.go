package throttle

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/retryafter-go/retryafter"
)

// A ClientAddr tells the address that a request comes from. Its Key method is
// made for Handler.Key. The zero ClientAddr takes the peer's own address and
// reads no header field.
//
// Anyone can write a forwarding field (RFC 7239, section 8.1). So it is read
// only where the peer, the other end of the connection, is one of Proxies; and
// it is read from its right end, where the nearest proxy wrote, for as long as
// the addresses are trusted ones. The first that isn't is the client's. What
// stands to the left of it is a claim, and not even looked at. Where all are
// trusted, the leftmost is taken; where the field is absent, that is the peer.
//
// What stands on the way and is no address is an error, not a guess: an
// element that can't be read, a hidden or unknown node of a Forwarded field, an
// element without a for parameter. Several field lines are one list, in their
// order. A port is read and ignored. An IPv6 address with a zone is refused in
// a field, where the zone has no meaning, and taken without it from the peer.
//
// All spellings of an address are one: ::ffff:192.0.2.1 is 192.0.2.1, both
// where it is found and in Proxies.
//
// A ClientAddr may be used from many goroutines at once. It must not be copied
// or have its fields changed after the first use.
type ClientAddr struct {
	// Proxies are those whose word is trusted. Whoever can send from one of
	// these addresses chooses where requests come from, so list proxies, not
	// networks that clients are in too.
	Proxies []netip.Prefix

	// Field is the header field that the proxies write. "Forwarded" is read as
	// RFC 7239 has it. Any other is read as X-Forwarded-For is, a list of
	// addresses. Only one is ever read: a proxy passes on the others as it got
	// them. It must be set where there are Proxies, unless TrustUnix is the
	// only trust. Empty means the peer's own address.
	Field string

	// Single says that the proxy replaces the field by exactly one address. No
	// address, or more than one, is an error then.
	Single bool

	// TrustUnix trusts a peer without an address: one at the other end of a
	// Unix socket, which RemoteAddr shows as "", "@" or a path. Without it such
	// a peer is an error.
	TrustUnix bool

	// IPv4Bits and IPv6Bits say how much of an address makes a key: all that
	// have so many leading bits in common share it. 0 means 32, each address by
	// itself, and 64, which is what a single site has at least and could use
	// address by address.
	IPv4Bits, IPv6Bits int

	once    sync.Once
	err     error          // a *retryafter.ConfigError
	field   string         // as in http.Header
	proxies []netip.Prefix // none of them IPv4-mapped
}

// An AddrError is an address that could not be told. Its text has what a
// stranger wrote, quoted and cut: it is for logs, not for responses.
type AddrError struct {
	Field   string // "RemoteAddr", or the header field at fault
	Value   string // what could not be read
	Problem string
}

func (e *AddrError) Error() string {
	const most = 80
	value := e.Value
	if len(value) > most {
		value = value[:most] + "…"
	}
	return "throttle: " + e.Field + " " + strconv.Quote(value) + ": " + e.Problem
}

const remoteAddr = "RemoteAddr"

// Key is the key of r's network: of what Prefix returns.
func (c *ClientAddr) Key(r *http.Request) (retryafter.Key, error) {
	p, err := c.Prefix(r)
	if err != nil {
		return "", err
	}
	return retryafter.NewKey("addr", p.String()), nil
}

// Prefix is the address that r comes from, as far as IPv4Bits or IPv6Bits
// reach.
func (c *ClientAddr) Prefix(r *http.Request) (netip.Prefix, error) {
	addr, err := c.Addr(r)
	if err != nil {
		return netip.Prefix{}, err
	}
	bits := orDefault(c.IPv6Bits, 64)
	if addr.Is4() {
		bits = orDefault(c.IPv4Bits, 32)
	}
	return addr.Prefix(bits)
}

// Addr is the address that r comes from. The error is an *[AddrError], or a
// *[retryafter.ConfigError].
func (c *ClientAddr) Addr(r *http.Request) (netip.Addr, error) {
	if err := c.open(); err != nil {
		return netip.Addr{}, err
	}
	peer, err := c.peer(r.RemoteAddr)
	if err != nil || c.field == "" || peer.IsValid() && !c.trusts(peer) {
		return peer, err
	}
	return c.walk(peer, r.Header[c.field])
}

// peer is the address in RemoteAddr, or none where TrustUnix makes up for it.
func (c *ClientAddr) peer(remote string) (netip.Addr, error) {
	if p, err := netip.ParseAddrPort(remote); err == nil {
		return p.Addr().WithZone("").Unmap(), nil
	}
	unix := remote == "" || remote[0] == '@' || remote[0] == '/'
	if unix && c.TrustUnix {
		return netip.Addr{}, nil
	}
	problem := "is not an address and a port"
	if unix {
		problem = "is a Unix socket, which has no address"
	}
	return netip.Addr{}, &AddrError{remoteAddr, remote, problem}
}

func (c *ClientAddr) trusts(addr netip.Addr) bool {
	for _, p := range c.proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// walk goes from the peer, which is trusted, to the left.
func (c *ClientAddr) walk(addr netip.Addr, lines []string) (netip.Addr, error) {
	list := fieldList{lines: lines, quoted: c.field == "Forwarded"}
	bad := func(value, problem string) (netip.Addr, error) {
		return netip.Addr{}, &AddrError{c.field, value, problem}
	}
	for n := 1; ; n++ {
		element, ok := list.last()
		switch {
		case ok && c.Single && n > 1:
			return bad(element, "must be the only element")
		case !ok && (c.Single && n == 1 || !addr.IsValid()):
			return bad("", "has no address")
		case !ok:
			return addr, nil
		}
		node, problem := element, ""
		if list.quoted {
			node, problem = forParameter(element)
		}
		if problem == "" {
			addr, problem = parseNode(node, list.quoted)
		}
		if problem != "" {
			return bad(element, problem)
		}
		if !c.Single && !c.trusts(addr) {
			return addr, nil
		}
	}
}

// open makes c ready at its first use.
func (c *ClientAddr) open() error {
	c.once.Do(func() { c.err = c.begin() })
	return c.err
}

func (c *ClientAddr) begin() error {
	bad := func(field string, value any, problem string) error {
		return &retryafter.ConfigError{Field: "ClientAddr." + field, Value: fmt.Sprint(value), Problem: problem}
	}
	switch {
	case c.Field == "" && (len(c.Proxies) > 0 || c.Single || c.TrustUnix):
		return bad("Field", "empty", "must be set where someone is trusted to write it")
	case c.Field != "" && !isToken(c.Field):
		return bad("Field", strconv.Quote(c.Field), "must be the name of a header field")
	case c.IPv4Bits < 0 || c.IPv4Bits > 32:
		return bad("IPv4Bits", c.IPv4Bits, "must be from 1 to 32, or 0")
	case c.IPv6Bits < 0 || c.IPv6Bits > 128:
		return bad("IPv6Bits", c.IPv6Bits, "must be from 1 to 128, or 0")
	}
	for _, p := range c.Proxies {
		switch {
		case !p.IsValid():
			return bad("Proxies", p, "must be valid prefixes")
		case p.Addr().Is4In6() && p.Bits() < 96:
			return bad("Proxies", p, "must not have part of an IPv4-mapped prefix")
		case p.Addr().Is4In6():
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		c.proxies = append(c.proxies, p)
	}
	c.field = http.CanonicalHeaderKey(c.Field)
	return nil
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// A fieldList gives the elements of a list from its right end. How it reads
// one depends on nothing that stands to the left of it: nobody gets another's
// element into a quotation of his own. Empty elements don't count (RFC 9110,
// section 5.6.1.2).
type fieldList struct {
	lines  []string // not begun yet
	line   string   // what is left of the one that is
	quoted bool     // commas may be quoted
}

// last takes the last element off the list.
func (l *fieldList) last() (string, bool) {
	for l.line != "" || len(l.lines) > 0 {
		if l.line == "" {
			end := len(l.lines) - 1
			l.line, l.lines = l.lines[end], l.lines[:end]
		}
		comma := l.comma(l.line)
		element := trim(l.line[comma+1:])
		l.line = l.line[:max(comma, 0)]
		if element != "" {
			return element, true
		}
	}
	return "", false
}

// comma finds the last comma of line that isn't quoted, or returns -1. It goes
// from the right, where a quotation mark ends a quotation. The one that begins
// it is the next that isn't itself quoted, by one backslash or an odd number.
func (l *fieldList) comma(line string) int {
	if !l.quoted {
		return strings.LastIndexByte(line, ',')
	}
	inside := false
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case ',':
			if !inside {
				return i
			}
		case '"':
			slashes := i - len(strings.TrimRight(line[:i], `\`))
			if !inside || slashes%2 == 0 {
				inside = !inside
			}
		}
	}
	return -1
}

// maxParameters bounds the work for one forwarded-element: four are defined.
const maxParameters = 32

// forParameter reads a forwarded-element (RFC 7239, section 4) and returns the
// value of its for parameter. Blanks around a semicolon are put up with.
func forParameter(element string) (node, problem string) {
	const malformed = "is not a forwarded-element"
	seen := make([]string, 0, 8)
	for rest := element; rest != ""; {
		if rest[0] == ';' {
			rest = trim(rest[1:])
			continue
		}
		name, value, ok := strings.Cut(rest, "=")
		if !ok || !isToken(name) {
			return "", malformed
		}
		value, rest, ok = cutValue(value)
		rest = trim(rest)
		if !ok || rest != "" && rest[0] != ';' {
			return "", malformed
		}
		if len(seen) == maxParameters {
			return "", "has too many parameters"
		}
		for _, s := range seen {
			if strings.EqualFold(s, name) {
				return "", "has a parameter twice"
			}
		}
		seen = append(seen, name)
		if strings.EqualFold(name, "for") {
			node = value
		}
	}
	if node == "" {
		return "", "has no for parameter"
	}
	return node, ""
}

// cutValue cuts a token or a quoted-string off the front of s.
func cutValue(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		end := 0
		for end < len(s) && isTokenByte(s[end]) {
			end++
		}
		return s[:end], s[end:], end > 0
	}
	var plain []byte
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return string(plain), s[i+1:], true
		case c == '\\':
			if i++; i == len(s) || !isText(s[i]) {
				return "", "", false
			}
			plain = append(plain, s[i])
		case !isText(c):
			return "", "", false
		default:
			plain = append(plain, c)
		}
	}
	return "", "", false
}

// parseNode reads an address with or without a port. In a Forwarded field
// (RFC 7239, section 6) an IPv6 address must stand in brackets, and a port may
// be hidden.
func parseNode(s string, forwarded bool) (addr netip.Addr, problem string) {
	host, port, hasPort := s, "", false
	bracketed := strings.HasPrefix(s, "[")
	if bracketed {
		var ok bool
		if host, port, ok = strings.Cut(s[1:], "]"); !ok || port != "" && port[0] != ':' {
			return netip.Addr{}, "is not an address"
		}
		if hasPort = port != ""; hasPort {
			port = port[1:]
		}
	} else if forwarded || strings.Count(s, ":") == 1 {
		host, port, hasPort = strings.Cut(s, ":")
	}
	if forwarded && (strings.EqualFold(host, "unknown") || strings.HasPrefix(host, "_")) {
		return netip.Addr{}, "hides an address that is needed"
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil || bracketed != addr.Is6() && (bracketed || forwarded):
		return netip.Addr{}, "is not an address"
	case addr.Zone() != "":
		return netip.Addr{}, "has a zone, which means nothing here"
	case hasPort && !isPort(port) && !(forwarded && isHiddenPort(port)):
		return netip.Addr{}, "has no port where one is begun"
	}
	return addr.Unmap(), ""
}

func isPort(s string) bool {
	if len(s) == 0 || len(s) > 5 || strings.Trim(s, "0123456789") != "" {
		return false
	}
	n, err := strconv.Atoi(s)
	return err == nil && n <= 65535
}

func isHiddenPort(s string) bool {
	if len(s) < 2 || s[0] != '_' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// trim removes optional whitespace (RFC 9110, section 5.6.3).
func trim(s string) string { return strings.Trim(s, " \t") }

func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// isText reports whether c may stand in a quoted-string, quoted by a backslash
// where it must be.
func isText(c byte) bool { return c == '\t' || c >= ' ' && c != 0x7f }
