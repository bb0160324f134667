// Package httpapi serves a [server.Service] over HTTP: tools, calls, background
// runs with their output, notices, schedules and events, as JSON under /v1.
//
// Each request belongs to a session, named by [SessionHeader]; what belongs to
// another session is not found. Who sends it is an
// [identity.Caller]: the operator, or a user of an OAuth issuer with sessions of its own. Errors are problem
// details (RFC 9457), see [Problem]. GET changes nothing, not even a run's
// notice. All endpoints are in one table, see [Routes]; docs/http.md explains
// them, and [Document] describes them to programs.
//
// A client is not trusted to be quick, well-behaved or who it says: bodies,
// headers, waits and the number of open streams are bounded, a client that
// reads too slowly loses its connection, web pages of other origins are
// refused, and so are host names that are not this machine's, unless a token
// or OAuth is configured, which every request over TCP then needs.
//
// # In a program
//
// [New] makes an [API] of a Service, and [API.Serve] is a whole server for a
// listener, over plain HTTP. Without a login it is for a listener that only
// this machine reaches, see [Loopback]: the host a request has to name is the
// client's to choose, and keeps nobody out but web pages. Whoever reaches a
// listener of unix sockets is the operator, so that the permissions of its file
// are the login.
//
// An API is a handler, too, for a server of the program's own, such as one with
// TLS. What Serve does beside it is then that server's: bounds on connections
// and on the time and the size of a request's head. An API is at the root of its
// host: its paths, those it answers with and those of OAuth begin there, so that
// http.StripPrefix does not move it. A handler before it that wraps the
// http.ResponseWriter has to give it an Unwrap method, as http.ResponseController
// has it, or nothing can be streamed, and who takes nothing keeps its connection.
//
// The end has an order: [API.Drain], so that nothing new begins, then the Close
// of the Service, which waits for what runs, then [API.Shutdown], so that clients
// hear of the end of their runs, and last the program's own server, if there is
// one.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// How patient the server is.
const (
	headerTimeout = 10 * time.Second // for the head of a request
	bodyTimeout   = 20 * time.Second // for its body; less than writeTimeout, or a late body would leave no time for the answer
	writeTimeout  = 30 * time.Second // for a client to take one piece of an answer
	idleTimeout   = 2 * time.Minute  // between the requests of a connection
	heartbeat     = 15 * time.Second // between two events of a stream
	maxHeader     = 32 << 10         // bytes of the head of a request, about
	maxOpen       = 2048             // answers that wait or stream, at once; for other bounds see conns.go
	piece         = 256 << 10        // bytes of one piece of an answer
)

// Config configures an [API]. Its zero value is ready for use: without a login,
// for this machine only.
type Config struct {
	Version string // of the program, told to clients
	// Token is what the operator sends over TCP as a bearer token. Empty: none.
	// Without it and without OAuth, requests need no login, and have to name
	// this machine as their host. Requests over a unix socket never need any.
	Token string
	// OAuth says whose access tokens are taken over TCP, beside Token: those of
	// users, see [identity.Caller]. Nil is none.
	OAuth *identity.OAuth
	// MCP is served at /mcp, behind the same guards: such as a handler of package
	// mcpapi. It finds the caller with [identity.FromContext]. Its maker closes it.
	// Nil is nothing.
	MCP http.Handler
	// Page is served at / and below /ui/, to operators: it shows what belongs to
	// all sessions. It is one of package webui. Nil is nothing.
	Page http.Handler
	// Logger gets what operators should know. Nil discards.
	Logger *slog.Logger
}

// API is a Service over HTTP. It is an http.Handler, and with [API.Serve] a
// server with the limits that one should have. It is safe for concurrent use.
type API struct {
	service  *server.Service
	version  string
	auth     *identity.Authenticator
	log      *slog.Logger
	mux      *http.ServeMux
	open     *fair.Pool // of answers that wait or stream
	bodies   *fair.Pool // of bytes of bodies
	answers  *fair.Pool // of bytes of answers that clients have not taken yet
	draining atomic.Bool
	ending   context.Context // ends with Shutdown
	end      context.CancelFunc
	http     *http.Server
}

