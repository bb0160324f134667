package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/server"
)

// kind is the type of a setting: it says how to read, show and describe its values.
type kind struct {
	schema schema                                  // schema of the value in a file
	set    func(to reflect.Value, value any) error // sets the field from the value in a file; the error may be of type problems
	parse  func(text string) any                   // converts a variable to the value in a file; nil keeps the text
	show   func(value any) any                     // converts the field to the value in a file; nil keeps it
	paths  bool                                    // whether the value contains paths: see rebase

	each func(name string) []setting // table of settings for each name, for keys that end in *
}

// schema is a JSON Schema.
type schema = map[string]any

var (
	text   = kind{schema: schema{"type": "string"}, set: setText}
	folder = kind{schema: text.schema, set: setText, paths: true}
	flag   = kind{schema: schema{"type": "boolean"}, set: setFlag, parse: parseWith(strconv.ParseBool)}

	anyWhole = kind{schema: schema{"type": "integer"}, set: number("a whole number", wholeOf, math.MinInt64, nil), parse: parseWith(parseWhole)}
	whole    = kind{schema: schema{"type": "integer", "minimum": 0}, set: number("a whole number", wholeOf, 0, nil), parse: parseWith(parseWhole)}
	size     = sizeFrom(0)
	duration = durationFrom(0)
	delay    = kind{schema: anyOf(duration.schema, schema{"type": "null"}), set: setDelay, show: showDuration}

	// budget is the kind of a duration, or none.
	budget = kind{schema: anyOf(duration.schema, schema{"const": "none"}), set: setBudget, show: showBudget}

	list    = listOf(text, func(text string) any { return anyList(filepath.SplitList(text)) })
	folders = listOf(folder, list.parse)
	sources = listOf(kind{schema: text.schema, set: setSource, paths: true}, list.parse)
	words   = listOf(text, func(text string) any { return anyList(strings.Fields(text)) })
	mounts  = listOf(mountKind(), nil)
	texts   = mapOf(text)

	signers   = listOf(structOf(signerSettings), nil)
	httpRules = listOf(structOf(ruleSettings, "url"), nil)
	decisions = mapOf(oneOf(string(server.DecideAllow), string(server.DecideAsk), string(server.DecideDeny)))
	listings  = mapOf(oneOf(string(server.ListDirectly), string(server.ListBySearch)))
)

func anyOf(schemas ...schema) schema { return schema{"anyOf": schemas} }

// oneOf returns the kind of a text that is one of these names.
func oneOf(names ...string) kind {
	return kind{schema: schema{"enum": names}, set: func(to reflect.Value, value any) error {
		text, ok := value.(string)
		if ok && !slices.Contains(names, text) {
			return fmt.Errorf("expected one of %s, found %q", strings.Join(names, ", "), text)
		}
		return setText(to, value)
	}}
}

// sizeFrom returns the kind of a number of bytes that is 0, or at least least.
func sizeFrom(least int64) kind {
	text := schema{"type": "string", "pattern": sizes.String()}
	return kind{
		schema: anyOf(schema{"type": "integer", "minimum": least}, schema{"const": 0}, text),
		set:    number("a size such as 64MiB, 64MB or 1048576", sizeOf, least, showSize), show: showSize,
	}
}

// durationFrom returns the kind of a duration that is 0, or at least least.
func durationFrom(least time.Duration) kind {
	text := schema{"type": "string", "pattern": `^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`}
	return kind{
		schema: anyOf(text, schema{"const": 0}),
		set:    number("a duration such as 30s", durationOf, int64(least), showDuration), show: showDuration,
	}
}

func setBudget(to reflect.Value, value any) error {
	if value == "none" {
		to.SetInt(int64(server.NoLimit))
		return nil
	}
	return duration.set(to, value)
}

func showBudget(value any) any {
	if value == server.NoLimit {
		return "none"
	}
	return showDuration(value)
}

