// Package httpapi serves a [server.Service] over HTTP, as JSON under /v1. The bodies
// are the types of package wire. docs/http.md explains the endpoints, [Document]
// describes them to programs.
//
// Each request belongs to a session, named by [wire.SessionHeader]. What belongs to
// another session is not found. Package identity says who sends a request. Errors are
// problem details (RFC 9457), see [wire.Problem]. GET changes nothing.
//
// [New] makes an [API], and [API.Serve] is a whole server for a listener, over plain
// HTTP. Without a login, use it only for a listener that other machines cannot reach,
// see [identity.Loopback]. Anyone who can open a unix socket is the operator.
//
// An API is also a handler for a server of the program, such as one with TLS. That
// server then bounds connections, the heads of requests, and how many are answered at
// once. Mount it at the root of a host: http.StripPrefix does not work. A handler
// around it that wraps the http.ResponseWriter must have an Unwrap method, or
// streaming fails.
//
// Shut down in this order: [API.Drain], so that nothing new begins; Close of the
// Service, which waits for runs; [API.Shutdown], so that clients learn of the end of
// their runs; then the server of the program, if there is one.
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
)

const (
	headerTimeout  = 10 * time.Second // for the head of a request
	bodyTimeout    = 20 * time.Second // for its body; less than writeTimeout, so that there is time for the answer
	refusedTimeout = time.Second      // for the body of a refused request
	writeTimeout   = 30 * time.Second // for a client to take one piece of an answer
	idleTimeout    = 2 * time.Minute  // between two requests of a connection
	heartbeat      = 15 * time.Second // between two events of a stream
	maxHeader      = 32 << 10         // bytes of the head of a request, roughly
)

// Config configures an [API]. Its zero value requires no login, and is for this
// machine only.
type Config struct {
	Version string // of the program, shown to clients
	// Token is the operator's bearer token over TCP; empty for none. Without it
	// and without OAuth, requests need no login and have to name this machine as
	// their host. Requests over a unix socket never need a login.
	Token string
	// ApprovalToken is the token with which approvals are decided over TCP, in the header
	// [wire.ApprovalHeader]. Empty leaves that to the unix socket: whoever can call tools
	// over TCP cannot approve its own calls.
	ApprovalToken string
	// OAuth says whose access tokens are accepted over TCP, besides Token; nil for
	// none. If it is invalid, see [identity.OAuth.Check], no access token is
	// accepted, and the log says why.
	OAuth *identity.OAuth
	// MCP is served at /mcp behind the same checks, such as a handler of package
	// mcpapi. It finds the caller with [identity.FromContext]. Whoever made it
	// closes it. Nil for none.
	MCP http.Handler
	// Page is served at / and below /ui/, to the operator only. Nil for none.
	Page http.Handler
	// SecretForm is served below /secret/, without a login. Nil for none.
	SecretForm http.Handler
	// Logger gets what operators should know. Nil discards.
	Logger *slog.Logger
}

// API is a Service over HTTP. It is an http.Handler, and with [API.Serve] a
// server with sensible limits. It is safe for concurrent use.
type API struct {
	service  *server.Service
	version  string
	auth     *identity.Authenticator
	approval string // the token for decisions over TCP
	log      *slog.Logger
	mux      *http.ServeMux
	http     *http.Server
	draining atomic.Bool
	ending   context.Context // done with Shutdown
	end      context.CancelFunc

	active  atomic.Int64 // requests that are being answered
	bodies  *fair.Pool   // bytes of request bodies
	answers *fair.Pool   // bytes of answers that clients have not taken yet
}

// New returns an API. It does not own the service, which has to stay open until
// [API.Drain] has returned.
func New(service *server.Service, cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}

	a := &API{
		service: service, version: cfg.Version, log: cfg.Logger, approval: cfg.ApprovalToken,
		auth:   identity.New(identity.Config{Token: cfg.Token, OAuth: cfg.OAuth, Logger: cfg.Logger}),
		bodies: fair.NewPool(maxBodies, maxBodies/perClient), answers: fair.NewPool(maxAnswers, maxAnswers/perClient),
	}
	a.ending, a.end = context.WithCancel(context.Background())
	a.mux = a.newMux(routes())
	a.mount(cfg)

	a.http = &http.Server{
		Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		WriteTimeout:                 writeTimeout, // for what net/http answers itself: see response
		DisableGeneralOptionsHandler: true,         // it waits forever for the body of OPTIONS *
		ConnContext:                  withConn,
		ErrorLog:                     slog.NewLogLogger(a.log.Handler(), slog.LevelDebug), // clients that misbehave
	}
	return a
}

// Serve answers the requests that arrive at l until [API.Shutdown], which makes
// it return nil at once, before the last of them are answered. It closes l. It
// may be called for several listeners at the same time. The error is that of l.
func (a *API) Serve(l net.Listener) error {
	if err := a.http.Serve(newConns(l, connLimit())); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Drain refuses from now on what begins work, with [wire.CodeClosing]: calls,
// spawns and schedules. Other requests are answered, and /readyz says that the
// server is not ready. What [Config].MCP begins is its own affair.
func (a *API) Drain() { a.draining.Store(true) }

// Shutdown drains, ends all waits and streams, also those of another server,
// and waits until the requests that came through [API.Serve] are answered. When
// ctx is done first, it closes their connections and returns its error. It may
// be called again.
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
