package instance

import "fmt"

// Client counts the memory that the running calls of one client hold. A nil Client has no
// limit of its own.
type Client struct {
	ledger *Ledger
	key    string

	// The mutex of the ledger guards the rest.
	calls int
	held  int64
}

// Client returns the client with this key, for one of its calls, or nil if the ledger
// is not shared. Call Leave when that call ends.
func (l *Ledger) Client(key string) *Client {
	if !l.Shared {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()

	c := l.clients[key]
	if c == nil {
		c = &Client{ledger: l, key: key}
		l.clients[key] = c
	}
	c.calls++
	return c
}

// Leave ends a call of the client. The call's memory may be given back later.
func (c *Client) Leave() {
	if c == nil {
		return
	}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	c.calls--
	c.add(0)
}

// add counts n bytes. The mutex must be held. c may be nil.
func (c *Client) add(n int64) {
	if c == nil {
		return
	}
	if c.held += n; c.held == 0 && c.calls == 0 {
		delete(c.ledger.clients, c.key)
	}
}

// room reports whether the client may hold n more bytes. The mutex must be held.
func (c *Client) room(n int64) bool { return c == nil || c.held+n <= c.ledger.each() }

// each returns how many bytes the running calls of one client may hold.
func (l *Ledger) each() int64 { return l.Memory / 4 * 3 }

// Payer pays for the memory of a client's calls to one module.
type Payer struct {
	*Account
	client *Client
}

// Payer returns the payer for a client. The client may be nil.
func (a *Account) Payer(c *Client) Payer { return Payer{a, c} }

// Leave ends a call of the client.
func (p Payer) Leave() { p.client.Leave() }

// Take pays for n bytes, evicting warm instances and snapshots if necessary.
// Its error matches ErrHostMemory.
func (p Payer) Take(k Kind, n uint64) error {
	l := p.ledger
	if ok, _ := p.tryTake(k, n); ok {
		return nil
	}

	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	for {
		l.awaitFrees()
		ok, own := p.tryTake(k, n)
		switch {
		case ok:
			return nil
		case own:
			return fmt.Errorf("%w: the calls of one client may hold %d bytes together, and %d more are needed: retry when others of yours have ended", ErrHostMemory, l.each(), n)
		case !l.reclaim():
			return fmt.Errorf("%w: all calls may hold %d bytes together, and %d more are needed: retry when others have ended", ErrHostMemory, l.Memory, n)
		}
	}
}

// tryTake is like Take, but evicts nothing. If it fails, own reports that the client
// has reached its own limit.
func (p Payer) tryTake(k Kind, n uint64) (ok, own bool) {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()

	if !p.client.room(int64(n)) {
		return false, true
	}
	if l.figures.Total()+int64(n) > l.Memory {
		return false, false
	}
	p.add(k, int64(n))
	return true, false
}

// Short reports whether more than three quarters of the host's memory, or of the client's
// limit, are in use.
func (p Payer) Short() bool {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures.Total() > l.Memory/4*3 || p.client != nil && p.client.held > l.each()/4*3
}

// Give gives back n bytes.
func (p Payer) Give(k Kind, n uint64) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	p.add(k, -int64(n))
}

// add counts n bytes. The mutex must be held.
func (p Payer) add(k Kind, n int64) {
	p.ledger.figures.add(k, n)
	p.figures.add(k, n)
	p.client.add(n)
}
