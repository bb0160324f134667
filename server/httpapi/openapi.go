package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// document describes the API. It is edited by hand. Tests compare it with the routes,
// the types and the conversations in testdata.
//
//go:embed openapi.json
var document []byte

var documentTag = func() string {
	sum := sha256.Sum256(document)
	return fmt.Sprintf(`"%x"`, sum[:16])
}()

// Document returns the OpenAPI 3.1 document of the API, as served at
// /v1/openapi.json. The caller may change the returned bytes.
func Document() []byte { return bytes.Clone(document) }

// getOpenAPI responds with the document. Clients may cache it, but must revalidate it
// each time.
func getOpenAPI(r *request) error {
	h := r.w.Header()
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Content-Type", jsonMedia)
	h.Set("ETag", documentTag)
	r.Header.Del("Range")
	http.ServeContent(r.w, r.Request, "", time.Time{}, bytes.NewReader(document))
	return nil
}

// getMetadata responds with the OAuth metadata, which says where to get an access token.
// Both paths return the same metadata, because there is one audience.
func getMetadata(r *request, _ none) (identity.Metadata, error) {
	m := r.api.auth.Metadata()
	if m == nil {
		return identity.Metadata{}, refuse(wire.CodeNotFound, "OAuth is not configured on this server")
	}
	anyOrigin(r.w.Header())
	return *m, nil
}

// metadataPreflight lets pages of other origins request the metadata with custom
// headers, as MCP clients in browsers do.
func metadataPreflight(w http.ResponseWriter, _ *http.Request) {
	anyOrigin(w.Header())
	w.Header().Set("Access-Control-Allow-Methods", "GET")
	w.Header().Set("Access-Control-Allow-Headers", "*")
	w.WriteHeader(http.StatusNoContent)
}

// anyOrigin lets pages of any origin read a response: the metadata is public.
func anyOrigin(h http.Header) { h.Set("Access-Control-Allow-Origin", "*") }
