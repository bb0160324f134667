package host

import (
	"container/heap"
	"container/list"
	"fmt"
	"sync"

	"github.com/toolhost/toolhost/internal/share"
)

// rule is how many calls a line lets through at a time.
type rule struct {
	max  int // of all clients
	each int // of one client
	// What a call is told that gave up: because max was reached, or each.
	why, whyEach string
}

// newRule returns the rule of a line. what and where say in the words for those
// who wait what it is for.
func newRule(most int64, shared bool, what, where string) rule {
	r := rule{max: int(most), each: int(most)}
	if shared {
		r.each = share.Most(r.max)
	}
	why := func(n int, whose string) string {
		return fmt.Sprintf("at most %d calls%s%s run at a time%s: try again when others have ended, or let the operator allow more", n, what, whose, where)
	}
	r.why = why(r.max, "")
	r.whyEach = r.why
	if r.each < r.max {
		r.whyEach = why(r.each, " of one client")
	}
	return r
}

// line lets so many calls through at a time; others wait. A place that comes
// free goes to a call of the client that has the fewest, and of those that have
// equally many to the one that came first. The calls of one client are let
// through in the order they came. So it does not matter to others how many calls
// a client has waiting, and one that has no place gets its first before anybody
// gets another.
//
// Waiting and letting through take time by the logarithm of how many clients
// wait, and nothing is kept of a client that has no call here. It is safe for
// concurrent use.
type line struct {
	rule *rule

	mu      sync.Mutex
	taken   int
	came    int64 // how many calls have had to wait: their order
	clients map[string]*client
	spare   *client      // one to use again, of no name; nil if there is none
	ready   readyClients // with a call that waits, and less than rule.each
}

// client is whose calls count together in a line: see share.ClientOf.
type client struct {
	name    string
	taken   int
	waiting list.List // of *waiter, in the order they came
	index   int       // in ready; -1 if it is not
}

// waiter is a call in a line.
type waiter struct {
	client *client
	came   int64
	turn   chan struct{} // closed when it has a place
	at     *list.Element // in client.waiting; nil once it has a place
}

// enter takes a place for a call of a client, or else a place in the line and
// returns the latter. Who has a place leaves.
func (l *line) enter(name string) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.client(name)
	// Nobody waits who may have a place that is free: it would have been given it.
	if l.taken < l.rule.max && c.taken < l.rule.each {
		l.take(c)
		return nil
	}
	l.came++
	w := &waiter{client: c, came: l.came, turn: make(chan struct{})}
	w.at = c.waiting.PushBack(w)
	l.settle(c)
	return w
}

// try takes a place if nobody has to be waited for.
func (l *line) try(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.client(name)
	ok := l.taken < l.rule.max && c.taken < l.rule.each
	if ok {
		l.take(c)
	}
	l.settle(c)
	return ok
}

// leave gives back a place of a client, which goes to the next one.
func (l *line) leave(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free(l.clients[name])
}

// quit takes a call out of the line, and says what it waited for. A place that
// it got at the same moment goes to the next one.
func (l *line) quit(w *waiter) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := w.client
	why := l.rule.why
	if l.taken < l.rule.max {
		why = l.rule.whyEach
	}
	if w.at == nil {
		l.free(c)
		return why
	}
	c.waiting.Remove(w.at)
	l.settle(c)
	return why
}

// client returns the client of a name, made if needed. The lock must be held,
// as for all below.
func (l *line) client(name string) *client {
	c := l.clients[name]
	if c == nil {
		if l.clients == nil {
			l.clients = map[string]*client{}
		}
		c, l.spare = l.spare, nil
		if c == nil {
			c = &client{index: -1}
		}
		c.name = name
		l.clients[name] = c
	}
	return c
}

func (l *line) take(c *client) {
	l.taken++
	c.taken++
}

// free gives a place of the client back, and lets through who may have it.
func (l *line) free(c *client) {
	l.taken--
	c.taken--
	l.settle(c)
	for l.taken < l.rule.max && len(l.ready) > 0 {
		c := l.ready[0]
		w := c.waiting.Remove(c.waiting.Front()).(*waiter)
		w.at = nil
		close(w.turn)
		l.take(c)
		l.settle(c)
	}
}

// settle brings a client that changed to its place in ready, and forgets it if
// it has no call here.
func (l *line) settle(c *client) {
	can := c.waiting.Len() > 0 && c.taken < l.rule.each
	switch {
	case can && c.index < 0:
		heap.Push(&l.ready, c)
	case can:
		heap.Fix(&l.ready, c.index)
	case c.index >= 0:
		heap.Remove(&l.ready, c.index)
	}
	if c.taken == 0 && c.waiting.Len() == 0 {
		delete(l.clients, c.name)
		c.name = ""
		l.spare = c
	}
}

// readyClients is a heap of clients by whose turn it is, see [container/heap].
type readyClients []*client

func (r readyClients) Len() int { return len(r) }

func (r readyClients) Less(i, j int) bool {
	if r[i].taken != r[j].taken {
		return r[i].taken < r[j].taken
	}
	return r[i].first() < r[j].first()
}

// first is when the first of its calls that wait came.
func (c *client) first() int64 { return c.waiting.Front().Value.(*waiter).came }

func (r readyClients) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].index, r[j].index = i, j
}

func (r *readyClients) Push(x any) {
	c := x.(*client)
	c.index = len(*r)
	*r = append(*r, c)
}

func (r *readyClients) Pop() any {
	last := len(*r) - 1
	c := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	c.index = -1
	return c
}
