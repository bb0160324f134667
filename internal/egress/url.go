package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// target is a normalized URL. Every part of a request that depends on the URL is
// derived from it, so the checked URL and the sent one cannot differ.
type target struct {
	scheme string
	host   string     // lower case and ASCII; an IPv6 address without brackets
	addr   netip.Addr // the address if host is one
	port   string
	path   string // normalized, escaped
	query  string // normalized; without ?
}

// parseTarget reads the URL of a request.
func parseTarget(raw string) (target, error) {
	t, err := split(raw)
	if err != nil {
		return target{}, err
	}
	if err := t.setHost(); err != nil {
		return target{}, err
	}
	t.path, err = normalizePath(t.path)
	t.query = normalizeQuery(t.query)
	return t, err
}

// parsePattern reads the URL of a rule.
func parsePattern(raw string) (target, error) {
	if strings.ContainsAny(raw, "?#") {
		return target{}, fmt.Errorf("%q has a query or a fragment: rules have none", raw)
	}
	t, err := split(raw)
	if err != nil {
		return target{}, err
	}
	if t.path == "" {
		return target{}, fmt.Errorf(`%q has no path: end it with "/*" for every path`, raw)
	}

	host, err := parseHostPattern(t.host)
	if err != nil {
		return target{}, err
	}
	t.host, t.addr = host.host, host.addr

	t.path, err = normalizePath(t.path)
	if err == nil && strings.Contains(t.path, "**") {
		err = fmt.Errorf(`%q has "**": a final "/*" stands for everything below`, raw)
	}
	return t, err
}

// parseHostPattern reads a host that may be a wildcard.
func parseHostPattern(host string) (target, error) {
	if host == "*" {
		return target{host: host}, nil
	}

	suffix, wildcard := strings.CutPrefix(host, "*.")
	t := target{host: suffix}
	if err := t.setHost(); err != nil {
		return target{}, err
	}
	if wildcard {
		if t.addr.IsValid() {
			return target{}, fmt.Errorf("host %q: an address has no wildcard", host)
		}
		if publicSuffix(t.host) {
			return target{}, fmt.Errorf(`host %q: anyone can have a name below %s: name a domain, such as "*.example.%s"`, host, t.host, t.host)
		}
		t.host = "*." + t.host
	}
	return t, nil
}

// publicSuffix reports whether anyone can register names directly below a name, such as com,
// co.uk and github.io. Names that are not on the list, such as internal, belong to private
// networks.
func publicSuffix(name string) bool {
	suffix, icann := publicsuffix.PublicSuffix(name)
	return suffix == name && (icann || strings.Contains(name, "."))
}

// split cuts a URL into parts. Only the scheme and the port are normalized.
func split(raw string) (target, error) {
	switch {
	case len(raw) > MaxURL:
		return target{}, fmt.Errorf("longer than %d bytes", MaxURL)
	case !utf8.ValidString(raw):
		return target{}, errors.New("not UTF-8")
	case strings.ContainsFunc(raw, func(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }):
		return target{}, errors.New("a control character in the URL")
	case raw != strings.TrimSpace(raw):
		return target{}, errors.New("a space before or after the URL")
	}

	raw, _, _ = strings.Cut(raw, "#")
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "https" && scheme != "http" {
		return target{}, errors.New("want https://HOST/PATH")
	}

	t := target{scheme: scheme}
	end := strings.IndexAny(rest, `/?\`)
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	t.path, t.query, _ = strings.Cut(rest, "?")

	switch {
	case strings.Contains(authority, "@"):
		return target{}, errors.New("a user or password in the URL: the operator configures secrets")
	case strings.HasPrefix(rest, `\`):
		return target{}, errors.New("a backslash in the URL")
	}
	return t, t.splitPort(authority)
}

func (t *target) splitPort(authority string) error {
	port := ""
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		authority, port = authority[:i], authority[i+1:]

		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port != strconv.FormatUint(n, 10) {
			return fmt.Errorf("invalid port %q", port)
		}
	}

	t.host = authority
	if t.port = port; port == "" {
		t.port = defaultPort(t.scheme)
	}
	return nil
}

func defaultPort(scheme string) string {
	if scheme == "http" {
		return "80"
	}
	return "443"
}

// setHost normalizes t.host and sets t.addr.
func (t *target) setHost() error {
	host := t.host
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		switch {
		case !ok || err != nil || !addr.Is6():
			return fmt.Errorf("invalid address %q", host)
		case addr.Zone() != "":
			return fmt.Errorf("address %q has a zone", host)
		case addr.Is4In6():
			return fmt.Errorf("address %q: write it as %s", host, addr.Unmap())
		}
		t.host, t.addr = addr.String(), addr
		return nil
	}

	host, err := normalizeName(host)
	if err != nil {
		return err
	}
	t.host = host
	if !numericHost.MatchString(host) {
		return nil
	}

	// Resolvers read 0x7f.1, 017700000001 and 2130706433 as 127.0.0.1.
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.String() != host {
		return fmt.Errorf("host %q is neither a name nor an IPv4 address of four decimal numbers", host)
	}
	t.addr = addr
	return nil
}

// normalizeName returns a name in lower case and ASCII, without a final dot.
func normalizeName(host string) (string, error) {
	name := host
	if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("invalid host %q", host)
		}
		name = ascii
	}

	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > 253 {
		return "", errors.New("the host name is longer than 253 bytes")
	}
	if !hostName.MatchString(name) {
		return "", fmt.Errorf("invalid host %q", host)
	}
	return name, nil
}

var (
	hostName = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
	// numericHost matches names that some resolver could read as an IPv4 address.
	numericHost = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)
)

// hostPort returns the host as in a URL and in the header Host.
func (t *target) hostPort() string {
	host := t.host
	if t.addr.Is6() {
		host = "[" + host + "]"
	}
	if t.port != defaultPort(t.scheme) {
		host += ":" + t.port
	}
	return host
}

// origin returns the origin, which decides whether a redirect leaves it.
func (t *target) origin() string { return t.scheme + "://" + t.hostPort() }

func (t *target) String() string {
	s := t.origin() + t.path
	if t.query != "" {
		s += "?" + t.query
	}
	return s
}

// shown returns the URL for messages: without its query, and not too long.
func (t *target) shown() string {
	s := t.origin() + t.path
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return s
}

// url returns t for net/http, which must write path and query unchanged.
func (t *target) url(query string) (*url.URL, error) {
	path, err := url.PathUnescape(t.path)
	if err != nil {
		return nil, err
	}

	u := &url.URL{Scheme: t.scheme, Host: t.hostPort(), Path: path, RawPath: t.path, RawQuery: query}
	want := t.path
	if query != "" {
		want += "?" + query
	}
	if u.RequestURI() != want {
		return nil, errors.New("the path cannot be sent as it is")
	}
	return u, nil
}
