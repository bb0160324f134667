package plugins

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"syscall"

	"github.com/toolhost/toolhost/internal/owned"
)

// Folder is a folder of plugins.
type Folder struct {
	Path string // path as shown in messages
	FS   fs.FS
	// Pack is true for plugins that come with the program. Agents know their tools by
	// the tools' own names, without the plugin's name. A plugin of a pack gives way to
	// a plugin of another folder with the same name, or with a tool of the same name:
	// see [Registry.Overridden].
	Pack bool
	// BuiltIn is true for plugins that are part of the program. Like those of a pack,
	// they need no signature.
	BuiltIn bool
	// Source is what a lock records as the folder's source, such as a path as the
	// operator wrote it. Empty means Path. For plugins that come with the program, see
	// [Folder.LockSource].
	Source string
	// Resolved returns what a lock records for the folder's only plugin in place of the
	// plugin's file name. Nil means the file name.
	Resolved func() (string, error)

	dir    string // path on disk, for watching it; empty for other file systems
	single bool   // whether it holds one plugin: see Single
	source string // source for the Verifier, if that is not Path
}

// Dir returns the folder at that path, which need not exist yet. A folder or file is
// refused if anyone but this user and root can write to it, because its plugins would
// receive the operator's grants. Nor may others be able to replace the target of a
// link.
func Dir(path string) Folder {
	return Folder{Path: path, FS: dirFS{os.DirFS(path).(statDirFS), path}, dir: path}
}

// Single returns a folder with one plugin. Messages refer to the folder as name, which can be a
// reference to a registry, for example. The registry watches dir, a folder on disk that changes
// whenever the plugin does.
func Single(name string, fsys fs.FS, dir string) Folder {
	return Folder{Path: name, FS: fsys, dir: dir, single: true}
}

// file returns the name of a file of the folder for messages.
func (f Folder) file(name string) string {
	if f.single {
		return f.Path
	}
	return path.Join(f.Path, name)
}

// dirFS is like os.DirFS, but does not block when it opens a pipe. A pipe that has
// just replaced a file would block the reload, and the end of the process, forever.
type dirFS struct {
	statDirFS
	path string
}

type statDirFS interface {
	fs.StatFS
	fs.ReadDirFS
}

// ReadDir reads a folder, unless others can write to it.
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := owned.Behind(filepath.Join(d.path, filepath.FromSlash(name))); errors.Is(err, owned.ErrUnsafe) {
		return nil, err
	}
	return d.statDirFS.ReadDir(name)
}

// Open opens a file for reading, unless others can write to it.
func (d dirFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := os.OpenFile(filepath.Join(d.path, filepath.FromSlash(name)), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil { // not a nil *os.File
		return nil, err
	}
	if err := owned.Opened(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// same reports whether two folders have the same files. File systems that are not on disk
// are compared by value, or maps by identity.
func (f Folder) same(g Folder) bool {
	if f.Path != g.Path || f.Pack != g.Pack || f.BuiltIn != g.BuiltIn || f.dir != g.dir || f.single != g.single {
		return false
	}
	a, b := reflect.ValueOf(f.FS), reflect.ValueOf(g.FS)
	switch {
	case f.dir != "":
		return true
	case a.Type() != b.Type():
		return false
	case a.Kind() == reflect.Map:
		return a.Pointer() == b.Pointer()
	}
	return a.Comparable() && a.Equal(b)
}

// number returns the numbers of folders. A folder that was read before keeps its number.
func (r *Registry) number(before *set, folders []Folder) []int {
	numbers := make([]int, len(folders))
	used := map[int]bool{}
	for i, f := range folders {
		numbers[i] = -1
		for n, earlier := range before.cfg.Folders {
			if id := before.folders[n]; !used[id] && earlier.same(f) {
				numbers[i], used[id] = id, true
				break
			}
		}
		if numbers[i] < 0 {
			numbers[i] = r.folders
			r.folders++
		}
	}
	return numbers
}
