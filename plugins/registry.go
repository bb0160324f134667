// Package plugins finds plugin files in folders, reads their manifests and looks up
// tools by name. A file that cannot be loaded is a problem that names the file and the
// reason; the others load.
package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
)

// ErrNoTool says that there is no tool of a name. The message suggests a similar one.
var ErrNoTool = errors.New("no such tool")

// Folder is a folder of plugins.
type Folder struct {
	Path string // for messages
	FS   fs.FS

	dir string // its path on disk, to watch it; empty for other file systems
}

// Dir returns the folder of that path, which need not exist yet. A folder or file that
// others than this user and root can write to is refused, because their plugins would
// get what the operator granted. So is the target of a link that others can replace.
func Dir(path string) Folder {
	return Folder{Path: path, FS: dirFS{os.DirFS(path).(statDirFS), path}, dir: path}
}

// dirFS is os.DirFS that does not block when it opens a pipe: one that has just
// replaced a file would hold up the reload, and the end of the process, forever.
type dirFS struct {
	statDirFS
	path string
}

type statDirFS interface {
	fs.StatFS
	fs.ReadDirFS
}

// ReadDir reads a folder, unless others can write to it.
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := owned.Behind(filepath.Join(d.path, filepath.FromSlash(name))); errors.Is(err, owned.ErrUnsafe) {
		return nil, err
	}
	return d.statDirFS.ReadDir(name)
}

