// Package mcpapi serves a [server.Service] over the Model Context Protocol: as
// newline-delimited JSON-RPC on a pair of streams ([Run]) and over streamable
// HTTP ([Handler]), in every protocol revision the official Go SDK speaks, both
// those that begin with initialize and 2026-07-28, which has no handshake. What
// runs in the background belongs to a session of the service: one for a pair of
// streams, and the one of each request over HTTP.
//
// What a tool answers goes out whole, whatever part of a result a client shows
// its model: see toResult. What went wrong with a tool is a result too, so
// that the model can react; only a tool that does not exist is a protocol
// error.
package mcpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server"
)

// DefaultSession is the session of clients that name none.
const DefaultSession = "default"

// serverName is what clients are told they talk to.
const serverName = "toolhost"

// ErrStuck is why Run gave up on a clean end: something still runs, most often
// a write to a client that does not read.
var ErrStuck = errors.New("the MCP session does not end")

// Config configures [Run]. Its zero value serves the process's own streams.
type Config struct {
	Version string // of the program, told to clients

	// In and Out are the streams: nil is the standard input and output. Nothing
	// else may write to Out. If In is an io.Closer it is closed in the end, so
	// that a read that still waits returns.
	In  io.Reader
	Out io.Writer

	// Logger gets what operators should know. Nil discards. It must not write
	// to Out.
	Logger *slog.Logger

	// Session is whose runs the client sees, and whose its tasks are. Empty is
	// [DefaultSession]: a client that is started anew finds what it left, where
	// the service keeps it.
	Session string

	// Grace is how long a call is waited for before a client that takes tasks
	// gets one; 0 is two seconds.
	Grace time.Duration

	Extend // what tools of plugins cannot be

	drain time.Duration // 0 is drainGrace, negative none: a guest that spins holds up the clock of a test
}

// Run serves one session until the client closes In or goes away, and returns
// nil, or until ctx is done, and returns its cause. Calls of tools made before In
// was closed have a second to be answered, and other requests are answered. By its
// return it has canceled the calls that were still running and waited for them. It
// returns an error that matches [ErrStuck] if they do not end within 30 seconds,
// or the client does not read so long. Background runs go on,
// parked calls and tasks among them: the next client of the session has them,
// and closing the service ends them.
//
// A program that serves its standard output should ignore SIGPIPE, or the
// system ends it when the client goes away.
func Run(ctx context.Context, service *server.Service, cfg Config) error {
	if cfg.In == nil {
		cfg.In = os.Stdin
	}
	if cfg.Out == nil {
		cfg.Out = os.Stdout
	}
	a := newAPI(ctx, service, cfg.Logger, cfg.Grace)
	defer a.unfollow()
	session := cmp.Or(cfg.Session, DefaultSession)
	a.session = func(*mcp.RequestExtra) string { return session }
	extend := cfg.Extend
	extend.Options = func(o *mcp.ServerOptions) {
		if cfg.Options != nil {
			cfg.Options(o)
		}
		o.KeepAlive = 0
	}
	srv, err := a.newServer(cfg.Version, extend, fair.NewPool(maxCalls, maxCalls))
	if err != nil {
		return fmt.Errorf("MCP session: %w", err)
	}
	pipe := newPipe(cfg.In, cfg.Out, cmp.Or(cfg.drain, drainGrace))
	ctx = context.WithValue(ctx, outletKey{}, outlet{taskIDs: pipe.taskIDs, send: pipe.send})
	var sessions []*mcp.ServerSession
	for _, lane := range []*lane{pipe.legacy, pipe.modern} {
		session, err := srv.Connect(ctx, lane, nil)
		if err != nil {
			_ = pipe.Close()
			return fmt.Errorf("MCP session: %w", err)
		}
		sessions = append(sessions, session)
	}
	go pipe.run()
	return serve(ctx, pipe, sessions)
}

// serve waits for the end of the sessions of a pipe, and brings it about when ctx
// is done.
func serve(ctx context.Context, pipe *pipe, sessions []*mcp.ServerSession) error {
	var waiting sync.WaitGroup
	ended := make(chan error, len(sessions))
	for _, s := range sessions {
		waiting.Go(func() { ended <- s.Wait() })
	}
	input, done := pipe.ended, ctx.Done()
	var stuck <-chan time.Time
	var first error
	for open := len(sessions); open > 0; {
		select {
		case err := <-ended:
			open--
			first = cmp.Or(first, err)
			if ctx.Err() == nil { // of the other one nothing can be read or written either
				_ = pipe.Close()
			}
			continue
		case <-input: // the SDK cancels the calls
			input = nil
		case <-done: // every call sees it, see api.call
			done = nil
			for _, s := range sessions {
				waiting.Go(func() { _ = s.Close() })
			}
		case <-stuck:
			_ = pipe.Close()
			return fmt.Errorf("%w: a call or a write is still running after %s", ErrStuck, hung)
		}
		if stuck == nil {
			stuck = time.After(hung)
		}
	}
	waiting.Wait()
	_ = pipe.Close()
	return sessionError(ctx, first)
}

