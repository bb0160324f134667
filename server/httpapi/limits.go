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
	maxBodies  = 256 << 20 // bytes of the bodies of requests that are being answered
	maxAnswers = 256 << 20 // bytes of answers that wait for their clients to take them
)

// share is how much of a pool all clients of the caller's kind can have
// together: users leave an eighth to the operator.
func share(p *fair.Pool, c identity.Caller) int {
	if c.Operator() {
		return p.Max()
	}
	return p.Max() - p.Max()/8
}

// take takes units of a pool for the caller's client. text has a verb for the limit.
func take(p *fair.Pool, c identity.Caller, n int, text string) error {
	if limit, ok := p.TakeBelow(share(p, c), c.Client(), n); !ok {
		return tooMany(limit, text)
	}
	return nil
}

// tooMany refuses what exceeds a limit. text has a verb for it.
func tooMany(limit int, text string) error {
	p := refuse(wire.CodeLimit, text+": try again later", limit)
	p.Max, p.retry = limit, 1
	return p
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
	if refused := take(u.pool, u.caller, n, "request bodies take %d bytes"); refused != nil {
		return 0, refused
	}
	u.size += n
	return n, err
}

func (u *upload) done() { u.pool.Give(u.caller.Client(), u.size) }
