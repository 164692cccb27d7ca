package hints

import "strings"

// A kind is a type of bare Item (RFC 9651, section 3.3), as far as it matters
// here.
type kind uint8

const (
	sfNone kind = iota // what can't be read, or isn't there
	sfInteger
	sfString
	sfOther
)

// An item is a bare Item.
type item struct {
	kind   kind
	number int64 // of an Integer
}

// quantity reports whether i is an Integer that is not negative.
func (i item) quantity() bool { return i.kind == sfInteger && i.number >= 0 }

// structured reads a Structured Field (RFC 9651, section 4.2) from s, of which
// its methods cut what they have read. Once something can't be read, bad stays
// set and what is read later means nothing.
type structured struct {
	s   string
	bad bool
}

func (f *structured) fail() item {
	f.bad = true
	return item{}
}

func (f *structured) skip(blanks string) { f.s = strings.TrimLeft(f.s, blanks) }

// next passes over c where it comes next, and reports whether it did.
func (f *structured) next(c byte) bool {
	if f.s == "" || f.s[0] != c {
		return false
	}
	f.s = f.s[1:]
	return true
}

// span passes over the bytes that are in a class, and gives them.
func (f *structured) span(class func(byte) bool) string {
	i := 0
	for i < len(f.s) && class(f.s[i]) {
		i++
	}
	passed := f.s[:i]
	f.s = f.s[i:]
	return passed
}

// parameter reads a key and its value, which is a Boolean where there is none
// (section 4.2.3.2).
func (f *structured) parameter() (string, item) {
	if f.s == "" || !lower(f.s[0]) && f.s[0] != '*' {
		return "", f.fail()
	}
	key := f.span(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
	if !f.next('=') {
		return key, item{kind: sfOther}
	}
	return key, f.item()
}

// item reads a bare Item (section 4.2.3.1).
func (f *structured) item() item {
	if f.s == "" {
		return f.fail()
	}
	switch c := f.s[0]; {
	case c == '-' || digit(c):
		return f.number()
	case c == '"':
		f.next('"')
		return f.quoted()
	case letter(c) || c == '*':
		f.span(tokenByte)
		return item{kind: sfOther}
	case c == ':':
		f.next(':')
		f.span(func(c byte) bool { return letter(c) || digit(c) || strings.IndexByte("+/=", c) >= 0 })
		return f.end(f.next(':'), sfOther)
	case c == '?':
		f.next('?')
		return f.end(f.next('0') || f.next('1'), sfOther)
	case c == '@':
		f.next('@')
		return f.end(f.number().kind == sfInteger, sfOther)
	case strings.HasPrefix(f.s, `%"`):
		f.s = f.s[2:]
		return f.displayed()
	}
	return f.fail()
}

func (f *structured) end(ok bool, k kind) item {
	if !ok {
		return f.fail()
	}
	return item{kind: k}
}

// number reads an Integer of up to 15 digits, or a Decimal of up to 12 and 3
// (section 4.2.4).
func (f *structured) number() item {
	negative := f.next('-')
	whole := f.span(digit)
	if whole == "" || len(whole) > 15 {
		return f.fail()
	}
	if f.next('.') {
		fraction := f.span(digit)
		return f.end(len(whole) <= 12 && fraction != "" && len(fraction) <= 3, sfOther)
	}
	n := item{kind: sfInteger}
	for i := range len(whole) {
		n.number = n.number*10 + int64(whole[i]-'0')
	}
	if negative {
		n.number = -n.number
	}
	return n
}

// quoted reads a String behind its first quote (section 4.2.5).
func (f *structured) quoted() item {
	for i := 0; i < len(f.s); i++ {
		switch c := f.s[i]; {
		case c == '"':
			f.s = f.s[i+1:]
			return item{kind: sfString}
		case c < ' ' || c > '~':
			return f.fail()
		case c == '\\':
			if i++; i == len(f.s) || f.s[i] != '"' && f.s[i] != '\\' {
				return f.fail()
			}
		}
	}
	return f.fail()
}

// displayed reads a Display String behind its first quote (section 4.2.10).
func (f *structured) displayed() item {
	for i := 0; i < len(f.s); i++ {
		switch c := f.s[i]; {
		case c == '"':
			f.s = f.s[i+1:]
			return item{kind: sfOther}
		case c < ' ' || c > '~':
			return f.fail()
		case c == '%':
			if i += 2; i >= len(f.s) || !lowerHex(f.s[i-1]) || !lowerHex(f.s[i]) {
				return f.fail()
			}
		}
	}
	return f.fail()
}

func lower(c byte) bool    { return c-'a' < 26 }
func letter(c byte) bool   { return lower(c | 0x20) }
func lowerHex(c byte) bool { return digit(c) || c-'a' < 6 }

// tokenByte is what may follow in a Token (section 4.2.6): tchar of RFC 9110, a
// colon or a slash.
func tokenByte(c byte) bool {
	return letter(c) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
