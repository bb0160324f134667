package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolhost/toolhost/internal/owned"
)

// listeners listens on the socket, and on the configured address, if there is one.
func (c *config) listeners() ([]net.Listener, error) {
	socket, err := listenSocket(socketPath(c.data))
	if err != nil {
		return nil, &usageError{fmt.Errorf("socket: %w", err), "choose another folder with --data"}
	}

	listeners := []net.Listener{socket}
	if address := c.listen; address != "" {
		l, err := net.Listen(family(address), address)
		if err != nil {
			return nil, errors.Join(&usageError{err, "choose another address with --listen"}, socket.Close(), os.Remove(socketPath(c.data)))
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// family returns the network on which to listen for an address. For 0.0.0.0, Go's "tcp"
// would listen on the addresses of both families. A name stands for one of its addresses,
// if possible an IPv4 one.
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

// literal returns the IP address in host:port. It reports false if the host is a name.
func literal(address string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(host)
	return ip, err == nil
}

// where describes the address of a listener to people: the path of a socket, or a URL.
func where(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return l.Addr().String()
	}
	return urlOf(l.Addr().String())
}

// urlOf returns a URL for host:port. It escapes the zone of an address (RFC 6874).
func urlOf(address string) string { return (&url.URL{Scheme: "http", Host: address}).String() }

// here returns the URL of a listener for clients on this machine, which cannot connect to a
// wildcard address.
func (c *config) here(l net.Listener) string {
	if ip, _ := literal(l.Addr().String()); !ip.IsUnspecified() {
		return where(l)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	near := map[string]string{"tcp": "localhost", "tcp4": "127.0.0.1", "tcp6": "::1"}
	return urlOf(net.JoinHostPort(near[family(c.listen)], port))
}

// secretForm returns the URL of the page on which users set secrets in their browsers. It
// is empty if they cannot reach the page.
func (c *config) secretForm(listeners []net.Listener) string {
	if audience := c.oauth.Audience; audience != "" {
		return strings.TrimSuffix(strings.TrimSuffix(audience, "/"), "/mcp") + "/secret/"
	}
	for _, l := range listeners {
		if l.Addr().Network() == "tcp" {
			return c.here(l) + "/secret/"
		}
	}
	return ""
}

// socketName is the file name of a socket, in a folder of the process that listens on it.
const socketName = "http.sock"

// socketPath returns the path of the socket on which the server for a data folder listens.
// Clients look for it there.
func socketPath(data string) string { return filepath.Join(data, "serve", socketName) }

// sockets returns the sockets of all processes that use the data folder: the one of serve,
// and those of toolhost mcp.
func (c *loadedConfig) sockets() []string {
	all := []string{socketPath(c.data)}
	for n := range maxMCP {
		socket := filepath.Join(c.mcpFolder(n+1), socketName)
		if _, err := os.Lstat(socket); err == nil {
			all = append(all, socket)
		}
	}
	return all
}

// listenSocket creates the socket of a server: a file for this user only, in a folder for
// this user only. It replaces the socket of an earlier server. The caller must hold the
// lock of the data folder, so that no other server uses it. Closing the listener does not
// remove the file: that is up to the caller.
func listenSocket(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700) // fails if it belongs to somebody else
	}
	if err == nil {
		err = owned.Folder(dir)
	}
	if err != nil {
		return nil, err
	}

	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists and is not a socket: move it away", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path %s has %d bytes, and systems take at most %d", path, len(path), maxSocketPath)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}

	l.SetUnlinkOnClose(false) // see removeSocket
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// removeSocket returns a function that removes the socket created by this process, but not
// one created by a later server: by the time it is called, another process may hold the
// lock of the folder.
func removeSocket(path string) func() {
	made, err := os.Lstat(path)
	return func() {
		now, gone := os.Lstat(path)
		if err == nil && gone == nil && os.SameFile(made, now) && made.ModTime().Equal(now.ModTime()) {
			_ = os.Remove(path)
		}
	}
}

// maxSocketPath is the maximum length of a socket's path that all systems allow, in bytes.
const maxSocketPath = 103
