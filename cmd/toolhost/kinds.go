package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/host"
)

// kind is the type of a setting: how its values are read, shown and described.
type kind struct {
	schema schema                       // of the value of a file
	read   func(value any) (any, error) // turns the value of a file into that of the field; the error may be problems
	parse  func(text string) any        // turns a variable into the value of a file; nil keeps the text
	show   func(value any) any          // turns the value of the field into that of a file; nil keeps it
	paths  []string                     // where it has paths, see rebase; nil if nowhere
}

// schema is a JSON Schema.
type schema = map[string]any

var (
	text   = kind{schema: schema{"type": "string"}, read: func(value any) (any, error) { return readText(value) }}
	folder = kind{schema: text.schema, read: text.read, paths: []string{}}
	flag   = kind{schema: schema{"type": "boolean"}, read: readFlag, parse: parseWith(strconv.ParseBool)}

	anyWhole = kind{schema: schema{"type": "integer"}, read: number("a whole number", wholeOf, math.MinInt64, nil), parse: parseWith(parseWhole)}
	whole    = kind{schema: schema{"type": "integer", "minimum": 0}, read: number("a whole number", wholeOf, 0, nil), parse: parseWith(parseWhole)}
	size     = sizeFrom(0)
	duration = durationFrom(0)
	delay    = kind{schema: anyOf(duration.schema, schema{"type": "null"}), read: readDelay, show: showDuration}

	list    = kind{schema: schema{"type": "array", "items": text.schema}, read: listOf(readText), parse: splitPaths}
	words   = kind{schema: list.schema, read: list.read, parse: func(text string) any { return anyList(strings.Fields(text)) }}
	folders = kind{schema: list.schema, read: list.read, parse: splitPaths, paths: []string{"*"}}
	texts   = kind{schema: schema{"type": "object", "additionalProperties": text.schema}, read: mapOf(readText)}

	mounts = kind{schema: schema{"type": "array", "items": mountSchema()}, read: listOf(readMount)}
	grants = kind{
		schema: schema{"type": "object", "additionalProperties": objectSchema(grantSettings(new(host.Grant)))},
		read:   mapOf(readGrant), paths: []string{"*", "files", "*", "dir"},
	}
)

func anyOf(schemas ...schema) schema { return schema{"anyOf": schemas} }

// oneOf is the kind of a text that is one of some names.
func oneOf(names ...string) kind {
	return kind{schema: schema{"enum": names}, read: func(value any) (any, error) {
		text, err := readText(value)
		if err == nil && !slices.Contains(names, text) {
			err = fmt.Errorf("expected one of %s, found %q", strings.Join(names, ", "), text)
		}
		return text, err
	}}
}

// sizeFrom is the kind of a number of bytes: 0, or at least a bound.
func sizeFrom(least int64) kind {
	text := schema{"type": "string", "pattern": `^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGT]i?B|B)?\s*$`}
	return kind{
		schema: anyOf(schema{"type": "integer", "minimum": least}, schema{"const": 0}, text),
		read:   number("a size such as 64MiB or 1048576", sizeOf, least, showSize), show: showSize,
	}
}

// durationFrom is the kind of a duration: 0, or at least a bound.
func durationFrom(least time.Duration) kind {
	text := schema{"type": "string", "pattern": `^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`}
	return kind{
		schema: anyOf(text, schema{"const": 0}),
		read:   number("a duration such as 30s", durationOf, int64(least), showDuration), show: showDuration,
	}
}

// number reads an integer: 0, or at least a bound, which may be negative.
func number(want string, of func(any) (int64, bool), least int64, show func(any) any) func(any) (any, error) {
	return func(value any) (any, error) {
		n, ok := of(value)
		switch {
		case !ok:
			return n, fmt.Errorf("expected %s, found %s", want, found(value))
		case n < min(least, 0):
			return n, fmt.Errorf("expected a positive number, found %v", value)
		case n != 0 && n < least:
			return n, fmt.Errorf("expected at least %v, found %s", show(least), found(value))
		}
		return n, nil
	}
}

// wholeOf is a whole number, which is a float64 in JSON.
func wholeOf(value any) (int64, bool) {
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return v.Int(), true
	case v.CanFloat() && math.Abs(v.Float()) < 1<<63 && v.Float() == math.Trunc(v.Float()):
		return int64(v.Float()), true
	}
	return 0, false
}

// units are the units of sizes, the ones that showSize uses first.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

func sizeOf(value any) (int64, bool) {
	text, ok := value.(string)
	if !ok {
		return wholeOf(value)
	}

	text = strings.TrimSpace(text)
	factor := int64(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			text, factor = strings.TrimSpace(number), u.bytes
			break
		}
	}

	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n*float64(factor) > 1<<60 {
		return 0, false
	}
	return int64(n * float64(factor)), true
}

// durationOf is a duration. A number has no unit, so only 0 is one.
func durationOf(value any) (int64, bool) {
	text, ok := value.(string)
	if !ok {
		n, ok := wholeOf(value)
		return n, ok && n == 0
	}
	d, err := time.ParseDuration(text)
	return int64(d), err == nil
}

