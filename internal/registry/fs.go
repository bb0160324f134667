package registry

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/opencontainers/go-digest"
)

// FS returns a file system with the plugin that a reference names: a file named after the
// repository, ending in ".wasm", and a file for each attached document, with that
// document's ending. FS reads the store on each access, so its files change when another
// process pulls. It verifies content on each Open. Reading the root folder fails like
// [Store.Find], but the errors do not name the reference. File systems for the same
// reference and store are equal.
func (s *Store) FS(ref Reference) fs.FS { return storeFS{*s, ref} }

type storeFS struct {
	store Store
	ref   Reference
}

// files maps the names of the files to their digests.
func (f storeFS) files() (map[string]digest.Digest, error) {
	a, err := f.store.lookUp(f.ref)
	if err != nil {
		return nil, err
	}
	name := f.ref.Name() + ".wasm"
	files := map[string]digest.Digest{name: a.Module}
	for ending, d := range a.Attached {
		files[name+ending] = d
	}
	return files, nil
}

// Stat returns the file info of a file, including its identity on disk.
func (f storeFS) Stat(name string) (fs.FileInfo, error) {
	info, _, err := f.stat("stat", name)
	return info, err
}

func (f storeFS) stat(op, name string) (fs.FileInfo, digest.Digest, error) {
	if name == "." {
		info, err := os.Stat(f.store.Refs())
		return fileInfo{info, name}, "", err
	}
	files, err := f.files()
	if err != nil {
		return nil, "", err
	}
	d, ok := files[name]
	if !ok {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	info, err := f.describe(name, d)
	return info, d, err
}

// describe returns the file info of the content with a digest, under another name.
func (f storeFS) describe(name string, d digest.Digest) (fs.FileInfo, error) {
	info, err := os.Stat(f.store.blob(d))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = f.store.content(d) // its error says what to do
	}
	if err != nil {
		return nil, err
	}
	return fileInfo{info, name}, nil
}

// ReadDir reads the root folder.
func (f storeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "." {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	files, err := f.files()
	if err != nil {
		return nil, err
	}
	var entries []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		info, err := f.describe(name, files[name])
		if err != nil {
			return nil, err
		}
		entries = append(entries, fs.FileInfoToDirEntry(info))
	}
	return entries, nil
}

// Open opens a file or the root folder. It first reads and verifies the whole file.
func (f storeFS) Open(name string) (fs.File, error) {
	info, d, err := f.stat("open", name)
	if err != nil {
		return nil, err
	}
	if name == "." {
		entries, err := f.ReadDir(name)
		return &folder{file{info: info}, entries}, err
	}
	data, err := f.store.content(d)
	if err != nil {
		return nil, err
	}
	return &file{bytes.NewReader(data), info}, nil
}

// fileInfo describes a file in the store under another name.
type fileInfo struct {
	fs.FileInfo
	name string
}

func (i fileInfo) Name() string { return i.name }

// file is an open file. It implements io.ReaderAt.
type file struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

// folder is the open root folder.
type folder struct {
	file
	rest []fs.DirEntry
}

func (f *folder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: ".", Err: syscall.EISDIR}
}

func (f *folder) ReadDir(n int) ([]fs.DirEntry, error) {
	entries := f.rest
	if n > 0 && len(entries) == 0 {
		return nil, io.EOF
	}
	if n > 0 {
		entries = entries[:min(n, len(entries))]
	}
	f.rest = f.rest[len(entries):]
	return entries, nil
}
