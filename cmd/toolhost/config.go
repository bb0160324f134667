package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
)

// delim separates the parts of a key inside koanf. In files and messages that is
// a dot, which names of plugins and variables may contain.
const delim = "/"

func path(key string) string { return strings.ReplaceAll(key, ".", delim) }

// layer is one source of values.
type layer struct {
	kind layerKind
	name func(key string) string // names the source of a key, for people
	k    *koanf.Koanf
}

type layerKind int

const (
	userFile  layerKind = iota // the user's own configuration
	namedFile                  // named by a flag or a variable, or trusted in the working directory
	byHand                     // variables and flags
)

// loaded is a configuration, the sources it was merged from, and its problems.
type loaded struct {
	config
	merged   *koanf.Koanf
	layers   []layer
	problems problems
	ignored  []ignoredFile // of the working directory
}

// loadConfig merges the user's own configuration, the file that is named or
// trusted, the environment and the flags. The error lists every problem; what
// could be read is returned with it.
func loadConfig(flags *pflag.FlagSet, environ []string) (*loaded, error) {
	c := &loaded{config: newConfig(), merged: koanf.New(delim)}

	whole := c.addFiles(flags, environ)
	c.addValues(variable, c.variables(environ))
	c.addValues(flagOf, flagValues(flags))

	for _, p := range readTable(settings(&c.config), c.merged.Raw(), "") {
		c.problem(p.key, "%s", p.text)
	}
	if whole { // otherwise what is missing may be in the file that cannot be read
		c.check()
	}
	return c, c.problems.usage()
}

func (c *loaded) add(l layer) {
	c.layers = append(c.layers, l)
	_ = c.merged.Merge(l.k) // fails only for strict instances
}

func (c *loaded) addValues(name func(key string) string, values map[string]any) {
	k := koanf.New(delim)
	_ = k.Load(confmap.Provider(values, delim), nil) // of a map nothing can fail
	c.add(layer{byHand, name, k})
}

// flagKeys are the flags that set a key.
var flagKeys = map[string]string{
	"plugins": "plugins", "data": "data", "log-level": "log.level", "log-format": "log.format",
	"addr": "addr", "listen": "serve.listen",
}

func flagOf(key string) string {
	for flag, k := range flagKeys {
		if k == key {
			return "--" + flag
		}
	}
	return ""
}

// flagValues are the values of the flags that are set.
func flagValues(flags *pflag.FlagSet) map[string]any {
	values := map[string]any{}
	flags.Visit(func(f *pflag.Flag) {
		key, ok := flagKeys[f.Name]
		switch list, many := f.Value.(pflag.SliceValue); {
		case !ok:
		case many:
			values[path(key)] = anyList(list.GetSlice())
		default:
			values[path(key)] = f.Value.String()
		}
	})
	return values
}

// variable is the name of a key in the environment.
func variable(key string) string {
	return "TOOLHOST_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// variables are the values of the environment. Unknown variables are problems.
func (c *loaded) variables(environ []string) map[string]any {
	known := map[string]setting{}
	for _, s := range settings(new(config)) {
		if s.key != "grants" {
			known[variable(s.key)] = s
		}
	}

	values := map[string]any{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "TOOLHOST_") || name == "TOOLHOST_CONFIG" || value == "" {
			continue
		}

		s, ok := known[name]
		switch {
		case !ok:
			text := "unknown variable"
			if near := abi.Nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
				text += ", did you mean " + near + "?"
			}
			c.problems = append(c.problems, problem{name, text, "environment"})
		case s.kind.parse != nil:
			values[path(s.key)] = s.kind.parse(value)
		default:
			values[path(s.key)] = value
		}
	}
	return values
}

// readTable reads the values of a mapping into the fields of a table, as far as
// they fit. Problems have their keys below at.
func readTable(table []setting, value any, at string) (wrong problems) {
	values, ok := value.(map[string]any)
	if !ok && value != nil {
		wrong.add(at, errNoKeys(value))
	}

	below := map[string][]setting{} // by the first part of the key
	for _, s := range table {
		first, rest, _ := strings.Cut(s.key, ".")
		s.key = rest
		below[first] = append(below[first], s)
	}

	for _, key := range slices.Sorted(maps.Keys(values)) {
		here := strings.TrimPrefix(at+"."+key, ".")
		switch group := below[key]; {
		case group == nil:
			wrong.add(here, unknownKey(key, slices.Sorted(maps.Keys(below))))
		case group[0].key != "":
			wrong = append(wrong, readTable(group, values[key], here)...)
		default:
			wrong.add(here, group[0].set(values[key]))
		}
	}
	return wrong
}

func unknownKey(key string, names []string) error {
	if near := abi.Nearest(key, names); near != "" {
		return fmt.Errorf("unknown key, did you mean %s?", near)
	}
	return fmt.Errorf("unknown key, expected one of %s", strings.Join(names, ", "))
}

// set reads a value into the field. Of a value with problems inside, it sets the
// rest. Null leaves the default, unless it has a meaning.
func (s setting) set(value any) error {
	v, err := s.kind.read(value)
	if inside := (problems)(nil); err != nil && !errors.As(err, &inside) {
		if value == nil {
			err = nil
		}
		return err
	}

	field := reflect.ValueOf(s.to).Elem()
	field.Set(reflect.ValueOf(v).Convert(field.Type()))
	return err
}

// problem is one thing that is wrong with a configuration.
type problem struct {
	key    string // as in a file; of a file that cannot be read, its name
	text   string
	source string // of the value: a file, a variable or a flag; empty if that is clear
}

func (p problem) String() string {
	text := p.text
	if p.key != "" {
		text = p.key + ": " + text
	}
	if p.source != "" {
		text += " (" + p.source + ")"
	}
	return text
}

type problems []problem

// Error lists the problems, a line each.
func (p problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// add adds the problems of an error, with keys below at.
func (p *problems) add(at string, err error) {
	var inside problems
	switch {
	case errors.As(err, &inside):
		for _, one := range inside {
			*p = append(*p, problem{key: strings.Trim(at+"."+one.key, "."), text: one.text})
		}
	case err != nil:
		*p = append(*p, problem{key: at, text: err.Error()})
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// usage is the error of a command, sorted by key.
func (p problems) usage() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b problem) int { return cmp.Compare(a.key, b.key) })
	return &usageError{err: p}
}

func (p problems) has(key string) bool {
	return slices.ContainsFunc(p, func(one problem) bool { return one.key == key })
}

// problem adds a problem. A key has one: others may only follow from it.
func (c *loaded) problem(key, format string, args ...any) {
	if !c.problems.has(key) {
		c.problems = append(c.problems, problem{key, fmt.Sprintf(format, args...), c.source(key)})
	}
}

// source is where the value of a key is from. Items of a list and keys inside a
// grant have the source of the list or grant.
func (c *loaded) source(key string) string {
	for at := key; at != ""; at = at[:max(0, strings.LastIndex(at, "."))] {
		_, group := c.merged.Get(path(at)).(map[string]any)
		if from := c.from(at); from != "" && (at == key || !group || strings.HasPrefix(at, "grants")) {
			return from
		}
	}
	return "not set"
}

// from is the last source that has a key; empty if none has.
func (c *loaded) from(key string) (name string) {
	for _, l := range c.layers {
		if l.k.Exists(path(key)) {
			name = l.name(key)
		}
	}
	return name
}
