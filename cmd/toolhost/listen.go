package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
)

// listen listens at the socket, and at the address if one is configured.
func (a *app) listen() ([]net.Listener, error) {
	socket, err := listenSocket(socketPath(a.config.data))
	if err != nil {
		return nil, &usageError{fmt.Errorf("socket: %w", err), "choose another folder with --data"}
	}

	listeners := []net.Listener{&namedListener{socket, socketPath(a.config.data)}}
	if address := a.config.listen; address != "" {
		l, err := net.Listen(family(address), address)
		if err != nil {
			return nil, errors.Join(&usageError{err, "choose another address with --listen"}, socket.Close(), os.Remove(socketPath(a.config.data)))
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// family is the network of an address to listen at. Go's "tcp" would listen at the
// addresses of both families for 0.0.0.0. For a name it uses one of its addresses,
// IPv4 if it has one.
func family(address string) string {
	ip, ok := literal(address)
	switch {
	case !ok:
		return "tcp"
	case ip.Unmap().Is4():
		return "tcp4"
	}
	return "tcp6"
}

// literal is the IP address in host:port, unless the host is a name.
func literal(address string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(host)
	return ip, err == nil
}

// namedListener is a socket with the path for people, which may be longer than its
// address.
type namedListener struct {
	*net.UnixListener
	path string
}

// where is the address of a listener, for people.
func where(l net.Listener) string {
	if named, ok := l.(*namedListener); ok {
		return named.path
	}
	return urlOf(l.Addr().String())
}

// urlOf is the URL of host:port. It escapes the zone of an address (RFC 6874).
func urlOf(address string) string { return (&url.URL{Scheme: "http", Host: address}).String() }

// here is the URL of a listener for clients on this machine, which cannot connect
// to an address that stands for all.
func (a *app) here(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	switch ip, _ := literal(l.Addr().String()); {
	case !ip.IsUnspecified():
		return where(l)
	case family(a.config.listen) == "tcp":
		return urlOf(net.JoinHostPort("localhost", port))
	case ip.Is4():
		return urlOf(net.JoinHostPort("127.0.0.1", port))
	}
	return urlOf(net.JoinHostPort("::1", port))
}

// others explains an address that stands for all addresses.
func (a *app) others(l net.Listener) string {
	ip, ok := literal(l.Addr().String())
	if !ok || !ip.IsUnspecified() {
		return ""
	}

	kind := map[string]string{"tcp": "all addresses", "tcp4": "all IPv4 addresses", "tcp6": "all IPv6 addresses"}
	return fmt.Sprintf(" (%s of this machine; from here %s)", kind[family(a.config.listen)], a.here(l))
}
