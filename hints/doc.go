// Package hints reads what APIs send beside Retry-After, or in its place, about
// when to come back. Nothing here is read unless it is asked for:
//
//	limits := hints.GitHub{}
//	transport := &retryafter.Transport{
//		Policy: retryafter.Policy{Hint: limits.Hint, Retry: limits.Retry, MaxWait: 61 * time.Minute},
//		Gate:   &retryafter.Gate{When: limits.When},
//	}
//
// [GitHub], [OpenAI], [Anthropic] and [Azure] know what these providers
// document. For any other, say which field means what: a [Reset] is one field
// with the meaning that its provider gives it, [Latest] and [First] combine
// several. [RateLimit] reads the field of the IETF draft.
//
// # Rules for all readers
//
// Whatever a reader says, no attempt leaves before a Retry-After that can be
// read: a Policy goes by the later of the two. One that can't be read counts as
// absent, so that the reader's word holds; the Decision tells of both.
//
//  1. Nothing is guessed. Whether a number is an instant or a delay, seconds or
//     milliseconds, is for the caller to say, and for a profile to know.
//  2. Where a field tells how much quota is left, the reset beside it counts
//     only when that is 0. With quota left it says nothing about when to come
//     back.
//  3. What can't be read is a *[FieldError], and says nothing; above all, it
//     does not say "now".
//  4. Several field lines, and members of a line with commas between them, count
//     by the latest that can be read.
//  5. Instants are measured on the server's own clock where its Date can be
//     read, by [retryafter.FromHeader], so that a wrong clock here makes nothing
//     early.
//  6. Fractions are rounded up to nanoseconds. What exceeds a Duration gives the
//     largest one; Policy.MaxWait refuses it.
//
// Readers are pure, keep nothing and may be used from many goroutines at once.
package hints