// New returns an API. It does not own the service, which has to be there until
// [API.Shutdown] has returned, or closed after [API.Drain]. With an OAuth that
// has a fault, see [identity.OAuth.Check], no token of users is taken, and the log says
// why.
func New(service *server.Service, cfg Config) *API {
	a := &API{service: service, version: cfg.Version, log: cfg.Logger,
		open: fair.NewPool(maxOpen, maxOpen/partOfOne), bodies: fair.NewPool(maxBodies, maxBodies/partOfOne),
		answers: fair.NewPool(maxAnswers, maxAnswers/partOfOne)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.ending, a.end = context.WithCancel(context.Background())
	a.auth = identity.New(identity.Config{Token: cfg.Token, OAuth: cfg.OAuth, Logger: a.log})
	a.mux = a.newMux(Routes())
	if cfg.OAuth != nil {
		a.mux.HandleFunc("OPTIONS "+pathMetadata, a.metadataPreflight)
		a.mux.HandleFunc("OPTIONS "+pathMetadataMCP, a.metadataPreflight)
	}
	if cfg.MCP != nil {
		a.mux.Handle(pathMCP, a.mount(cfg.MCP))
	}
	if cfg.Page != nil {
		a.mountPage(cfg.Page)
	}
	a.http = &http.Server{
		Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		WriteTimeout:                 writeTimeout, // for what net/http answers itself: see response
		DisableGeneralOptionsHandler: true,         // it waits for the body of OPTIONS * without end
		ConnContext:                  withConn,
		ErrorLog:                     slog.NewLogLogger(a.log.Handler(), slog.LevelDebug), // what it says is of clients that misbehave
	}
	return a
}

// Serve answers the requests that come in at l, until [API.Shutdown], which
// makes it return nil at once, before the last of them are answered. It closes l.
// It may be called for several listeners, at the same time. The error is that of
// l. After Shutdown it returns nil, and answers nothing.
func (a *API) Serve(l net.Listener) error {
	if err := a.http.Serve(newConns(l, connLimit())); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Drain refuses from now on what begins work, with [CodeClosing]: calls, spawns
// and schedules. Everything else is answered, and /readyz says that the server is
// not ready. What [Config].MCP begins is its own.
func (a *API) Drain() { a.draining.Store(true) }

// Shutdown drains, ends all waits and streams, also those of a server of the
// program's own, waits until the requests that came by [API.Serve] are answered,
// and ends. When ctx is done first it closes their connections and returns its
// error. It may be called again.
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

func (a *API) ended() bool { return a.ending.Err() != nil }

// ServeHTTP answers one request. If the client is to see that an answer is not
// whole it panics with http.ErrAbortHandler, as net/http has it.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	answer := &response{
		ResponseWriter: w, head: r.Method == http.MethodHead, last: len(r.TransferEncoding) > 0,
		gzip: !overSocket(r) && takesGzip(r.Header.Values("Accept-Encoding")),
	}
	if r.ContentLength != 0 {
		setReadDeadline(w, bodyTimeout)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.ending, cancel)()
	r = r.WithContext(ctx)
	defer answer.giveBack() // last, when all is written
	defer func() { a.finish(answer, r, began, recover()) }()
	secureHeaders(answer.Header())
	caller, err := a.guard(r)
	if err != nil {
		if r.ContentLength != 0 {
			setReadDeadline(w, refusedWait)
		}
		a.fail(answer, r, err)
		return
	}
	r = r.WithContext(identity.NewContext(r.Context(), caller))
	who := clientOf(r)
	answer.keep = func(n int) (func(), error) { return a.keep(who, n) }
	if !reads(r) { // what it did is not to be lost
		answer.keep = func(n int) (func(), error) { return a.overdraw(who, n), nil }
	}
	if reads(r) && !caller.Until.IsZero() { // whatever it says it takes: it may stream or wait
		defer time.AfterFunc(time.Until(caller.Until), cancel).Stop() // who wants to see more has to have a new token
	}
	if err := plainBody(answer, r); err != nil {
		a.fail(answer, r, err)
		return
	}
	admitted, err := a.admit(r)
	if err != nil {
		a.fail(answer, r, err)
		return
	}
	answer.whenWritten(admitted)
	if clean := path.Clean(r.URL.Path) == r.URL.Path || r.URL.Path == pathUI; !clean || r.RequestURI == "*" { // the mux would send the client elsewhere, or say nothing
		a.fail(answer, r, refuse(CodeNotFound, "there is no %s here", r.URL.Path))
		return
	}
	a.mux.ServeHTTP(answer, r)
}

// finish ends an answer, also where its handler panicked with a value.
func (a *API) finish(answer *response, r *http.Request, began time.Time, v any) {
	defer answer.end(v == nil || !answer.begun)
	if v != nil && v != http.ErrAbortHandler {
		a.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	}
	a.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", answer.status, "seconds", time.Since(began).Seconds())
	switch {
	case v == nil:
	case answer.begun:
		panic(http.ErrAbortHandler) // the client is to see that the answer is not whole
	default:
		refuse(CodeInternal, "the server's log says what went wrong").write(answer)
	}
}

// secureHeaders keeps browsers from taking an answer for what it is not: what
// tools wrote is in it.
func secureHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
}

// reads reports whether a request changes nothing, so that it can be made again.
func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// admit has a request hold its connection and pay for its body, until release.
// One that may do something is refused here, before it did, if its client has no
// room for what it answers: later it would be lost. Whether the server is there
// is told in any case.
func (a *API) admit(r *http.Request) (release func(), err error) {
	if r.URL.Path == pathHealth || r.URL.Path == pathReady {
		return func() {}, nil
	}
	who := clientOf(r)
	if limit, ok := a.answers.Room(who.most(a.answers), who.name); !ok && !reads(r) {
		return nil, tooMany(limit, untaken, limit)
	}
	free, err := hold(r, who)
	if err != nil || r.Body == nil || r.Body == http.NoBody {
		return free, err
	}
	u := &upload{ReadCloser: r.Body, pool: a.bodies, who: who}
	r.Body = u
	return func() { u.done(); free() }, nil
}

// occupy takes one of the slots for answers that wait or stream, until release.
func (a *API) occupy(r *http.Request) (release func(), err error) {
	who := clientOf(r)
	if limit, ok := who.take(a.open, 1); !ok {
		return nil, tooMany(limit, "%d waits and streams are open already", limit)
	}
	return func() { a.open.Give(who.name, 1) }, nil
}

// keep takes room for a piece of an answer that a client has to take, until
// release. One piece has room for itself, however large it is.
func (a *API) keep(who client, n int) (release func(), err error) {
	n = min(n, a.answers.Each())
	if limit, ok := who.take(a.answers, n); !ok {
		return nil, tooMany(limit, untaken, limit)
	}
	return func() { a.answers.Give(who.name, n) }, nil
}

// overdraw is keep for what is not refused: it counts, and what the client asks
// for next finds less room.
func (a *API) overdraw(who client, n int) (release func()) {
	a.answers.Overdraw(who.name, n)
	return func() { a.answers.Give(who.name, n) }
}

const untaken = "%d bytes of answers wait to be taken already"

// setReadDeadline bounds how long the rest of a request may take; 0 is no bound.
func setReadDeadline(w http.ResponseWriter, d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = http.NewResponseController(w).SetReadDeadline(at) // not there in a test without a connection
}
