package host

import (
	"fmt"
	"sync"
	"time"
)

// wait waits for a slot of a queue, no longer than the call may take.
func (c *call) wait(q waitQueue) error {
	if q.TryAcquire(c.client) {
		return nil
	}

	c.count(countWaiting, 1)
	began := time.Now()
	err := q.Acquire(&c.ctx, c.client)
	c.count(countWaiting, -1)
	c.count(countWaited, 1)
	c.count(countWaitTime, int64(time.Since(began)))
	if err != nil {
		return &WaitedError{Err: c.interrupted(), For: q.reason(err)}
	}
	return nil
}

// turn is the queue of the serial calls of a session to a module.
type turn struct {
	waitQueue
	calls int // that run or wait
}

// admit pays for the arguments of a call, which it keeps while it waits, and
// waits until it may have an instance: for its turn within its session, which
// holds up nobody else, then for a place among the calls of its module, and then
// among all.
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
	if err := c.wait(c.module.slots); err != nil {
		return err
	}
	if c.Background {
		return nil
	}
	if err := c.wait(c.host.slots); err != nil {
		c.module.slots.Release(c.client)
		return err
	}
	if c.Placed != nil {
		c.unplace = sync.OnceFunc(func() {
			c.host.slots.Release(c.client)
			c.guest.Background()
		})
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
			c.host.slots.Release(c.client)
		}
		c.module.slots.Release(c.client)
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
		t = &turn{waitQueue: newSessionQueue()}
		m.turns[c.Session] = t
	}
	t.calls++
	m.mu.Unlock()
	c.turn = t
	var err error
	switch {
	case c.outer == nil:
		err = c.wait(t.waitQueue)
	case !t.TryAcquire(c.client):
		err = fmt.Errorf("%w: %s", ErrBusy, t.full)
	}
	if err != nil {
		c.forgo()
	}
	return err
}

// yield ends the turn of a call that has it.
func (c *call) yield() {
	if c.turn != nil {
		c.turn.Release(c.client)
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
