package mcpapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// A session that began with initialize continues on every host that shares the engine. Its
// Mcp-Session-Id contains, sealed, what another host needs to begin the session again. The
// same holds for a host that was restarted, or that closed the session because it was idle.

// passport is the content of an Mcp-Session-Id.
type passport struct {
	ID         string                `json:"id"` // id of the session at the host where it began
	User       string                `json:"user,omitempty"`
	Session    string                `json:"session"`
	DryRun     bool                  `json:"dry,omitempty"`
	Initialize *mcp.InitializeParams `json:"init"`
}

const (
	passportPurpose = "mcp session"
	maxPassport     = 2 << 10 // bytes: many proxies allow 8 KiB for all headers
)

// issue gives a new session the id that its client uses.
func (a *api) issue(ctx context.Context, req mcp.Request) {
	o := originOf(req.GetExtra())
	session, ok := req.GetSession().(*mcp.ServerSession)
	params, parsed := req.GetParams().(*mcp.InitializeParams)
	if !ok || !parsed || params == nil || session.ID() == "" || o.answer == nil {
		return
	}

	init := &mcp.InitializeParams{ProtocolVersion: params.ProtocolVersion, Capabilities: params.Capabilities}
	if info := params.ClientInfo; info != nil {
		init.ClientInfo = &mcp.Implementation{Name: info.Name, Version: info.Version}
	}
	name := session.ID()
	body, err := json.Marshal(passport{session.ID(), o.User, o.Session, o.DryRun, init})
	if err == nil {
		var sealed string
		if sealed, err = a.service.Seals().Seal(ctx, passportPurpose, body); err == nil && len(sealed) <= maxPassport {
			name = sealed
		}
	}
	if err != nil {
		a.log.Warn("the session cannot continue on another host", "session", o.Session, "error", err)
	}
	a.connections.name(session.ID(), name)
	o.answer.issue(session.ID(), name)
}

// local returns the SDK's id of the session that a request names. If the session is not
// here, local begins it again. It reports false once it has answered the request.
func (h *Handler) local(w http.ResponseWriter, r *http.Request, from *origin) (id string, ok bool) {
	name := r.Header.Get(headerSession)
	missing := func() (string, bool) {
		http.Error(w, "session not found", http.StatusNotFound) // the client begins a new session
		return "", false
	}

	id = h.api.connections.named(name)
	if id != "" && h.relay == nil {
		return id, true
	}
	revoked, err := h.api.service.Seals().Revoked(r.Context(), name)
	switch {
	case err != nil:
		h.api.log.Error("a session was not checked", "error", err)
	case revoked:
		return missing()
	}
	if id != "" {
		return id, true
	}

	body, err := h.api.service.Seals().Open(r.Context(), passportPurpose, name)
	var p passport
	if err != nil && !errors.Is(err, server.ErrSeal) {
		h.api.log.Error("a session was not continued", "error", err)
		http.Error(w, "the session cannot be read: retry later", http.StatusServiceUnavailable)
		return "", false
	}
	if err != nil || json.Unmarshal(body, &p) != nil || p.User != from.User {
		return missing()
	}
	owner := from.Caller
	owner.Session, owner.DryRun = p.Session, p.DryRun
	if r.Method == http.MethodDelete { // nothing to end here
		h.revoke(r.Context(), name)
		w.WriteHeader(http.StatusNoContent)
		return "", false
	}

	h.joining.Lock()
	defer h.joining.Unlock()
	if id = h.api.connections.named(name); id != "" {
		return id, true
	}
	if !h.api.connections.admit(owner.Client()) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, textSessions, http.StatusServiceUnavailable)
		return "", false
	}
	if id = h.join(r.Context(), owner, p); id == "" {
		return missing()
	}
	h.api.connections.name(id, name)
	return id, true
}

// join begins a session again, and returns its id here; "" if that failed.
func (h *Handler) join(ctx context.Context, owner identity.Caller, p passport) (id string) {
	params, err := json.Marshal(p.Initialize)
	if err != nil {
		return ""
	}
	head := h.inject(ctx, owner, "", []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+string(params)+`}`))
	if id = head.Get(headerSession); id != "" {
		h.inject(ctx, owner, id, sayInitialized)
	}
	return id
}

var sayInitialized = []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)

// methodInitialized is the client's notification that its session has begun.
const methodInitialized = "notifications/initialized"

