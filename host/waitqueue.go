package host

import (
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/internal/fair"
)

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
func (q waitQueue) reason(err error) string {
	if waited := (*fair.WaitError)(nil); errors.As(err, &waited) && waited.OfKey {
		return q.fullForClient
	}
	return q.full
}
