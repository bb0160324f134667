// Package httpapi serves a [server.Service] over HTTP, as JSON under /v1. Request and
// response bodies are the types of package wire. docs/http.md explains the endpoints;
// [Document] describes them to programs.
//
// Each request belongs to a session, named by [wire.SessionHeader]. Objects of other
// sessions are not found. Package identity authenticates requests. Errors are problem
// details (RFC 9457), see [wire.Problem]. GET changes nothing.
//
// [New] returns an [API]. [API.Serve] is a complete server for a listener, over plain
// HTTP. Without a login, use it only for a listener that other machines cannot reach,
// see [identity.Loopback]. Anyone who can open a unix socket is the operator.
//
// An API is also a handler for a server of your program, such as one with TLS. That
// server must then limit connections, request headers and concurrent requests. Mount
// the handler at the root of a host: http.StripPrefix does not work. Middleware that
// wraps the http.ResponseWriter must have an Unwrap method, or streaming fails.
//
// To shut down, call in this order:
//   - [API.Drain], to refuse new work
//   - Close of the Service, which waits for runs
//   - [API.Shutdown], which lets clients read how their runs ended
//   - Shutdown of your own server, if you have one
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	headerTimeout  = 10 * time.Second // time for the headers of a request
	bodyTimeout    = 20 * time.Second // time for its body; less than writeTimeout, to leave time for the response
	refusedTimeout = time.Second      // time for the body of a refused request
	writeTimeout   = 30 * time.Second // time for a client to read one piece of a response
	idleTimeout    = 2 * time.Minute  // time between two requests on a connection
	heartbeat      = 15 * time.Second // time between two events of a stream
	maxHeader      = 32 << 10         // approximate limit on the headers of a request, in bytes
)

// Config configures an [API]. The zero value requires no login; over TCP it accepts only
// requests whose Host is this machine.
type Config struct {
	Version string // version of the program, shown to clients
	// Token is the operator's bearer token over TCP; empty for no token. Without Token
	// and OAuth, requests need no login, but their Host must be this machine. Requests
	// over a unix socket never need a login.
	Token string
	// Approvals checks the token that decisions on approvals over TCP need in the header
	// [wire.ApprovalHeader]. If it is nil, such decisions need the unix socket, so that a
	// client that calls tools over TCP cannot approve its own calls.
	Approvals *identity.ApprovalToken
	// OAuth configures the access tokens that are accepted over TCP, in addition to
	// Token; nil accepts no access tokens. An invalid configuration, see
	// [identity.OAuth.Check], accepts none either, and the reason is logged.
	OAuth *identity.OAuth
	// MCP is a handler that is served at /mcp after the same checks, such as one of package
	// mcpapi. It gets the caller from [identity.FromContext]. The program must close it.
	// Nil disables the path.
	MCP http.Handler
	// Page is served at / and below /ui/, to the operator only. Nil disables these paths.
	Page http.Handler
	// SecretForm is served below /secret/, without a login. Nil disables these paths.
	SecretForm http.Handler
	// Metrics is served at /metrics, to the operator and to clients with the bearer token
	// MetricsToken, which is valid for this path only. A nil Metrics disables the path; an
	// empty MetricsToken admits the operator only.
	Metrics      http.Handler
	MetricsToken string
	// Reload reloads the configuration of the program and the plugins, for POST
	// /v1/reload. The operator sees its error in the response. In a dry run, it must not
	// change anything. Nil reloads the plugins only.
	Reload func(ctx context.Context) (wire.Reload, error)
	// Logger receives messages for the operator. Nil discards them.
	Logger *slog.Logger
}

// An API serves a Service over HTTP. It is an http.Handler, and with [API.Serve] a
// server with safe limits. It is safe for concurrent use.
type API struct {
	service   *server.Service
	version   string
	auth      *identity.Authenticator
	approvals *identity.ApprovalToken
	scrape    identity.StaticToken // token for metrics over TCP
	reload    func(ctx context.Context) (wire.Reload, error)
	log       *slog.Logger
	mux       *http.ServeMux
	http      *http.Server
	draining  atomic.Bool
	ending    context.Context // done once Shutdown is called
	end       context.CancelFunc

	active  atomic.Int64 // requests in progress
	bodies  *fair.Pool   // bytes of request bodies
	answers *fair.Pool   // bytes of responses that clients have not read yet
}

// New returns an API. It does not own the service, which must stay open until
// [API.Drain] has returned.
func New(service *server.Service, cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}

	a := &API{
		service: service, version: cfg.Version, log: cfg.Logger, approvals: cfg.Approvals, scrape: identity.NewStaticToken(cfg.MetricsToken),
		auth:   identity.New(identity.Config{Token: cfg.Token, OAuth: cfg.OAuth, Logger: cfg.Logger}),
		bodies: fair.NewPool(maxBodies, maxBodies/perClient), answers: fair.NewPool(maxAnswers, maxAnswers/perClient),
	}
	if a.reload = cfg.Reload; a.reload == nil {
		a.reload = func(ctx context.Context) (wire.Reload, error) { return service.ReloadPlugins(ctx) }
	}
	a.ending, a.end = context.WithCancel(context.Background())
	a.mux = a.newMux(routes())
	a.mount(cfg)

	a.http = &http.Server{
		Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		WriteTimeout:                 writeTimeout, // for responses of net/http itself: see response
		DisableGeneralOptionsHandler: true,         // it would wait forever for the body of OPTIONS *
		ConnContext:                  withConn,
		ErrorLog:                     slog.NewLogLogger(a.log.Handler(), slog.LevelDebug), // mistakes of clients
	}
	return a
}

// Serve serves requests on l until [API.Shutdown] is called. Then it returns nil at once,
// before the last requests are finished. If l fails, it returns the error of l. In both
// cases it closes l. It may be called for several listeners at the same time.
func (a *API) Serve(l net.Listener) error {
	if err := a.http.Serve(newConns(l, connLimit())); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Drain makes the API refuse new work with [wire.CodeClosing]: calls, runs, schedules
// and reloads. Other requests are still served, and /readyz reports that the server is
// not ready. Drain does not affect [Config].MCP.
func (a *API) Drain() { a.draining.Store(true) }

// Shutdown drains the API and ends all waits and streams, even those of requests to your
// own server. It waits until the requests that [API.Serve] accepted are finished. If ctx is
// done first, it closes their connections and returns the error of ctx. It may be called
// again.
func (a *API) Shutdown(ctx context.Context) error {
	a.Drain()
	a.end()
	a.auth.Close()

	err := a.http.Shutdown(ctx)
	if err != nil {
		_ = a.http.Close()
	}
	return err
}
