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

// document describes the API. It is written by hand; tests compare it with the
// routes, the types and the conversations in testdata.
//
//go:embed openapi.json
var document []byte

var documentTag = func() string {
	sum := sha256.Sum256(document)
	return fmt.Sprintf(`"%x"`, sum[:16])
}()

// Document returns the OpenAPI 3.1 document of the API, as served at
// /v1/openapi.json. The caller may change it.
func Document() []byte { return bytes.Clone(document) }

// getOpenAPI answers with the document. A client may keep it, but has to ask each
// time whether it has changed.
func getOpenAPI(r *request) error {
	h := r.w.Header()
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Content-Type", jsonMedia)
	h.Set("ETag", documentTag)
	r.Header.Del("Range")
	http.ServeContent(r.w, r.Request, "", time.Time{}, bytes.NewReader(document))
	return nil
}

// getMetadata says where to get an access token. Both of its paths answer the same,
// because there is one audience.
func getMetadata(r *request, _ none) (identity.Metadata, error) {
	m := r.api.auth.Metadata()
	if m == nil {
		return identity.Metadata{}, refuse(wire.CodeNotFound, "this server has no OAuth")
	}
	anyOrigin(r.w.Header())
	return *m, nil
}

// metadataPreflight lets pages of other origins read the metadata with headers
// of their own, as MCP clients in browsers do.
func metadataPreflight(w http.ResponseWriter, _ *http.Request) {
	anyOrigin(w.Header())
	w.Header().Set("Access-Control-Allow-Methods", "GET")
	w.Header().Set("Access-Control-Allow-Headers", "*")
	w.WriteHeader(http.StatusNoContent)
}

// anyOrigin lets pages of all origins read an answer: the metadata is public.
func anyOrigin(h http.Header) { h.Set("Access-Control-Allow-Origin", "*") }