// inject passes a message to the SDK as if a client had sent it, and returns the header
// of the answer.
func (h *Handler) inject(ctx context.Context, owner identity.Caller, id string, message []byte) http.Header {
	r, err := http.NewRequestWithContext(context.WithValue(context.WithoutCancel(ctx), tokenKey{}, origin{Caller: owner}.token()), http.MethodPost, "/", bytes.NewReader(message))
	if err != nil {
		return http.Header{}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer checked")
	if id != "" {
		r.Header.Set(headerSession, id)
	}

	unread := nobody{http.Header{}}
	h.legacy.ServeHTTP(unread, r)
	return unread.header
}

// nobody is a response writer whose answer nobody reads.
type nobody struct{ header http.Header }

func (n nobody) Header() http.Header         { return n.header }
func (n nobody) Write(p []byte) (int, error) { return len(p), nil }
func (n nobody) WriteHeader(int)             {}
func (n nobody) Flush()                      {}

// revoke ends a session on all hosts.
func (h *Handler) revoke(ctx context.Context, name string) {
	if err := h.api.service.Seals().Revoke(ctx, name); err != nil {
		h.api.log.Warn("the end of a session was not stored: other hosts may continue it", "error", err)
	}
	if h.relay == nil {
		return
	}
	if err := h.relay.Send(ctx, relayName(name), sessionEnded); err != nil {
		h.api.log.Warn("the end of a session was not passed to other hosts: its calls there continue", "error", err)
	}
}

// sessionEnded is the message to other hosts that a client has ended its session. No
// client sends it.
var sessionEnded = []byte("null")

// Intervals at which a host with open requests of a session polls for messages from other
// hosts: short at first, so that short calls are answered soon.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = time.Second
)

// pass sends a message to the hosts with open requests of the session, if it may be for
// them. It reports whether it is for this host too.
func (h *Handler) pass(ctx context.Context, name string, m envelope, body []byte) (here bool, err error) {
	if h.relay == nil {
		return true, nil
	}
	switch {
	case m.Method == methodCancelled:
		return true, h.relay.Send(ctx, relayName(name), body)
	case m.Method == "" && !h.mark.made(m.ID):
		return false, h.relay.Send(ctx, relayName(name), body)
	}
	return true, nil
}

// follow passes messages of a session that other hosts received to the SDK, until ctx is
// done. It ends the session's requests once the client has ended the session elsewhere.
func (h *Handler) follow(ctx context.Context, owner identity.Caller, id, name string) {
	after := ""
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}

		letters, err := h.relay.Receive(ctx, relayName(name), after)
		if err != nil && ctx.Err() == nil {
			h.api.log.Warn("messages for a session that other hosts got were not read", "session", owner.Session, "error", err)
		}
		for _, l := range letters {
			if after = l.Key; bytes.Equal(l.Data, sessionEnded) {
				h.api.connections.abort(id)
				return
			}
			h.inject(ctx, owner, id, h.mark.strip(l.Data))
		}
	}
}

// relayName returns the relay's name for a session, which no other session has.
func relayName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "mcp:" + hex.EncodeToString(sum[:])
}

// A mark distinguishes this host's requests to clients from those of other hosts. It is
// part of their ids, which the SDK counts from 1 for each session.
type mark int64

const (
	markShift = 22
	markLimit = 1 << 30
)

// made reports whether this host made the request with that id.
func (k mark) made(id json.RawMessage) bool {
	n, ok := number(id)
	return ok && n>>markShift == int64(k)
}

func number(id json.RawMessage) (n int64, ok bool) {
	return n, json.Unmarshal(id, &n) == nil
}

// put marks the id of a request to a client. It returns any other message unchanged.
func (k mark) put(message []byte) []byte {
	rest, ok := bytes.CutPrefix(message, []byte(beforeID))
	id, after, found := bytes.Cut(rest, []byte(`,"method":`))
	n, isNumber := number(id)
	if !ok || !found || !isNumber || n >= 1<<markShift {
		return message
	}
	id, _ = json.Marshal(int64(k)<<markShift | n)
	return bytes.Join([][]byte{[]byte(beforeID), id, []byte(`,"method":`), after}, nil)
}

// strip removes the mark from the id of an answer to a request of this host.
func (k mark) strip(message []byte) []byte {
	var top map[string]json.RawMessage
	if json.Unmarshal(message, &top) != nil || top["method"] != nil || !k.made(top["id"]) {
		return message
	}
	n, _ := number(top["id"])
	top["id"], _ = json.Marshal(n & (1<<markShift - 1))
	stripped, err := json.Marshal(top)
	if err != nil {
		return message
	}
	return stripped
}

// sessionOf returns the SDK's id of the session that a request belongs to.
func sessionOf(r *http.Request, w *stream) string {
	return cmp.Or(r.Header.Get(headerSession), w.begun, w.Header().Get(headerSession))
}
