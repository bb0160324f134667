package host

import (
	"fmt"
	"sync"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
)

// admission is what a call holds before it may have an instance.
type admission struct {
	serial     *sessionQueue // whose slot it holds; nil if there is none
	detach     func()        // gives back the slot among all calls, once; nil: release does
	moduleSlot bool          // it holds a slot among the calls of its module
	hostSlot   bool          // it holds one among all calls
}

// sessionQueue is the queue of the serial calls of a session to a module.
type sessionQueue struct {
	waitQueue
	calls int // that run or wait
}

// acquire waits until the call may have an instance: for the mutex of its session
// if its tool is serial, which holds up nobody else, then for a slot among the
// calls of its module, and then for one among all. Whatever it returns, release has
// to be called.
//
// A call that was made within another waits for nothing, since what it would wait
// for may wait for that one: it runs in the slot of the other, and is refused if a
// serial tool is busy.
func (c *call) acquire() error {
	if c.Serial && !c.outer.holdsSerial(c) {
		if err := c.lockSession(); err != nil {
			return err
		}
	}
	if c.outer != nil {
		return nil
	}

	if err := c.wait(c.module.slots); err != nil {
		return err
	}
	c.moduleSlot = true
	if c.Background {
		return nil
	}
	if err := c.wait(c.host.slots); err != nil {
		return err
	}
	c.hostSlot = true
	if c.Admitted != nil {
		c.detach = sync.OnceFunc(func() {
			c.host.slots.Release(c.client)
			c.guest.Background()
		})
		c.Admitted(c.detach)
	}

	return nil
}

// release gives back what acquire got.
func (c *call) release() {
	if c.detach != nil {
		c.detach()
	} else if c.hostSlot {
		c.host.slots.Release(c.client)
	}

	if c.moduleSlot {
		c.module.slots.Release(c.client)
	}
	if c.serial != nil {
		c.serial.Release(c.client)
		c.module.leaveSession(c.Session, c.serial)
	}
}

// wait waits for a slot of a queue, no longer than the call may take.
func (c *call) wait(q waitQueue) error {
	if q.TryAcquire(c.client) {
		return nil
	}

	t, began := &c.module.tally, time.Now()
	t.count(func(n *Counts) { n.Waiting++ })
	ofClient, err := q.Acquire(&c.ctx, c.client)
	t.count(func(n *Counts) {
		n.Waiting--
		n.Waited++
		n.WaitTime += time.Since(began)
	})
	if err != nil {
		return &WaitedError{Err: c.interrupted(), For: q.reason(ofClient)}
	}
	return nil
}

// lockSession waits until no other serial call of the session runs.
func (c *call) lockSession() error {
	m := c.module
	m.mu.Lock()
	q := m.sessions[c.Session]
	if q == nil {
		q = &sessionQueue{waitQueue: newSessionQueue()}
		m.sessions[c.Session] = q
	}
	q.calls++
	m.mu.Unlock()

	var err error
	if c.outer == nil {
		err = c.wait(q.waitQueue)
	} else if !q.TryAcquire(c.client) {
		err = fmt.Errorf("%w: %s", ErrBusy, q.full)
	}
	if err != nil {
		m.leaveSession(c.Session, q)
		return err
	}
	c.serial = q
	return nil
}

func (m *Module) leaveSession(session string, q *sessionQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.calls--; q.calls == 0 {
		delete(m.sessions, session)
	}
}

// holdsSerial reports whether a call, or one that it was made within, holds the
// mutex that inner wants.
func (c *call) holdsSerial(inner *call) bool {
	for ; c != nil; c = c.outer {
		if c.serial != nil && c.module == inner.module && c.Session == inner.Session {
			return true
		}
	}
	return false
}

// waitQueue lets a limited number of calls run at a time; others wait.
type waitQueue struct {
	*fair.Semaphore
	// What a call reports that gave up: at the limit of all clients, or of its own.
	full, fullForClient string
}

// newWaitQueue returns the queue for max calls. With shared one client can hold
// only part of the slots. what and where name the calls in messages.
func newWaitQueue(max int, shared bool, what, where string) waitQueue {
	each := max
	if shared {
		each = fair.PerClient(max)
	}
	message := func(n int, whose string) string {
		return fmt.Sprintf("at most %d calls%s%s run at a time%s: retry when others have ended, or ask the operator to raise the limit", n, what, whose, where)
	}

	q := waitQueue{Semaphore: fair.NewSemaphore(max, each), full: message(max, "")}
	q.fullForClient = q.full
	if each < max {
		q.fullForClient = message(each, " of one client")
	}
	return q
}

// newSessionQueue returns the queue of the serial calls of one session.
func newSessionQueue() waitQueue {
	const message = "the plugin runs one call of a session at a time, and another one is running: retry when that has ended"
	return waitQueue{fair.NewSemaphore(1, 1), message, message}
}

// reason says why a call that gave up had to wait.
func (q waitQueue) reason(ofClient bool) string {
	if ofClient {
		return q.fullForClient
	}
	return q.full
}
