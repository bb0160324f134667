package httpapi

import (
	"io"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// Limits that all clients share. One client can use a quarter of each.
const (
	perClient  = 4
	maxBodies  = 256 << 20 // bytes of the bodies of requests in progress
	maxAnswers = 256 << 20 // bytes of responses that clients have not read yet
)

// share returns how much of a pool the operator's clients, or all users together, can
// use: an eighth is reserved for the operator.
func share(p *fair.Pool, c identity.Caller) int {
	if c.Operator() {
		return p.Max()
	}
	return p.Max() - p.Max()/8
}

// take takes n units of a pool for the caller's client. If that exceeds its share, it
// returns an error; text describes the limit, with a verb for the number.
func take(p *fair.Pool, c identity.Caller, n int, text string) error {
	if limit, ok := p.TakeBelow(share(p, c), c.Client(), n); !ok {
		return tooMany(limit, text)
	}
	return nil
}

// tooMany returns the error for a request that exceeds a limit. text describes
// the limit, with a verb for the number.
func tooMany(limit int, text string) error {
	p := refuse(wire.CodeLimit, "limit of "+text+" reached: retry later", limit)
	p.Max, p.retry = limit, 1
	return p
}

// upload is the body of a request. Its bytes count until the request is finished,
// because the arguments are kept that long.
type upload struct {
	io.ReadCloser
	pool   *fair.Pool
	caller identity.Caller
	size   int
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if refused := take(u.pool, u.caller, n, "%d bytes of request bodies"); refused != nil {
		return 0, refused
	}
	u.size += n
	return n, err
}

func (u *upload) done() { u.pool.Give(u.caller.Client(), u.size) }
