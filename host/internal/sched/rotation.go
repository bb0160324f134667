package sched

import "container/list"

// rotation is a round-robin queue: the next client is the one that was served the
// longest time ago, and so is the next guest of a client. It is not safe for
// concurrent use.
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
	turns  int       // guests that are served
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

// next takes out the guest to serve. There must be one. done ends its service.
func (r *rotation) next() *Guest {
	e := r.order.Front()
	for e.Value.(*rotating).guests.Len() == 0 { // at most as many as are served
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

// done ends the service of a guest. A nil client had none.
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
