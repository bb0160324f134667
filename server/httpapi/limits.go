package httpapi

import (
	"io"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// What clients share. One client can have a quarter of each.
const (
	perClient  = 4
	maxOpen    = 2048      // answers that wait or stream
	maxBodies  = 256 << 20 // bytes of the bodies of requests that are being answered
	maxAnswers = 256 << 20 // bytes of answers that wait for their clients to take them
)

const textUntaken = "%d bytes of answers are waiting to be read"

// share is how much of a pool all clients of the caller's kind can have
// together: users leave an eighth to the operator.
func share(p *fair.Pool, c identity.Caller) int {
	if c.Operator() {
		return p.Max()
	}
	return p.Max() - p.Max()/8
}

// take takes units of a pool for the caller's client, until release. text has a
// verb for the limit.
func take(p *fair.Pool, c identity.Caller, n int, text string) (release func(), err error) {
	if limit, ok := p.TakeBelow(share(p, c), c.Client(), n); !ok {
		return nil, tooMany(limit, text, limit)
	}
	return func() { p.Give(c.Client(), n) }, nil
}

// tooMany refuses what exceeds a limit.
func tooMany(limit int, format string, args ...any) error {
	p := refuse(wire.CodeLimit, format+": try again later", args...)
	p.Max, p.retry = limit, 1
	return p
}

// occupy takes one of the slots for answers that wait or stream.
func (a *API) occupy(c identity.Caller) (release func(), err error) {
	return take(a.open, c, 1, "%d waits and streams are open")
}

// reserve takes room for a large answer, which stays in memory until its client
// has read it. One answer fits in any case.
func (a *API) reserve(c identity.Caller, n int) (release func(), err error) {
	return take(a.answers, c, min(n, a.answers.Each()), textUntaken)
}

// overdraw is reserve for answers that must not be lost, because their request
// has changed something: the next requests of the client find less room.
func (a *API) overdraw(c identity.Caller, n int) (release func()) {
	a.answers.Overdraw(c.Client(), n)
	return func() { a.answers.Give(c.Client(), n) }
}

// upload is the body of a request. It counts from when it is read until the
// request is answered, as arguments are kept that long.
type upload struct {
	io.ReadCloser
	pool   *fair.Pool
	caller identity.Caller
	size   int
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if _, refused := take(u.pool, u.caller, n, "request bodies take %d bytes"); refused != nil {
		return 0, refused
	}
	u.size += n
	return n, err
}

func (u *upload) done() { u.pool.Give(u.caller.Client(), u.size) }
