package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// OAuth says whose access tokens are taken: those that an OAuth 2 issuer signed
// for this server, as JWT (RFC 9068). Each subject of the issuer is a user, and
// sees only its own sessions, see [Caller].
type OAuth struct {
	// Issuer is the URL of the authorization server, exactly as its tokens and
	// its metadata have it.
	Issuer string
	// Audience is the URL by which clients know this server, such as
	// https://tools.example/mcp, and what tokens have to be for (RFC 8707). It
	// is the resource of the metadata (RFC 9728), and all paths have this one:
	// MCP clients compare it with the URL they were given, so it should be that.
	Audience string
	// JWKS is the URL of the issuer's keys. Empty: what the issuer's metadata
	// says.
	JWKS string
	// Scopes are what every token has to have. Empty: none.
	Scopes []string

	dial dialer // nil is the network; tests have an issuer in memory
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// scopeForm is RFC 6749, 3.3.
var scopeForm = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]+$`)

// Check reports, joined, all that is wrong. An API with an OAuth that has a
// fault lets no token of an issuer in. An error says issuer, audience, jwks or
// scopes first.
func (o OAuth) Check() error {
	errs := []error{checkURL("issuer", o.Issuer, "https://login.example"), checkURL("audience", o.Audience, "https://tools.example/mcp")}
	if o.JWKS != "" {
		_, err := secureURL("jwks", o.JWKS)
		errs = append(errs, err)
	}
	for _, scope := range o.Scopes {
		if !scopeForm.MatchString(scope) {
			errs = append(errs, fmt.Errorf("scopes: %q is no scope: expected printable characters without spaces, quotes and backslashes", scope))
		}
	}
	return errors.Join(errs...)
}

// checkURL checks an identifier that is a URL: no query and no fragment (RFC
// 8414, 2; RFC 9728, 1.2).
func checkURL(name, text, example string) error {
	u, err := secureURL(name, text)
	switch {
	case text == "":
		return fmt.Errorf("%s: required, such as %s", name, example)
	case err != nil:
		return err
	case u.RawQuery != "" || u.ForceQuery:
		return fmt.Errorf("%s: %q has a query, and must not", name, text)
	}
	return nil
}

// secureURL reads a URL that keys may be fetched from, or tokens be sent to: by
// plain HTTP only within this machine (RFC 8414, 6.1; RFC 6750, 5.3).
func secureURL(name, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r > '~' }):
		return nil, fmt.Errorf("%s: %q is no URL", name, text)
	case u.User != nil:
		return nil, fmt.Errorf("%s: the URL has a user or a password, and must not", name)
	case strings.Contains(text, "#"):
		return nil, fmt.Errorf("%s: %q has a fragment, and must not", name, text)
	case u.Scheme == "https", u.Scheme == "http" && loopbackHost(u.Host):
		return u, nil
	}
	return nil, fmt.Errorf("%s: %q has to be https, for it is not on this machine", name, text)
}

// The paths of the metadata: of this server as a whole, and of its MCP endpoint
// (RFC 9728, 3.1).
const (
	pathMetadata    = "/.well-known/oauth-protected-resource"
	pathMetadataMCP = pathMetadata + pathMCP
)

func isMetadata(path string) bool { return path == pathMetadata || path == pathMetadataMCP }

// Metadata is the answer of /.well-known/oauth-protected-resource (RFC 9728):
// where clients get tokens for this server.
type Metadata struct {
	Resource             string   `json:"resource"` // what to ask the issuer for a token for
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	ResourceName         string   `json:"resource_name"`
}

// metadata tells where to get a token. It is the same at both of its paths,
// for there is one audience.
func (a *API) metadata(r *request, _ none) (Metadata, error) {
	if a.oauth == nil {
		return Metadata{}, refuse(CodeNotFound, "there is no OAuth here")
	}
	anyOrigin(r.w.Header())
	o := a.oauth.OAuth
	return Metadata{
		Resource: o.Audience, AuthorizationServers: []string{o.Issuer}, ScopesSupported: o.Scopes,
		BearerMethods: []string{"header"}, ResourceName: "Toolhost",
	}, nil
}

// metadataPreflight answers the question browsers ask before a page of another
// origin may read the metadata with headers of its own, as MCP clients send.
func (a *API) metadataPreflight(w http.ResponseWriter, _ *http.Request) {
	anyOrigin(w.Header())
	w.Header().Set("Access-Control-Allow-Methods", "GET")
	w.Header().Set("Access-Control-Allow-Headers", "*")
	w.WriteHeader(http.StatusNoContent)
}

// anyOrigin lets pages of all origins read an answer: the metadata holds
// nothing secret, and clients in browsers need it.
func anyOrigin(h http.Header) { h.Set("Access-Control-Allow-Origin", "*") }

// metadataURL is where the metadata of the audience is: the well-known part
// goes between host and path (RFC 9728, 3.1).
func (o OAuth) metadataURL() string { return wellKnown(o.Audience, pathMetadata) }

// wellKnown puts a well-known path between the host and the path of a URL (RFC
// 8414, 3.1; RFC 9728, 3.1).
func wellKnown(of, path string) string {
	u, err := url.Parse(of)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + path + strings.TrimSuffix(u.EscapedPath(), "/")
}

// challenge is the value of WWW-Authenticate (RFC 6750, 3; RFC 9728, 5.1). A
// request without a token is told no error. None of what is quoted has quotes:
// see OAuth.Check.
func (o OAuth) challenge(code, description string) string {
	text := `Bearer realm="toolhost", resource_metadata="` + o.metadataURL() + `"`
	if len(o.Scopes) > 0 {
		text += `, scope="` + strings.Join(o.Scopes, " ") + `"`
	}
	if code != "" {
		text += `, error="` + code + `", error_description="` + description + `"`
	}
	return text
}
