//go:build !linux

package sqlite

import (
	"io/fs"
	"os"
)

// An identity distinguishes a file from others with the same name.
type identity struct{ info fs.FileInfo }

// identify returns the identity of the file at a path.
func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	return identity{info}, err
}

func (a identity) same(b identity) bool { return os.SameFile(a.info, b.info) }
