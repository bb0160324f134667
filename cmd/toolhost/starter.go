package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/starter"
	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// starterPack is the kind of a setting that lists starter plugins, or is all or none.
var starterPack = kind{
	schema: anyOf(flag.schema, schema{"type": "array", "items": schema{"enum": starter.Names()}}),
	set:    setStarter, parse: parseStarter, show: showStarter,
}

func setStarter(to reflect.Value, value any) error {
	names := []string{}
	switch v := value.(type) {
	case bool:
		if v {
			names = starter.Names()
		}
	case []any:
		if err := listOf(oneOf(starter.Names()...), nil).set(reflect.ValueOf(&names).Elem(), v); err != nil {
			return err
		}
		names = slices.Compact(slices.Sorted(slices.Values(names)))
	default:
		return fmt.Errorf("expected true, false or a list of plugins of the starter pack, found %s", found(value))
	}
	to.Set(reflect.ValueOf(names))
	return nil
}

func parseStarter(text string) any {
	if on, err := strconv.ParseBool(text); err == nil {
		return on
	}
	return list.parse(text)
}

func showStarter(value any) any {
	switch names := value.([]string); {
	case slices.Equal(names, starter.Names()):
		return true
	case len(names) == 0:
		return false
	default:
		return names
	}
}

// starters returns the starter plugins to serve. If neither they nor a folder of plugins is
// configured, these are all of them.
func (c *config) starters() []string {
	if c.starter == nil && len(c.plugins) == 0 {
		return starter.Names()
	}
	return c.starter
}

// folders returns the folders of plugins: the configured ones, those for registries, and
// those that come with the program. A folder that is listed twice is read only once,
// because otherwise its plugins would collide with themselves.
func (c *loadedConfig) folders() (all []plugins.Folder) {
	written := c.writtenSources()
	for i, source := range c.plugins {
		ref, err := registry.ParseReference(source)
		switch {
		case slices.Contains(c.plugins[:i], source):
		case err == nil:
			all = append(all, c.pulled(source, ref))
		default:
			folder := plugins.Dir(source)
			folder.Source = written[i]
			all = append(all, folder)
		}
	}
	if c.exec {
		all = append(all, plugins.Folder{Path: "built-in", FS: script.FS, BuiltIn: true})
	}
	if names := c.starters(); len(names) > 0 {
		all = append(all, plugins.Folder{Path: "starter", FS: starter.FS(names), Pack: true})
	}
	return all
}

// pulled returns the folder for a reference to a registry, with the staged version, if
// there is one.
func (c *loadedConfig) pulled(source string, ref registry.Reference) plugins.Folder {
	if at, ok := c.staged[source]; ok {
		ref = at
	}
	folder := plugins.Single(source, c.store().FS(ref), c.store().Refs())
	folder.Source = source
	folder.Resolved = func() (string, error) {
		artifact, err := c.store().Find(ref)
		return strings.TrimPrefix(ref.At(artifact.Digest).String(), registry.Scheme), err
	}
	return folder
}

// writtenSources returns the entries in the setting plugins as they are written, for the
// lock.
func (c *loadedConfig) writtenSources() []string {
	sources := slices.Clone(c.plugins)
	if written := c.values["plugins"].written; len(written) == len(sources) {
		copy(sources, written)
	}
	for i, s := range sources {
		if !lock.IsOCI(s) {
			sources[i] = filepath.ToSlash(filepath.Clean(s))
		}
	}
	return sources
}

// folderNames returns the folders of plugins, as messages name them.
func (c *loadedConfig) folderNames() string {
	var names []string
	for _, f := range c.folders() {
		names = append(names, f.Path)
	}
	return strings.Join(names, ", ")
}

// announceStarter says which starter plugins gave way to other plugins, and which of them
// need grants.
func (a *app) announceStarter(s *server.Service) {
	for _, p := range s.Overridden() {
		a.announce(oneLine(p.File+": "+p.Error), "file", p.File)
	}

	var names []string
	for _, p := range s.Plugins() {
		if p.Pack && len(p.Missing) > 0 {
			names = append(names, p.Manifest.Name)
		}
	}
	if len(names) > 0 {
		a.announce("of the starter pack, "+strings.Join(names, ", ")+" can be granted what they need: toolhost list shows the lines", "plugins", names)
	}
}

// ownPlugins returns the plugins that are not in the starter pack.
func ownPlugins(all []*plugins.Plugin) []*plugins.Plugin {
	return slices.DeleteFunc(all, func(p *plugins.Plugin) bool { return p.Pack })
}
