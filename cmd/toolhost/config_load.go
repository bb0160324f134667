package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
)

// delim separates the parts of a key inside koanf. A dot would do, but names of
// settings may have one.
const delim = "/"

// layer is one source of values.
type layer struct {
	name string // for people: "default", a file, or ""; the flags and variables name themselves
	k    *koanf.Koanf
	of   func(key string) string // names the source of one key, if name is empty
	kind layerKind
}

type layerKind int

const (
	byDefault layerKind = iota
	userFile            // the user's own configuration
	namedFile           // named by a flag or a variable, or trusted in the working directory
	byHand              // variables and flags
)

// loaded is a configuration with where it is from, and what is wrong with it.
type loaded struct {
	config
	merged  *koanf.Koanf
	layers  []layer
	faults  []*fault
	ignored []*ignoredFile // of the working directory
}

// defaults are what holds where nobody says anything.
func defaults() map[string]any {
	return map[string]any{
		"data": userData(), "approve": "deny", "watch": true, "compile": compileAhead,
		"log/level": "warn", "log/format": "text", "serve/drain": "10s",
		"background/park": string(server.ParkHinted), "background/end_session": string(background.EndParked),
	}
}

// loadConfig reads the layers: defaults, the user's own configuration, the file
// that is named or trusted, the environment, the flags.
// If something is wrong with them the error says all of it, and what could be
// read is returned all the same.
func loadConfig(flags *pflag.FlagSet, environ []string) (*loaded, error) {
	c := &loaded{merged: koanf.New(delim)}
	if err := c.add(layer{name: "default"}, confmap.Provider(defaults(), delim)); err != nil {
		return c, err
	}
	whole := c.addFiles(flags, environ)
	variables := c.environment(environ)
	if err := c.add(layer{of: variable, kind: byHand}, env.Provider(delim, env.Opt{Prefix: "TOOLHOST_", EnvironFunc: func() []string { return environ }, TransformFunc: func(name, value string) (string, any) {
		key := variables[name]
		return key, typed(key, value)
	}})); err != nil {
		return c, err
	}
	fromFlags := posflag.ProviderWithFlag(flags, delim, koanf.New(delim), func(f *pflag.Flag) (string, any) {
		key, ok := flagKeys[f.Name]
		if !ok || !f.Changed {
			return "", nil
		}
		return key, posflag.FlagVal(flags, f)
	})
	if err := c.add(layer{of: func(key string) string { return "--" + flagOf(key) }, kind: byHand}, fromFlags); err != nil {
		return c, err
	}
	c.decode()
	if whole { // or what is missing may be in the file
		c.check()
	}
	return c, c.wrong()
}

// add reads one layer.
func (c *loaded) add(l layer, p koanf.Provider) error {
	l.k = koanf.New(delim)
	if err := l.k.Load(p, nil); err != nil {
		return err
	}
	c.layers = append(c.layers, l)
	return c.merged.Merge(l.k)
}

// flagKeys are the flags that set a key.
var flagKeys = map[string]string{
	"plugins": "plugins", "data": "data", "log-level": "log/level", "log-format": "log/format",
	"addr": "addr", "listen": "serve/listen",
}

func flagOf(key string) string {
	for flag, k := range flagKeys {
		if k == key {
			return flag
		}
	}
	return ""
}

// absolute makes the paths of a file independent of the working directory.
func absolute(k *koanf.Koanf, dir string) {
	fix := func(v any) any {
		if s, ok := v.(string); ok && s != "" && !filepath.IsAbs(s) {
			return filepath.Join(dir, s)
		}
		return v
	}
	if v := k.Get("data"); v != nil {
		_ = k.Set("data", fix(v))
	}
	if list, ok := k.Get("plugins").([]any); ok {
		for i := range list {
			list[i] = fix(list[i])
		}
		_ = k.Set("plugins", list)
	}
	for _, plugin := range k.MapKeys("grants") {
		at := "grants" + delim + plugin + delim + "files"
		mounts, _ := k.Get(at).([]any)
		for _, m := range mounts {
			if mount, ok := m.(map[string]any); ok {
				mount["dir"] = fix(mount["dir"])
			}
		}
		if mounts != nil {
			_ = k.Set(at, mounts)
		}
	}
}

