//go:build !linux

package main

import "fmt"

// maxSocketPath is how long the path of a socket may be where it is shortest.
const maxSocketPath = 103

// shortPath returns the path of a socket if it is short enough to be one, and
// what to call when it is not needed any more.
func shortPath(path string) (short string, done func(), err error) {
	if len(path) > maxSocketPath {
		return "", nil, fmt.Errorf("the path of the socket, %s, has %d bytes, and %d are allowed: choose a shorter --data", path, len(path), maxSocketPath)
	}
	return path, func() {}, nil
}
