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

// ErrNoTool is why a name was not found. The message suggests the nearest one.
var ErrNoTool = errors.New("no such tool")

// Folder is a folder of plugins.
type Folder struct {
	Path string // for messages
	FS   fs.FS

	dir string // of the system, to be watched; empty if it is none
}

// Dir is the folder of that path. It needs not be there yet. A folder, or a file
// in it, that others than this user or root can write to is refused: what they
// put there would have what the operator granted. So is a file that a link in the
// folder leads to, if others can replace it.
func Dir(path string) Folder {
	return Folder{Path: path, FS: dirFS{os.DirFS(path).(statDirFS), path}, dir: path}
}

// dirFS is os.DirFS, but that to open a pipe does not wait for its other end: one
// that took the place of a file a moment ago would hold up the reload, and the end
// of the process, for ever.
type dirFS struct {
	statDirFS
	path string
}

type statDirFS interface {
	fs.StatFS
	fs.ReadDirFS
}

// ReadDir reads the folder itself, unless others can put files into it.
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := owned.Behind(filepath.Join(d.path, filepath.FromSlash(name))); errors.Is(err, owned.ErrUnsafe) {
		return nil, err
	}
	return d.statDirFS.ReadDir(name)
}

// Open opens a file for reading, unless others can have written it.
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

// Config says where plugins are and what they are granted.
type Config struct {
	// Folders are read in order; what is in their subfolders is not.
	Folders []Folder
	// Grants are what the operator grants, by the plugin's name. A plugin that
	// is not named gets nothing.
	Grants map[string]Grant
	// PinDir has the pins of plugins, see [WritePin]. A plugin whose name is pinned
	// is loaded only if it is what the pin says, and any other is a Problem. Pins
	// are read whenever the folders are, and watched as they are. Nothing is
	// pinned if it is empty.
	PinDir string
	// Reserved are names of tools that no plugin may take: the host's own.
	Reserved []string
	// Interpret names plugins that are interpreted, and never compiled: see
	// host.CompileOptions. "*" stands for all.
	Interpret []string
	// DescribeTime is how long Open and Reload wait for plugins to describe
	// themselves, all of them together. What is not done by then is a Problem, and
	// [Registry.CompileAhead] and [Registry.Compile] take it up. 0 is
	// DefaultDescribeTime.
	DescribeTime time.Duration
	// CacheDir keeps what plugins without a sealed manifest described, and
	// digests. One that others can write to is a Problem, and is not used. Empty
	// asks them anew in each process.
	CacheDir string
}

// DefaultDescribeTime is the DescribeTime of a zero Config.
const DefaultDescribeTime = 30 * time.Second

// Registry knows the tools of a set of folders, as they were when it was opened
// or reloaded last. It is safe for concurrent use: what is asked while it reloads
// is answered of all of what there was, or of all of what there is.
type Registry struct {
	host    *host.Host
	cfg     Config
	digests *digests
	set     atomic.Pointer[set]

	turn   chan struct{}   // held by the one who reads the folders
	ctx    context.Context // done when nobody is to read them any more
	stop   context.CancelCauseFunc
	frozen sync.Once

	described described
	reloaded  chan struct{} // has something once there is a new set

	mu      sync.Mutex
	retired []*Plugin // that were still in use when they were
}

// set is what the folders had when they were read. It does not change.
type set struct {
	plugins  []*Plugin
	tools    map[string]*Tool
	names    []string // of the tools, sorted
	problems []Problem
	late     []*Plugin // that did not describe themselves in time; they have no manifest
}

// place is where a plugin is: which folder, and the name of its file.
type place struct {
	folder int
	name   string
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
	r := &Registry{host: h, cfg: cfg, turn: make(chan struct{}, 1), reloaded: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	read, err := r.read(ctx, &set{})
	if err != nil {
		return nil, err
	}
	r.set.Store(read)
	return r, nil
}

// read reads the folders. Plugins of an earlier set that have not changed are in
// the new one too.
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
	taken := collisions(found, r.cfg.Reserved)
	s := &set{tools: map[string]*Tool{}, problems: append(l.problems, taken...), late: l.late}
	refused := map[string]bool{}
	for _, t := range taken {
		refused[t.File] = true
	}
	for _, p := range found {
		if refused[p.File] {
			continue
		}
		s.plugins = append(s.plugins, p)
		for _, t := range p.Tools {
			s.tools[t.Name] = t
		}
	}

	s.names = slices.Sorted(maps.Keys(s.tools))
	s.problems = append(s.problems, unusedNames("grants.", slices.Sorted(maps.Keys(r.cfg.Grants)), found)...)
	s.problems = append(s.problems, unusedNames("interpret: ", r.cfg.Interpret, found)...)
	return s, nil
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
		if len(claims[claim]) > 1 {
			return fmt.Errorf("%s is also in %s: none of them is loaded, remove or rename all but one", claim, otherFiles(p, claims[claim]))
		}
	}
	return nil
}

// otherFiles names the files of others than p, a few of them: each of them has
// such a list.
func otherFiles(p *Plugin, all []*Plugin) string {
	const most = 3
	var files []string
	for _, other := range all {
		switch {
		case other == p:
		case len(files) == most:
			return fmt.Sprintf("%s, and %d more", strings.Join(files, ", "), len(all)-1-most)
		default:
			files = append(files, other.File)
		}
	}
	return strings.Join(files, ", ")
}

// unusedNames reports settings for plugins that are not there: most often a
// misspelled name.
func unusedNames(setting string, configured []string, found []*Plugin) []Problem {
	var names []string
	for _, p := range found {
		names = append(names, p.Manifest.Name)
	}

	var problems []Problem
	for _, name := range configured {
		if name == allPlugins || slices.Contains(names, name) || len(found) == 0 {
			continue
		}
		err := errors.New("there is no such plugin")
		if near := abi.Nearest(name, names); near != "" {
			err = fmt.Errorf("there is no such plugin, did you mean %q?", near)
		}
		problems = append(problems, Problem{setting + name, err})
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

// Problems returns what was not loaded, in the order it was met, and then what
// could not be compiled when it was last tried, by this process or an earlier
// one.
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

// Lookup returns the tool an agent knows by that name. Its error matches
// [ErrNoTool] and suggests what may have been meant.
func (r *Registry) Lookup(name string) (*Tool, error) {
	s := r.set.Load()
	if t, ok := s.tools[name]; ok {
		return t, nil
	}
	if near := abi.Nearest(name, s.names); near != "" {
		return nil, fmt.Errorf("%w: %.64q, did you mean %q?", ErrNoTool, name, near)
	}
	return nil, fmt.Errorf("%w: %.64q", ErrNoTool, name)
}

// Close ends a reload that runs and frees the compiled plugins. No call may be
// running or start after it.
func (r *Registry) Close(ctx context.Context) error {
	r.Freeze()
	var errs []error
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range slices.Concat(r.set.Load().plugins, r.retired) {
		errs = append(errs, p.close(ctx))
	}
	return errors.Join(errs...)
}

// byName orders files so that problems and plugins come in a fixed order.
func byName(a, b fs.DirEntry) int { return byFile(a.Name(), b.Name()) }

func byFile(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) }
