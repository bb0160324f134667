package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/vault"
)

// delim separates the parts of a key inside koanf. Files and messages use a dot instead,
// which the names of plugins may contain.
const delim = "/"

func path(key string) string { return strings.ReplaceAll(key, ".", delim) }

// value is the value that one source gives to a key.
type value struct {
	setting
	raw     any      // value as in a file
	written []string // list as written in a file, before its paths were made relative to another folder
	source  string
	from    sourceKind
	err     error // reason why no setting accepts the value
}

type sourceKind int

const (
	userFile  sourceKind = iota // user's own configuration
	namedFile                   // file named by a flag or a variable, or trusted in the working directory
	byHand                      // variables and flags
)

// loadedConfig is a configuration, together with the values from which it was merged, and
// its problems.
type loadedConfig struct {
	config
	table    []setting
	merged   *koanf.Koanf       // raw values of all layers
	layers   []map[string]value // values by key; later layers win
	values   map[string]value   // merged values, each with the last source that set it
	problems problems
	ignored  []ignoredFile     // files of the working directory that were ignored
	files    []string          // files that were read; later ones win
	trusted  map[string][]byte // contents of the files that had to be trusted
	lockedAt string            // last file with a lock next to it
	vault    *vault.Vault      // opened secrets; see openSecrets
}

func newLoaded() *loadedConfig {
	c := &loadedConfig{config: newConfig(), merged: koanf.New(delim), values: map[string]value{}}
	c.table = settings(&c.config)
	return c
}

// loadConfig merges the user's own configuration, the named or trusted file, the environment
// and the flags. The error lists all problems. Even then, loadConfig returns the readable
// part.
func loadConfig(flags *pflag.FlagSet, environ []string) (*loadedConfig, error) {
	c := newLoaded()
	whole := c.addFiles(flags, environ)
	c.findLock()
	c.addVariables(environ)
	c.addFlags(flags)

	for _, p := range readValues(c.values) {
		c.problem(p.key, "%s", p.text)
	}
	check := configCheck{c}
	check.checkEgress()
	check.checkTrust()
	for name, secret := range c.secrets {
		if err := secret.Check(); err != nil {
			c.problem("secrets."+name, "%v", err)
		}
	}
	for name, g := range c.grants {
		c.server.Grants[name] = *g
		for _, p := range g.Check() {
			c.problem("grants."+name+"."+p.Key, "%s", p.Problem)
		}
	}

	if c.exec {
		c.runScripts()
	}

	if whole { // otherwise a missing setting may be in the unreadable file
		check.check()
	}
	return c, c.problems.usage()
}

// maxCA is the maximum size of a file of certificates, in bytes: four times the size of the
// system's own.
const maxCA = 1 << 20

// checkEgress reads the file of certificates, and reports its problems.
func (c configCheck) checkEgress() {
	e := &c.server.Host.Egress
	if err := e.Check(); err != nil {
		c.problem("egress.proxy", "%v", err)
	}
	if c.egressCA == "" {
		return
	}

	file, err := os.Open(c.egressCA)
	if err != nil {
		c.problem("egress.ca", "%v", err)
		return
	}
	defer file.Close()
	if e.CA, err = io.ReadAll(io.LimitReader(file, maxCA)); err == nil {
		err = host.Egress{CA: e.CA}.Check()
	}
	if err != nil {
		c.problem("egress.ca", "%v", err)
	}
}

// add merges a layer of values, which override the earlier ones.
func (c *loadedConfig) add(from sourceKind, layer map[string]value) {
	raw := map[string]any{}
	for key, v := range layer {
		v.from = from
		layer[key] = v
		raw[path(key)] = v.raw
	}

	_ = c.merged.Load(confmap.Provider(raw, delim), nil) // cannot fail for a map
	for key, v := range layer {
		v.raw = c.merged.Get(path(key))
		c.values[key] = v
	}
	c.layers = append(c.layers, layer)
}

// flagKeys maps keys to the flags that set them.
var flagKeys = map[string]string{
	"plugins": "plugins", "data": "data", "log-level": "log.level", "log-format": "log.format",
	"trusted-root": "trusted_root", "addr": "addr", "listen": "serve.listen", "engine": "engine",
}

// addFlags adds the values of those flags that are set.
func (c *loadedConfig) addFlags(flags *pflag.FlagSet) {
	layer := map[string]value{}
	flags.Visit(func(f *pflag.Flag) {
		i := slices.IndexFunc(c.table, func(s setting) bool { return s.key == flagKeys[f.Name] })
		if i < 0 {
			return
		}

		v := value{setting: c.table[i], raw: f.Value.String(), source: "--" + f.Name}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			v.raw = anyList(list.GetSlice())
		}
		layer[v.key] = v
	})
	c.add(byHand, layer)
}

