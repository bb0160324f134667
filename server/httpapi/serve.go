package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

// ServeHTTP handles one request. If it cannot complete the response, it panics with
// http.ErrAbortHandler, so that the client notices.
func (a *API) ServeHTTP(inner http.ResponseWriter, r *http.Request) {
	began, w := time.Now(), a.newResponse(inner, r)
	a.active.Add(1)
	defer a.active.Add(-1)
	ctx, cancel := context.WithCancel(telemetry.FromHeader(r.Context(), r.Header))
	defer cancel()
	defer context.AfterFunc(a.ending, cancel)()

	release := func() {}
	defer func() { release() }() // last: a request counts until its response is written
	defer func() { a.finish(w, r, began, recover()) }()

	caller, err := a.guard(r)
	if err != nil {
		if r.ContentLength != 0 {
			setReadDeadline(w, refusedTimeout)
		}
		a.fail(w, r, err)
		return
	}
	if caller.DryRun {
		ctx = server.WithDryRun(ctx)
	}
	r, w.client = r.WithContext(identity.NewContext(ctx, caller)), caller.Client()
	if caller.Unnamed && strings.HasPrefix(r.URL.Path, pathAPI) {
		w.Header().Set(wire.SessionHeader, caller.SessionName(caller.Session))
	}
	if safe(r) && !caller.Until.IsZero() { // streams and waits need a valid token throughout
		defer time.AfterFunc(time.Until(caller.Until), cancel).Stop()
	}

	if err := plainBody(w, r); err != nil {
		a.fail(w, r, err)
		return
	}
	if !isHealth(r.URL.Path) { // health checks are always served
		if release, err = a.admit(r, caller); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	if path.Clean(r.URL.Path) != r.URL.Path && r.URL.Path != pathUI && r.URL.Path != pathMCP+"/" || r.RequestURI == "*" { // the mux would redirect, or send no problem
		a.fail(w, r, notFound(r, nil))
		return
	}
	defer a.visit(r, caller)()
	a.mux.ServeHTTP(w, r)
}

// visit adds a request to the operator's list of connections until end is called.
// Package mcpapi does that itself.
func (a *API) visit(r *http.Request, c identity.Caller) (end func()) {
	if !strings.HasPrefix(r.URL.Path, pathAPI) {
		return func() {}
	}

	agent, _, _ := strings.Cut(r.UserAgent(), " ")
	name, version, _ := strings.Cut(agent, "/")
	conn := wire.ClientConnection{Protocol: wire.ProtocolHTTP, Transport: "http", Client: name, ClientVersion: version, User: c.User, Session: c.Session}
	if c.Unnamed {
		conn.Session = ""
	}
	return a.service.Connections().Begin("http "+c.Audience()+" "+name, c.Client(), conn)
}

// finish completes a response. v is the value that its handler panicked with, or nil.
func (a *API) finish(w *response, r *http.Request, began time.Time, v any) {
	if v != nil && v != http.ErrAbortHandler {
		a.log.Error("request panicked", "method", r.Method, "path", loggedPath(r), "panic", v, "stack", string(debug.Stack()))
	}
	if v != nil && w.status != 0 {
		panic(http.ErrAbortHandler) // the client must notice that the response is incomplete
	}

	if v != nil {
		refuse(wire.CodeInternal, textInternal).write(w)
	}
	w.extend() // net/http writes the rest
	if a.log.Enabled(r.Context(), slog.LevelDebug) {
		a.log.Debug("request", "method", r.Method, "path", loggedPath(r), "status", w.status, "seconds", time.Since(began).Seconds())
	}
}

// newResponse returns the response to a request. Its headers keep browsers from executing
// the content, which comes from tools.
func (a *API) newResponse(inner http.ResponseWriter, r *http.Request) *response {
	w := &response{ResponseWriter: inner, unread: a.answers}
	if r.ContentLength != 0 {
		setReadDeadline(w, bodyTimeout)
	}

	h := w.Header()
	if len(r.TransferEncoding) > 0 { // a proxy may take what follows a chunked body for a part of it
		h.Set("Connection", "close")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	return w
}

// safe reports whether a request changes nothing and can be repeated.
func safe(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// admit lets a request occupy its connection, and counts its body, until release is
// called. A client with too many unread bytes is refused here, before any work is done,
// because the result of a completed request is never dropped.
func (a *API) admit(r *http.Request, c identity.Caller) (release func(), err error) {
	if limit, ok := a.answers.Room(share(a.answers, c), c.Client()); !ok {
		return func() {}, tooMany(limit, "%d bytes of unread responses")
	}

	u := &upload{ReadCloser: r.Body, pool: a.bodies, caller: c}
	conn, _ := r.Context().Value(connKey{}).(*conn)
	if conn != nil { // the connection came through Serve
		if err := take(conn.of.requests, c, 1, "%d requests in progress"); err != nil {
			return func() {}, err
		}
		conn.setBusy(true)
	}

	r.Body = u
	return func() {
		u.done()
		if conn != nil {
			conn.setBusy(false)
			conn.of.requests.Give(c.Client(), 1)
		}
	}, nil
}

// plainBody refuses compressed bodies, so that the size limit also holds for the decoded
// body.
func plainBody(w http.ResponseWriter, r *http.Request) error {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			return refuse(wire.CodeMediaType, "send the body uncompressed: Content-Encoding %s is not supported", shorten(coding))
		}
	}
	return nil
}

// Paths that are not in the table of routes.
const (
	pathMCP     = "/mcp"
	pathMetrics = "/metrics"
	pathAPI     = "/v1/"     // prefix of the routes, except health and metadata
	pathSecret  = "/secret/" // prefix of the links for secrets
	pathUI      = "/ui/"     // prefix of the page's paths, except /
)

// isPage reports whether a path belongs to the operator's page.
func isPage(path string) bool { return path == "/" || strings.HasPrefix(path+"/", pathUI) }

// isSecretForm reports whether a path may be a link for a secret.
func isSecretForm(path string) bool { return strings.HasPrefix(path, pathSecret) }

// loggedPath returns the path of a request without the token of a link for a secret, even
// if a proxy has added a prefix.
func loggedPath(r *http.Request) string {
	before, _, link := strings.Cut(r.URL.Path, pathSecret)
	if link {
		return before + pathSecret + "…"
	}
	return r.URL.Path
}

// mount serves the paths outside the table of routes.
func (a *API) mount(cfg Config) {
	if cfg.OAuth != nil {
		a.mux.HandleFunc("OPTIONS "+pathMetadata, metadataPreflight)
		a.mux.HandleFunc("OPTIONS "+pathMetadataMCP, metadataPreflight)
	}
	if cfg.MCP != nil {
		a.mux.Handle(pathMCP, mounted(cfg.MCP))
		a.mux.Handle(pathMCP+"/{$}", mounted(cfg.MCP)) // as several clients write it
	}

	if cfg.Metrics != nil {
		a.mux.Handle("GET "+pathMetrics, mounted(cfg.Metrics))
	}
	if cfg.SecretForm != nil {
		a.mux.Handle(pathSecret, mounted(cfg.SecretForm))
	}

	if cfg.Page != nil {
		a.mux.Handle("GET /{$}", mounted(cfg.Page))
		a.mux.Handle(pathUI, mounted(cfg.Page))
		home := http.RedirectHandler("/", http.StatusSeeOther)
		a.mux.Handle(strings.TrimSuffix(pathUI, "/"), home)
		a.mux.Handle(pathUI+"{$}", home)
	}
}

// mounted wraps the handler of another protocol.
func mounted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(*response).extend() // until the first Write
		h.ServeHTTP(w, r)
	})
}

// setReadDeadline limits how long reading the rest of a request may take; 0 means no
// limit.
func setReadDeadline(w http.ResponseWriter, d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = http.NewResponseController(w).SetReadDeadline(at) // fails only in tests, which have no connection
}
