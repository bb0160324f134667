package httpapi

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// guard returns who sends a request and in which session, and refuses requests
// that do not come from where they should.
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

// identify returns who sends a request. Whoever can open the unix socket is the
// operator, by the permissions of its file. Over TCP a request needs a login, if
// one is configured. If none is, it has to name this machine as its host: a web
// page whose name resolves to a loopback address (DNS rebinding) names another.
// Web pages of other origins are refused everywhere but for public metadata.
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
	if isHealth(r.URL.Path) || isSecretForm(r.URL.Path) { // whose links are logins
		return identity.Nobody, nil
	}

	caller, err := a.auth.Login(r.Context(), r.Header.Values("Authorization"), isPage(r.URL.Path))
	if err == nil && isPage(r.URL.Path) {
		err = onlyOperator(caller, "the page is for the operator, who sees all sessions: log in with the server's token")
	}
	return caller, err
}

// onlyOperator refuses users.
func onlyOperator(c identity.Caller, why string) error {
	if c.Operator() {
		return nil
	}
	return refuse(wire.CodeForbidden, "%s", why)
}

// sameOrigin refuses what a browser sends for a page of another origin. That
// includes GET: a page cannot read the answer to an image or a frame, but it
// sees whether and when it came. Following a link is allowed. Programs send none
// of these headers.
func sameOrigin(r *http.Request) error {
	var browser http.CrossOriginProtection
	origin := r.Header.Get("Origin")
	if browser.Check(r) == nil && !embedded(r.Header) && (origin == "" || originHost(origin) == strings.ToLower(r.Host)) {
		return nil
	}
	return refuse(wire.CodeForbidden, "requests from web pages of another origin are refused")
}

// embedded reports whether a page of another origin makes a browser ask without
// a person going there.
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
