// Package folder opens files in the folder that the operator grants as [Path]. If
// something is wrong with a path, it says so in a sentence for a model.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Path is the path at which plugins see the folder.
const Path = "/work"

// MaxText is the maximum size of a text file that is read, in bytes.
const MaxText = 4 << 20

// A Folder is the path of a granted folder.
type Folder string

// In opens the folder and calls f with it and the path p, made relative to the folder. Before
// that, p may also begin with the path of the folder. Nothing outside of the folder can be
// opened.
func (d Folder) In(p string, f func(root *os.Root, name string) error) error {
	name := p
	if rest, ok := strings.CutPrefix(p, string(d)+"/"); ok {
		name = rest
	}
	if name = path.Clean(name); p == string(d) {
		name = "."
	}
	if !filepath.IsLocal(name) {
		return leadsOut(p)
	}

	root, err := os.OpenRoot(string(d))
	if err != nil {
		return fmt.Errorf("no folder is granted as %s: ask the operator for it, or pass the data itself", d)
	}
	defer root.Close()
	err = f(root, name)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		if pathErr.Err.Error() == "path escapes from parent" { // package os has no name for it: a link leads out
			return leadsOut(p)
		}
		return fmt.Errorf("%s: %w", pathErr.Path, pathErr.Err)
	}
	return err
}

func leadsOut(p string) error { return fmt.Errorf("%s leads out of the folder", p) }

// Read reads a file of at most limit bytes.
func (d Folder) Read(p string, limit int64) (data []byte, _ error) {
	err := d.In(p, func(root *os.Root, name string) (err error) {
		data, err = Load(root, name, limit)
		return err
	})
	return data, err
}

// Text reads a text file of at most [MaxText] bytes.
func (d Folder) Text(p string) (string, error) {
	data, err := d.Read(p, MaxText)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%s is not a text in UTF-8", p)
	}
	return string(data), nil
}

// Load reads a file of at most limit bytes from an open folder.
func Load(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", name)
	case info.Size() > limit:
		return nil, fmt.Errorf("%s has %d bytes: at most %d can be read", name, info.Size(), limit)
	}
	return root.ReadFile(name)
}
