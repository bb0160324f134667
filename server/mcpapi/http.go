package mcpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
)

// The headers of the streamable HTTP transport.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerName    = "Mcp-Name"
)

const (
	maxSessions    = 1024             // of clients that begin with initialize, at once
	sessionTimeout = 30 * time.Minute // without a request
)

// HTTPConfig configures a [Handler].
type HTTPConfig struct {
	Version string // of the program, told to clients

	// Session returns whose runs a request sees, from its headers. Requests it
	// gives the same name share their runs. Nil is one session for all.
	Session func(http.Header) string

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
	api    *api
	server *mcp.Server
	modern http.Handler // of requests that stand for themselves, since 2026-07-28
	legacy http.Handler // of sessions that begin with initialize
	end    context.CancelCauseFunc
}

// NewHandler returns a handler. It does not own the service. Close it when done.
func NewHandler(service *server.Service, cfg HTTPConfig) (*Handler, error) {
	if cfg.Session == nil {
		cfg.Session = func(http.Header) string { return DefaultSession }
	}
	ctx, end := context.WithCancelCause(context.Background())
	a := newAPI(ctx, service, cfg.Logger, cfg.Grace)
	a.session = func(extra *mcp.RequestExtra) string {
		if extra == nil {
			return cfg.Session(http.Header{})
		}
		return cfg.Session(extra.Header)
	}
	srv, err := a.newServer(cfg.Version, cfg.Extend)
	if err != nil {
		end(nil)
		a.unfollow()
		return nil, err
	}
	h := &Handler{api: a, server: srv, end: end}
	get := func(*http.Request) *mcp.Server { return srv }
	options := mcp.StreamableHTTPOptions{
		Logger: a.log, MaxRequestBodyBytes: maxLine, DisableLocalhostProtection: true, // see Handler
		PropagateRequestCancellation: true,
	}
	sessions := options
	sessions.SessionTimeout = sessionTimeout
	options.Stateless = true
	h.modern = mcp.NewStreamableHTTPHandler(get, &options)
	h.legacy = mcp.NewStreamableHTTPHandler(get, &sessions)
	return h, nil
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
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Accel-Buffering", "no") // or nginx would hold back events
	if r.Method != http.MethodPost {
		h.legacy.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, http.StatusText(status), status)
		return
	}
	// All is read: what was a deadline for that must not end a long answer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m envelope
	_ = json.Unmarshal(body, &m) // what is no message is the SDK's to refuse
	switch {
	case !m.modern(r.Header):
		h.serveLegacy(w, r, m)
	case m.namesAnother(r.Header):
		refuse(w, http.StatusBadRequest, m.ID, mcp.CodeHeaderMismatch, "the header Mcp-Name has to be there, and to be params.taskId")
	default:
		h.modern.ServeHTTP(w, r)
	}
}

// serveLegacy serves a session, and bounds how many there are.
func (h *Handler) serveLegacy(w http.ResponseWriter, r *http.Request, m envelope) {
	if m.Method == "initialize" && r.Header.Get(headerSession) == "" {
		n := 0
		for range h.server.Sessions() {
			n++
		}
		if n >= maxSessions {
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusServiceUnavailable, m.ID, jsonrpc.CodeInternalError, "there are as many sessions as there may be: try again later")
			return
		}
	}
	h.legacy.ServeHTTP(w, r)
}

// envelope is what of a message decides who answers it.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		TaskID string                     `json:"taskId"`
		Meta   map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// metaVersion is where a modern request says its protocol revision.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// modern reports whether a request stands for itself: its header or its body
// names a revision that has no sessions.
func (m envelope) modern(h http.Header) bool {
	_, says := m.Params.Meta[metaVersion]
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