// variable returns the name of the environment variable for a key.
func variable(key string) string {
	return "TOOLHOST_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// addVariables adds the values from the environment. Unknown variables are reported as
// problems.
func (c *loadedConfig) addVariables(environ []string) {
	known := map[string]setting{}
	for _, s := range c.table {
		if s.kind.each == nil {
			known[variable(s.key)] = s
		}
	}

	layer := map[string]value{}
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "TOOLHOST_") || name == "TOOLHOST_CONFIG" || text == "" {
			continue
		}

		s, ok := known[name]
		if !ok {
			problem := problem{name, "unknown variable", "environment"}
			if near := abi.Nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
				problem.text += ", did you mean " + near + "?"
			}
			c.problems = append(c.problems, problem)
			continue
		}

		v := value{setting: s, raw: text, source: name}
		if s.kind.parse != nil {
			v.raw = s.kind.parse(text)
		}
		layer[s.key] = v
	}
	c.add(byHand, layer)
}

// flatten adds the values in a mapping to values, with keys below at. For a group that has a
// mode, the mode alone is enough: kv: write, which manifests also use, means kv: {mode:
// write}.
func flatten(table []setting, raw any, at string, values map[string]value) {
	keys, ok := raw.(map[string]any)
	if !ok {
		i := slices.IndexFunc(table, func(s setting) bool { return s.key == "mode" })
		if _, isText := raw.(string); isText && i >= 0 && at != "" {
			mode := table[i]
			mode.key = ""
			values[at+".mode"] = value{setting: mode, raw: raw}
			return
		}
		if raw != nil {
			values[at] = value{raw: raw, err: errNoKeys(raw)}
		}
		return
	}

	below := map[string][]setting{} // by the first part of the key
	for _, s := range table {
		first, rest, _ := strings.Cut(s.key, ".")
		s.key = rest
		below[first] = append(below[first], s)
	}

	for name, raw := range keys {
		key := strings.TrimPrefix(at+"."+name, ".")
		group := below[name]
		if any := below["*"]; any != nil {
			group = any[0].kind.each(name)
		}

		switch {
		case group == nil:
			values[key] = value{raw: raw, err: unknownKey(table, at, name, slices.Sorted(maps.Keys(below)))}
		case group[0].key != "":
			flatten(group, raw, key, values)
		default:
			values[key] = value{setting: group[0], raw: raw}
		}
	}
}

// unknownKey returns the error about an unknown name below a key. It suggests a similar key,
// or a key with the same name in a group below.
func unknownKey(table []setting, at, name string, names []string) error {
	near := abi.Nearest(name, names)
	for _, s := range table {
		if near == "" && strings.HasSuffix(s.key, "."+name) {
			near = s.key
		}
	}
	if near != "" && near != "*" {
		return fmt.Errorf("unknown key, did you mean %s?", strings.TrimPrefix(at+"."+near, "."))
	}

	what := "unknown key"
	if plugin, ok := strings.CutPrefix(at, "grants."); ok && !strings.Contains(plugin, ".") {
		what = fmt.Sprintf("this version has no %s grant", name)
	}
	return fmt.Errorf("%s, expected one of %s", what, strings.Join(names, ", "))
}

// readValues sets the fields whose values fit. Null leaves the default in place, unless it
// has a meaning of its own.
func readValues(values map[string]value) (wrong problems) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := values[key]
		if v.err == nil {
			v.err = v.kind.set(reflect.ValueOf(v.to).Elem(), v.raw)
			if v.raw == nil {
				v.err = nil
			}
		}
		wrong.add(key, v.err)
	}
	return wrong
}

// problem is one problem in a configuration.
type problem struct {
	key    string // key as in a file, or the file's name if the file cannot be read
	text   string
	source string // source of the value: a file, a variable or a flag; empty if that is clear
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

// Error lists the problems, one per line.
func (p problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// add adds the problems that an error contains, with keys below at.
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

// usage returns the problems as a usage error, sorted by key.
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

// problem adds a problem. Each key gets only one, since others may be mere consequences.
func (c *loadedConfig) problem(key, format string, args ...any) {
	if !c.problems.has(key) {
		c.problems = append(c.problems, problem{key, fmt.Sprintf(format, args...), c.source(key)})
	}
}

// source returns the source of a key's value, or that of a key above or below it.
func (c *loadedConfig) source(key string) string {
	for at := key; at != ""; at = at[:max(0, strings.LastIndex(at, "."))] {
		if v, ok := c.values[at]; ok {
			return v.source
		}
	}
	for _, inside := range slices.Sorted(maps.Keys(c.values)) {
		if strings.HasPrefix(inside, key+".") {
			return c.values[inside].source
		}
	}
	return "not set"
}
