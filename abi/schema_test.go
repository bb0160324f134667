package abi_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(abi.ManifestSchema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("manifest.json", doc))
	s, err := c.Compile("manifest.json")
	require.NoError(t, err)
	return s
}

// The published schema and the decoder agree on every vector, but for what a
// schema cannot say.
func TestSchemaAgreesWithDecoder(t *testing.T) {
	s := compileSchema(t)
	for name, doc := range readValid(t) {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
		require.NoError(t, err, name)
		require.NoError(t, s.Validate(v), name)
	}

	for _, c := range readInvalid(t) {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.document()))
		if err != nil {
			continue // no JSON for a schema to look at
		}
		if c.BeyondSchema {
			require.NoError(t, s.Validate(v), "%s: the schema can say it", c.Name)
		} else {
			require.Error(t, s.Validate(v), c.Name)
		}
	}
}

// The schema has the fields of the Go types, with their types, and requires
// what they require.
func TestSchemaAgreesWithTypes(t *testing.T) {
	var root map[string]any
	require.NoError(t, json.Unmarshal([]byte(abi.ManifestSchema()), &root))
	w := walker{t, root["$defs"].(map[string]any)}
	w.object("", root, reflect.TypeFor[abi.Manifest]())
}

type walker struct {
	*testing.T
	defs map[string]any
}

func (w walker) resolve(at string, node any) map[string]any {
	s, ok := node.(map[string]any)
	require.True(w, ok, "%s: not an object", at)
	if ref, ok := s["$ref"].(string); ok {
		return w.resolve(at, w.defs[strings.TrimPrefix(ref, "#/$defs/")])
	}
	return s
}

func (w walker) object(at string, s map[string]any, t reflect.Type) {
	require.Equal(w, false, s["additionalProperties"], at)
	require.Equal(w, map[string]any{"^x-.": true}, s["patternProperties"], at)
	properties, _ := s["properties"].(map[string]any)
	var names, required []string
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		require.NotEmpty(w, name, "%s: field %s has no JSON name", at, t.Field(i).Name)
		names = append(names, name)
		if options == "" {
			required = append(required, name)
		}
		if p, ok := properties[name]; ok {
			w.value(at+"/"+name, w.resolve(at+"/"+name, p), t.Field(i).Type)
		}
	}

	require.ElementsMatch(w, names, keys(properties), "%s: properties", at)
	require.ElementsMatch(w, required, s["required"], "%s: required", at)
}

func keys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func (w walker) value(at string, s map[string]any, t reflect.Type) {
	want := map[reflect.Kind]string{reflect.Bool: "boolean", reflect.Int64: "integer", reflect.String: "string"}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		// an object or any value; the vectors tell
	case t == reflect.TypeFor[abi.Text]():
		require.Len(w, s["anyOf"], 2, at)
	case t == reflect.TypeFor[abi.Word](), t == reflect.TypeFor[abi.Output]():
		require.Len(w, s["oneOf"], 2, at)
	case t.Kind() == reflect.Map:
		require.Equal(w, "object", s["type"], at)
		w.value(at+"/*", w.resolve(at+"/*", s["additionalProperties"]), t.Elem())
	case t == reflect.TypeFor[*abi.Needs](): // within Needs
		require.Equal(w, w.defs["needs"], s, at)
	case t.Kind() == reflect.Pointer:
		w.value(at, s, t.Elem())
	case t.Kind() == reflect.Struct:
		w.object(at, s, t)
	case t.Kind() == reflect.Slice:
		require.Equal(w, "array", s["type"], at)
		w.value(at+"/0", w.resolve(at+"/0", s["items"]), t.Elem())
	case s["enum"] != nil:
		require.Equal(w, reflect.String, t.Kind(), at)
	case s["const"] != nil:
		require.Equal(w, abi.Version, s["const"], at)
	default:
		require.Contains(w, want, t.Kind(), at)
		require.Equal(w, want[t.Kind()], s["type"], at)
	}
}

// Each value of a schema's enum decodes, so the two lists are the same: the
// vectors have one that is in neither.
func TestSchemaEnums(t *testing.T) {
	var root struct {
		Defs map[string]any `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal([]byte(abi.ManifestSchema()), &root))
	enum := func(path ...string) (values []string) {
		var node any = root.Defs
		for _, key := range append(path, "enum") {
			node = node.(map[string]any)[key]
		}
		for _, v := range node.([]any) {
			values = append(values, v.(string))
		}
		return slices.Sorted(slices.Values(values))
	}
	require.Equal(t, []string{string(abi.Parallel), string(abi.Serial)}, enum("hints", "properties", "concurrency"))
	require.Equal(t, []string{string(abi.ApprovalAuto), string(abi.ApprovalRequired)}, enum("tool", "properties", "approval"))
	require.Equal(t, []string{string(abi.DeferAutomatic), string(abi.DeferNever)}, enum("tool", "properties", "deferrable"))
	require.Equal(t, []string{string(abi.FileRead), string(abi.FileWrite)},
		enum("needs", "properties", "files", "items", "properties", "mode"))
}
