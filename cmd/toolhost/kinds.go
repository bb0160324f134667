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
	"github.com/toolhost/toolhost/plugins"
)

// kind is the type of a setting: how its values are read, shown and described.
type kind struct {
	read   func(value any) (any, error)            // turns the value of a file into that of the field; the error may be problems
	parse  func(text string) any                   // turns a variable into the value of a file; nil keeps the text
	show   func(value any) any                     // turns the value of a field into that of a file; nil keeps it
	rebase func(value any, join func(any) any) any // joins relative paths to a folder; nil if there are none
	schema schema                                  // of the value of a file
}

// schema is a JSON Schema.
type schema = map[string]any

var (
	text   = kind{read: readText, schema: schema{"type": "string"}}
	folder = kind{read: readText, rebase: func(v any, join func(any) any) any { return join(v) }, schema: text.schema}
	flag   = kind{read: readFlag, parse: parseFlag, schema: schema{"type": "boolean"}}

	anyWhole = kind{read: readWhole, parse: parseWhole, schema: schema{"type": "integer"}}
	whole    = kind{read: positive(readWhole), parse: parseWhole, schema: schema{"type": "integer", "minimum": 0}}
	size     = sizeFrom(0)
	duration = durationFrom(0)
	delay    = kind{read: readDelay, show: showDuration, schema: anyOf(durationText, schema{"const": 0}, schema{"type": "null"})}

	list     = kind{read: readList, parse: splitPaths, schema: schema{"type": "array", "items": text.schema}}
	words    = kind{read: readList, parse: func(text string) any { return anyList(strings.Fields(text)) }, schema: list.schema}
	folders  = kind{read: readList, parse: splitPaths, rebase: rebaseList, schema: list.schema}
	texts    = kind{read: readTexts, schema: schema{"type": "object", "additionalProperties": text.schema}}
	inPlugin = kind{read: readPath, schema: schema{"type": "string", "pattern": "^/."}}
	grants   = kind{read: readGrants, rebase: rebaseGrants, schema: schema{"type": "object", "additionalProperties": objectSchema(grantSettings(new(plugins.Grant)))}}
	mounts   = kind{read: readMounts, rebase: rebaseMounts, schema: schema{"type": "array", "items": required(objectSchema(mountSettings(new(mount))), "dir", "path", "mode")}}
)

// Texts of sizes and durations.
var (
	sizeText     = schema{"type": "string", "pattern": `^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGT]i?B|B)?\s*$`}
	durationText = schema{"type": "string", "pattern": `^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`}
)

func required(s schema, keys ...string) schema {
	s["required"] = keys
	return s
}

func anyOf(schemas ...schema) schema { return schema{"anyOf": schemas} }

// oneOf is the kind of a text that is one of some names.
func oneOf(names ...string) kind {
	read := func(value any) (any, error) {
		text, err := readText(value)
		if err == nil && !slices.Contains(names, text.(string)) {
			err = fmt.Errorf("expected one of %s, found %q", strings.Join(names, ", "), text)
		}
		return text, err
	}
	return kind{read: read, schema: schema{"enum": names}}
}

// sizeFrom is the kind of a number of bytes: 0, or at least a bound.
func sizeFrom(least int64) kind {
	read := func(value any) (any, error) {
		n, err := positive(readSize)(value)
		if err == nil && n.(int64) > 0 && n.(int64) < least {
			err = fmt.Errorf("expected at least %s, found %s", showSize(least), found(value))
		}
		return n, err
	}
	number := schema{"type": "integer", "minimum": least}
	if least > 0 {
		return kind{read: read, show: showSize, schema: anyOf(number, schema{"const": 0}, sizeText)}
	}
	return kind{read: read, show: showSize, schema: anyOf(number, sizeText)}
}

// durationFrom is the kind of a duration: 0, or at least a bound.
func durationFrom(least time.Duration) kind {
	read := func(value any) (any, error) {
		d, err := positive(readDuration)(value)
		if err == nil && d.(time.Duration) > 0 && d.(time.Duration) < least {
			err = fmt.Errorf("expected at least %s, found %s", showDuration(least), found(value))
		}
		return d, err
	}
	return kind{read: read, show: showDuration, schema: anyOf(durationText, schema{"const": 0})}
}

// positive refuses negative numbers.
func positive(read func(any) (any, error)) func(any) (any, error) {
	return func(value any) (any, error) {
		n, err := read(value)
		if err == nil && reflect.ValueOf(n).Int() < 0 {
			err = fmt.Errorf("expected a positive number, found %v", value)
		}
		return n, err
	}
}

// readText reads a text. The error does not repeat the value, which may be a
// token.
func readText(value any) (any, error) {
	if text, ok := value.(string); ok {
		return text, nil
	}
	return "", errors.New("expected a text: put it in quotes")
}

func readFlag(value any) (any, error) {
	if on, ok := value.(bool); ok {
		return on, nil
	}
	return false, fmt.Errorf("expected true or false, found %s", found(value))
}

// readWhole reads a whole number, which is a float64 in JSON.
func readWhole(value any) (any, error) {
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return v.Int(), nil
	case v.CanFloat() && math.Abs(v.Float()) < 1<<63 && v.Float() == math.Trunc(v.Float()):
		return int64(v.Float()), nil
	}
	return int64(0), fmt.Errorf("expected a whole number, found %s", found(value))
}

// units are the units of sizes, the ones that showSize uses first.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// readSize reads a number of bytes, or a text such as 64MiB.
func readSize(value any) (any, error) {
	wrong := fmt.Errorf("expected a size such as 64MiB or 1048576, found %s", found(value))
	text, ok := value.(string)
	if !ok {
		n, err := readWhole(value)
		if err != nil {
			err = wrong
		}
		return n, err
	}

	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || n*float64(factor) > 1<<60 {
		return int64(0), wrong
	}
	return int64(n * float64(factor)), nil
}

