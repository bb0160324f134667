package host

import (
	"fmt"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/internal/fair"
)

// admission is the set of slots that a call holds before it gets an instance.
type admission struct {
	detach      func() // returns the host slot early, at most once; if nil, release returns it
	sessionSlot bool   // holds the slot of its session
	moduleSlot  bool   // holds a slot of its module
	hostSlot    bool   // holds a slot of the host
}

// acquire waits until the call may have an instance. A call to a serial tool first
// waits for the slot of its session, which delays nobody else. Then each call waits
// for a slot of its module, and then for one of the host. A nested call uses its
// caller's slots: calls that wait for each other could otherwise hold all of them.
// Call release whatever acquire returns.
func (c *call) acquire() (err error) {
	if c.Serial {
		if err = c.acquireSerial(); err != nil {
			return err
		}
		c.sessionSlot, c.inner.Serial = true, serialSlot{c.module, c.Session}
	}
	if c.Caller != nil {
		return nil
	}
	if err = c.wait(c.module.slots, c.client); err != nil {
		return err
	}
	c.moduleSlot = true
	if c.Background {
		return nil
	}
	if err = c.wait(c.slots, c.client); err != nil {
		return err
	}
	c.hostSlot = true
	if c.Admitted != nil {
		c.detach = sync.OnceFunc(func() {
			c.slots.Release(c.client)
			c.guest.Background()
			c.inner.Background()
		})
		c.Admitted(c.detach)
	}

	return nil
}

// release returns the slots that acquire got.
func (c *call) release() {
	if c.detach != nil {
		c.detach()
	} else if c.hostSlot {
		c.slots.Release(c.client)
	}

	if c.moduleSlot {
		c.module.slots.Release(c.client)
	}
	if c.sessionSlot {
		c.module.serial.Release(c.Session)
	}
}

// wait waits for a slot in a queue, but no longer than the call's time limit allows.
func (c *call) wait(q waitQueue, client string) error {
	if q.TryAcquire(client) {
		return nil
	}

	t, began := &c.module.tally, time.Now()
	t.count(func(n *Counts) { n.Waiting++ })
	ofClient, err := q.Acquire(&c.ctx, client)
	took := time.Since(began)
	c.waited += took
	t.count(func(n *Counts) {
		n.Waiting--
		n.Waited++
		n.WaitTime += took
	})
	if err != nil {
		return &guestcall.WaitedError{Err: c.Interrupted(), For: q.reason(ofClient)}
	}
	return nil
}

// waitQueue lets a limited number of calls run at a time; the others wait.
type waitQueue struct {
	*fair.Semaphore
	// The error texts for a call that gave up waiting: at the limit for all clients, or
	// at the limit for its own client.
	full, fullForClient string
}

// newWaitQueue returns a queue that admits max calls. If shared is set, one client can hold
// only part of the slots. In messages, what and where name the calls.
func newWaitQueue(max int, shared bool, what, where string) waitQueue {
	message := func(n int, whose string) string {
		return fmt.Sprintf("at most %d calls%s%s run at a time%s: retry when others have ended, or ask the operator to raise the limit", n, what, whose, where)
	}

	q := waitQueue{Semaphore: fair.NewSemaphore(max, shared), full: message(max, "")}
	q.fullForClient = q.full
	if each := q.Each(); each < max {
		q.fullForClient = message(each, " of one client")
	}
	return q
}

// newSerialQueue returns the queue of serial calls: each session has one slot.
func newSerialQueue() waitQueue {
	const message = "the plugin runs one call of a session at a time, and another one is running: retry when that has ended"
	return waitQueue{fair.NewSerial(), message, message}
}

// reason returns why a call that gave up had to wait.
func (q waitQueue) reason(ofClient bool) string {
	if ofClient {
		return q.fullForClient
	}
	return q.full
}

// serialSlot is the slot of a session among the serial calls to a module.
type serialSlot struct {
	module  *Module
	session string
}

// acquireSerial waits for the slot of the session, which only one serial call holds at
// a time. A nested call is refused where waiting could deadlock: if one of its callers
// holds that slot, or holds any other serial slot while this one is taken.
func (c *call) acquireSerial() error {
	holds := false
	for o := c.Caller; o != nil; o = o.Outer {
		if o.Serial == (serialSlot{c.module, c.Session}) {
			return &BusyError{"the plugin " + c.Plugin + " runs one call of a session at a time, and the call that waits for this one is of it: this one would wait for itself"}
		}
		holds = holds || o.Serial != nil
	}

	if !holds {
		return c.wait(c.module.serial, c.Session)
	}
	if !c.module.serial.TryAcquire(c.Session) {
		return &BusyError{c.module.serial.full}
	}
	return nil
}

// BusyError says why a nested call was refused: it would have to wait for another call of
// the session, which might never end.
type BusyError struct{ Why string }

func (e *BusyError) Error() string { return e.Why }
