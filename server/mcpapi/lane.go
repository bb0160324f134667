package mcpapi

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lane carries the messages of one protocol era between a pipe and a session of the SDK.
// It is the transport of that session, and its connection.
type lane struct {
	pipe   *pipe
	in     chan jsonrpc.Message // messages from the client
	once   sync.Once
	closed chan struct{}
}

func newLane(p *pipe) *lane {
	return &lane{pipe: p, in: make(chan jsonrpc.Message), closed: make(chan struct{})}
}

// deliver waits until the session takes a message. It drops messages for a session that
// has ended.
func (l *lane) deliver(m jsonrpc.Message) {
	select {
	case l.in <- m:
	case <-l.closed:
	case <-l.pipe.closed:
	}
}

// Connect implements [mcp.Transport].
func (l *lane) Connect(context.Context) (mcp.Connection, error) { return l, nil }

// SessionID implements [mcp.Connection]. Sessions on a pipe have no name.
func (l *lane) SessionID() string { return "" }

// Read implements [mcp.Connection].
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

// Write implements [mcp.Connection].
func (l *lane) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}

	if response, ok := m.(*jsonrpc.Response); ok {
		settle := l.pipe.answer(response)
		written := false
		defer func() { settle(written) }()
		if errors.Is(response.Error, context.Canceled) { // by the client, which expects no answer
			return nil
		}
		err = l.pipe.write(line)
		written = err == nil
		return err
	}
	return l.pipe.write(line)
}

// Close implements [mcp.Connection]. The other lane stays open.
func (l *lane) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
