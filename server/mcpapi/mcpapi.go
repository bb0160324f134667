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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/share"
	"github.com/toolhost/toolhost/server"
)

// DefaultSession is the session of clients that name none.
const DefaultSession = "default"

// serverName is what clients are told they talk to.
const serverName = "toolhost"

// stopGrace is how long Run waits, once it has to end, for calls to give way
// and for a client that does not read what it is sent.
const stopGrace = 5 * time.Second

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
// nil, or until ctx is done, and returns its cause. Calls made before In was
// closed have a second to be answered. By its return it has canceled the calls
// that were still running and waited for them. It returns an error that matches
// [ErrStuck] if they do not end within five seconds. Background runs go on,
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
	srv, err := a.newServer(cfg.Version, cfg.Extend, share.New(maxCalls, maxCalls))
	if err != nil {
		return fmt.Errorf("MCP session: %w", err)
	}
	pipe := newPipe(cfg.In, cfg.Out, cmp.Or(cfg.drain, drainGrace))
	ctx = context.WithValue(ctx, outletKey{}, outlet{taskIDs: pipe.taskIDs, send: pipe.send})
	transport := &mcp.IOTransport{Reader: pipe, Writer: pipe.writer(), MaxLineLength: -1} // the pipe bounds them
	conn, err := srv.Connect(ctx, transport, nil)
	if err != nil {
		return fmt.Errorf("MCP session: %w", err)
	}
	return serve(ctx, conn, pipe.ended)
}

// serve waits for the end of a session, and brings it about when ctx is done.
func serve(ctx context.Context, conn *mcp.ServerSession, inputEnded <-chan struct{}) error {
	var waiting sync.WaitGroup
	ended := make(chan error, 1)
	waiting.Go(func() { ended <- conn.Wait() })
	select {
	case err := <-ended:
		waiting.Wait()
		return sessionError(ctx, err)
	case <-inputEnded: // the SDK cancels the calls
	case <-ctx.Done(): // every call sees it, see api.call
		waiting.Go(func() { _ = conn.Close() })
	}
	stuck := time.NewTimer(stopGrace)
	defer stuck.Stop()
	select {
	case err := <-ended:
		waiting.Wait()
		return sessionError(ctx, err)
	case <-stuck.C:
		return fmt.Errorf("%w: a call or a write is still running after %s", ErrStuck, stopGrace)
	}
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
	Options func(*mcp.ServerOptions) // called before the server is made
	Server  func(*mcp.Server)        // called before it serves
}

func (a *api) newServer(version string, extend Extend, calls *share.Pool) (*mcp.Server, error) {
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
	srv.AddReceivingMiddleware(asTask, a.nearestTool, a.wholeList, a.listen)
	if options.Instructions == "" { // the program has none of its own
		srv.AddReceivingMiddleware(a.instruct)
	}
	srv.AddSendingMiddleware(a.begun, a.acknowledge)
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
