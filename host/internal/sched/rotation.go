package sched

import "container/list"

// rotation is a queue of guests in which clients take turns: the next one is
// that whose last turn began the longest ago. The guests of a client take turns
// likewise. It is not safe for concurrent use.
type rotation struct {
	clients map[string]*rotating
	order   list.List // of *rotating, the next first
	waiting int
}

// rotating is a client that has guests in the queue, or had the turn and has not
// given it back.
type rotating struct {
	of     *rotation
	name   string
	guests list.List // of *Guest, the next first
	turns  int       // it has
	at     *list.Element
}

// push queues a guest behind those of its client.
func (r *rotation) push(g *Guest) {
	c := r.clients[g.client]
	if c == nil {
		c = &rotating{of: r, name: g.client}
		c.at = r.order.PushBack(c)
		if r.clients == nil {
			r.clients = map[string]*rotating{}
		}
		r.clients[g.client] = c
	}
	g.turn, g.at = c, c.guests.PushBack(g)
	r.waiting++
}

// remove takes a guest out of the queue that has not had its turn.
func (r *rotation) remove(g *Guest) {
	c := g.turn
	c.guests.Remove(g.at)
	g.turn, g.at = nil, nil
	r.waiting--
	c.settle()
}

// next takes out the guest whose turn it is. There must be one. The turn is given
// back with done.
func (r *rotation) next() *Guest {
	e := r.order.Front()
	for e.Value.(*rotating).guests.Len() == 0 { // as many as have turns
		e = e.Next()
	}
	c := e.Value.(*rotating)
	c.turns++
	r.order.MoveToBack(e)

	g := c.guests.Remove(c.guests.Front()).(*Guest)
	g.at = nil
	r.waiting--
	return g
}

// done ends a turn. A nil client never had one.
func (c *rotating) done() {
	if c != nil {
		c.turns--
		c.settle()
	}
}

// settle forgets a client that has nothing here.
func (c *rotating) settle() {
	if c.turns == 0 && c.guests.Len() == 0 {
		c.of.order.Remove(c.at)
		delete(c.of.clients, c.name)
	}
}
