package host

import "container/list"

// rotation is a queue of guests in which clients take turns, and so do the
// guests of each client. It is not safe for concurrent use.
type rotation struct {
	clients map[string]*rotating
	turns   list.List // of *rotating, the next first
	size    int
}

// rotating is a client with guests that wait.
type rotating struct {
	guests list.List // of *guest, the next first
	at     *list.Element
}

func (r *rotation) len() int { return r.size }

// push queues a guest behind those of its client.
func (r *rotation) push(g *guest) {
	c := r.clients[g.client]
	if c == nil {
		c = &rotating{}
		c.at = r.turns.PushBack(c)
		if r.clients == nil {
			r.clients = map[string]*rotating{}
		}
		r.clients[g.client] = c
	}
	g.at = c.guests.PushBack(g)
	r.size++
}

// first returns the guest whose turn it is. There must be one.
func (r *rotation) first() *guest {
	return r.turns.Front().Value.(*rotating).guests.Front().Value.(*guest)
}

// remove takes a guest out of the queue. It was the turn of its client, if it is
// the first.
func (r *rotation) remove(g *guest) {
	c := r.clients[g.client]
	first := c.at == r.turns.Front() && g.at == c.guests.Front()
	c.guests.Remove(g.at)
	g.at = nil
	r.size--

	switch {
	case c.guests.Len() == 0:
		r.turns.Remove(c.at)
		delete(r.clients, g.client)
	case first:
		r.turns.MoveToBack(c.at)
	}
}
