package host

import (
	"fmt"
	"sync"
	"time"
)

// admission is what a call holds, or waits for, before it may have an instance:
// the mutex of its session if its tool is serial, which holds up nobody else, then
// a slot among the calls of its module, and then one among all.
//
// A call that was made within another waits for nothing, since what it would wait
// for may wait for that one: it runs in the slot of the other, and is refused if a
// serial tool is busy.
type admission struct {
	call   *call
	serial *sessionQueue // whose slot it holds; nil if there is none
	module bool          // it holds a slot among the calls of its module
	host   bool          // it holds one among all calls
	detach func()        // gives that back, once; nil: release does
}

// sessionQueue is the queue of the serial calls of a session to a module.
type sessionQueue struct {
	waitQueue
	calls int // that run or wait
}

// acquire waits until the call may have an instance. Whatever it returns, release
// has to be called.
func (a *admission) acquire() error {
	c := a.call
	if c.Serial && !c.outer.holdsSerial(c) {
		if err := a.lockSession(); err != nil {
			return err
		}
	}
	if c.outer != nil {
		return nil
	}

	if err := a.wait(c.module.slots); err != nil {
		return err
	}
	a.module = true
	if c.Background {
		return nil
	}
	if err := a.wait(c.host.slots); err != nil {
		return err
	}
	a.host = true
	if c.Admitted != nil {
		a.detach = sync.OnceFunc(func() {
			c.host.slots.Release(c.client)
			c.guest.Background()
		})
		c.Admitted(a.detach)
	}

	return nil
}

// release gives back what acquire got.
func (a *admission) release() {
	if a.detach != nil {
		a.detach()
	} else if a.host {
		a.call.host.slots.Release(a.call.client)
	}

	if a.module {
		a.call.module.slots.Release(a.call.client)
	}
	if a.serial != nil {
		a.serial.Release(a.call.client)
		a.leaveSession(a.serial)
	}
}

// wait waits for a slot of a queue, no longer than the call may take.
func (a *admission) wait(q waitQueue) error {
	c := a.call
	if q.TryAcquire(c.client) {
		return nil
	}

	n := &c.module.tally
	add(n, &n.Waiting, 1)
	began := time.Now()
	err := q.Acquire(&c.ctx, c.client)
	add(n, &n.Waiting, -1)
	add(n, &n.Waited, 1)
	add(n, &n.WaitTime, time.Since(began))
	if err != nil {
		return &WaitedError{Err: c.interrupted(), For: q.reason(err)}
	}
	return nil
}

// lockSession waits until no other serial call of the session runs.
func (a *admission) lockSession() error {
	c, m := a.call, a.call.module
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
		err = a.wait(q.waitQueue)
	} else if !q.TryAcquire(c.client) {
		err = fmt.Errorf("%w: %s", ErrBusy, q.full)
	}
	if err != nil {
		a.leaveSession(q)
		return err
	}
	a.serial = q
	return nil
}

func (a *admission) leaveSession(q *sessionQueue) {
	m := a.call.module
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.calls--; q.calls == 0 {
		delete(m.sessions, a.call.Session)
	}
}

// holdsSerial reports whether a call, or one that it was made within, holds the
// mutex that inner wants.
func (c *call) holdsSerial(inner *call) bool {
	for ; c != nil; c = c.outer {
		if c.admission.serial != nil && c.module == inner.module && c.Session == inner.Session {
			return true
		}
	}
	return false
}
