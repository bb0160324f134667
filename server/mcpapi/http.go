package mcpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/server"
)

// HTTPConfig configures a [Handler].
type HTTPConfig struct {
	Version string // of the program, told to clients

	// Session returns whose runs a request sees, and who sent it. Requests it
	// gives the same session share their runs. What Mcp-Session-Id names is
	// known only to the user who began it. Nil is one session, and one user.
	Session func(*http.Request) (session, user string)

	// Until returns when what a request was let in with ends, and with it a
	// subscription that it began. Nil, and the zero time, is never.
	Until func(*http.Request) time.Time

	// Grace is how long a call is waited for before a client that takes tasks
	// gets one; 0 is two seconds.
	Grace time.Duration

	// Logger gets what operators should know. Nil discards.
	Logger *slog.Logger

	Extend // what tools of plugins cannot be
}

// Handler serves a Service over MCP's streamable HTTP transport, in all protocol
// revisions at one URL. It is safe for concurrent use.
//
// It does not look who asks, at the Origin and at the Host: what it is mounted
// in has to, as package httpapi does.
type Handler struct {
	api      *api
	server   *mcp.Server
	modern   http.Handler // of requests that stand for themselves, since 2026-07-28
	legacy   http.Handler // of sessions that begin with initialize
	whose    func(*http.Request) (session, user string)
	until    func(*http.Request) time.Time
	sessions *sessions // those
	end      context.CancelCauseFunc
}

// NewHandler returns a handler. It does not own the service. Close it when done.
func NewHandler(service *server.Service, cfg HTTPConfig) (*Handler, error) {
	if cfg.Session == nil {
		cfg.Session = func(*http.Request) (string, string) { return DefaultSession, "" }
	}
	if cfg.Until == nil {
		cfg.Until = func(*http.Request) time.Time { return time.Time{} }
	}
	ctx, end := context.WithCancelCause(context.Background())
	a := newAPI(ctx, service, cfg.Logger, cfg.Grace)
	a.session = sessionOf
	srv, err := a.newServer(cfg.Version, cfg.Extend, fair.NewPool(maxCallsHTTP, maxCallsOfClient))
	if err != nil {
		end(nil)
		a.unfollow()
		return nil, err
	}
	h := &Handler{api: a, server: srv, whose: cfg.Session, until: cfg.Until, sessions: newSessions(srv.Sessions), end: end}
	srv.AddReceivingMiddleware(h.sessions.track, expire)
	get := func(*http.Request) *mcp.Server { return srv }
	options := mcp.StreamableHTTPOptions{
		Logger: sdkLog(a.log), MaxRequestBodyBytes: maxLine, DisableLocalhostProtection: true, // see Handler
		PropagateRequestCancellation: true,
	}
	sessions := options
	sessions.SessionTimeout = sessionTimeout
	options.Stateless = true
	h.modern = h.identified(mcp.NewStreamableHTTPHandler(get, &options))
	h.legacy = h.identified(mcp.NewStreamableHTTPHandler(get, &sessions))
	return h, nil
}

// sessionKey is where the session is among what the SDK knows of a request.
const sessionKey = "session"

// sessionOf is whose runs a request sees. One that nothing is known of sees
// none: no session has that name.
func sessionOf(extra *mcp.RequestExtra) string {
	if extra != nil && extra.TokenInfo != nil {
		if session, ok := extra.TokenInfo.Extra[sessionKey].(string); ok {
			return session
		}
	}
	return "?"
}

// identified has the SDK know who sends a request, in the one way it takes it:
// from its own middleware for bearer tokens. That is given a word in place of
// the token, which was checked before and is passed on to nobody (MCP
// 2026-07-28, basic/authorization, access token privilege restriction). With
// the user the SDK refuses a session to all but who began it; so that this
// holds for the operator's too, nobody's name is empty.
func (h *Handler) identified(next http.Handler) http.Handler {
	known := func(_ context.Context, _ string, r *http.Request) (*auth.TokenInfo, error) {
		session, user := h.whose(r)
		return &auth.TokenInfo{UserID: "user " + user, Expiration: h.until(r), Extra: map[string]any{sessionKey: session}}, nil
	}
	inner := auth.RequireBearerToken(known, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(r.Context()) // a copy
		r.Header = r.Header.Clone()
		r.Header.Set("Authorization", "Bearer checked")
		inner.ServeHTTP(w, r)
	})
}

