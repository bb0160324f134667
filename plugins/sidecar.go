package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/abi"
)

// sidecars are the endings of a manifest beside NAME.wasm.
var sidecars = []string{".toolhost.yaml", ".toolhost.yml", ".toolhost.json", ".toolhost.toml"}

// sidecar reads the manifest beside a plugin, as JSON. The name is empty if
// there is none.
func (l *loader) sidecar(p *Plugin, stem string) (name string, document []byte, err error) {
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
	data, _, err := readFile(p.folder, name, mostOf(name))
	if err == nil {
		document, err = toJSON(name, data)
	}
	if err != nil {
		return name, nil, fmt.Errorf("%s: %w", name, err)
	}
	return name, document, nil
}

// The bounds of what people write: the time to decode YAML and TOML grows with
// the square of what there is in one place, and a merge key is such a place each
// time.
const (
	maxWritten = 64 << 10 // bytes of a sidecar that is no JSON
	maxKeys    = 256      // of one mapping of YAML
)

func mostOf(sidecar string) int64 {
	if path.Ext(sidecar) == ".json" {
		return abi.MaxManifest
	}
	return maxWritten
}

// toJSON turns a sidecar into the JSON the contract is decoded from.
func toJSON(name string, data []byte) ([]byte, error) {
	var document any
	var err error
	switch path.Ext(name) {
	case ".json":
		return data, nil
	case ".toml":
		err = decodeTOML(data, &document)
	default:
		err = decodeYAML(data, &document)
	}
	if err == nil {
		err = (&budget{bytes: abi.MaxManifest}).value(document, 0)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(document)
}

func decodeTOML(data []byte, into *any) error {
	err := toml.Unmarshal(data, into)
	var where *toml.DecodeError
	if errors.As(err, &where) {
		line, column := where.Position()
		return fmt.Errorf("%w (line %d, column %d)", err, line, column)
	}
	return err
}

// decodeYAML reads one document. An empty file is null.
func decodeYAML(data []byte, into *any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := decoder.Decode(&document)
	if err == nil {
		err = narrow(&document)
	}
	if err == nil {
		err = document.Decode(into)
	}
	var many *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &many):
		return errors.New("yaml: " + strings.Join(many.Errors, "; "))
	case err != nil:
		return err
	}
	var more any
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("expected one YAML document, found another after ---")
	}
	return nil
}

// narrow refuses mappings of too many keys, in a document as it is written.
func narrow(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode && len(n.Content) > 2*maxKeys {
		return fmt.Errorf("line %d: a mapping has %d keys, and at most %d are read", n.Line, len(n.Content)/2, maxKeys)
	}
	for _, inner := range n.Content {
		if err := narrow(inner); err != nil {
			return err
		}
	}
	return nil
}

// budget bounds what a document becomes as JSON. A few bytes can become far
// more: a YAML alias repeats a whole value, a dotted TOML key is a level of
// nesting for each two bytes.
type budget struct{ bytes int }

// maxNesting bounds the nesting of a sidecar; a manifest has less.
const maxNesting = 100

func (b *budget) value(v any, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("expected at most %d levels of nesting", maxNesting)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			if err := b.take(len(key)); err != nil {
				return err
			}
			if err := b.value(item, depth+1); err != nil {
				return err
			}
		}
	case map[any]any:
		for key := range v {
			if _, ok := key.(string); !ok {
				return fmt.Errorf("expected names as keys, found the key %v: put it in quotes", key)
			}
		}
	case []any:
		for _, item := range v {
			if err := b.value(item, depth+1); err != nil {
				return err
			}
		}
	case string:
		return b.take(len(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("expected numbers, found %v", v)
		}
	}
	return b.take(1)
}

func (b *budget) take(n int) error {
	if b.bytes -= n; b.bytes < 0 {
		return fmt.Errorf("it comes to more than %d bytes, and at most these are read", abi.MaxManifest)
	}
	return nil
}
