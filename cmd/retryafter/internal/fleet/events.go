package fleet

import (
	"container/heap"
	"time"
)

// An event is the instant in which a client wants to send, or, where who is
// negative, in which process -1-who has a token for the first in its line.
type event struct {
	at  time.Duration
	who int32
}

// events give the earliest first. They never pass through heap.Push and
// heap.Pop, which would put each in an allocation of its own.
type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at
}
func (e *events) Push(any) { panic("unused") }
func (e *events) Pop() any { panic("unused") }

func (e *events) add(at time.Duration, who int32) {
	*e = append(*e, event{at, who})
	heap.Fix(e, len(*e)-1)
}

func (e *events) next() event {
	first, last := (*e)[0], len(*e)-1
	(*e)[0] = (*e)[last]
	if *e = (*e)[:last]; last > 0 {
		heap.Fix(e, 0)
	}
	return first
}
