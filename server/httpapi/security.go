package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guard says who sends a request, and refuses those that do not come from where
// they should. Who can open the unix socket is the operator, for the file's
// permissions say who that is. Over TCP a request needs the static token or one
// of the OAuth issuer, if there is any login. If there is none, it has to name
// this machine as its host: a web page that had its own name resolve to a
// loopback address (DNS rebinding) names another. And a web page of another
// origin is refused everywhere, but for what is public.
func (a *API) guard(r *http.Request) (Caller, error) {
	if isMetadata(r.URL.Path) {
		return nobody, nil
	}
	if err := sameOrigin(r); err != nil {
		return nobody, err
	}
	if overSocket(r) {
		return Caller{}, nil
	}
	if a.token == nil && a.oauth == nil {
		if !loopbackHost(r.Host) {
			return nobody, refuse(CodeForbidden, "the host %q is not this machine: use localhost or 127.0.0.1, or configure a token", r.Host)
		}
		return Caller{}, nil
	}
	if r.URL.Path == pathHealth || r.URL.Path == pathReady {
		return nobody, nil
	}
	caller, err := a.login(r)
	if err == nil && isPage(r.URL.Path) {
		err = caller.onlyOperator("the page is for the operator, who sees all sessions: log in with the server's token")
	}
	return caller, err
}

// onlyOperator refuses users.
func (c Caller) onlyOperator(why string) error {
	if c.Operator() {
		return nil
	}
	return refuse(CodeForbidden, "%s", why)
}

// login says whose credentials a request has. They come in the header and
// nowhere else: a URL ends up in logs (RFC 6750, 5.3).
func (a *API) login(r *http.Request) (Caller, error) {
	given := r.Header.Values("Authorization")
	if len(given) > 1 { // which of them another program on the way has looked at, nobody can say (RFC 6750, 3.1)
		p := invalid("Authorization", "given more than once")
		p.challenge = a.challenge("invalid_request", "more than one header Authorization")
		return nobody, p
	}
	if a.token != nil && isPage(r.URL.Path) { // browsers can do no other
		_, password, _ := r.BasicAuth()
		if password != "" && a.isToken(password) {
			return Caller{}, nil
		}
	}
	scheme, token, _ := strings.Cut(strings.Join(given, ""), " ")
	token = strings.TrimSpace(token)
	switch {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return nobody, a.unauthorized(r, "", a.wanted())
	case len(token) > maxToken:
		return nobody, a.unauthorized(r, "invalid_token", "the token is too long")
	case a.isToken(token):
		return Caller{}, nil
	case a.oauth == nil:
		return nobody, a.unauthorized(r, "invalid_token", a.wanted())
	}
	return a.loginUser(r, token)
}

// loginUser looks at a token of the issuer.
func (a *API) loginUser(r *http.Request, token string) (Caller, error) {
	caller, err := a.oauth.verify(r.Context(), token)
	switch {
	case err == nil:
		return caller, nil
	case errors.Is(err, context.Canceled):
		return nobody, err
	case errors.Is(err, errTokenScope):
		p := refuse(CodeScope, "%v that are needed here: %s", err, strings.Join(a.oauth.Scopes, " "))
		p.challenge = a.challenge("insufficient_scope", err.Error()) // RFC 6750, 3.1
		return nobody, p
	case errors.Is(err, errNoKeys) && a.ended(): // that is why there are none
		return nobody, refuse(CodeClosing, "the server is shutting down")
	case errors.Is(err, errNoKeys), a.oauth.err != nil:
		return nobody, refuse(CodeIssuer, "tokens cannot be checked now, for the keys of their issuer are not to be had: try again later")
	}
	return nobody, a.unauthorized(r, "invalid_token", err.Error())
}

// isToken reports whether that is the static token.
func (a *API) isToken(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return a.token != nil && subtle.ConstantTimeCompare(sum[:], a.token) == 1
}

// wanted says what a request has to come with.
func (a *API) wanted() string {
	if a.oauth == nil {
		return "send the server's token as Authorization: Bearer …"
	}
	return "send an access token of " + a.oauth.Issuer + " as Authorization: Bearer …"
}

// unauthorized refuses a request, and says how to log in.
func (a *API) unauthorized(r *http.Request, code, why string) *Problem {
	if a.token != nil && isPage(r.URL.Path) {
		p := refuse(CodeUnauthorized, "log in with the server's token as the password, and any name")
		p.challenge = `Basic realm="toolhost", charset="UTF-8"` // RFC 7617, 2.1
		return p
	}
	p := refuse(CodeUnauthorized, "%s", why)
	p.challenge = a.challenge(code, why)
	return p
}

// challenge is the value of WWW-Authenticate for an error of RFC 6750, 3.1.
func (a *API) challenge(code, description string) string {
	if a.oauth == nil {
		return `Bearer realm="toolhost"`
	}
	return a.oauth.challenge(code, description)
}

// sameOrigin refuses what a browser sends on behalf of a page of another
// origin: also a GET, for a page need not read what an image or a frame of it
// comes to, and sees all the same whether it came, and when. A link may be
// followed. Programs send none of the headers.
func sameOrigin(r *http.Request) error {
	var browser http.CrossOriginProtection
	origin := r.Header.Get("Origin")
	if browser.Check(r) == nil && !embedded(r.Header) && (origin == "" || originHost(origin) == strings.ToLower(r.Host)) {
		return nil
	}
	return refuse(CodeForbidden, "requests of web pages of another origin are refused")
}

// embedded reports whether a page of another origin has a browser ask for
// something without a person going there.
func embedded(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document"
	}
	return false
}

func originHost(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

func overSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

// loopbackHost reports whether a Host header names this machine to itself.
func loopbackHost(hostport string) bool {
	name, _, err := net.SplitHostPort(hostport)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}

// Loopback reports whether an address to listen on, such as 127.0.0.1:7070,
// can be reached from this machine only. A name other than localhost, and an
// address without a host, cannot.
func Loopback(address string) bool {
	name, _, err := net.SplitHostPort(address)
	return err == nil && name != "" && loopbackHost(address)
}

// tokenSum is the form a token is compared in; nil for none.
func tokenSum(token string) []byte {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
