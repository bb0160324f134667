package httpapi

import (
	"net/http"
	"time"
)

// pathMCP is where [Config]'s MCP is.
const pathMCP = "/mcp"

// mount serves a handler of another protocol behind the same guards: where
// requests come from, their session, and how many answers are open.
func (a *API) mount(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
