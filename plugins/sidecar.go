package plugins

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"

	"github.com/toolhost/toolhost/internal/document"
)

// sidecars are the endings of a manifest next to NAME.wasm.
var sidecars = []string{".toolhost.yaml", ".toolhost.yml", ".toolhost.json", ".toolhost.toml"}

// sidecar returns the manifest next to a plugin, as JSON. The name is empty if the
// plugin has no sidecar.
func (l *loader) sidecar(p *Plugin, stem string) (name string, manifest []byte, err error) {
	for _, ending := range sidecars {
		if _, err := fs.Stat(p.folder, stem+ending); err != nil {
			continue
		}
		if name != "" {
			return name, nil, fmt.Errorf("two sidecars, %s and %s: remove one", name, stem+ending)
		}
		name = stem + ending
	}

	if name == "" {
		return "", nil, nil
	}
	data, _, err := readFile(p.folder, name, document.MaxSize(name))
	if err == nil {
		manifest, err = toJSON(name, data)
	}
	if err != nil {
		return name, nil, fmt.Errorf("%s: %w", name, err)
	}

	return name, manifest, nil
}

// toJSON converts a sidecar to JSON, which abi.DecodeManifest checks.
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
