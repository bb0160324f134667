package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is the most bytes that the path of a socket may have, see unix(7).
const maxSocketPath = 107

// shortPath returns a path of the same file that fits into the address of a
// socket: if path is too long, one through an open file of its folder. Call done
// when the path is no longer needed.
func shortPath(path string) (short string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}
