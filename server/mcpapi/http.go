package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// Handler serves a Service over MCP's streamable HTTP transport. All protocol
// revisions share one URL. It is safe for concurrent use.
//
// It does not check the caller, Origin or Host of a request. Mount it behind a handler, such
// as that of package httpapi, that checks them and adds the caller to the request's context
// with [identity.NewContext]. Requests without a caller belong to [identity.Nobody].
type Handler struct {
	api    *api
	server *mcp.Server
	events *events
	modern http.Handler // for independent requests, since 2026-07-28
	legacy http.Handler // for connections that begin with initialize
	end    context.CancelCauseFunc

	relay   *server.Relay // nil without other hosts
	mark    mark
	joining sync.Mutex // held while a session of another host is joined here
}

// Limits on unanswered requests over HTTP. Before 2026-07-28 a request outlives the
// client that made it.
const (
	maxCallsHTTP     = 2048 // unanswered requests of all clients
	maxCallsOfClient = maxCallsHTTP / 4
)

// abortTimeout is how long the end of a session waits for the answers to its calls.
const abortTimeout = 5 * time.Second

// NewHandler returns a Handler. It ignores the streams, the session and DryRun of cfg. Close
// the Handler when done; this does not close the service.
func NewHandler(service *server.Service, cfg Config) (*Handler, error) {
	ctx, end := context.WithCancelCause(context.Background())
	a := newAPI(ctx, service, cfg)
	a.calls = fair.NewPool(maxCallsHTTP, maxCallsOfClient)
	a.connections = &connections{open: map[string]*connection{}, names: map[string]string{}}

	srv, err := a.newServer(cfg)
	if err != nil {
		end(nil)
		a.close()
		return nil, err
	}
	a.connections.live = srv.Sessions

	kept := newEvents(a.connections.client, a.connections.closed)
	handler := func(stateless bool, timeout time.Duration, store mcp.EventStore) http.Handler {
		return auth.RequireBearerToken(knownToken, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(
			mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{
				Stateless: stateless, SessionTimeout: timeout, PropagateRequestCancellation: true, EventStore: store,
				Logger: a.sdkLog(), MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true, // see Handler
			}))
	}
	h := &Handler{api: a, server: srv, events: kept, modern: handler(true, 0, nil), legacy: handler(false, connectionTimeout, kept), end: end, relay: service.Relay()}
	if h.relay != nil {
		h.mark = mark(1 + rand.N[int64](markLimit-1))
		a.connections.follow = h.follow
	}
	return h, nil
}

type tokenKey struct{}

// knownToken passes the origin of a request to the SDK.
func knownToken(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	return ctx.Value(tokenKey{}).(*auth.TokenInfo), nil
}

var errClosed = server.ErrClosing

// Close ends all calls and connections. Background runs continue until the service
// is closed.
func (h *Handler) Close() {
	h.end(errClosed)
	for s := range h.server.Sessions() {
		_ = s.Close()
	}
	h.api.connections.following.Wait()
	h.api.close()
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(inner http.ResponseWriter, r *http.Request) {
	w := newStream(inner)
	defer w.end()
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back

	var m envelope
	var body []byte
	if r.Method == http.MethodPost {
		var err error
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage)); err != nil {
			status := readStatus(err)
			http.Error(w, http.StatusText(status), status)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it would end a long answer

		var problem *jsonrpc.Error
		if m, problem = readEnvelope(body); problem != nil {
			refuse(w, http.StatusBadRequest, m.ID, problem)
			return
		}
	}

	from := origin{Caller: identity.FromContext(r.Context()), taskIDs: m.TaskIDs, task: m.Task, answer: w, receipt: &receipt{request: string(m.ID)}}
	if r.URL.Query().Get("dry_run") == "true" {
		from.DryRun = true
	}
	defer func() {
		from.receipt.settle(w.written())
		if w.largest > maxResponse {
			h.api.log.Warn("an answer was one event of more than 1 MiB, which some clients lose: call without a progress token, or with spawn_background",
				"method", m.Method, "name", m.Name, "session", from.Session, "request", from.receipt.request, "bytes", w.largest)
		}
	}()
	alone := m.standsAlone(r.Header)
	if alone {
		from.send = w.sendMessage
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	r.Header = r.Header.Clone()
	// The real token was checked before and must not be passed on (2026-07-28,
	// basic/authorization, access token privilege restriction).
	r.Header.Set("Authorization", "Bearer checked")

	if alone {
		h.serveModern(w, from.attach(r), m)
	} else {
		h.serveLegacy(w, r, m, from, body)
	}
}

// readStatus returns the HTTP status for a body that could not be read.
func readStatus(err error) int {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return http.StatusRequestTimeout
	}
	if problem, ok := errors.AsType[*wire.Problem](err); ok { // from package httpapi
		return problem.Status
	}
	return http.StatusBadRequest
}

