// Package starter has the starter pack: plugins that Toolhost serves if no folder of
// plugins is configured.
//
// Each folder here is a JavaScript project for toolhost build and toolhost test. The
// folder sealed has the results: the module and the manifest of each. They share the
// runtime of guest/js.
package starter

import (
	"bytes"
	"embed"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

//go:generate go test -run TestSealed -update .

//go:embed sealed
var sealed embed.FS

// Names returns the names of all plugins of the pack, sorted.
func Names() (names []string) {
	entries, _ := sealed.ReadDir("sealed") // an embedded folder can be read
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".js"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Plugin returns the plugin with that name, as toolhost build makes it. The error
// matches fs.ErrNotExist if there is none.
func Plugin(name string) ([]byte, error) {
	module, err := sealed.ReadFile(path.Join("sealed", name+".js"))
	if err != nil {
		return nil, err
	}
	manifest, err := sealed.ReadFile(path.Join("sealed", name+".json"))
	if err != nil {
		return nil, err
	}
	return wasmbin.AppendCustom(js.Plugin(module), abi.SectionManifest, manifest), nil
}

// folders has the results of FS, by names.
var folders sync.Map

// FS returns a folder with a file NAME.wasm for each named plugin. It returns the same
// folder for the same names.
func FS(names []string) fs.FS {
	key := strings.Join(names, " ")
	if f, ok := folders.Load(key); ok {
		return f.(fs.FS)
	}
	f := folder{}
	for _, name := range names {
		f[name+".wasm"] = sync.OnceValues(func() ([]byte, error) { return Plugin(name) })
	}
	kept, _ := folders.LoadOrStore(key, f)
	return kept.(fs.FS)
}

// folder has the files by name. Each is made when first needed: it is read several
// times during the start alone.
type folder map[string]func() ([]byte, error)

// Open implements [fs.FS].
func (f folder) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	if name == "." {
		return &dir{folder: f, names: slices.Sorted(maps.Keys(f))}, nil
	}
	content, ok := f[name]
	if !ok {
		return fail(fs.ErrNotExist)
	}

	wasm, err := content()
	if err != nil {
		return fail(err)
	}
	return file{bytes.NewReader(wasm), info{name, int64(len(wasm)), 0o444}}, nil
}

// dir is the folder while it is being read.
type dir struct {
	folder
	names []string // names not read yet
}

func (d *dir) Stat() (fs.FileInfo, error) { return info{".", 0, fs.ModeDir | 0o555}, nil }
func (*dir) Read([]byte) (int, error)     { return 0, fs.ErrInvalid }
func (*dir) Close() error                 { return nil }

func (d *dir) ReadDir(n int) (entries []fs.DirEntry, err error) {
	if n > 0 && len(d.names) == 0 {
		return nil, io.EOF
	}
	if n <= 0 {
		n = len(d.names)
	}
	for _, name := range d.names[:min(n, len(d.names))] {
		f, err := d.Open(name)
		if err != nil {
			return entries, err
		}
		entries = append(entries, fs.FileInfoToDirEntry(f.(file).info))
	}
	d.names = d.names[len(entries):]
	return entries, nil
}

type file struct {
	*bytes.Reader
	info info
}

func (f file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (file) Close() error                 { return nil }

type info struct {
	name string
	size int64
	mode fs.FileMode
}

func (i info) Name() string      { return i.name }
func (i info) Size() int64       { return i.size }
func (i info) Mode() fs.FileMode { return i.mode }
func (i info) IsDir() bool       { return i.mode.IsDir() }
func (info) ModTime() time.Time  { return time.Time{} }
func (info) Sys() any            { return nil }
