// Package mcpapi serves a [server.Service] over the Model Context Protocol: as
// newline-delimited JSON-RPC on a pair of streams ([Run]) and over streamable HTTP
// ([Handler]). It speaks every protocol revision of the official Go SDK, both those
// that begin with initialize and 2026-07-28, which has no handshake. Background
// runs belong to a session of the service: Config.Session for a pair of streams, and
// the caller's session for each request over HTTP.
//
// A tool that fails returns a result, so that the model can react. Only an unknown tool is
// a protocol error.
package mcpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server"
)

// Extend lets a program that embeds this package serve more than the tools of
// plugins, such as prompts and resources. Its zero value adds nothing.
type Extend struct {
	// Options is called before the server is created, and may change the server's options.
	// The option KeepAlive is ignored: since 2026-07-28 servers send no requests, and
	// streams are kept alive anyway.
	Options func(*mcp.ServerOptions)
	// Server is called with the server before it serves, and may add to it.
	Server func(*mcp.Server)
}

// api serves a service over MCP, on one pair of streams or over HTTP.
type api struct {
	ctx     context.Context // ends all calls
	service *server.Service
	log     *slog.Logger
	grace   time.Duration // how long a client that supports tasks waits for a result

	calls       *fair.Pool   // unanswered requests; nil on a pipe, which counts them itself
	connections *connections // nil on a pipe
	notified    shownNotices

	served     atomic.Pointer[toolView]
	listing    sync.RWMutex // held for reading while tools are listed
	instructed bool         // the embedding program has its own instructions

	following sync.WaitGroup
	leave     context.CancelFunc // ends the goroutine that follows reloads
}

func newAPI(ctx context.Context, service *server.Service, cfg Config) *api {
	a := &api{ctx: ctx, service: service, log: cfg.Logger, grace: cmp.Or(cfg.Grace, taskGrace), leave: func() {}}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.served.Store(&toolView{})
	return a
}

// close ends what newServer started.
func (a *api) close() {
	a.leave()
	a.following.Wait()
}

// sdkLog is the logger of the SDK, which logs mistakes of clients, even as errors.
// Clients could flood the log with them, so they are logged at level debug only.
func (a *api) sdkLog() *slog.Logger {
	if a.log.Enabled(a.ctx, slog.LevelDebug) {
		return a.log
	}
	return slog.New(slog.DiscardHandler)
}

func (a *api) newServer(cfg Config) (*mcp.Server, error) {
	var ctx context.Context
	ctx, a.leave = context.WithCancel(a.ctx)
	changed := a.service.ToolsChanged(ctx) // before the tools are first read

	// Capabilities are set, so that the SDK does not advertise logging, which is
	// deprecated, or changes of resources. Tasks are advertised even if no tool supports
	// them, because clients ask for capabilities only once.
	capabilities := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{}}
	capabilities.AddExtension(tasksExtension, nil)
	options := &mcp.ServerOptions{Logger: a.sdkLog(), Capabilities: capabilities, SetCacheable: keepPrivate}
	if cfg.Options != nil {
		cfg.Options(options)
	}
	options.KeepAlive = 0
	a.instructed = options.Instructions != ""

	srv := mcp.NewServer(&mcp.Implementation{Name: "toolhost", Title: "Toolhost", Version: cfg.Version}, options)
	a.serveTools(srv)
	a.addFiles(srv)
	a.addLimits(srv)
	if err := addTasks(srv); err != nil {
		return nil, err
	}

	srv.AddReceivingMiddleware(refuseUndeclared(options))
	srv.AddReceivingMiddleware(a.receive)
	srv.AddSendingMiddleware(a.send)
	a.following.Go(func() {
		for range changed {
			a.serveTools(srv)
		}
	})

	if cfg.Server != nil {
		cfg.Server(srv)
	}
	srv.AddReceivingMiddleware(a.guard)
	srv.AddReceivingMiddleware(a.measure)
	return srv, nil
}

// keepPrivate keeps resources, which belong to a session, out of shared caches.
func keepPrivate(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	if _, ok := req.(*mcp.ReadResourceRequest); ok {
		c.CacheScope = "private"
	}
}

// toolView is the clients' view of the tools. It is immutable: a reload makes a new one.
type toolView struct {
	tools        map[string]toolEntry
	instructions string
}

type toolEntry struct {
	definition []byte // as in tools/list
	structured bool   // results have structuredContent
	background bool   // a call can be a task
	deferred   bool   // left out of tools/list
}

func (s *toolView) names() []string { return slices.Sorted(maps.Keys(s.tools)) }

// serveTools replaces the served tools by the service's current ones. The SDK notifies
// clients of differences. One goroutine at a time calls it.
func (a *api) serveTools(srv *mcp.Server) {
	before, definitions := a.served.Load(), a.service.AllDefinitions("")
	now := &toolView{tools: map[string]toolEntry{}, instructions: instructions(definitions)}
	a.listing.Lock()
	defer a.listing.Unlock()

	for _, d := range definitions {
		tool := toTool(d)
		definition, _ := json.Marshal(tool) // its schemas were parsed before: it cannot fail
		if !bytes.Equal(before.tools[d.Name].definition, definition) {
			if err := addTool(srv, tool, a.call); err != nil {
				a.log.Error("the tool is not served over MCP", "tool", d.Name, "plugin", d.Plugin, "error", err)
				continue
			}
		}
		now.tools[d.Name] = toolEntry{definition, tool.OutputSchema != nil, d.SupportsBackground, d.Deferred}
	}

	a.served.Store(now)
	removed := slices.DeleteFunc(before.names(), func(name string) bool { return now.tools[name].definition != nil })
	if len(removed) > 0 {
		srv.RemoveTools(removed...)
	}
}

// The end of the instructions, for clients in a named session and for others.
const (
	endsWithResult = "the end comes with a later tool result"
	endsWithCheck  = "wait for the end with " + server.CheckBackground
)

// instructions describes background runs to a model. The definitions say the rest.
func instructions(definitions []server.Definition) string {
	if !slices.ContainsFunc(definitions, func(d server.Definition) bool { return d.SupportsBackground }) ||
		slices.ContainsFunc(definitions, func(d server.Definition) bool { return d.Name == server.SpawnBackground && d.Deferred }) {
		return ""
	}
	return "Tools that take long can run in the background, with " + server.SpawnBackground + ": " + endsWithResult + "."
}
