// Package starter has the starter pack: plugins that Toolhost serves if no folder of
// plugins is configured.
//
// Each folder here is a JavaScript project for toolhost build and toolhost test. The
// folder sealed has the results: the module and the manifest of each. They share the
// runtime of guest/js.
package starter

import (
	"embed"
	"io/fs"
	"path"
	"strings"
	"sync"
	"testing/fstest"

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

// FS returns a folder with a file NAME.wasm for each named plugin of the pack. It returns
// the same folder for the same names.
func FS(names []string) fs.FS {
	key := strings.Join(names, " ")
	if f, ok := folders.Load(key); ok {
		return f.(fs.FS)
	}
	f := fstest.MapFS{}
	for _, name := range names {
		wasm, err := Plugin(name)
		if err != nil {
			panic(err) // it is embedded
		}
		f[name+".wasm"] = &fstest.MapFile{Data: wasm, Mode: 0o444}
	}
	kept, _ := folders.LoadOrStore(key, f)
	return kept.(fs.FS)
}
