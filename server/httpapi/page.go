package httpapi

import "net/http"

// Where [Config]'s Page is: at the address of the server itself, and below.
var pathsPage = []string{"GET /{$}", "/ui/"}

// mountPage serves the page behind the same guards as all else. A client that
// does not take what it is sent loses its connection there too, and a page that
// is followed is one of the answers that are open.
func (a *API) mountPage(page http.Handler) {
	for _, pattern := range pathsPage {
		a.mux.Handle(pattern, a.mount(page))
	}
}
