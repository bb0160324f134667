package plugins

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/toolhost/toolhost/internal/document"
)

// sidecars lists what follows NAME in the name of a manifest next to NAME.wasm.
var sidecars = []string{".toolhost.yaml", ".toolhost.yml", ".toolhost.json", ".toolhost.toml"}

// Sidecars returns the names of the manifest files next to a module in a folder. A plugin has
// at most one such file.
func Sidecars(folder fs.FS, module string) (names []string) {
	for _, ending := range sidecars {
		name := strings.TrimSuffix(module, ".wasm") + ending
		if _, err := fs.Stat(folder, name); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// sidecarFile is the manifest next to a plugin. The name is empty if there is none.
type sidecarFile struct {
	name     string
	data     []byte // as written
	manifest []byte // as JSON
}

// sidecar reads the manifest next to a plugin.
func (p *Plugin) sidecar() (side sidecarFile, err error) {
	names := Sidecars(p.folder, p.name)
	switch len(names) {
	case 0:
		return side, nil
	case 1:
		side.name = names[0]
	default:
		return sidecarFile{name: names[0]}, fmt.Errorf("two sidecars, %s and %s: remove one", names[0], names[1])
	}

	side.data, _, err = readFile(p.folder, side.name, document.MaxSize(side.name))
	if err == nil {
		side.manifest, err = toJSON(side.name, side.data)
	}
	if err != nil {
		return side, fmt.Errorf("%s: %w", side.name, err)
	}
	return side, nil
}

// toJSON converts a sidecar to JSON. abi.DecodeManifest checks it.
func toJSON(name string, data []byte) ([]byte, error) {
	if path.Ext(name) == ".json" {
		return data, nil
	}
	value, err := document.Decode(name, data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}
