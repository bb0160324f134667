// Package plugins finds plugin files in folders, reads their manifests, and
// says which plugin has a tool. What cannot be loaded is a problem that names
// the file and the reason; everything else loads.
package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// ErrNoTool is why a name was not found. The message suggests the nearest one.
var ErrNoTool = errors.New("no such tool")

// Folder is a folder of plugins.
type Folder struct {
	Path string // for messages
	FS   fs.FS
}

// Dir is the folder of that path.
func Dir(path string) Folder { return Folder{Path: path, FS: os.DirFS(path)} }

// Config says where plugins are and what they are granted.
type Config struct {
	// Folders are read in order; what is in their subfolders is not.
	Folders []Folder
	// Grants are what the operator grants, by the plugin's name. A plugin that
	// is not named gets nothing.
	Grants map[string]Grant
	// Reserved are names of tools that no plugin may take: the host's own.
	Reserved []string
	// CacheDir keeps what plugins without a sealed manifest described, and
	// digests. One that others can write to is a Problem, and is not used. Empty
	// asks them anew in each process.
	CacheDir string
}

// Registry knows the tools of a set of folders. But for what [Registry.Problems]
// says it does not change once it is open. It is safe for concurrent use.
type Registry struct {
	plugins  []*Plugin
	tools    map[string]*Tool
	names    []string // of the tools, sorted
	problems []Problem
}

// Problem is a file that was not loaded, or not as it seems.
type Problem struct {
	File string `json:"file"`
	Err  error  `json:"-"`
}

func (p Problem) String() string { return p.File + ": " + p.Err.Error() }

// Open reads the folders. It runs code of a plugin only if neither a custom
// section nor a sidecar has its manifest. It fails only when ctx is done;
// everything else is among Problems.
func Open(ctx context.Context, h *host.Host, cfg Config) (*Registry, error) {
	r := &Registry{tools: map[string]*Tool{}}
	l := newLoader(h, cfg)
	var found []*Plugin
	for _, folder := range cfg.Folders {
		found = append(found, l.folder(ctx, folder)...)
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
	}
	l.digests.save()
	taken := collisions(found, cfg.Reserved)
	r.problems = append(l.problems, taken...)
	for _, p := range found {
		if slices.ContainsFunc(taken, func(t Problem) bool { return t.File == p.File }) {
			_ = p.close(ctx)
			continue
		}
		r.plugins = append(r.plugins, p)
		for _, t := range p.Tools {
			r.tools[t.Name] = t
		}
	}
	r.names = slices.Sorted(maps.Keys(r.tools))
	r.problems = append(r.problems, unusedGrants(cfg.Grants, found)...)
	return r, nil
}

// collisions finds plugins whose name or whose tools' names are taken, by
// another plugin or by the host. None of them is loaded: which one an agent
// reaches must not depend on the order of files.
func collisions(found []*Plugin, reserved []string) []Problem {
	claims := map[string][]*Plugin{} // by what is claimed
	for _, p := range found {
		for _, claim := range p.claims() {
			claims[claim] = append(claims[claim], p)
		}
	}
	var problems []Problem
	for _, p := range found {
		if err := taken(p, claims, reserved); err != nil {
			problems = append(problems, Problem{p.File, err})
		}
	}
	return problems
}

// claims are the names that are to be the plugin's alone.
func (p *Plugin) claims() []string {
	claims := []string{fmt.Sprintf("the plugin %q", p.Manifest.Name)}
	for _, t := range p.Tools {
		claims = append(claims, fmt.Sprintf("the tool %q", t.Name))
	}
	return claims
}

// taken reports the first name of a plugin that is not its alone.
func taken(p *Plugin, claims map[string][]*Plugin, reserved []string) error {
	for _, t := range p.Tools {
		if slices.Contains(reserved, t.Name) {
			return fmt.Errorf("the tool %q is one of the host's own: it is not loaded, rename it", t.Name)
		}
	}
	for _, claim := range p.claims() {
		var others []string
		for _, other := range claims[claim] {
			if other != p {
				others = append(others, other.File)
			}
		}
		if others != nil {
			return fmt.Errorf("%s is also in %s: none of them is loaded, remove or rename all but one", claim, strings.Join(others, ", "))
		}
	}
	return nil
}

// unusedGrants reports grants for plugins that are not there: most often a
// misspelled name.
func unusedGrants(grants map[string]Grant, found []*Plugin) []Problem {
	var names []string
	for _, p := range found {
		names = append(names, p.Manifest.Name)
	}
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		if slices.Contains(names, name) || len(found) == 0 {
			continue
		}
		err := errors.New("there is no such plugin")
		if near := abi.Nearest(name, names); near != "" {
			err = fmt.Errorf("there is no such plugin, did you mean %q?", near)
		}
		problems = append(problems, Problem{"grants." + name, err})
	}
	return problems
}

// Plugins returns the loaded plugins in the order of their folders and files.
func (r *Registry) Plugins() []*Plugin { return slices.Clone(r.plugins) }

// Tools returns all tools, sorted by name.
func (r *Registry) Tools() []*Tool {
	tools := make([]*Tool, len(r.names))
	for i, name := range r.names {
		tools[i] = r.tools[name]
	}
	return tools
}

// Problems returns what was not loaded, in the order it was met, and then what
// could not be compiled when it was last tried.
func (r *Registry) Problems() []Problem {
	problems := slices.Clone(r.problems)
	for _, p := range r.plugins {
		if err := p.failure(); err != nil {
			problems = append(problems, Problem{p.File, err})
		}
	}
	return problems
}

// Lookup returns the tool an agent knows by that name. Its error matches
// [ErrNoTool] and suggests what may have been meant.
func (r *Registry) Lookup(name string) (*Tool, error) {
	if t, ok := r.tools[name]; ok {
		return t, nil
	}
	if near := abi.Nearest(name, r.names); near != "" {
		return nil, fmt.Errorf("%w: %.64q, did you mean %q?", ErrNoTool, name, near)
	}
	return nil, fmt.Errorf("%w: %.64q", ErrNoTool, name)
}

// Close frees the compiled plugins. No call may be running or start after it.
func (r *Registry) Close(ctx context.Context) error {
	var errs []error
	for _, p := range r.plugins {
		errs = append(errs, p.close(ctx))
	}
	return errors.Join(errs...)
}

// byName orders files so that problems and plugins come in a fixed order.
func byName(a, b fs.DirEntry) int {
	return cmp.Compare(strings.ToLower(a.Name()), strings.ToLower(b.Name()))
}
