package mcpapi

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lane is what of a pipe is of one era of the protocol: a session of the SDK's
// own. In one session a client that had sent a single modern request could not
// begin with initialize any more, as clients do that had no answer to
// server/discover in time. It is a transport of the SDK, and its connection.
type lane struct {
	pipe   *pipe
	in     chan jsonrpc.Message // of the client
	once   sync.Once
	closed chan struct{}
}

func newLane(p *pipe) *lane {
	return &lane{pipe: p, in: make(chan jsonrpc.Message), closed: make(chan struct{})}
}

// lane is where a message goes: to the modern session what names such a revision,
// to the session of the call what cancels it, and all else to the legacy one,
// answers too, for since 2026-07-28 servers send no requests. p.mu is held.
func (p *pipe) lane(m envelope) *lane {
	switch call := p.canceledBy(m); {
	case call != nil:
		return call.lane
	case m.modern():
		return p.modern
	}
	return p.legacy
}

// canceledBy returns the call without an answer that a message cancels, or nil.
// p.mu is held.
func (p *pipe) canceledBy(m envelope) *openCall {
	if m.Cancels == nil {
		return nil
	}
	var canceled any
	_ = json.Unmarshal(m.Cancels, &canceled) // it is valid
	id, err := jsonrpc.MakeID(canceled)
	if err != nil {
		return nil
	}
	return p.calls[id]
}

// take waits until the SDK takes a message. One that comes when its session has
// ended is dropped.
func (l *lane) take(m jsonrpc.Message) {
	select {
	case l.in <- m:
	case <-l.closed:
	case <-l.pipe.closed:
	}
}

// Connect is mcp.Transport's.
func (l *lane) Connect(context.Context) (mcp.Connection, error) { return l, nil }

// SessionID is mcp.Connection's: a pipe has no names for its sessions.
func (l *lane) SessionID() string { return "" }

// Read is mcp.Connection's.
func (l *lane) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-l.in:
		return m, nil
	case <-l.pipe.ended:
		return nil, l.pipe.err
	case <-l.pipe.closed:
		return nil, io.EOF
	case <-l.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write is mcp.Connection's.
func (l *lane) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err // that of a request is never done
	}
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if response, ok := m.(*jsonrpc.Response); ok {
		defer l.pipe.settle(response.ID) // once it is written: the session may end then
		line = l.pipe.due(response, line)
	}
	if len(line) == 0 {
		return nil
	}
	return l.pipe.write(line)
}

// Close is mcp.Connection's. The other lane goes on.
func (l *lane) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
