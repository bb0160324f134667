package identity

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// OAuth configures which access tokens are accepted: JWTs (RFC 9068) that an OAuth 2
// issuer signed for this server. Each subject of the issuer is a user.
type OAuth struct {
	// Issuer is the URL of the authorization server, exactly as its tokens and
	// its metadata spell it.
	Issuer string
	// Audience is the URL by which clients know this server, such as
	// https://tools.example/mcp. Tokens must be issued for it (RFC 8707). All paths share
	// it. MCP clients compare it with the URL they were given.
	Audience string
	// JWKS is the URL of the issuer's keys. If it is empty, the issuer's metadata names the
	// URL.
	JWKS string
	// Scopes are the scopes that every token must have. Empty means none.
	Scopes []string
	// Transport sends requests to the issuer. If it is nil, requests use the proxy that the
	// environment sets, and no connection is kept open.
	Transport http.RoundTripper
}

// Metadata describes where clients get tokens for this server (RFC 9728).
type Metadata struct {
	Resource             string   `json:"resource"` // the resource to request a token for
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	ResourceName         string   `json:"resource_name"`
}

// MetadataPath is the path of a server's metadata (RFC 9728, 3.1).
const MetadataPath = "/.well-known/oauth-protected-resource"

var scopeForm = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]+$`) // RFC 6749, 3.3

// Check returns an error that joins all problems of the configuration. The text of each
// problem begins with issuer, audience, jwks or scopes.
func (o OAuth) Check() error {
	errs := []error{
		checkURL("issuer", o.Issuer, "https://login.example"),
		checkURL("audience", o.Audience, "https://tools.example/mcp"),
	}
	if o.JWKS != "" {
		_, err := secureURL("jwks", o.JWKS)
		errs = append(errs, err)
	}

	for _, scope := range o.Scopes {
		if !scopeForm.MatchString(scope) {
			errs = append(errs, fmt.Errorf("scopes: %q is not a scope: expected printable characters without spaces, quotes and backslashes", scope))
		}
	}
	return errors.Join(errs...)
}

// checkURL checks a URL that identifies a server: it has no query and no
// fragment (RFC 8414, 2; RFC 9728, 1.2).
func checkURL(name, text, example string) error {
	u, err := secureURL(name, text)
	switch {
	case text == "":
		return fmt.Errorf("%s: required, such as %s", name, example)
	case err != nil:
		return err
	case u.RawQuery != "" || u.ForceQuery:
		return fmt.Errorf("%s: %q must not have a query", name, text)
	}
	return nil
}

// secureURL parses a URL for fetching keys or sending tokens. Plain HTTP is for this
// machine only (RFC 8414, 6.1; RFC 6750, 5.3).
func secureURL(name, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	unsafe := strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r > '~' })

	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || unsafe:
		return nil, fmt.Errorf("%s: %q is not a URL", name, text)
	case u.User != nil:
		return nil, fmt.Errorf("%s: the URL must not have a user or a password", name)
	case strings.Contains(text, "#"):
		return nil, fmt.Errorf("%s: %q must not have a fragment", name, text)
	case u.Scheme == "https", u.Scheme == "http" && Loopback(u.Host):
		return u, nil
	}
	return nil, fmt.Errorf("%s: %q has to be https, because it is not on this machine", name, text)
}

// wellKnown inserts a well-known path between the host and the path of a URL (RFC 8414,
// 3.1; RFC 9728, 3.1).
func wellKnown(of, path string) string {
	u, err := url.Parse(of)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + path + strings.TrimSuffix(u.EscapedPath(), "/")
}

// challenge returns the value of WWW-Authenticate (RFC 6750, 3; RFC 9728, 5.1). No code
// means that there was no token. Nothing quoted here contains quotes: see OAuth.Check.
func (o OAuth) challenge(code, description string) string {
	text := `Bearer realm="toolhost", resource_metadata="` + wellKnown(o.Audience, MetadataPath) + `"`
	if len(o.Scopes) > 0 {
		text += `, scope="` + strings.Join(o.Scopes, " ") + `"`
	}
	if code != "" {
		text += `, error="` + code + `", error_description="` + description + `"`
	}
	return text
}
