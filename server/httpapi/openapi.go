package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	pathOpenAPI = "/v1/openapi.json"
	jsonMedia   = "application/json"
)

// document is made of [Routes] by internal/openapigen.
//
//go:embed openapi.json
var document []byte

// documentTag is weak: compressed or not, it is the same document.
var documentTag = func() string {
	sum := sha256.Sum256(document)
	return fmt.Sprintf(`W/"%x"`, sum[:16])
}()

// Document returns the OpenAPI 3.1 document of the API, as it is served at
// /v1/openapi.json. The caller may change what it is given.
func Document() []byte { return bytes.Clone(document) }

// openAPI answers with the document. A client may keep it, but has to ask each
// time whether it is still the one: another version of the program has another.
func (a *API) openAPI(r *request) error {
	h := r.w.Header()
	h.Set("Content-Type", jsonMedia)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("ETag", documentTag)
	h.Set("Vary", "Accept-Encoding")
	if hasTag(r.Header.Values("If-None-Match"), documentTag) {
		r.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Length", strconv.Itoa(len(document)))
	_, _ = r.w.Write(document) // what goes wrong here is a client that is gone
	return nil
}

// hasTag reports whether a header lists a tag, weak or not.
func hasTag(headers []string, tag string) bool {
	for part := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if part = strings.TrimSpace(part); part == "*" || strings.TrimPrefix(part, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}
