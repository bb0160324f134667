package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// socketPath is where a server on a data folder listens, and where clients look
// for it.
func socketPath(data string) string { return filepath.Join(data, "serve", "http.sock") }

// listenSocket makes the socket of a server: a file for this user only, in a
// folder for this user only. It replaces the socket of an earlier server. The
// caller holds the lock of the data folder, so no other server uses it. Closing
// the listener leaves the file, which the caller removes.
func listenSocket(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := privateDir(dir); err != nil {
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

// privateDir makes a folder that only this user can access, or makes an existing
// one private.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	return os.Chmod(dir, 0o700) // fails if it belongs to somebody else
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
