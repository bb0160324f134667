package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
)

// transport has a timeout for each part of an exchange; the Client limits the time of the
// whole.
var transport = &http.Transport{
	Proxy:                  http.ProxyFromEnvironment,
	DialContext:            (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
	ForceAttemptHTTP2:      true,
	TLSHandshakeTimeout:    15 * time.Second,
	ResponseHeaderTimeout:  time.Minute,
	IdleConnTimeout:        time.Minute,
	MaxResponseHeaderBytes: 64 << 10,
}

// maxRedirects is how many redirects a request follows. Registries need one redirect, to
// their blob storage.
const maxRedirects = 5

func checkRedirect(_ *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d in a row", ErrRedirect, maxRedirects)
	}
	return nil
}

// A guard sends the requests to one registry. It never sends the registry's credentials to
// another domain. Unless the registry is on this machine, it never connects to this machine
// or to the metadata service of its network. Requests go to other hosts because of
// redirects or token services, both of which the registry chooses.
type guard struct {
	base  http.RoundTripper
	host  string // the registry's host
	plain bool   // whether the host may be contacted over plain HTTP
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.check(req); err != nil {
		return nil, err
	}
	return g.base.RoundTrip(req)
}

func (g *guard) check(req *http.Request) error {
	away := !strings.EqualFold(req.URL.Host, g.host)
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead
	secret := req.Header.Get("Authorization") != "" || !reads

	switch {
	case req.URL.User != nil:
		return fmt.Errorf("%w: %s has a user and a password in its address", ErrRedirect, req.URL.Host)
	case req.URL.Scheme != "https" && !g.plain:
		return fmt.Errorf("%w: %s leads to %s, which is not encrypted: if this is meant, add it to registry.plain_http", ErrPlainHTTP, g.host, origin(req.URL))
	case away && secret && !sameSite(req.URL.Host, g.host):
		return fmt.Errorf("%w: %s asks to send them to %s, which is of another domain", ErrCredentials, g.host, req.URL.Host)
	case away && !isLoopback(g.host):
		return checkAway(req.Context(), req.URL.Hostname(), g.host)
	}
	return nil
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// sameSite reports whether two hosts belong to the same owner, by the rules that browsers
// use: gitlab.com issues the tokens for registry.gitlab.com.
func sameSite(a, b string) bool {
	a, b = hostname(a), hostname(b)
	if a == b {
		return true
	}
	siteA, errA := publicsuffix.EffectiveTLDPlusOne(a)
	siteB, errB := publicsuffix.EffectiveTLDPlusOne(b)
	return errA == nil && errB == nil && siteA == siteB
}

func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// lookup is replaced by tests.
var lookup = net.DefaultResolver.LookupNetIP

// checkAway refuses a host that is this machine, or that has addresses that only this
// machine can reach. A name that cannot be looked up is allowed: a proxy may know it.
func checkAway(ctx context.Context, name, from string) error {
	addrs, _ := lookup(ctx, "ip", name)
	if addr, err := netip.ParseAddr(name); err == nil {
		addrs = []netip.Addr{addr}
	}
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified() {
			return fmt.Errorf("%w: %s leads to %s, which is an address of this machine", ErrRedirect, from, name)
		}
	}
	return nil
}
