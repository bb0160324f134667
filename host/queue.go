package host

// turn is the place of a session in the line for a module.
type turn struct {
	taken chan struct{} // holds one call
	calls int           // that have it or wait for it
}

// enter waits until a call may have an instance, in the order the calls came
// and no longer than the call may take. The caller leaves with the returned
// function.
func (m *Module) enter(c *call) (leave func(), err error) {
	m.account.count(func(n *Counts) { n.Waiting++ })
	defer m.account.count(func(n *Counts) { n.Waiting-- })
	yield := func() {}
	if c.Serial {
		if yield, err = m.takeTurn(c); err != nil {
			return nil, err
		}
	}
	if err := c.await(m.slots); err != nil {
		yield()
		return nil, err
	}
	m.account.count(func(n *Counts) { n.Running++ })
	return func() {
		m.account.count(func(n *Counts) { n.Running-- })
		<-m.slots
		yield()
	}, nil
}

// takeTurn waits until no other serial call of the session is there.
func (m *Module) takeTurn(c *call) (yield func(), err error) {
	m.mu.Lock()
	t := m.turns[c.Session]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		m.turns[c.Session] = t
	}
	t.calls++
	m.mu.Unlock()
	away := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if t.calls--; t.calls == 0 {
			delete(m.turns, c.Session)
		}
	}
	if err := c.await(t.taken); err != nil {
		away()
		return nil, err
	}
	return func() { <-t.taken; away() }, nil
}

// await puts the call into a place that is free, or becomes it before the call
// has to end. A channel serves those that wait in the order they came.
func (c *call) await(places chan<- struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-c.ctx.Done():
		return c.interrupted()
	}
}
