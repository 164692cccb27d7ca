// Package throttle is the server's side of package retryafter: an http.Handler
// that admits what a key's budget has room for, and answers the rest with a 429
// whose Retry-After is true.
//
//	limited := &throttle.Handler{
//		Next:  mux,
//		Limit: throttle.Keyed(&retryafter.Keyed{Capacity: 20, Rate: retryafter.PerSecond(10)}),
//		Key:   accountOf, // what authentication has verified
//	}
//	http.ListenAndServe(addr, authenticate(limited))
//
// # Promises
//
//  1. True. Retry-After is the exact wait, rounded up to whole seconds: who
//     comes back after it finds room, unless another request of the same key
//     took it in between. (Where there are more keys than a Keyed remembers,
//     one that it has forgotten may find less; see retryafter.KeyedStats.)
//  2. Charged when admitted. A refused request costs nothing and makes no key
//     wait for longer.
//  3. Never open by accident. What can't be judged, for want of a key, of a
//     limiter that answers or of settings that make sense, is refused. Only
//     FailOpen admits without a charge, and only where the limiter failed.
//  4. Nobody picks a budget. A key is what the server has verified. ClientAddr
//     reads a forwarding field only where a trusted proxy wrote it.
//  5. Nothing given away. A refusal shows no key, no error's text and no
//     figure that the caller of this package has not chosen to publish, and
//     sets no header field that is not defined by a standard.
//
// # Whose budget
//
// A Handler belongs behind authentication: its Key function reads what
// authentication has put in the request's context, as a tenant and an account,
// and perhaps the operation that routing found. It must not read what the
// caller merely says, as an account header, a query parameter or the presence
// of a credential. Credentials are no good as keys either: they are secrets,
// and a new one would be a new budget. Use [retryafter.NewKey], which keeps
// parts apart whatever they contain.
//
// An address is what there is before authentication, and for public endpoints.
// It names a network path, not a person: many share one, and some have many.
// See [ClientAddr].
//
// # What a refusal looks like
//
// Every refusal has Cache-Control: no-store and a body that explains it, as
// application/problem+json (RFC 9457):
//
//	429  over the budget now; Retry-After; type QuotaExceeded (RFC 6585, section 4)
//	403  costs more than a full budget, so it can never be admitted; type CostTooHigh
//	400  the address can't be told from the forwarding field (an *AddrError of one)
//	500  no key, a negative cost, or settings that make no sense
//	503  the limiter failed
//
// Only the 429 has a Retry-After. The last three have the type about:blank
// (RFC 9457, section 4.2.1): there is nothing to know beyond the status.
//
// RateLimit and RateLimit-Policy fields are those of an IETF draft that is not
// a standard yet. They are sent only where Handler.Policy is set.
//
// # Clients that are never refused
//
// A client whose own limiter is a [retryafter.Bucket] of the same figures is
// never refused, where all that it sends is as long on its way. Where the time
// on the way varies by up to d, its Capacity must be smaller by what its Rate
// gives in d, for what left over a longer time may arrive in a shorter.
package throttle
