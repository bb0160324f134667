package background

// A pile is a heap, see [container/heap], of elements that know their place in
// it. Its zero value is empty.
type pile[T piled[T]] []T

// piled is an element of a pile.
type piled[T any] interface {
	before(other T) bool
	place() *int // where it is in the pile; -1 after it has left
}

func (p pile[T]) Len() int           { return len(p) }
func (p pile[T]) Less(i, j int) bool { return p[i].before(p[j]) }

func (p pile[T]) Swap(i, j int) {
	p[i], p[j] = p[j], p[i]
	*p[i].place(), *p[j].place() = i, j
}

// Push is for [heap.Push] only.
func (p *pile[T]) Push(x any) {
	e := x.(T)
	*e.place() = len(*p)
	*p = append(*p, e)
}

// Pop is for [heap.Pop] and [heap.Remove] only.
func (p *pile[T]) Pop() any {
	var none T
	last := len(*p) - 1
	e := (*p)[last]
	(*p)[last] = none
	*p = (*p)[:last]
	*e.place() = -1
	return e
}
