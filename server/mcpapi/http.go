package mcpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/share"
	"github.com/toolhost/toolhost/server"
)

// The headers of the streamable HTTP transport.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerName    = "Mcp-Name"
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
	srv, err := a.newServer(cfg.Version, cfg.Extend, share.New(maxCallsHTTP, maxCallsOfClient))
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
	if r.Method != http.MethodPost {
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
	list, ok := messages(bytes.TrimSpace(body))
	if ok && len(list) > maxBatch {
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("the array has more than %d messages", maxBatch))
		return
	}
	if !json.Valid(body) { // the SDK would say so in plain text
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeParseError, "the body is not JSON")
		return
	}
	var m envelope
	_ = json.Unmarshal(body, &m) // what is no message is the SDK's to refuse
	switch {
	case m.Params.Meta.size > maxMeta, tooLarge(list):
		refuse(w, http.StatusRequestEntityTooLarge, m.ID, jsonrpc.CodeInvalidRequest, fmt.Sprintf("_meta has more than %d bytes", maxMeta))
	case !m.modern(r.Header):
		h.serveLegacy(w, r, m, len(body))
	case m.namesAnother(r.Header):
		refuse(w, http.StatusBadRequest, m.ID, mcp.CodeHeaderMismatch, "the header Mcp-Name has to be there, and to be params.taskId")
	default:
		h.modern.ServeHTTP(w, r)
	}
}

// serveLegacy serves a session. A POST without one makes one, whatever it says,
// and the SDK keeps it if it was initialized.
func (h *Handler) serveLegacy(w http.ResponseWriter, r *http.Request, m envelope, size int) {
	session, _ := h.whose(r)
	owner, id := share.ClientOf(session), r.Header.Get(headerSession)
	if id != "" {
		leave, ok := h.sessions.enter(id, owner)
		if !ok {
			http.Error(w, "session not found", http.StatusNotFound) // the client begins a new one
			return
		}
		defer leave()
	} else if r.Method == http.MethodPost {
		if size > maxInitialize {
			refuse(w, http.StatusRequestEntityTooLarge, m.ID, jsonrpc.CodeInvalidRequest, fmt.Sprintf("what begins a session has more than %d bytes", maxInitialize))
			return
		}
		made, ok := h.sessions.admit(owner)
		if !ok {
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusServiceUnavailable, m.ID, codeBusy, "as many sessions as there may be are in use: close some, or try again later")
			return
		}
		defer func() { made(w.Header().Get(headerSession)) }()
	}
	h.legacy.ServeHTTP(&discreet{ResponseWriter: w}, r)
}

// envelope is what of a message decides who answers it.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		TaskID string `json:"taskId"`
		Meta   meta   `json:"_meta"`
	} `json:"params"`
}

// meta is what a request says of itself. The SDK makes a tree of it, which takes
// many times its size.
type meta struct {
	last json.RawMessage
	size int // of the largest, if there are several
}

// UnmarshalJSON keeps one that is not too large.
func (m *meta) UnmarshalJSON(data []byte) error {
	if m.size = max(m.size, len(data)); m.size <= maxMeta {
		m.last = bytes.Clone(data)
	}
	return nil
}

// tooLarge reports whether the SDK would have to read a meta that is too large.
func tooLarge(list []json.RawMessage) bool {
	for _, one := range list {
		var m envelope
		if _ = json.Unmarshal(one, &m); m.Params.Meta.size > maxMeta {
			return true
		}
	}
	return false
}

// metaVersion is where a modern request says its protocol revision.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// modern reports whether a request stands for itself: its header or its body
// names a revision that has no sessions.
func (m envelope) modern(h http.Header) bool {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(m.Params.Meta.last, &members)
	_, says := members[metaVersion]
	return says || h.Get(headerVersion) >= modernVersion
}

// namesAnother reports whether a request for a task lacks the header that names
// it to intermediaries, or has one that lies (SEP-2663, routing headers).
func (m envelope) namesAnother(h http.Header) bool {
	switch m.Method {
	case methodTaskGet, methodTaskUpdate, methodTaskCancel:
		name, ok := decodeHeader(strings.TrimSpace(h.Get(headerName)))
		return !ok || name != m.Params.TaskID
	}
	return false
}

// decodeHeader reads a value that may be =?base64?…?= (2026-07-28,
// basic/transports).
func decodeHeader(value string) (string, bool) {
	const begin, end = "=?base64?", "?="
	if !strings.HasPrefix(value, begin) || !strings.HasSuffix(value, end) || len(value) < len(begin)+len(end) {
		return value, true
	}
	text, err := base64.StdEncoding.DecodeString(value[len(begin) : len(value)-len(end)])
	return string(text), err == nil
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, status int, id json.RawMessage, code int64, message string) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"jsonrpc": "2.0", "id": id, "error": jsonrpc.Error{Code: code, Message: message},
	})
}

// newKey returns a key for requestState. It is of the process: what a client
// was asked before a restart it is asked again.
func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return key
}
