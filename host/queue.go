package host

import (
	"container/list"
	"fmt"
	"sync"
	"time"
)

// line lets so many calls through at a time; others wait in the order they came.
type line struct {
	why string // what a call that waits is told

	mu      sync.Mutex
	free    int
	waiting list.List // of chan struct{}, closed when it is its turn
}

// pass waits until the call may go on, no longer than it may take. Who passed
// leaves.
func (l *line) pass(c *call) error {
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	e := l.waiting.PushBack(turn)
	c.count(countWaiting, 1)
	l.mu.Unlock()
	came := time.Now()
	defer func() {
		c.count(countWaiting, -1)
		c.count(countWaited, 1)
		c.count(countWaitTime, int64(time.Since(came)))
	}()
	select {
	case <-turn:
		return nil
	case <-c.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // it came at the same moment: the next one has it
		l.next()
	default:
		l.waiting.Remove(e)
	}
	return fmt.Errorf("%w while the call waited: %s", c.interrupted(), l.why)
}

// try passes if nobody has to be waited for.
func (l *line) try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free == 0 {
		return false
	}
	l.free--
	return true
}

func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next()
}

// next lets the call pass that waits longest. The caller holds mu.
func (l *line) next() {
	e := l.waiting.Front()
	if e == nil {
		l.free++
		return
	}
	l.waiting.Remove(e)
	close(e.Value.(chan struct{}))
}

// turn is the line of a session for a module.
type turn struct {
	line
	calls int // that have it or wait for it
}

// admit pays for the arguments of a call, which it keeps while it waits, and
// waits until it may have an instance: for its turn within its session, which holds up nobody else, then for a place among the calls of its
// module, and then among all.
//
// A call that was made within another waits for nothing, for what it would wait
// for may wait for that one: it runs in the place of the other, and is refused
// if a serial tool is busy.
func (c *call) admit() error {
	if err := c.keep(len(c.Args)); err != nil {
		return err
	}
	if c.Serial && !c.outer.has(c) {
		if err := c.takeTurn(); err != nil {
			return err
		}
	}
	if c.outer == nil {
		if err := c.place(); err != nil {
			c.yield()
			return err
		}
	}
	c.count(countRunning, 1)
	return nil
}

func (c *call) place() error {
	if err := c.module.places.pass(c); err != nil {
		return err
	}
	if c.Background {
		return nil
	}
	if err := c.host.places.pass(c); err != nil {
		c.module.places.leave()
		return err
	}
	if c.Placed != nil {
		c.unplace = sync.OnceFunc(c.host.places.leave)
		c.Placed(c.unplace)
	}
	return nil
}

// dismiss undoes admit.
func (c *call) dismiss() {
	c.count(countRunning, -1)
	if c.outer == nil {
		switch {
		case c.unplace != nil:
			c.unplace()
		case !c.Background:
			c.host.places.leave()
		}
		c.module.places.leave()
	}
	c.yield()
}

// has says whether a call, or one that it was made within, has the turn that
// inner wants.
func (c *call) has(inner *call) bool {
	for ; c != nil; c = c.outer {
		if c.turn != nil && c.module == inner.module && c.Session == inner.Session {
			return true
		}
	}
	return false
}

func (c *call) takeTurn() error {
	m := c.module
	m.mu.Lock()
	t := m.turns[c.Session]
	if t == nil {
		t = &turn{line: line{free: 1, why: "its tools take turns within a session, and another call had the turn: try again when that has ended"}}
		m.turns[c.Session] = t
	}
	t.calls++
	m.mu.Unlock()
	c.turn = t
	var err error
	switch {
	case c.outer == nil:
		err = t.pass(c)
	case !t.try():
		err = fmt.Errorf("%w: %s", ErrBusy, t.why)
	}
	if err != nil {
		c.forgo()
	}
	return err
}

// yield ends the turn of a call that has it.
func (c *call) yield() {
	if c.turn != nil {
		c.turn.leave()
		c.forgo()
	}
}

// forgo takes the call out of its session's line.
func (c *call) forgo() {
	m := c.module
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.turn.calls--; c.turn.calls == 0 {
		delete(m.turns, c.Session)
	}
	c.turn = nil
}
