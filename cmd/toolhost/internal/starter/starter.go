// Package starter contains the starter pack: the plugins that Toolhost serves if no
// folder of plugins is configured.
//
// Each folder here is a JavaScript project for toolhost build and toolhost test. The
// folder sealed contains the results: the module and the manifest of each plugin. All of
// them share the runtime from guest/js.
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

// Names returns the names of all plugins in the pack, sorted.
func Names() (names []string) {
	entries, _ := sealed.ReadDir("sealed") // an embedded folder can be read
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".js"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Plugin returns the plugin with this name, as made by toolhost build. If there is none,
// the error matches fs.ErrNotExist.
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

// folders holds the results of FS, by the names of the plugins.
var folders sync.Map

// FS returns a folder with a file NAME.wasm for each named plugin of the pack. For the
// same names it returns the same folder.
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