// readDuration reads a duration. It refuses a number without a unit, except 0.
func readDuration(value any) (any, error) {
	if text, ok := value.(string); ok {
		if d, err := time.ParseDuration(text); err == nil {
			return d, nil
		}
	}
	if n, err := readWhole(value); err == nil && n == int64(0) {
		return time.Duration(0), nil
	}
	return time.Duration(0), fmt.Errorf("expected a duration such as 30s, found %s", found(value))
}

// readDelay reads a duration of which 0 and null mean never. A field has never
// as a negative number.
func readDelay(value any) (any, error) {
	if value == nil {
		return time.Duration(-1), nil
	}
	d, err := readDuration(value)
	switch {
	case err != nil:
		return d, err
	case d == time.Duration(0):
		return time.Duration(-1), nil
	case d.(time.Duration) < 0:
		return d, fmt.Errorf("expected a positive duration, or 0 for never, found %v", d)
	}
	return d, nil
}

func readList(value any) (any, error) {
	items, ok := value.([]any)
	if list, text := value.([]string); text { // of a flag
		items, ok = anyList(list), true
	}
	if !ok {
		return []string(nil), errNoList
	}

	var wrong problems
	out := make([]string, len(items))
	for i, item := range items {
		text, err := readText(item)
		wrong.add(strconv.Itoa(i), err)
		out[i] = text.(string)
	}
	return out, wrong.err()
}

var errNoList = errors.New("expected a list, even for one item, such as [a]")

func readTexts(value any) (any, error) {
	items, ok := value.(map[string]any)
	if !ok {
		return map[string]string(nil), errNoKeys(value)
	}

	var wrong problems
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(items)) {
		text, err := readText(items[key])
		wrong.add(key, err)
		out[key] = text.(string)
	}
	return out, wrong.err()
}

func errNoKeys(value any) error {
	return fmt.Errorf("expected keys and their values, found %s", found(value))
}

func readGrants(value any) (any, error) {
	items, ok := value.(map[string]any)
	if !ok {
		return map[string]plugins.Grant(nil), errNoKeys(value)
	}

	var wrong problems
	out := map[string]plugins.Grant{}
	for _, plugin := range slices.Sorted(maps.Keys(items)) {
		var g plugins.Grant
		wrong = append(wrong, readTable(grantSettings(&g), items[plugin], plugin)...)
		out[plugin] = g
	}
	return out, wrong.err()
}

// mount is a folder that is granted, as a file has it.
type mount struct{ dir, path, mode string }

func mountSettings(m *mount) []setting {
	return []setting{
		{"dir", folder, &m.dir, none, "Folder of the host."},
		{"path", inPlugin, &m.path, none, "Where the plugin sees it: an absolute path below `/`."},
		{"mode", oneOf("read", "write"), &m.mode, none, "What the plugin may do there."},
	}
}

func readMounts(value any) (any, error) {
	items, ok := value.([]any)
	if !ok {
		return []host.Mount(nil), errNoList
	}

	var wrong problems
	var out []host.Mount
	for i, item := range items {
		at, m := strconv.Itoa(i), mount{}
		wrong = append(wrong, readTable(mountSettings(&m), item, at)...)
		if m.dir == "" {
			wrong.add(at+".dir", errors.New("expected a folder"))
		}
		if m.path == "" {
			wrong.add(at+".path", errInPlugin(""))
		}
		if m.mode == "" {
			wrong.add(at+".mode", errors.New("expected one of read, write"))
		}
		out = append(out, host.Mount{Dir: m.dir, Path: m.path, Write: m.mode == "write"})
	}
	return out, wrong.err()
}

// rebase makes the paths in a table of a file absolute.
func rebase(table []setting, value any, join func(any) any) {
	values, _ := value.(map[string]any)
	for _, s := range table {
		if v, ok := values[s.key]; ok && s.kind.rebase != nil {
			values[s.key] = s.kind.rebase(v, join)
		}
	}
}

// readPath reads where a plugin sees a folder.
func readPath(value any) (any, error) {
	text, err := readText(value)
	if path := text.(string); err == nil && (!strings.HasPrefix(path, "/") || path == "/") {
		err = errInPlugin(path)
	}
	return text, err
}

func errInPlugin(path string) error {
	return fmt.Errorf("expected an absolute path below /, such as /work, found %q", path)
}

// found describes a value that does not fit.
func found(value any) string {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid:
		return "nothing"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "keys below it"
	case reflect.String:
		return fmt.Sprintf("%q", value)
	}
	return fmt.Sprint(value)
}

// A variable that does not parse stays text, which is then refused as such.
func parseFlag(text string) any {
	if on, err := strconv.ParseBool(text); err == nil {
		return on
	}
	return text
}

func parseWhole(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func splitPaths(text string) any { return anyList(filepath.SplitList(text)) }

func anyList(texts []string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
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

// showDuration writes a duration without units of zero at its end: 1h, not
// 1h0m0s.
func showDuration(value any) any {
	text := value.(time.Duration).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func rebaseList(value any, join func(any) any) any {
	items, _ := value.([]any)
	for i := range items {
		items[i] = join(items[i])
	}
	return value
}

func rebaseGrants(value any, join func(any) any) any {
	items, _ := value.(map[string]any)
	for _, granted := range items {
		rebase(grantSettings(new(plugins.Grant)), granted, join)
	}
	return value
}

func rebaseMounts(value any, join func(any) any) any {
	items, _ := value.([]any)
	for _, item := range items {
		rebase(mountSettings(new(mount)), item, join)
	}
	return value
}
