package httpapi

import (
	"context"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// ServeHTTP answers one request. It panics with http.ErrAbortHandler if the
// client has to see that an answer is incomplete.
func (a *API) ServeHTTP(inner http.ResponseWriter, r *http.Request) {
	began, w := time.Now(), newResponse(inner, r)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.ending, cancel)()
	r = r.WithContext(ctx)

	var release func()
	defer func() { // last: a request counts until its answer is written
		if release != nil {
			release()
		}
	}()
	defer func() { a.finish(w, r, began, recover()) }()

	caller, err := a.guard(r)
	if err != nil {
		if r.ContentLength != 0 {
			setReadDeadline(w, refusedTimeout)
		}
		a.fail(w, r, err)
		return
	}
	r = r.WithContext(identity.NewContext(r.Context(), caller))
	if safe(r) && !caller.Until.IsZero() { // what streams or waits needs a valid token
		defer time.AfterFunc(time.Until(caller.Until), cancel).Stop()
	}

	if release, err = a.admit(w, r, caller); err != nil {
		a.fail(w, r, err)
		return
	}
	if path.Clean(r.URL.Path) != r.URL.Path && r.URL.Path != pathUI || r.RequestURI == "*" { // the mux would redirect, or say nothing
		a.fail(w, r, notFound(r))
		return
	}
	a.mux.ServeHTTP(w, r)
}

// finish ends an answer, also if its handler panicked with v.
func (a *API) finish(w *response, r *http.Request, began time.Time, v any) {
	if v != nil && v != http.ErrAbortHandler {
		a.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	}
	if v != nil && w.status != 0 {
		panic(http.ErrAbortHandler) // the client has to see that the answer is incomplete
	}

	if v != nil {
		refuse(wire.CodeInternal, textInternal).write(w)
	}
	w.extend() // net/http writes the rest
	a.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", w.status, "seconds", time.Since(began).Seconds())
}

// newResponse returns the answer of a request. Its headers keep browsers from
// running it: it contains what tools wrote.
func newResponse(inner http.ResponseWriter, r *http.Request) *response {
	w := &response{ResponseWriter: inner}
	if r.ContentLength != 0 {
		setReadDeadline(w, bodyTimeout)
	}

	h := w.Header()
	if len(r.TransferEncoding) > 0 { // a proxy may take what follows a body in chunks for part of it
		h.Set("Connection", "close")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	return w
}

// safe reports whether a request changes nothing, so that it can be repeated.
func safe(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// admit lets a request occupy its connection and count its body until release.
// Health is answered in any case.
func (a *API) admit(w *response, r *http.Request, c identity.Caller) (release func(), err error) {
	if err := plainBody(w, r); err != nil {
		return nil, err
	}
	if isHealth(r.URL.Path) {
		return nil, nil
	}

	w.reserve = func(n int) (func(), error) { return a.reserve(c, n) }
	if !safe(r) {
		if limit, ok := a.answers.Room(share(a.answers, c), c.Client()); !ok {
			return nil, tooMany(limit, textUntaken, limit)
		}
		w.reserve = func(n int) (func(), error) { return a.overdraw(c, n), nil }
	}

	free, err := hold(r, c)
	if err != nil || r.Body == nil || r.Body == http.NoBody {
		return free, err
	}

	u := &upload{ReadCloser: r.Body, pool: a.bodies, caller: c}
	r.Body = u
	return func() { u.done(); free() }, nil
}

// plainBody refuses compressed bodies, so that their bound holds for what is
// decoded too.
func plainBody(w http.ResponseWriter, r *http.Request) error {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			return refuse(wire.CodeMediaType, "send the body uncompressed: Content-Encoding %s is not supported", shorten(coding))
		}
	}
	return nil
}

// The paths that are not part of the table of routes.
const (
	pathMCP = "/mcp"
	pathUI  = "/ui/" // what the page's paths are below, except for the first
)

// isPage reports whether a path belongs to the operator's page.
func isPage(path string) bool { return path == "/" || strings.HasPrefix(path+"/", pathUI) }

// mount serves what is not in the table of routes.
func (a *API) mount(cfg Config) {
	if cfg.OAuth != nil {
		a.mux.HandleFunc("OPTIONS "+pathMetadata, metadataPreflight)
		a.mux.HandleFunc("OPTIONS "+pathMetadataMCP, metadataPreflight)
	}
	if cfg.MCP != nil {
		a.mux.Handle(pathMCP, a.mounted(cfg.MCP))
	}

	if cfg.Page != nil {
		a.mux.Handle("GET /{$}", a.mounted(cfg.Page))
		a.mux.Handle(pathUI, a.mounted(cfg.Page))
		home := http.RedirectHandler("/", http.StatusSeeOther)
		a.mux.Handle(strings.TrimSuffix(pathUI, "/"), home)
		a.mux.Handle(pathUI+"{$}", home)
	}
}

// mounted returns a handler of another protocol whose answers count as streams.
func (a *API) mounted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, err := a.occupy(identity.FromContext(r.Context()))
		if err != nil {
			a.fail(w, r, err)
			return
		}
		defer release()
		w.(*response).extend() // until the first Write
		h.ServeHTTP(w, r)
	})
}

// setReadDeadline bounds how long the rest of a request may take; 0 is no bound.
func setReadDeadline(w http.ResponseWriter, d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = http.NewResponseController(w).SetReadDeadline(at) // a test has no connection
}
