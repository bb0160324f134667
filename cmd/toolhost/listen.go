package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"github.com/toolhost/toolhost/internal/owned"
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

// socketPath is where a server on a data folder listens, and where clients look
// for it.
func socketPath(data string) string { return filepath.Join(data, "serve", "http.sock") }

// listenSocket makes the socket of a server: a file for this user only, in a
// folder for this user only. It replaces the socket of an earlier server. The
// caller holds the lock of the data folder, so no other server uses it. Closing
// the listener leaves the file, which the caller removes.
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

	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket: move it away", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}

	short, done, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}

	l.SetUnlinkOnClose(false) // it would remove the short path, which is gone then
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// removeSocket returns a function that removes the present socket, but not that of
// a later server: another process may have the lock of the folder by then.
func removeSocket(path string) func() {
	made, err := os.Lstat(path)
	return func() {
		now, gone := os.Lstat(path)
		if err == nil && gone == nil && os.SameFile(made, now) && made.ModTime().Equal(now.ModTime()) {
			_ = os.Remove(path)
		}
	}
}

// maxSocketPath is the most bytes that the path of a socket may have on any system.
const maxSocketPath = 103

// shortPath returns a path of the same file that fits into the address of a
// socket: on Linux, if path is too long, one through an open file of its folder.
// Call done when the path is no longer needed.
func shortPath(path string) (short string, done func(), err error) {
	switch {
	case len(path) <= maxSocketPath:
		return path, func() {}, nil
	case runtime.GOOS != "linux":
		return "", nil, fmt.Errorf("the path of the socket, %s, has %d bytes, more than %d: choose a shorter folder with --data", path, len(path), maxSocketPath)
	}

	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// dialSocket connects to the socket of a server.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", short)
}