// sessionError tells why a session ended. That the client went away is how
// sessions end.
func sessionError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
		return nil
	}
	return fmt.Errorf("MCP session: %w", err)
}

// api is a service as MCP has it, for one stream or for all of HTTP.
type api struct {
	ctx     context.Context // ends all calls
	service *server.Service
	log     *slog.Logger
	session func(*mcp.RequestExtra) string // whose runs a request sees
	grace   time.Duration                  // how long a client that takes tasks waits for a result
	key     []byte                         // signs what clients carry for us

	served    atomic.Pointer[served]
	listing   sync.RWMutex // held for reading while tools are listed: no client sees half of a change
	following sync.WaitGroup
	leave     context.CancelFunc // ends following
}

func newAPI(ctx context.Context, service *server.Service, log *slog.Logger, grace time.Duration) *api {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &api{ctx: ctx, service: service, log: log, grace: cmp.Or(grace, defaultGrace), key: newKey(), leave: func() {}}
	a.served.Store(&served{})
	return a
}

// unfollow ends what newServer began.
func (a *api) unfollow() {
	a.leave()
	a.following.Wait()
}

// Extend lets a program that embeds this package serve what no tool of a plugin
// can be, such as prompts and resources of its own. Its zero value adds nothing.
type Extend struct {
	// Options is called before the server is made. On a pair of streams its
	// KeepAlive is ignored: who is gone closes them, and since 2026-07-28 servers
	// send no requests.
	Options func(*mcp.ServerOptions)
	Server  func(*mcp.Server) // called before it serves
}

func (a *api) newServer(version string, extend Extend, calls *fair.Pool) (*mcp.Server, error) {
	ctx, leave := context.WithCancel(a.ctx)
	a.leave = leave
	changed := a.service.ToolsChanged(ctx) // before they are looked at
	// Without this the SDK advertises logging, which 2026-07-28 deprecates, and
	// changes of the list of resources, which does not change. Tasks and files
	// are advertised also while no tool runs in the background: clients ask for
	// capabilities once, and the first such tool may come with a reload.
	capabilities := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{}}
	capabilities.AddExtension(tasksExtension, nil)
	options := &mcp.ServerOptions{Logger: sdkLog(a.log), Capabilities: capabilities, SetCacheable: private}
	if extend.Options != nil {
		extend.Options(options)
	}
	srv := mcp.NewServer(&mcp.Implementation{Name: serverName, Title: "Toolhost", Version: version}, options)
	a.serveTools(srv)
	srv.AddReceivingMiddleware(asTask, a.nearestTool, a.wholeList, a.listen, notFound, handshake)
	if options.Instructions == "" { // the program has none of its own
		srv.AddReceivingMiddleware(a.instruct)
	}
	srv.AddSendingMiddleware(a.begun, a.acknowledge, unasked)
	a.addFiles(srv)
	if err := a.addTasks(srv); err != nil {
		return nil, err
	}
	a.following.Go(func() {
		for range changed {
			a.serveTools(srv)
		}
	})
	if extend.Server != nil {
		extend.Server(srv)
	}
	srv.AddReceivingMiddleware(a.contain, a.bound(calls))
	return srv, nil
}

// private keeps what resources hold from shared caches: it is one session's.
func private(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	if _, ok := req.(*mcp.ReadResourceRequest); ok {
		c.CacheScope = "private"
	}
}

// handshake takes a client that begins with initialize for one of the revisions
// that do, whatever it asks for: the SDK agrees on such a one, and goes by what
// was asked for. A second handshake it refuses with an error that has no code.
func handshake(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		p, ok := req.GetParams().(*mcp.InitializeParams)
		if !ok || p == nil {
			return next(ctx, method, req)
		}
		if p.ProtocolVersion >= modernVersion {
			p.ProtocolVersion = lastLegacy
		}
		result, err := next(ctx, method, req)
		if _, coded := errors.AsType[*jsonrpc.Error](err); err != nil && !coded {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
		}
		return result, err
	}
}

// unasked keeps pings from clients of revisions in which servers send no
// requests. The SDK looks only at the other ones.
func unasked(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		s, ok := req.GetSession().(*mcp.ServerSession)
		if !ok || method != methodPing {
			return next(ctx, method, req)
		}
		if p := s.InitializeParams(); p != nil && p.ProtocolVersion >= modernVersion {
			return nil, fmt.Errorf("%s is not for clients of %s", methodPing, p.ProtocolVersion)
		}
		return next(ctx, method, req)
	}
}
