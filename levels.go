package retryafter

import (
	"hash/maphash"
	"math"
	"math/bits"
	"time"
)

// levels remembers the level of each of many keys in bounded memory. It never
// forgets debt: where it has to drop a key that is not full, the least debt
// there is goes, and from then on every unseen key starts with that debt, for
// it may be the one that was dropped.
//
// Keys are kept as 128 bits of hash, seeded anew in each process.
type levels struct {
	meter *meter
	limit int

	entries []entry  // a heap with the earliest due on top
	index   []uint32 // open addressing: 1 + the place in entries; 0 is free; a power of two long
	unseen  level    // what a key starts from that is not here; before its instant, as much more as flows in until then

	evicted uint64 // keys dropped that were not full
	below   uint64 // unseen keys that started below full
}

type hash [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashOf(key Key) hash {
	return hash{maphash.String(seeds[0], string(key)), maphash.String(seeds[1], string(key))}
}

type entry struct {
	hash  hash
	level level
	due   int64  // not after the level is full; charges only make it later, so it may lag behind
	slot  uint32 // of index
}

// get is the level of h for someone who asks at now.
func (t *levels) get(h hash, now int64) (l level, seen bool) {
	if e := t.find(h); e != nil {
		return e.level, true
	}
	return t.start(now), false
}

// start is the level of an unseen key. What was dropped may have been dropped
// at an instant that is still to come for this one: then what flows in until
// that instant is missing here, or nothing flows in until as much is missing as
// a bucket holds.
func (t *levels) start(now int64) level {
	l := t.unseen
	if now >= l.last || l.last == math.MinInt64 {
		return l
	}
	ahead := min(uint64(l.last)-uint64(now), (t.meter.size-l.debt)/t.meter.flow)
	return level{debt: l.debt + ahead*t.meter.flow, last: l.last - int64(ahead)}
}

func (t *levels) find(h hash) *entry {
	if len(t.index) == 0 {
		return nil
	}
	for slot := t.home(h); t.index[slot] != 0; slot = t.next(slot) {
		if e := &t.entries[t.index[slot]-1]; e.hash == h {
			return e
		}
	}
	return nil
}

// put sets the level of h at now. What it drops for that is worth as much debt
// to unseen keys, of which h is one, unless it was taken from here.
func (t *levels) put(h hash, l level, now int64, taken bool) {
	if e := t.find(h); e != nil {
		e.level = l
		if due := t.full(l); due < e.due {
			e.due = due
			t.up(int(t.index[e.slot] - 1))
		}
		return
	}
	if !taken && t.debt(t.start(now), now) > 0 {
		t.below++
	}
	due := t.full(l)
	if len(t.entries) >= t.limit {
		top := t.least()
		if top == nil || due <= top.due {
			t.drop(l, now)
			return
		}
		t.drop(top.level, now)
		t.remove(0)
	}
	t.insert(entry{hash: h, level: l, due: due})
}

// take removes h and gives its level, for someone else to keep.
func (t *levels) take(h hash, now int64) (l level, seen bool) {
	e := t.find(h)
	if e == nil {
		return t.start(now), false
	}
	l = e.level
	t.remove(int(t.index[e.slot] - 1))
	return l, true
}

// drop accounts for a level that is not remembered any more: of it and what was
// dropped before, the one that is full later stays.
func (t *levels) drop(l level, now int64) {
	if t.debt(l, now) > 0 {
		t.evicted++
	}
	if t.unseen.last == math.MinInt64 || t.later(l, t.unseen) {
		t.unseen = l
	}
}

// later reports whether a is full later than b, exactly.
func (t *levels) later(a, b level) bool {
	from := min(a.last, b.last)
	units := func(l level) (hi, lo uint64) {
		hi, lo = bits.Mul64(t.meter.flow, uint64(l.last)-uint64(from))
		lo, carry := bits.Add64(lo, l.debt, 0)
		return hi + carry, lo
	}
	ahi, alo := units(a)
	bhi, blo := units(b)
	return ahi > bhi || ahi == bhi && alo > blo
}

func (t *levels) debt(l level, now int64) uint64 { return t.meter.fill(l, now).debt }

// full is when l has no debt.
func (t *levels) full(l level) int64 {
	need := l.debt / t.meter.flow
	if l.debt%t.meter.flow != 0 {
		need++
	}
	return later(l.last, time.Duration(need))
}

// least brings the key with the least debt to the top.
func (t *levels) least() *entry {
	if len(t.entries) == 0 {
		return nil
	}
	for top := &t.entries[0]; ; {
		due := t.full(top.level)
		if due <= top.due {
			return top
		}
		top.due = due
		t.down(0)
	}
}

func (t *levels) insert(e entry) {
	if len(t.entries)+len(t.entries)/3 >= len(t.index) {
		t.grow()
	}
	i := len(t.entries)
	slot := t.home(e.hash)
	for t.index[slot] != 0 {
		slot = t.next(slot)
	}
	e.slot = slot
	t.entries = append(t.entries, e)
	t.index[slot] = uint32(i) + 1
	t.up(i)
}

func (t *levels) grow() {
	t.index = make([]uint32, max(8, 2*len(t.index)))
	for i := range t.entries {
		slot := t.home(t.entries[i].hash)
		for t.index[slot] != 0 {
			slot = t.next(slot)
		}
		t.entries[i].slot, t.index[slot] = slot, uint32(i)+1
	}
}

// remove takes the entry at i out, and closes the gap that its slot leaves in
// the run of those that had to make way.
func (t *levels) remove(i int) {
	free := t.entries[i].slot
	last := len(t.entries) - 1
	if i != last {
		t.swap(i, last)
	}
	t.entries = t.entries[:last]
	if i < last {
		t.down(i)
		t.up(i)
	}
	t.index[free] = 0
	for slot := t.next(free); t.index[slot] != 0; slot = t.next(slot) {
		e := &t.entries[t.index[slot]-1]
		mask := uint32(len(t.index) - 1)
		if home := t.home(e.hash); (slot-home)&mask >= (slot-free)&mask {
			t.index[free], t.index[slot] = t.index[slot], 0
			e.slot, free = free, slot
		}
	}
}

func (t *levels) home(h hash) uint32      { return uint32(h[0]) & uint32(len(t.index)-1) }
func (t *levels) next(slot uint32) uint32 { return (slot + 1) & uint32(len(t.index)-1) }

func (t *levels) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.entries[parent].due <= t.entries[i].due {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *levels) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t.entries) {
			return
		}
		if right := child + 1; right < len(t.entries) && t.entries[right].due < t.entries[child].due {
			child = right
		}
		if t.entries[i].due <= t.entries[child].due {
			return
		}
		t.swap(i, child)
		i = child
	}
}

func (t *levels) swap(i, j int) {
	t.entries[i], t.entries[j] = t.entries[j], t.entries[i]
	t.index[t.entries[i].slot] = uint32(i) + 1
	t.index[t.entries[j].slot] = uint32(j) + 1
}
