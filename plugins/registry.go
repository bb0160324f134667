// Package plugins finds plugin files in folders, reads their manifests and looks up
// tools by name. A file that cannot be loaded is a problem that names the file and the
// reason; the others load.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/lock"
)

// ErrNoTool means that there is no tool with that name. The message suggests a similar
// one.
var ErrNoTool = errors.New("no such tool")

// Config configures a [Registry].
type Config struct {
	// Folders are read in order, without their subfolders.
	Folders []Folder
	// Grants holds the operator's grants, by plugin name. A plugin without an entry
	// gets none.
	Grants map[string]Grant
	// Verifier decides on signatures. A plugin that it refuses is a Problem. If
	// nil, signatures are ignored.
	Verifier Verifier
	// Lock records which plugins the operator has accepted. The zero Lock accepts
	// everything.
	Lock Lock
	// Reserved lists the names of the host's own tools, which no plugin may use.
	Reserved []string
	// Taken lists the names of the program's own tools, which no plugin may use: see
	// [Registry.Take].
	Taken []string
	// Interpret names plugins that are interpreted instead of compiled, see
	// host.CompileOptions. "*" means all plugins.
	Interpret []string
	// DescribeLater keeps Open and Reload from waiting for plugins without a manifest in
	// a custom section or a sidecar, which have to be compiled to describe themselves.
	// Such a plugin is a Problem until [Registry.CompileAhead] or
	// [Registry.DescribeAhead] has described it. Meanwhile the earlier version of its
	// file stays in use.
	DescribeLater bool
	// CacheDir is the folder for caching digests and the manifests of plugins that
	// describe themselves. A folder that others can write to is a Problem and is not
	// used. If empty, nothing is cached.
	CacheDir string
	// Attached is a value that belongs to the program, such as its own settings. It is
	// replaced together with the plugins: see [View].
	Attached any
}

// Registry holds the plugins and tools of a set of folders, as of the last reload. It
// is safe for concurrent use. During a reload every method sees either the whole old
// set or the whole new one.
type Registry struct {
	host    *host.Host
	cfg     Config
	digests *digests
	set     atomic.Pointer[set]

	mu    sync.Mutex // held while the set is replaced
	taken map[string]bool

	reading chan struct{}   // a mutex: one reload at a time
	folders int             // number of folders numbered so far; used by reloads only
	ctx     context.Context // done once the registry no longer reloads
	stop    context.CancelCauseFunc
	frozen  sync.Once

	reloaded     chan struct{} // signals a new set
	described    chan struct{} // closed when the initial plugins have been described
	compilations sync.WaitGroup
	versions     versions
}

// set is the content of the folders at one reading. It does not change.
type set struct {
	cfg         Config     // configuration of this reading
	folders     []int      // numbers of cfg.Folders: see place
	lock        *lock.File // lock in force; nil accepts everything
	plugins     []*Plugin
	tools       map[string]*Tool
	names       []string // names of the tools, sorted
	problems    []Problem
	overridden  []Problem // plugins of packs that give way
	unknown     []Problem // problems about settings for unknown plugins
	undescribed []*Plugin // plugins not loaded, because they are not described yet or could not be
}

// place is the folder and file name of a plugin. The folder is identified by a number
// that it keeps when others are added, removed or moved.
type place struct {
	folder int
	name   string
}

// Problem reports that a file was not loaded, or what is wrong with a loaded one.
type Problem struct {
	File string `json:"file"`
	Err  error  `json:"-"`
}

func (p Problem) String() string { return p.File + ": " + p.Err.Error() }

// Open reads the folders. A plugin without a manifest in a custom section or a sidecar is
// compiled to describe itself, which takes seconds for one written in Go. The result is
// cached by digest. Open fails only when ctx is done; see [Registry.Problems] for
// everything else.
func Open(ctx context.Context, h *host.Host, cfg Config) (*Registry, error) {
	r := &Registry{host: h, cfg: cfg, reading: make(chan struct{}, 1), reloaded: make(chan struct{}, 1), described: make(chan struct{})}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	r.taken = map[string]bool{}
	for _, name := range cfg.Taken {
		r.taken[name] = true
	}
	if _, err := r.read(ctx, &set{}, cfg); err != nil {
		return nil, err
	}
	return r, nil
}