// number returns a function that reads an integer, which must be 0, or at least least.
// least may be negative.
func number(want string, of func(any) (int64, bool), least int64, show func(any) any) func(reflect.Value, any) error {
	return func(to reflect.Value, value any) error {
		n, ok := of(value)
		switch {
		case !ok:
			return fmt.Errorf("expected %s, found %s", want, found(value))
		case n < min(least, 0):
			return fmt.Errorf("expected a positive number, found %v", value)
		case n != 0 && n < least:
			return fmt.Errorf("expected at least %v, found %s", show(least), found(value))
		}
		to.SetInt(n)
		return nil
	}
}

// wholeOf converts a value to an integer, if it is one. In JSON, it is a float64.
func wholeOf(value any) (int64, bool) {
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return v.Int(), true
	case v.CanFloat() && math.Abs(v.Float()) < 1<<63 && v.Float() == math.Trunc(v.Float()):
		return int64(v.Float()), true
	}
	return 0, false
}

// sizes matches sizes. It is also used as a pattern in JSON Schema, which has no flags.
var sizes = regexp.MustCompile(`^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KkMmGgTt][Ii]?[Bb]|[Bb])?\s*$`)

func sizeOf(value any) (int64, bool) {
	text, ok := value.(string)
	if !ok {
		return wholeOf(value)
	}
	if !sizes.MatchString(text) {
		return 0, false
	}
	n, err := humanize.ParseBytes(strings.TrimSpace(text))
	return int64(n), err == nil && n <= 1<<60
}

// durationOf returns a duration. A number has no unit, so only 0 is allowed.
func durationOf(value any) (int64, bool) {
	text, ok := value.(string)
	if !ok {
		n, ok := wholeOf(value)
		return n, ok && n == 0
	}
	d, err := time.ParseDuration(text)
	return int64(d), err == nil
}

// setDelay reads a duration. 0 and null mean never, which is a negative duration in a
// field.
func setDelay(to reflect.Value, value any) (err error) {
	if value != nil {
		err = duration.set(to, value)
	}
	if err == nil && (value == nil || to.Int() == 0) {
		to.SetInt(-1)
	}
	return err
}

