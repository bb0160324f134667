package mcpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// ErrStuck means that a call or a write does not end in [Run]. Usually it is a write to a
// client that does not read.
var ErrStuck = errors.New("the MCP session does not end")

// Config configures [Run] and [NewHandler]. Its zero value serves the process's own
// streams.
type Config struct {
	Version string // version of the program, as clients see it

	// Logger gets messages for operators, and must not write to Out. Nil discards them.
	// Mistakes of clients are logged only if level debug is enabled when the server is made.
	Logger *slog.Logger

	// Grace is how long a client that supports tasks waits for a result before it gets a
	// task instead. The default is two seconds.
	Grace time.Duration

	Extend

	// In and Out are the streams of Run. Nil means standard input and output.
	// Nothing else may write to Out. If In is an io.Closer, Run closes it at the end
	// to unblock a read.
	In  io.Reader
	Out io.Writer

	// Session is the session in which Run serves its client. The default is
	// [wire.DefaultSession], so a restarted client finds its runs.
	Session string

	// DryRun makes Run treat every request as a dry run, which changes nothing: see
	// [server.WithDryRun].
	DryRun bool

	drain time.Duration // time to answer open requests once In is closed; 0 means drainTimeout, negative means none: in tests, a guest in a loop stops the clock
}

// Run serves one client. It returns nil when the client has closed In or disconnected. If
// ctx is done first, it returns the cause of ctx. When In is closed, Run first answers
// the open requests, and cancels those that take longer than 30 seconds. If ctx is done
// before that, it cancels them at once and writes nothing more. It returns [ErrStuck] if a
// call does not end, or the client does not read, for 30 seconds. Background runs, parked
// calls and tasks continue until the service is closed.
//
// A program that serves its standard output should ignore SIGPIPE. Otherwise the
// system kills it when the client disconnects.
func Run(ctx context.Context, service *server.Service, cfg Config) error {
	if cfg.In == nil {
		cfg.In = os.Stdin
	}
	if cfg.Out == nil {
		cfg.Out = os.Stdout
	}

	a := newAPI(ctx, service, cfg)
	defer a.close()
	srv, err := a.newServer(cfg)
	if err != nil {
		return fmt.Errorf("MCP session: %w", err)
	}

	p := newPipe(cfg.In, cfg.Out, origin{Caller: identity.Caller{Session: cmp.Or(cfg.Session, wire.DefaultSession), DryRun: cfg.DryRun}}, cmp.Or(cfg.drain, drainTimeout))
	p.stop = ctx.Done()
	var sessions []*mcp.ServerSession
	for _, l := range []*lane{p.legacy, p.modern} {
		session, err := srv.Connect(ctx, l, nil)
		if err != nil {
			_ = p.Close()
			return fmt.Errorf("MCP session: %w", err)
		}
		sessions = append(sessions, session)
	}

	go p.run()
	return serve(ctx, p, sessions)
}

// serve waits for the sessions of a pipe to end, and ends them when ctx is done.
func serve(ctx context.Context, p *pipe, sessions []*mcp.ServerSession) error {
	ended := make(chan error, len(sessions))
	for _, s := range sessions {
		go func() {
			err := s.Wait()
			if ctx.Err() == nil {
				_ = p.Close() // the streams are of no use to the other session either
			}
			ended <- err
		}()
	}

	select {
	case <-p.ended: // the SDK cancels the calls
	case <-p.closed:
	case <-ctx.Done(): // the calls see it, see api.call
		for _, s := range sessions {
			go func() { _ = s.Close() }()
		}
	}

	defer func() {
		_ = p.Close()
		for _, call := range p.unanswered() { // the SDK sends nothing once a session ends
			call.receipt.settle(false)
		}
	}()
	late := time.After(hungTimeout)
	var first error
	for range sessions {
		select {
		case err := <-ended:
			first = cmp.Or(first, err)
		case <-late:
			return fmt.Errorf("%w: a call or a write is still running after %s", ErrStuck, hungTimeout)
		}
	}
	return p.sessionError(ctx, first)
}

// sessionError returns why a session ended; nil if the client has left.
func (p *pipe) sessionError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && isClosed(p.last):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
		return nil
	}
	return fmt.Errorf("MCP session: %w", err)
}