// read reads the folders of cfg, and returns the new set. It reuses unchanged plugins of
// the earlier set.
func (r *Registry) read(ctx context.Context, before *set, cfg Config) (*set, error) {
	l, folders := r.loader(ctx, before, cfg), r.number(before, cfg.Folders)
	earlier := before.lock
	if cfg.Lock.File != before.cfg.Lock.File {
		earlier = nil // it is not about this file
	}
	accepted, err := cfg.Lock.readAfter(earlier)
	if err != nil {
		l.problem(cfg.Lock.File, err)
	}
	l.lock = accepted

	var found []*Plugin
	for i, folder := range cfg.Folders {
		if err != nil && accepted == nil {
			break // without the lock, nothing may be loaded
		}
		found = append(found, l.folder(ctx, folders[i], folder)...)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}

	l.digests.save()
	found, overridden := override(l.giveWay(found))
	found = l.dropRefused(found)
	l.missing(cfg.Folders, found)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &set{cfg: cfg, folders: folders, lock: accepted, tools: map[string]*Tool{}, problems: l.problems, overridden: overridden, undescribed: l.undescribed}
	claims := claimed(found)
	for _, p := range found {
		if err := p.collision(claims, cfg.Reserved, r.taken); err != nil {
			s.problems = append(s.problems, Problem{p.File, err})
			continue
		}
		s.plugins = append(s.plugins, p)
		for _, t := range p.Tools {
			s.tools[t.Name] = t
		}
	}

	s.names = slices.Sorted(maps.Keys(s.tools))
	if !slices.ContainsFunc(cfg.Folders, l.unread) { // it may have the others
		s.unknown = unusedNames("grants.", slices.Sorted(maps.Keys(cfg.Grants)), found, l.problems)
		s.unknown = append(s.unknown, unusedNames("interpret: ", cfg.Interpret, found, l.problems)...)
	}
	s.problems = append(s.problems, s.unknown...)
	r.set.Store(s)
	return s, nil
}

// Take reserves a tool name for the program itself. From the next reload on, a
// plugin with a tool of that name is a problem. If a loaded plugin has one, Take
// returns an error that names its file.
func (r *Registry) Take(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.set.Load().tools[name]; t != nil {
		return fmt.Errorf("the plugin %s (%s) has a tool %q: rename one of the two", t.Plugin.Manifest.Name, t.Plugin.File, name)
	}
	r.taken[name] = true
	return nil
}

// Free ends a reservation made by [Registry.Take]. From the next reload on, plugins may
// use the name again.
func (r *Registry) Free(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, name)
}

// unusedNames reports settings for unknown plugins, which are usually misspelled. A plugin
// whose file could not be loaded is known by the name of the file.
func unusedNames(setting string, configured []string, found []*Plugin, failed []Problem) []Problem {
	var names []string
	for _, p := range found {
		names = append(names, p.Manifest.Name)
	}
	isFile := func(name string) bool {
		return slices.ContainsFunc(failed, func(p Problem) bool { return path.Base(p.File) == name+".wasm" })
	}

	var problems []Problem
	for _, name := range configured {
		if name != allPlugins && !slices.Contains(names, name) && !isFile(name) && len(found) > 0 {
			problems = append(problems, Problem{setting + name, errors.New("there is no such plugin" + didYouMean(name, names))})
		}
	}
	return problems
}

// allPlugins matches the names of all plugins.
const allPlugins = "*"

// Plugins returns the loaded plugins in the order of their folders and files.
func (r *Registry) Plugins() []*Plugin { return slices.Clone(r.set.Load().plugins) }

// Tools returns all tools, sorted by name.
func (r *Registry) Tools() []*Tool { return r.View().Tools() }

// Problems returns the problems of loading in the order of folders and files, then
// those of the last attempts to compile, by this process or an earlier one.
func (r *Registry) Problems() []Problem {
	s := r.set.Load()
	problems := slices.Clone(s.problems)
	for _, p := range s.plugins {
		if err := p.failure(); err != nil {
			problems = append(problems, Problem{p.File, err})
		}
	}
	return problems
}

// Overridden returns the plugins of packs that are not loaded because they give way to
// others, see [Folder]. They do not count as problems.
func (r *Registry) Overridden() []Problem { return slices.Clone(r.set.Load().overridden) }

// Unknown returns the problems about settings for plugins that do not exist. The File of each
// problem is the setting, such as grants.NAME.
func (r *Registry) Unknown() []Problem { return slices.Clone(r.set.Load().unknown) }

// Lookup returns the tool that agents know by that name. The error matches [ErrNoTool] and
// suggests a similar name. It may also suggest the names in others, which are tools
// outside of plugins.
func (r *Registry) Lookup(name string, others ...string) (*Tool, error) {
	return r.View().Lookup(name, others...)
}

// didYouMean returns the end of a message about an unknown name.
func didYouMean(name string, known []string) string {
	near := abi.Nearest(name, known)
	if near == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", near)
}

// Close stops a running reload and frees the compiled plugins. No call may run during
// or after it.
func (r *Registry) Close(ctx context.Context) error {
	r.Freeze()
	var errs []error
	for _, p := range append(r.Plugins(), r.versions.all()...) {
		errs = append(errs, p.retire(ctx, host.ErrClosed))
	}
	r.compilations.Wait()
	return errors.Join(errs...)
}
