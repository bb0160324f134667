// Package catalog holds the tools that can be called: those of the plugins and those of
// the program. It describes them for models, knows their grants and hints, and finds
// them.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
)

// Settings are the operator's settings for tools. They are attached to the registry of
// plugins, so that they change together with the plugins.
type Settings interface {
	// Rules returns the rules for the limits of calls.
	Rules() Rules
	// Listings says how models discover tools.
	Listings() Listings
	// Approval returns whether a person has to approve calls to a tool, as it is shown to
	// callers.
	Approval(t *Tool) abi.Approval
}

// A Catalog holds the tools of the plugins in a registry, and those of the program. It is
// safe for concurrent use.
type Catalog struct {
	registry *plugins.Registry
	program  *Program
	index    index
}

// New returns the catalog of the tools of a registry and of the program.
func New(registry *plugins.Registry, program *Program) *Catalog {
	return &Catalog{registry: registry, program: program}
}

// settings returns the settings in force.
func (c *Catalog) settings() Settings { return settingsIn(c.registry.View()) }

func settingsIn(view plugins.View) Settings { return view.Attached().(Settings) }

// Listings returns the listings in force.
func (c *Catalog) Listings() Listings { return c.settings().Listings() }

// Tools returns all tools, sorted by name.
func (c *Catalog) Tools() []*Tool {
	view, own := c.registry.View(), c.program.all()
	settings := settingsIn(view)
	all := make([]*Tool, 0, len(own)+8)
	for _, t := range own {
		all = append(all, ofProgram(t, settings))
	}
	for _, t := range view.Tools() {
		all = append(all, OfPlugin(t, settings))
	}
	if len(own) > 0 {
		slices.SortFunc(all, func(a, b *Tool) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

// Lookup returns the tool that agents know by this name. Its error matches
// [plugins.ErrNoTool], and may suggest a similar name: that of another tool, or one of others.
func (c *Catalog) Lookup(name string, others ...string) (*Tool, error) {
	view := c.registry.View()
	settings := settingsIn(view)
	if t := c.program.lookup(name); t != nil {
		return ofProgram(t, settings), nil
	}
	t, err := view.Lookup(name)
	if err != nil {
		for _, own := range c.program.all() {
			others = append(others, own.Tool.Name)
		}
		t, err = view.Lookup(name, others...)
	}
	if err != nil {
		return nil, err
	}
	return OfPlugin(t, settings), nil
}

// Find is like Lookup, but waits for plugins that have not been described since startup.
func (c *Catalog) Find(ctx context.Context, name string) (*Tool, error) {
	tool, err := c.Lookup(name)
	if errors.Is(err, plugins.ErrNoTool) && c.registry.Described(ctx) == nil {
		return c.Lookup(name)
	}
	return tool, err
}

// Register adds a tool to the program's own. The error says what is wrong with it, or which
// tool already has its name.
func (c *Catalog) Register(t gotool.Tool) error { return c.program.load(t, c.registry.Take) }

// Unregister removes one of the program's own tools. The error matches [plugins.ErrNoTool]
// if the program has no such tool.
func (c *Catalog) Unregister(name string) error {
	if !c.program.remove(name) {
		return fmt.Errorf("%w of the program: %.64q", plugins.ErrNoTool, name)
	}
	c.registry.Free(name)
	return nil
}
