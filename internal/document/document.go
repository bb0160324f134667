// Package document decodes YAML, TOML and JSON written by possibly hostile authors.
// It limits time and memory, which the decoders do not. It also appends to lists in
// YAML files.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// Limits on a document. Decoding a YAML or TOML mapping takes time quadratic in the
// number of its keys, and each YAML merge key repeats that.
const (
	MaxJSON    = 1 << 20  // bytes in a JSON file, and in any document once it is expanded
	MaxWritten = 64 << 10 // bytes in a YAML or TOML file
	MaxNesting = 100      // levels of mappings and lists
	maxKeys    = 256      // keys in a YAML mapping
)

// MaxSize returns the maximum size of a file with this name, in bytes.
func MaxSize(name string) int64 {
	if filepath.Ext(name) == ".json" {
		return MaxJSON
	}
	return MaxWritten
}

var errNesting = fmt.Errorf("expected at most %d levels of nesting", MaxNesting)

// Decode decodes a document. The extension of the name selects the format: .json,
// .toml, .yaml or .yml. Mappings become map[string]any. An empty YAML document
// becomes nil. Errors take up one line. They name the line in the document, if it is
// known, but not the file.
func Decode(name string, data []byte) (document any, err error) {
	if most := MaxSize(name); int64(len(data)) > most {
		return nil, fmt.Errorf("the file has %d bytes, expected at most %d", len(data), most)
	}

	switch filepath.Ext(name) {
	case ".json":
		document, err = decodeJSON(data)
	case ".toml":
		document, err = decodeTOML(data)
	case ".yaml", ".yml":
		document, err = decodeYAML(data)
	default:
		err = errors.New("expected a file that ends in .yaml, .toml or .json")
	}
	if err != nil {
		return nil, err
	}

	if err := (&budget{bytes: MaxJSON}).value(document, 0); err != nil {
		return nil, err
	}
	return document, nil
}

// decodeJSON reads one JSON value.
func decodeJSON(data []byte) (document any, err error) {
	err = json.Unmarshal(data, &document)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := data[:max(0, syntax.Offset-1)]
		line, column := 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
		return nil, fmt.Errorf("%w (line %d, column %d)", err, line, column)
	}
	return document, err
}

// decodeYAML reads one YAML document.
func decodeYAML(data []byte) (document any, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	err = decoder.Decode(&root)
	if err == nil {
		err = narrow(&root, -1)
	}
	if err == nil {
		err = root.Decode(&document)
	}

	var many *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case errors.As(err, &many):
		return nil, errors.New("yaml: " + strings.Join(many.Errors, "; "))
	case err != nil:
		if line := indented(data); line > 0 && (strings.Contains(err.Error(), "cannot start any token") || strings.Contains(err.Error(), "tab character")) {
			return nil, fmt.Errorf("yaml: line %d: tabs are not allowed in the indentation: use spaces", line)
		}
		return nil, err
	}

	var more any
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected one YAML document, found another after ---")
	}
	return document, nil
}

// indented returns the number of the first line that is indented with a tab, counted
// from 1, or 0 if there is none.
func indented(data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if space := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]; bytes.ContainsRune(space, '\t') {
			return n
		}
	}
	return 0
}

// narrow refuses a document that has mappings with too many keys or is nested too
// deeply. It looks at the document as written, before aliases are expanded. The root
// is at depth -1.
func narrow(n *yaml.Node, depth int) error {
	if depth > MaxNesting {
		return fmt.Errorf("%w (line %d)", errNesting, n.Line)
	}
	if n.Kind == yaml.MappingNode && len(n.Content) > 2*maxKeys {
		return fmt.Errorf("line %d: a mapping has %d keys, expected at most %d", n.Line, len(n.Content)/2, maxKeys)
	}

	for _, inner := range n.Content {
		if err := narrow(inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func decodeTOML(data []byte) (document any, err error) {
	err = toml.Unmarshal(data, &document)
	var where *toml.DecodeError
	if errors.As(err, &where) {
		line, column := where.Position()
		return nil, fmt.Errorf("%w (line %d, column %d)", err, line, column)
	}
	return document, err
}

// budget limits the size of an expanded document: a YAML alias of a few bytes repeats
// a whole value.
type budget struct{ bytes int }

func (b *budget) value(v any, depth int) error {
	if depth > MaxNesting {
		return errNesting
	}

	b.bytes--
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			b.bytes -= len(key)
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
		return errors.New("expected names as keys, found a key with a tag, such as !x: remove the tag")
	case []any:
		for _, item := range v {
			if err := b.value(item, depth+1); err != nil {
				return err
			}
		}
	case string:
		b.bytes -= len(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("expected numbers, found %v", v)
		}
	}

	if b.bytes < 0 {
		return fmt.Errorf("it expands to more than %d bytes, the limit", MaxJSON)
	}
	return nil
}