// showSize formats a number of bytes in the largest unit that needs no fraction.
func showSize(value any) any {
	bytes := reflect.ValueOf(value).Int()
	for shift := 40; shift > 0; shift -= 10 {
		if bytes > 0 && bytes%(1<<shift) == 0 {
			return fmt.Sprintf("%d%ciB", bytes>>shift, " KMGT"[shift/10])
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// showDuration formats a duration without trailing zeros: 1h, not 1h0m0s.
func showDuration(value any) any {
	text := time.Duration(reflect.ValueOf(value).Int()).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func setFlag(to reflect.Value, value any) error {
	on, ok := value.(bool)
	if !ok {
		return fmt.Errorf("expected true or false, found %s", found(value))
	}
	to.SetBool(on)
	return nil
}

// setText reads a text. The error does not repeat the value, which may be a token.
func setText(to reflect.Value, value any) error {
	text, ok := value.(string)
	if !ok {
		return errors.New("expected a text: put it in quotes")
	}
	to.SetString(text)
	return nil
}

// setSource reads a folder of plugins, or a reference to a plugin in a registry.
func setSource(to reflect.Value, value any) error {
	if err := setText(to, value); err != nil {
		return err
	}
	switch source := to.String(); {
	case registry.IsReference(source):
		_, err := registry.ParseReference(source)
		return err
	case strings.HasPrefix(source, "//"): // left of a reference by splitting a variable
		return errors.New("a reference has colons, which separate folders in a variable: name it in a file or with --plugins")
	}
	return nil
}

// listOf returns the kind of a list.
func listOf(item kind, parse func(text string) any) kind {
	set := func(to reflect.Value, value any) error {
		items, ok := value.([]any)
		if !ok {
			return errors.New("expected a list, even for one item, such as [a]")
		}

		var wrong problems
		to.Set(reflect.MakeSlice(to.Type(), len(items), len(items)))
		for i := range items {
			wrong.add(strconv.Itoa(i), item.set(to.Index(i), items[i]))
		}
		return wrong.err()
	}
	return kind{schema: schema{"type": "array", "items": item.schema}, set: set, parse: parse, paths: item.paths}
}

// mapOf returns the kind of a mapping whose names are arbitrary.
func mapOf(item kind) kind {
	set := func(to reflect.Value, value any) error {
		items, ok := value.(map[string]any)
		if !ok {
			return errNoKeys(value)
		}

		var wrong problems
		to.Set(reflect.MakeMap(to.Type()))
		for _, name := range slices.Sorted(maps.Keys(items)) {
			one := reflect.New(to.Type().Elem()).Elem()
			wrong.add(name, item.set(one, items[name]))
			to.SetMapIndex(reflect.ValueOf(name), one)
		}
		return wrong.err()
	}
	return kind{schema: schema{"type": "object", "additionalProperties": item.schema}, set: set}
}

func errNoKeys(value any) error {
	return fmt.Errorf("expected keys and their values, found %s", found(value))
}

// structOf returns the kind of a mapping with the keys in a table. Keys in required have
// no default.
func structOf[T any](table func(*T) []setting, required ...string) kind {
	settings := table(new(T))
	s := objectSchema(settings)
	if required != nil {
		s["required"] = required
	}
	set := func(to reflect.Value, raw any) error {
		values := map[string]value{}
		flatten(table(to.Addr().Interface().(*T)), raw, "", values)
		return readValues(values).err()
	}
	return kind{schema: s, set: set, paths: slices.ContainsFunc(settings, func(s setting) bool { return s.kind.paths })}
}

func mountSettings(m *host.Mount) []setting {
	inside := kind{schema: schema{"type": "string", "pattern": "^/."}, set: setText}
	return []setting{
		{"dir", live, folder, &m.Dir, none, "Folder of the host."},
		{"path", live, inside, &m.Path, none, "Where the plugin sees it: an absolute path, such as `/` or `/work`."},
		{"mode", live, oneOf(string(abi.FileRead), string(abi.FileWrite)), &m.Mode, none, "What the plugin may do there."},
	}
}

// mountKind returns the kind of a granted folder. The mode is required.
func mountKind() kind {
	k := structOf(mountSettings, "dir", "path", "mode")
	set := k.set
	k.set = func(to reflect.Value, raw any) error {
		var wrong problems
		wrong.add("", set(to, raw))
		if to.Interface().(host.Mount).Mode == "" {
			wrong.add("mode", errors.New("expected one of read, write"))
		}
		return wrong.err()
	}
	return k
}

func ruleSettings(r *host.HTTPRule) []setting {
	return []setting{
		{"url", live, text, &r.URL, none, "https://HOST[:PORT]/PATH, or http:// for plain HTTP."},
		{"methods", live, words, &r.Methods, none, "In upper case; GET and HEAD by default."},
		{"secret", live, text, &r.Secret, none, "Name of the secret that goes into the requests."},
		{"max_body", live, size, &r.MaxBody, none, "Bytes of one body in either direction."},
		{"private", live, flag, &r.Private, nil, "Whether HOST may have a private address."},
	}
}

// found describes a value of the wrong type.
func found(value any) string {
	switch value.(type) {
	case []any:
		return "a list"
	case map[string]any:
		return "keys below it"
	case string:
		return fmt.Sprintf("%q", value)
	}
	return fmt.Sprint(value)
}

// parseWith returns a parser for a variable. A text that cannot be parsed is kept, and is
// refused when the setting is read.
func parseWith[T any](parse func(string) (T, error)) func(string) any {
	return func(text string) any {
		if value, err := parse(text); err == nil {
			return value
		}
		return text
	}
}

func parseWhole(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func anyList(texts []string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
}

// rebase makes paths absolute, or relative to the working directory. The value is a path,
// a list of paths, or a mapping with dir and sources. URLs are left alone.
func rebase(value any, dir string) any {
	switch v := value.(type) {
	case string:
		if v != "" && !filepath.IsAbs(v) && !strings.Contains(v, "://") {
			return filepath.Join(dir, v)
		}
	case []any:
		for i := range v {
			v[i] = rebase(v[i], dir)
		}
	case map[string]any:
		for _, key := range []string{"dir", "sources"} {
			if at, ok := v[key]; ok {
				v[key] = rebase(at, dir)
			}
		}
	}
	return value
}
