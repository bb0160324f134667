package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is how long the path of a socket may be, see unix(7).
const maxSocketPath = 107

// shortPath returns a path to the same file that fits into the address of a
// socket, and what to call when it is not needed any more. If the path itself
// does not fit, the other one leads through an open file of its folder.
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
