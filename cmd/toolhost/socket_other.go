//go:build !linux

package main

import "fmt"

// maxSocketPath is the most bytes that the path of a socket may have on any system.
const maxSocketPath = 103

// shortPath returns path if it fits into the address of a socket.
func shortPath(path string) (short string, done func(), err error) {
	if len(path) > maxSocketPath {
		return "", nil, fmt.Errorf("the path of the socket, %s, has %d bytes, more than %d: choose a shorter folder with --data", path, len(path), maxSocketPath)
	}
	return path, func() {}, nil
}