// serveModern serves an independent request.
func (h *Handler) serveModern(w http.ResponseWriter, r *http.Request, m envelope) {
	if problem := m.mismatch(r.Header); problem != nil {
		refuse(w, http.StatusBadRequest, m.ID, problem)
		return
	}

	r.Header.Del(headerLastEvent) // these streams cannot be resumed
	if _, ok := named[m.Method]; ok {
		r.Header.Set(headerName, m.Name) // the SDK does not decode it
	}
	h.modern.ServeHTTP(w, r)
}

// textSessions is the error text for a request that cannot begin a session.
const textSessions = "session limit reached and every session is in use: close one, or retry later"

// serveLegacy serves a request of a connection. A POST that names none opens a
// connection, which the SDK keeps if it was initialized.
func (h *Handler) serveLegacy(w http.ResponseWriter, r *http.Request, m envelope, from origin, body []byte) {
	if m.Method == methodInitialize { // clients keep the name of a session that is gone
		r.Header.Del(headerSession)
	}
	switch {
	case r.Header.Get(headerSession) != "":
		leave, ok := h.enter(w, r, m, &from, body)
		if !ok {
			return
		}
		defer leave()
	case r.Method != http.MethodPost: // the SDK refuses it
	case len(body) > maxInitialize:
		refuse(w, http.StatusRequestEntityTooLarge, m.ID, invalidRequest(fmt.Sprintf("the request that begins a session has more than %d bytes", maxInitialize)))
		return
	case !h.api.connections.admit(from.Client()):
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusServiceUnavailable, m.ID, &jsonrpc.Error{Code: codeBusy, Message: textSessions})
		return
	}

	from.answer.mark = h.mark
	r, done, ok := h.resumable(from.answer, from.attach(r))
	defer done()
	if !ok {
		http.Error(w, "the stream cannot be resumed: it ended long ago, or was answered without an event", http.StatusBadRequest)
		return
	}
	h.legacy.ServeHTTP(w, r)
	if h.relay != nil && m.Method == methodInitialize && from.answer.begun != "" {
		h.inject(r.Context(), from.Caller, from.answer.begun, sayInitialized) // the client may send it to another host
	}
}

// enter admits a request to the session it names, until leave is called. It reports false
// once it has answered the request.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request, m envelope, from *origin, body []byte) (leave func(), ok bool) {
	name := r.Header.Get(headerSession)
	id, ok := h.local(w, r, from)
	if !ok {
		return nil, false
	}
	owner, release, ok := h.api.connections.enter(id, from.User, r.Method == http.MethodPost)
	if !ok {
		http.Error(w, "session not found", http.StatusNotFound) // the client begins a new session
		return nil, false
	}
	if from.Unnamed {
		from.Session = owner.Session
	}
	r.Header.Set(headerSession, id)

	switch {
	case r.Method == http.MethodDelete:
		h.revoke(r.Context(), name)
		select {
		case <-h.api.connections.abort(id):
		case <-time.After(abortTimeout): // somebody does not read an answer
		case <-r.Context().Done():
		}
		return func() {
			release()
			h.api.service.Connections().Remove(connectionID(id))
		}, true
	case r.Method != http.MethodPost:
		return release, true
	}

	here, err := h.pass(r.Context(), name, m, body)
	switch {
	case err != nil:
		h.api.log.Error("a message was not passed to other hosts", "session", from.Session, "error", err)
		http.Error(w, "the message could not be passed to the host that waits for it: retry later", http.StatusServiceUnavailable)
	case !here || h.relay != nil && m.Method == methodInitialized:
		w.WriteHeader(http.StatusAccepted)
	default:
		r.Body = io.NopCloser(bytes.NewReader(h.mark.strip(body)))
		return release, true
	}
	release()
	return nil, false
}

// resumable makes the stream of an answer resumable, and resumes the stream that the request
// names. It reports false if that stream is not kept. Call done when the request has been
// served.
func (h *Handler) resumable(w *stream, r *http.Request) (_ *http.Request, done func(), ok bool) {
	session := func() string { return sessionOf(r, w) }
	ctx, cancel := context.WithCancel(r.Context())
	here := &holder{leave: cancel, left: make(chan struct{})}
	done = func() {
		cancel()
		close(here.left)
	}

	w.resumes = r.Method == http.MethodGet
	w.sent = func(eventID string) { h.events.hold(session(), eventID, here) }
	w.alone = func(eventID string) { h.events.forget(session(), eventID) }
	if seen := r.Header.Get(headerLastEvent); w.resumes && seen != "" {
		if !h.events.resume(r.Context(), session(), seen, here) {
			return r, done, false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = w.comment() // the next event may be far off
	}
	return r.WithContext(ctx), done, true
}

// attach passes the origin of a request to the SDK, and names the session in the
// answer if the client did not.
func (o origin) attach(r *http.Request) *http.Request {
	if o.Unnamed {
		o.answer.Header().Set(wire.SessionHeader, o.SessionName(o.Session))
	}
	return r.WithContext(context.WithValue(r.Context(), tokenKey{}, o.token()))
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, status int, id json.RawMessage, reason *jsonrpc.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure{"2.0", id, reason})
}
