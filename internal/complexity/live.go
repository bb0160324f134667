package complexity

import "sort"

// local is what is known of a local while its function is counted. It lives in
// intervals of blocks, in the order of the code. The one that is not over yet is
// from, to and within.
type local struct {
	sets   [3]set // whose values may still be read, innermost last; entering the function is one too
	count  int
	from   int32 // first block
	to     int32 // last block, 0 if there is no interval
	within int32 // loop whose last block it is in any case, while that is open
	over   int32 // last block of the intervals before
}

// set is a local.set or local.tee.
type set struct {
	block int32
	at    int32 // number of the instruction
	frame int32 // by its index
}

// latest drops the sets that do not reach this place, and returns the last one
// that does. Control comes from a set to here whichever way it takes while the
// frame it is in is open.
func (c *counter) latest(l *local) set {
	for ; l.count > 0; l.count-- {
		if s := l.sets[l.count-1]; int(s.frame) < len(c.frames) && c.frames[s.frame].start <= s.at {
			return s
		}
	}
	return set{block: 1}
}

// write notes a local.set or local.tee.
func (c *counter) write(x uint32) {
	if int64(x) >= int64(len(c.locals)) {
		return
	}

	l := &c.locals[x]
	s := set{c.block, c.at, int32(len(c.frames) - 1)}
	if before := c.latest(l); l.count > 0 && before.frame == s.frame || l.count == len(l.sets) {
		l.count--
	}
	l.sets[l.count] = s
	l.count++
}

// read notes a local.get. If no set is in the same block the local lives since
// the one that reaches it, and if that was before a loop, to the loop's end.
func (c *counter) read(x uint32) {
	if int64(x) >= int64(len(c.locals)) {
		return
	}

	l := &c.locals[x]
	if l.count > 0 && l.sets[l.count-1].block == c.block {
		return
	}
	s := c.latest(l)
	if s.block == c.block {
		return
	}
	if s.block >= c.linear {
		c.walk += uint64(min(c.chain, int(c.block-s.block)))
	} else {
		c.walk += uint64(c.chain)
	}

	if l.within > 0 && c.ends[l.within-1] != open {
		l.to, l.within = max(l.to, c.ends[l.within-1]), 0
	}
	if l.to == 0 || s.block > l.to && l.within == 0 {
		c.lives(l)
		l.from = max(s.block, l.over+1)
	}

	l.from, l.to = min(l.from, max(s.block, l.over+1)), c.block
	if loop := c.loopSince(s.at); l.within == 0 || loop > 0 && loop < l.within {
		l.within = loop
	}
}

// lives ends the interval of a local.
func (c *counter) lives(l *local) {
	if l.within > 0 {
		l.to = max(l.to, min(c.ends[l.within-1], c.block))
	}

	if l.to < l.from || l.to == 0 {
		return
	}
	if n := int(l.to) + 2; n > len(c.starts) {
		c.starts = append(c.starts, make([]int32, n-len(c.starts))...)
	}
	c.starts[l.from]++
	c.starts[l.to+1]--
	l.over, l.within = l.to, 0
}

// open is the last block of a loop that has not ended.
const open = 1<<31 - 1

// loopSince returns the number, from 1, of the outermost open loop that began after
// an instruction, or 0.
func (c *counter) loopSince(at int32) int32 {
	n := len(c.loops)
	if n == 0 || c.frames[c.loops[n-1]].start <= at {
		return 0
	}
	i := sort.Search(n, func(i int) bool { return c.frames[c.loops[i]].start > at })
	return c.frames[c.loops[i]].loop + 1
}

// settle adds up what has to be known to the end of the function: which locals
// live in each block.
func (c *counter) settle() {
	for i := range c.locals {
		if l := &c.locals[i]; l.to > 0 {
			c.lives(l)
		}
	}

	now := int32(0)
	for i, more := range c.starts {
		now += more
		c.starts[i] = now
		c.live += uint64(now)
	}

	for _, m := range c.merges {
		live := 0
		if int(m.block) < len(c.starts) {
			live = int(c.starts[m.block])
		}
		if m.preds > 1 {
			c.meets += uint64(live)
		}
		v := uint64(m.takes + min(live, m.most))
		c.phis += uint64(m.preds) * v * v * uint64(2+m.loops) / 3
	}

	c.starts = c.starts[:cap(c.starts)]
	clear(c.starts)
	c.starts = c.starts[:0]
}