// readDelay reads a duration of which 0 and null mean never. A field has never
// as a negative duration.
func readDelay(value any) (any, error) {
	if value == nil {
		return int64(-1), nil
	}
	d, err := duration.read(value)
	if err == nil && d == int64(0) {
		d = int64(-1)
	}
	return d, err
}

// showSize writes a number of bytes in the largest unit that takes no fraction.
func showSize(value any) any {
	bytes := reflect.ValueOf(value).Int()
	text := strconv.FormatInt(bytes, 10)
	for _, u := range units[:4] {
		if bytes > 0 && bytes%u.bytes == 0 {
			text = strconv.FormatInt(bytes/u.bytes, 10) + u.suffix
		}
	}
	return text
}

// showDuration writes a duration without zeros at its end: 1h, not 1h0m0s.
func showDuration(value any) any {
	text := time.Duration(reflect.ValueOf(value).Int()).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func readFlag(value any) (any, error) {
	if on, ok := value.(bool); ok {
		return on, nil
	}
	return false, fmt.Errorf("expected true or false, found %s", found(value))
}

// readText reads a text. The error does not repeat the value: it may be a token.
func readText(value any) (string, error) {
	if text, ok := value.(string); ok {
		return text, nil
	}
	return "", errors.New("expected a text: put it in quotes")
}

// listOf reads a list of items.
func listOf[T any](item func(any) (T, error)) func(any) (any, error) {
	return func(value any) (any, error) {
		items, ok := value.([]any)
		if !ok {
			return []T(nil), errors.New("expected a list, even for one item, such as [a]")
		}

		var wrong problems
		out := make([]T, len(items))
		for i := range items {
			var err error
			out[i], err = item(items[i])
			wrong.add(strconv.Itoa(i), err)
		}
		return out, wrong.err()
	}
}

// mapOf reads a mapping with any names.
func mapOf[T any](item func(any) (T, error)) func(any) (any, error) {
	return func(value any) (any, error) {
		items, ok := value.(map[string]any)
		if !ok {
			return map[string]T(nil), errNoKeys(value)
		}

		var wrong problems
		out := map[string]T{}
		for _, name := range slices.Sorted(maps.Keys(items)) {
			var err error
			out[name], err = item(items[name])
			wrong.add(name, err)
		}
		return out, wrong.err()
	}
}

func errNoKeys(value any) error {
	return fmt.Errorf("expected keys and their values, found %s", found(value))
}

func readGrant(value any) (g host.Grant, err error) {
	wrong := readTable(grantSettings(&g), value, "")
	for _, p := range g.Check() {
		wrong.add(p.Key, errors.New(p.Problem))
	}
	return g, wrong.err()
}

// mount is a granted folder as a configuration file writes it.
type mount struct{ dir, path, mode string }

func mountSettings(m *mount) []setting {
	return []setting{
		{"dir", folder, &m.dir, none, "Folder of the host."},
		{"path", text, &m.path, none, "Where the plugin sees it: an absolute path below `/`."},
		{"mode", oneOf("read", "write"), &m.mode, none, "What the plugin may do there."},
	}
}

func mountSchema() schema {
	s := objectSchema(mountSettings(new(mount)))
	s["required"] = []string{"dir", "path", "mode"}
	s["properties"].(schema)["path"].(schema)["pattern"] = "^/."
	return s
}

func readMount(value any) (host.Mount, error) {
	var m mount
	wrong := readTable(mountSettings(&m), value, "")
	if m.mode == "" {
		wrong.add("mode", errors.New("expected one of read, write"))
	}
	return host.Mount{Dir: m.dir, Path: m.path, Write: m.mode == "write"}, wrong.err()
}

// found describes a value that does not fit.
func found(value any) string {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "keys below it"
	case reflect.String:
		return fmt.Sprintf("%q", value)
	}
	return fmt.Sprint(value)
}

// parseWith parses a variable. One that does not parse stays text, and is refused
// as such when it is read.
func parseWith[T any](parse func(string) (T, error)) func(string) any {
	return func(text string) any {
		if value, err := parse(text); err == nil {
			return value
		}
		return text
	}
}

func parseWhole(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func splitPaths(text string) any { return anyList(filepath.SplitList(text)) }

func anyList(texts []string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
}

// rebase makes the paths in a value absolute, or relative to the working directory.
// at is where they are: a key or * at each level.
func rebase(value any, at []string, dir string) any {
	switch v := value.(type) {
	case string:
		if len(at) == 0 && v != "" && !filepath.IsAbs(v) {
			return filepath.Join(dir, v)
		}
	case []any:
		for i := range v {
			if len(at) > 0 && at[0] == "*" {
				v[i] = rebase(v[i], at[1:], dir)
			}
		}
	case map[string]any:
		for name := range v {
			if len(at) > 0 && (at[0] == "*" || at[0] == name) {
				v[name] = rebase(v[name], at[1:], dir)
			}
		}
	}
	return value
}
