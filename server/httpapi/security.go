package httpapi

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// guard returns the caller of a request with its session and dry-run mode. It refuses
// requests without a login and those from web pages of other origins.
func (a *API) guard(r *http.Request) (identity.Caller, error) {
	caller, err := a.identify(r)
	if err != nil {
		return identity.Nobody, err
	}

	name := r.Header.Values(wire.SessionHeader)
	if len(name) > 1 {
		return identity.Nobody, invalid(wire.SessionHeader, "given more than once")
	}
	switch dry := r.Header.Values(wire.DryRunHeader); strings.Join(dry, ",") {
	case "true":
		caller.DryRun = true
	case "", "false":
	default:
		return identity.Nobody, invalid(wire.DryRunHeader, "expected true or false")
	}
	caller, err = caller.InSession(strings.Join(name, ""))
	if err != nil {
		return identity.Nobody, invalid(wire.SessionHeader, "%v", err)
	}
	return caller, nil
}

// identify returns the caller of a request. Anyone who can open the unix socket is the
// operator; the permissions of the file control that. Over TCP, a request needs a login
// if one is configured. Otherwise its Host must be this machine: a web page whose name
// resolves to a loopback address (DNS rebinding) sends another Host. Web pages of other
// origins are refused on all paths except public metadata.
func (a *API) identify(r *http.Request) (identity.Caller, error) {
	if isMetadata(r.URL.Path) {
		return identity.Nobody, nil
	}
	if err := sameOrigin(r); err != nil {
		return identity.Nobody, err
	}
	if overSocket(r) {
		return identity.Caller{}, nil
	}

	if !a.auth.Required() {
		if !identity.Loopback(r.Host) {
			return identity.Nobody, refuse(wire.CodeForbidden, "the host %q is not this machine: use localhost or 127.0.0.1, or configure a token", r.Host)
		}
		return identity.Caller{}, nil
	}
	if isHealth(r.URL.Path) || isSecretForm(r.URL.Path) { // the link to a form is its login
		return identity.Nobody, nil
	}

	if r.URL.Path == pathMetrics && a.scrape.Matches(bearerOf(r)) {
		return identity.Nobody, nil
	}

	caller, err := a.auth.Login(r.Context(), r.Header.Values("Authorization"), isPage(r.URL.Path))
	if err == nil && isPage(r.URL.Path) {
		err = onlyOperator(caller, "the page shows all sessions and is reserved for the operator: log in with the server's token")
	}
	if err == nil && r.URL.Path == pathMetrics {
		err = onlyOperator(caller, "metrics are reserved for the operator: send the server's token, or metrics.token")
	}
	return caller, err
}

// bearerOf returns the bearer token of a request, or an empty string without one. If the
// header is repeated, the result is not a valid token.
func bearerOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(strings.Join(r.Header.Values("Authorization"), ","), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// onlyOperator returns an error, whose text is why, unless the caller is the operator.
func onlyOperator(c identity.Caller, why string) error {
	if c.Operator() {
		return nil
	}
	return refuse(wire.CodeForbidden, "%s", why)
}

// sameOrigin refuses requests that a browser sends for a page of another origin. That
// includes GET: a page cannot read the response for an image or a frame, but it sees
// whether and when the response arrived. Following a link is allowed. Other programs do
// not send these headers.
func sameOrigin(r *http.Request) error {
	var browser http.CrossOriginProtection
	origin := r.Header.Get("Origin")
	if browser.Check(r) == nil && !embedded(r.Header) && (origin == "" || originHost(origin) == strings.ToLower(r.Host)) {
		return nil
	}
	return refuse(wire.CodeForbidden, "requests from web pages of another origin are refused")
}

// embedded reports whether a page of another origin caused a request other than a
// top-level navigation.
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
