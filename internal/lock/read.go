package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/internal/owned"
)

// Limits on a lock.
const (
	MaxSize    = 1 << 20 // bytes in the file
	MaxPlugins = 1000
	MaxText    = 1024 // bytes in a name, a source, a grant or a signer
	MaxGrants  = 256  // grants for one plugin

	maxKeys    = 128 // keys in a mapping: abi.MaxTools, which is more than the number of fields of a plugin
	maxNesting = 8
)

// ErrVersion means that a lock has an unknown format version.
var ErrVersion = errors.New("unknown version of toolhost.lock")

// Read reads a lock. It refuses a file that anyone but this user and root can write to,
// because the lock decides which plugins receive the operator's grants. The error matches
// fs.ErrNotExist if the file is missing.
func Read(name string) (*File, error) {
	data, err := ReadBytes(name)
	if err != nil {
		return nil, err
	}
	f, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// ReadBytes is like [Read], but returns the bytes without parsing them.
func ReadBytes(name string) ([]byte, error) {
	if err := owned.Behind(filepath.Dir(name)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would block
	if err != nil {
		return nil, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err == nil {
		err = owned.Opened(file)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, MaxSize+1)) // Parse refuses more
}

// Parse parses a lock. It refuses unknown fields, invalid values and duplicate plugins. The
// error takes up one line, and does not name the file.
func Parse(data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("the file has more than %d bytes, the limit", MaxSize)
	}

	var root yaml.Node
	switch err := yaml.Unmarshal(data, &root); {
	case err != nil:
		return nil, err
	case root.Kind == 0:
		return nil, errors.New("the file is empty: write it with toolhost lock")
	}
	if err := plain(&root, 0); err != nil {
		return nil, err
	}
	if err := knownVersion(&root); err != nil { // before it complains about fields of a later version
		return nil, err
	}

	f := new(File)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(f); err != nil {
		return nil, oneProblem(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected one YAML document, found another after ---")
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	return f, nil
}

// plain refuses constructs that toolhost lock never writes and that slow down a decoder:
// aliases, tags, mappings with many keys, and deep nesting.
func plain(n *yaml.Node, depth int) error {
	switch {
	case depth > maxNesting:
		return fmt.Errorf("line %d: expected at most %d levels of nesting", n.Line, maxNesting)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return fmt.Errorf("line %d: anchors and aliases are not allowed", n.Line)
	case n.Style&yaml.TaggedStyle != 0:
		return fmt.Errorf("line %d: tags are not allowed", n.Line)
	case n.Kind == yaml.MappingNode && len(n.Content) > 2*maxKeys:
		return fmt.Errorf("line %d: a mapping has %d keys, expected at most %d", n.Line, len(n.Content)/2, maxKeys)
	}

	for _, inner := range n.Content {
		if err := plain(inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// knownVersion returns an error that matches [ErrVersion] if the version is not the one of
// this package.
func knownVersion(root *yaml.Node) error {
	if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return errors.New("expected a mapping with version and plugins")
	}

	fields := root.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value != "version" {
			continue
		}
		if v := fields[i+1].Value; v != fmt.Sprint(Version) {
			return fmt.Errorf("%w %.20q: this program knows version %d", ErrVersion, v, Version)
		}
		return nil
	}
	return fmt.Errorf("%w: it names none, expected version: %d", ErrVersion, Version)
}

// oneProblem returns the first decoding problem, in terms of the file.
func oneProblem(err error) error {
	text := err.Error()
	if many := new(yaml.TypeError); errors.As(err, &many) && len(many.Errors) > 0 {
		text = many.Errors[0]
	}

	if at, field, ok := strings.Cut(text, ": field "); ok {
		field, _, _ = strings.Cut(field, " not found")
		return fmt.Errorf("%s: unknown field %.80q", at, field)
	}
	text, _, _ = strings.Cut(text, " into ") // the rest is the name of a Go type
	return errors.New(text)
}