// unknownKeys notes what a file has and the configuration has not.
func (c *loaded) unknownKeys(at string, value any, t reflect.Type, file string) {
	switch t.Kind() {
	case reflect.Struct:
		m, ok := value.(map[string]any)
		if !ok {
			return // a wrong type is noted when it is decoded
		}
		fields := map[string]reflect.Type{}
		for i := range t.NumField() {
			fields[t.Field(i).Tag.Get("koanf")] = t.Field(i).Type
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if field, ok := fields[key]; ok {
				c.unknownKeys(at+key+".", m[key], field, file)
				continue
			}
			names := slices.Sorted(maps.Keys(fields))
			text := "unknown key, expected one of " + strings.Join(names, ", ")
			if near := abi.Nearest(key, names); near != "" {
				text = "unknown key, did you mean " + at + near + "?"
			}
			c.faults = append(c.faults, &fault{at + key, text, file})
		}
	case reflect.Map:
		m, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(m)) {
			c.unknownKeys(at+key+".", m[key], t.Elem(), file)
		}
	case reflect.Slice:
		list, _ := value.([]any)
		for i, item := range list {
			c.unknownKeys(fmt.Sprintf("%s%d.", at, i), item, t.Elem(), file)
		}
	}
}

// leaves are the keys with a value of their own, and its type. What is inside
// grants has no fixed name and is set in the file.
func leaves() map[string]reflect.Type {
	found := map[string]reflect.Type{}
	var walk func(at string, t reflect.Type)
	walk = func(at string, t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			key := at + f.Tag.Get("koanf")
			switch f.Type.Kind() {
			case reflect.Struct:
				walk(key+delim, f.Type)
			case reflect.Map:
			default:
				found[key] = f.Type
			}
		}
	}
	walk("", reflect.TypeFor[config]())
	return found
}

// variable is the name of a key in the environment.
func variable(key string) string {
	return "TOOLHOST_" + strings.ToUpper(strings.ReplaceAll(key, delim, "_"))
}

// environment maps the variables that are set to their keys.
func (c *loaded) environment(environ []string) map[string]string {
	keys := map[string]string{}
	for key := range leaves() {
		keys[variable(key)] = key
	}
	found := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "TOOLHOST_") || name == "TOOLHOST_CONFIG" || value == "" {
			continue
		}
		key, ok := keys[name]
		if !ok {
			text := "unknown variable"
			if near := abi.Nearest(name, slices.Sorted(maps.Keys(keys))); near != "" {
				text += ", did you mean " + near + "?"
			}
			c.faults = append(c.faults, &fault{name, text, "environment"})
			continue
		}
		found[name] = key
	}
	return found
}

// typed reads the text of a variable as what its key holds. What does not fit
// stays text, and is reported as such when it is decoded.
func typed(key, value string) any {
	t := leaves()[key]
	if t == nil {
		return value
	}
	switch t.Kind() {
	case reflect.Slice:
		if key == scopesKey { // a scope may have a colon, and never a space
			return strings.Fields(value)
		}
		return strings.Split(value, string(os.PathListSeparator))
	case reflect.Bool:
		if b, err := strconv.ParseBool(value); err == nil {
			return b
		}
	case reflect.Int, reflect.Int64:
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && t != reflect.TypeFor[time.Duration]() {
			return n
		}
	}
	return value
}

// decode fills the struct from the merged layers, as far as they fit.
func (c *loaded) decode() {
	err := c.merged.UnmarshalWithConf("", &c.config, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result: &c.config, TagName: "koanf",
		DecodeHook: mapstructure.ComposeDecodeHookFunc(strict, mapstructure.TextUnmarshallerHookFunc()),
	}})
	if err != nil {
		c.undecoded(err)
	}
	if c.merged.Exists(parkAfterKey) && c.merged.Get(parkAfterKey) == nil { // null, which is not nothing
		c.Background.ParkAfter = new(time.Duration)
	}
}

const (
	parkAfterKey = "background" + delim + "park_after"
	scopesKey    = "oauth" + delim + "scopes"
)
