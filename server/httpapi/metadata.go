package httpapi

import (
	"net/http"

	"github.com/toolhost/toolhost/server/identity"
)

// The paths of the OAuth metadata: of this server as a whole, and of its MCP
// endpoint (RFC 9728, 3.1).
const (
	pathMetadata    = identity.MetadataPath
	pathMetadataMCP = pathMetadata + pathMCP
)

func isMetadata(path string) bool { return path == pathMetadata || path == pathMetadataMCP }

// metadata says where to get a token. Both paths answer the same, because there
// is one audience.
func (a *API) metadata(r *request, _ none) (identity.Metadata, error) {
	m := a.auth.Metadata()
	if m == nil {
		return identity.Metadata{}, refuse(CodeNotFound, "there is no OAuth here")
	}
	anyOrigin(r.w.Header())
	return *m, nil
}

// metadataPreflight lets pages of other origins read the metadata with headers
// of their own, as MCP clients in browsers do.
func (a *API) metadataPreflight(w http.ResponseWriter, _ *http.Request) {
	anyOrigin(w.Header())
	w.Header().Set("Access-Control-Allow-Methods", "GET")
	w.Header().Set("Access-Control-Allow-Headers", "*")
	w.WriteHeader(http.StatusNoContent)
}

// anyOrigin lets pages of all origins read an answer. The metadata is public.
func anyOrigin(h http.Header) { h.Set("Access-Control-Allow-Origin", "*") }
