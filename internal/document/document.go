// Package document decodes YAML, TOML and JSON of authors who may be hostile. It
// bounds time and memory, which the decoders do not.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// The bounds of a document. Decoding a mapping of YAML or TOML takes time
// quadratic in its keys, and each merge key of YAML repeats that.
const (
	MaxJSON    = 1 << 20  // bytes of a JSON file, and of any document once it is expanded
	MaxWritten = 64 << 10 // bytes of a YAML or TOML file
	MaxNesting = 100      // levels of mappings and lists
	maxKeys    = 256      // of one mapping of YAML
)

// MaxSize is the most bytes that a file of this name may have.
func MaxSize(name string) int64 {
	if filepath.Ext(name) == ".json" {
		return MaxJSON
	}
	return MaxWritten
}

// Decode decodes a document. The ending of its name is its format: .json, .toml,
// .yaml or .yml. Mappings become map[string]any. An empty YAML document is nil.
// Errors are one line, with the line of the document if that is known, but without
// the name.
func Decode(name string, data []byte) (document any, err error) {
	if most := MaxSize(name); int64(len(data)) > most {
		return nil, fmt.Errorf("the file has %d bytes, and at most %d are read", len(data), most)
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

func errNesting(line int) error {
	return fmt.Errorf("expected at most %d levels of nesting (line %d)", MaxNesting, line)
}

// decodeJSON reads one JSON value.
func decodeJSON(data []byte) (document any, err error) {
	if err := jsonNesting(data); err != nil {
		return nil, err
	}

	err = json.Unmarshal(data, &document)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := data[:max(0, syntax.Offset-1)]
		column := len(before) - bytes.LastIndexByte(before, '\n')
		return nil, fmt.Errorf("%w (line %d, column %d)", err, lineAt(before), column)
	}
	return document, err
}

// jsonNesting refuses deep nesting before anything is decoded. Syntax errors are
// left to the decoder.
func jsonNesting(data []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
		if depth > MaxNesting {
			return errNesting(lineAt(data[:i]))
		}
	}
	return nil
}

// lineAt is the number of the line that a text ends in.
func lineAt(text []byte) int { return 1 + bytes.Count(text, []byte("\n")) }

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
		return nil, err
	}

	var more any
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected one YAML document, found another after ---")
	}
	return document, nil
}

// narrow refuses mappings with too many keys and deep nesting in a document as it
// is written, before aliases are expanded. The root is at depth -1.
func narrow(n *yaml.Node, depth int) error {
	if depth > MaxNesting {
		return errNesting(n.Line)
	}
	if n.Kind == yaml.MappingNode && len(n.Content) > 2*maxKeys {
		return fmt.Errorf("line %d: a mapping has %d keys, and at most %d are read", n.Line, len(n.Content)/2, maxKeys)
	}

	for _, inner := range n.Content {
		if err := narrow(inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func decodeTOML(data []byte) (document any, err error) {
	if err := tomlNesting(data); err != nil {
		return nil, err
	}

	err = toml.Unmarshal(data, &document)
	var where *toml.DecodeError
	if errors.As(err, &where) {
		line, column := where.Position()
		return nil, fmt.Errorf("%w (line %d, column %d)", err, line, column)
	}
	return document, err
}