// Open opens a file for reading, unless others can write to it.
func (d dirFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := os.OpenFile(filepath.Join(d.path, filepath.FromSlash(name)), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil { // not a nil *os.File
		return nil, err
	}
	if err := owned.Opened(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Config configures a [Registry].
type Config struct {
	// Folders are read in order, without their subfolders.
	Folders []Folder
	// Grants are what the operator grants, by the plugin's name. Plugins without an
	// entry get nothing.
	Grants map[string]Grant
	// PinDir is the folder of pins, see [WritePin]. A plugin whose name is pinned is
	// loaded only if it matches the pin, and is a Problem otherwise. Pins are read
	// and watched together with the folders. Empty pins nothing.
	PinDir string
	// Reserved are the names of the host's own tools, which no plugin may use.
	Reserved []string
	// Taken are the names of tools that the program itself has, which no plugin may use:
	// see [Registry.Take].
	Taken []string
	// Interpret names plugins that are interpreted instead of compiled, see
	// host.CompileOptions. "*" stands for all plugins.
	Interpret []string
	// DescribeTime is how long Open and Reload wait for all plugins to describe
	// themselves. A plugin that is not done by then is a Problem;
	// [Registry.CompileAhead] and [Registry.Compile] try it again. 0 is
	// DefaultDescribeTime.
	DescribeTime time.Duration
	// CacheDir caches digests and the manifests that plugins described. A folder that
	// others can write to is a Problem and is not used. Empty caches nothing.
	CacheDir string
}

// DefaultDescribeTime is the DescribeTime of a zero Config.
const DefaultDescribeTime = 30 * time.Second

// Registry has the plugins and tools of a set of folders, as of the last reload. It is
// safe for concurrent use. During a reload every method sees either all of the old set
// or all of the new one.
type Registry struct {
	host    *host.Host
	cfg     Config
	digests *digests
	set     atomic.Pointer[set]

	mu    sync.Mutex // held while a set replaces another
	taken map[string]bool

	reading chan struct{}   // a mutex: one reload at a time
	ctx     context.Context // done once reloading has ended for good
	stop    context.CancelCauseFunc
	frozen  sync.Once

	reloaded     chan struct{} // signals a new set
	compilations sync.WaitGroup
}

// set is the content of the folders at one reading. It does not change.
type set struct {
	plugins  []*Plugin
	tools    map[string]*Tool
	names    []string // of the tools, sorted
	problems []Problem
	unknown  []Problem // those of problems that are about settings for unknown plugins
	late     []*Plugin // not described in time, or in vain; they have no manifest
}

// place is the folder and file name of a plugin.
type place struct {
	folder int
	name   string
}

// Problem is a file that was not loaded, or something worth knowing about one that was.
type Problem struct {
	File string `json:"file"`
	Err  error  `json:"-"`
}

func (p Problem) String() string { return p.File + ": " + p.Err.Error() }

// Open reads the folders. It runs code of a plugin only if its manifest is neither in a
// custom section nor in a sidecar. It fails only when ctx is done; see
// [Registry.Problems] for everything else.
func Open(ctx context.Context, h *host.Host, cfg Config) (*Registry, error) {
	r := &Registry{host: h, cfg: cfg, reading: make(chan struct{}, 1), reloaded: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	r.taken = map[string]bool{}
	for _, name := range cfg.Taken {
		r.taken[name] = true
	}
	if _, err := r.read(ctx, &set{}); err != nil {
		return nil, err
	}
	return r, nil
}

// read reads the folders, and makes what it has found the set. Unchanged plugins of the
// earlier set are reused.
func (r *Registry) read(ctx context.Context, before *set) (*set, error) {
	l := r.loader(before)
	var cancel context.CancelFunc
	l.describing, cancel = context.WithTimeoutCause(ctx, cmp.Or(r.cfg.DescribeTime, DefaultDescribeTime), errLate)
	defer cancel()

	var found []*Plugin
	for i, folder := range r.cfg.Folders {
		found = append(found, l.folder(ctx, i, folder)...)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}

	l.digests.save()
	found = l.giveWay(found)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &set{tools: map[string]*Tool{}, problems: l.problems, late: l.late}
	claims := claimed(found)
	for _, p := range found {
		if err := p.collision(claims, r.cfg.Reserved, r.taken); err != nil {
			s.problems = append(s.problems, Problem{p.File, err})
			continue
		}
		s.plugins = append(s.plugins, p)
		for _, t := range p.Tools {
			s.tools[t.Name] = t
		}
	}

	s.names = slices.Sorted(maps.Keys(s.tools))
	s.unknown = unusedNames("grants.", slices.Sorted(maps.Keys(r.cfg.Grants)), found)
	s.unknown = append(s.unknown, unusedNames("interpret: ", r.cfg.Interpret, found)...)
	s.problems = append(s.problems, s.unknown...)
	r.set.Store(s)
	return s, nil
}

// Take keeps plugins from having a tool of that name, because the program itself has
// one. From the next reload on such a plugin is a problem. If a loaded plugin has one,
// Take returns an error that names its file.
func (r *Registry) Take(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.set.Load().tools[name]; t != nil {
		return fmt.Errorf("the plugin %s (%s) has a tool %q: rename one of the two", t.Plugin.Manifest.Name, t.Plugin.File, name)
	}
	r.taken[name] = true
	return nil
}

// Free ends what [Registry.Take] began. A plugin with that name is loaded by the next
// reload.
func (r *Registry) Free(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, name)
}

// claimed returns the plugins by the names that must be unique.
func claimed(found []*Plugin) map[string][]*Plugin {
	claims := map[string][]*Plugin{}
	for _, p := range found {
		for _, claim := range p.claims() {
			claims[claim] = append(claims[claim], p)
		}
	}
	return claims
}

// claims are the names that must be unique.
func (p *Plugin) claims() []string {
	claims := []string{fmt.Sprintf("the plugin %q", p.Manifest.Name)}
	for _, t := range p.Tools {
		claims = append(claims, fmt.Sprintf("the tool %q", t.Name))
	}
	return claims
}

// collision returns an error if the name of the plugin or a tool is also used by another
// plugin or the host. None of them is loaded: which one an agent reaches must not depend
// on the order of files.
func (p *Plugin) collision(claims map[string][]*Plugin, reserved []string, taken map[string]bool) error {
	for _, t := range p.Tools {
		if slices.Contains(reserved, t.Name) {
			return fmt.Errorf("the tool %q is reserved for the host: rename it", t.Name)
		}
		if taken[t.Name] {
			return fmt.Errorf("the program has a tool %q of its own: rename one of the two", t.Name)
		}
	}

	for _, claim := range p.claims() {
		var others []string
		for _, other := range claims[claim] {
			if other != p {
				others = append(others, other.File)
			}
		}
		if len(others) > 3 {
			others = append(others[:3], fmt.Sprintf("and %d more", len(others)-3))
		}
		if others != nil {
			return fmt.Errorf("%s is also in %s: none of them is loaded: rename or remove all but one", claim, strings.Join(others, ", "))
		}
	}
	return nil
}

// unusedNames reports settings for unknown plugins, which are most often misspelled.
func unusedNames(setting string, configured []string, found []*Plugin) []Problem {
	var names []string
	for _, p := range found {
		names = append(names, p.Manifest.Name)
	}

	var problems []Problem
	for _, name := range configured {
		if name != allPlugins && !slices.Contains(names, name) && len(found) > 0 {
			problems = append(problems, Problem{setting + name, errors.New("there is no such plugin" + didYouMean(name, names))})
		}
	}
	return problems
}

// allPlugins stands for the names of all plugins.
const allPlugins = "*"

// Plugins returns the loaded plugins in the order of their folders and files.
func (r *Registry) Plugins() []*Plugin { return slices.Clone(r.set.Load().plugins) }

// Tools returns all tools, sorted by name.
func (r *Registry) Tools() []*Tool {
	s := r.set.Load()
	tools := make([]*Tool, len(s.names))
	for i, name := range s.names {
		tools[i] = s.tools[name]
	}
	return tools
}

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

// Unknown returns the problems that are about settings for plugins that do not exist. The
// File of each is the setting, such as grants.NAME.
func (r *Registry) Unknown() []Problem { return slices.Clone(r.set.Load().unknown) }

// Lookup returns the tool of that name, as agents see it. The error matches
// [ErrNoTool] and suggests a similar name, one of others included: those are the names
// of tools that are not of plugins.
func (r *Registry) Lookup(name string, others ...string) (*Tool, error) {
	s := r.set.Load()
	if t, ok := s.tools[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %.64q%s", ErrNoTool, name, didYouMean(name, slices.Concat(s.names, others)))
}

// didYouMean is the end of a message about an unknown name.
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
	for _, p := range r.set.Load().plugins {
		errs = append(errs, p.retire(ctx, host.ErrClosed))
	}
	r.compilations.Wait()
	return errors.Join(errs...)
}
