package httpapi

import (
	"net/http"
	"strings"
)

// pathUI is what the paths of [Config]'s Page are below, but for the first one,
// which is at the address of the server itself.
const pathUI = "/ui/"

// isPage reports whether a path is of the operator's page.
func isPage(path string) bool { return path == "/" || strings.HasPrefix(path+"/", pathUI) }

// mountPage serves the page behind the same guards as all else. A client that
// does not take what it is sent loses its connection there too, and a page that
// is followed is one of the answers that are open.
func (a *API) mountPage(page http.Handler) {
	for _, pattern := range []string{"GET /{$}", pathUI} {
		a.mux.Handle(pattern, a.mount(page))
	}
	for _, pattern := range []string{strings.TrimSuffix(pathUI, "/"), pathUI + "{$}"} { // as people may write it
		a.mux.Handle(pattern, http.RedirectHandler("/", http.StatusSeeOther))
	}
}
