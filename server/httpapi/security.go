package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guard refuses requests that do not come from where they should. Who can open
// the unix socket is let in, for the file's permissions say who that is. Over
// TCP a request needs the token, if there is one. If there is none, it has to
// name this machine as its host: a web page that had its own name resolve to a
// loopback address (DNS rebinding) names another. And a web page of another
// origin is refused everywhere.
func (a *API) guard(r *http.Request) error {
	if err := sameOrigin(r); err != nil {
		return err
	}
	if overSocket(r) {
		return nil
	}
	if a.token == nil {
		if !loopbackHost(r.Host) {
			return refuse(CodeForbidden, "the host %q is not this machine: use localhost or 127.0.0.1, or configure a token", r.Host)
		}
		return nil
	}
	if r.URL.Path == pathHealth || r.URL.Path == pathReady {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(sum[:], a.token) != 1 {
		return refuse(CodeUnauthorized, "send the server's token as Authorization: Bearer …")
	}
	return nil
}

// sameOrigin refuses what a browser sends on behalf of a page of another
// origin. Programs send neither header.
func sameOrigin(r *http.Request) error {
	var browser http.CrossOriginProtection
	origin := r.Header.Get("Origin")
	if browser.Check(r) == nil && (origin == "" || originHost(origin) == strings.ToLower(r.Host)) {
		return nil
	}
	return refuse(CodeForbidden, "requests of web pages of another origin are refused")
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