// discreet answers that somebody else's session is not there. The SDK says that
// it may not be used, which is all that it forbids here.
type discreet struct {
	http.ResponseWriter
	hid bool
}

// Unwrap is for http.ResponseController.
func (w *discreet) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *discreet) WriteHeader(status int) {
	if status == http.StatusForbidden {
		w.hid = true
		http.Error(w.ResponseWriter, "session not found", http.StatusNotFound)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *discreet) Write(p []byte) (int, error) {
	if w.hid {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// errClosed ends calls when the handler is closed.
var errClosed = errors.New("the server is shutting down")

// Close ends all calls and sessions. Background runs go on: closing the service
// ends them.
func (h *Handler) Close() {
	h.end(errClosed)
	for s := range h.server.Sessions() {
		_ = s.Close()
	}
	h.api.unfollow()
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(inner http.ResponseWriter, r *http.Request) {
	w := newBeating(inner)
	defer w.end()
	w.Header().Set("X-Accel-Buffering", "no") // or nginx would hold back events
	switch {
	case r.Method == http.MethodPost:
	case r.Header.Get(headerVersion) >= modernVersion: // 405
		h.modern.ServeHTTP(w, r)
		return
	default:
		h.serveLegacy(w, r, envelope{}, 0)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			status = http.StatusRequestTimeout
		} else if later, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); ok && later.Temporary() {
			status = http.StatusTooManyRequests
		}
		http.Error(w, http.StatusText(status), status)
		return
	}
	// All is read: what was a deadline for that must not end a long answer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	m, problem := readBody(body)
	switch {
	case problem != nil:
		refuse(w, http.StatusBadRequest, m.ID, problem)
	case m.standsAlone(r.Header):
		h.serveModern(w, r, m)
	default:
		h.serveLegacy(w, r, m, len(body))
	}
}

// readBody reads the message of a body. Of several, which only revisions before
// 2025-06-18 allow, it is as if there were none.
func readBody(body []byte) (m envelope, problem *jsonrpc.Error) {
	list, isArray := messages(bytes.TrimSpace(body))
	if !isArray {
		return readEnvelope(body)
	}
	if len(list) > maxBatch {
		return m, invalidMessage(fmt.Sprintf("the array has more than %d messages", maxBatch))
	}
	for _, one := range list {
		if m, problem = readEnvelope(one); problem != nil {
			return m, problem
		}
	}
	return envelope{}, nil
}

// serveModern serves a request that stands for itself.
func (h *Handler) serveModern(w *beating, r *http.Request, m envelope) {
	if problem := m.belied(r.Header); problem != nil {
		refuse(w, http.StatusBadRequest, m.ID, problem)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), outletKey{}, outlet{
		taskIDs: func(any) []string { return m.TaskIDs },
		send:    w.event,
	}))
	r.Header = r.Header.Clone()
	r.Header.Del("Last-Event-ID") // such streams are not resumed
	if _, ok := named[m.Method]; ok {
		r.Header.Set(headerName, m.Name) // the SDK does not decode it
	}
	h.modern.ServeHTTP(w, r)
}

// serveLegacy serves a session. A POST without one makes one, whatever it says,
// and the SDK keeps it if it was initialized.
func (h *Handler) serveLegacy(w http.ResponseWriter, r *http.Request, m envelope, size int) {
	session, _ := h.whose(r)
	owner, id := fair.ClientOf(session), r.Header.Get(headerSession)
	if id != "" {
		leave, ok := h.sessions.enter(id, owner)
		if !ok {
			http.Error(w, "session not found", http.StatusNotFound) // the client begins a new one
			return
		}
		defer leave()
	} else if r.Method == http.MethodPost {
		if size > maxInitialize {
			refuse(w, http.StatusRequestEntityTooLarge, m.ID, invalidMessage(fmt.Sprintf("what begins a session has more than %d bytes", maxInitialize)))
			return
		}
		made, ok := h.sessions.admit(owner)
		if !ok {
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusServiceUnavailable, m.ID, &jsonrpc.Error{Code: codeBusy, Message: "as many sessions as there may be are in use: close some, or try again later"})
			return
		}
		defer func() { made(w.Header().Get(headerSession)) }()
	}
	h.legacy.ServeHTTP(&discreet{ResponseWriter: w}, r)
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, status int, id json.RawMessage, reason *jsonrpc.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure{"2.0", id, reason})
}

// newKey returns a key for requestState. It is of the process: what a client
// was asked before a restart it is asked again.
func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return key
}
