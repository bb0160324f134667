package httpapi

import (
	"net/http"
	"time"
)

// pathMCP is where [Config]'s MCP is.
const pathMCP = "/mcp"

// SessionOf is the session that the headers of a request name.
func SessionOf(h http.Header) string {
	if session := h.Get(SessionHeader); session != "" {
		return session
	}
	return DefaultSession
}

// mount serves a handler of another protocol behind the same guards: where
// requests come from, their session, and how many answers are open.
func (a *API) mount(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sessionForm.MatchString(SessionOf(r.Header)) || len(r.Header.Values(SessionHeader)) > 1 {
			a.fail(w, r, invalid(SessionHeader, "expected 1 to 128 letters, digits and . _ : @ -"))
			return
		}
		release, err := a.occupy(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		defer release()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // until the first Write
		h.ServeHTTP(w, r)
	})
}
