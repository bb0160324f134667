// Package codecache keeps compiled code in a folder that processes share, and
// remembers which modules cannot be compiled.
//
// wazero has such a folder too, but it trusts what it finds there: where functions
// begin has no checksum, a file that was cut off is an error for ever, and one that
// cannot be written fails the compilation. So wazero gets a staging directory of
// this process only, where code is linked once it was checked, for a runtime that
// loads and never compiles. What is missing is compiled by a runtime of its own.
package codecache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/snapshot"
)

// Runtime is a runtime with all that plugins import. It closes its cache.
type Runtime interface {
	wazero.Runtime
	Close(context.Context) error
}

// Config configures a Cache.
type Config struct {
	Dir  string // shared; empty keeps no code beyond this process
	Size int64  // bytes in Dir
	Log  *slog.Logger
	// Runtime returns a runtime with a cache, which it closes even if it fails.
	Runtime func(context.Context, wazero.CompilationCache) (Runtime, error)
}

// Cache is a store of compiled code. Its methods may be called for nil, which
// keeps nothing. It is safe for concurrent use.
type Cache struct {
	Config
	folder  *folder  // nil keeps no code beyond this process
	above   []string // folders of this user's that the staging directory is in
	staging staging

	once   sync.Once
	loader Runtime // loads what is staged; nil if there is none
	where  string  // it looks for files there

	loading sync.Map     // *sync.Mutex by file that is staged
	pause   atomic.Int64 // nothing is stored until then, in Unix nanoseconds
}

// Loaded is a module as the runtime has it.
type Loaded struct {
	*compiler.Program // without Wasm
	Compiled          wazero.CompiledModule
	Runtime           wazero.Runtime
}

// ErrUnsafe: the folder for compiled code, or a folder in it, belongs to another
// user, can be written by others, who could have this process execute what they
// like, or is a link.
var ErrUnsafe = owned.ErrUnsafe

// Open opens a cache. A folder that cannot be used is logged, costs time only, and
// gives nil. One that must not be used is an error that matches ErrUnsafe, and a
// file in its place is one too: the configuration names the wrong thing.
func Open(cfg Config) (*Cache, error) {
	f, err := openFolder(cfg.Dir, cfg.Size)
	switch {
	case errors.Is(err, ErrUnsafe), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("compile cache: %w", err)
	case err != nil:
		cfg.Log.Warn("compiled code is not kept", "reason", err)
		return nil, nil
	}

	in := filepath.Join(cfg.Dir, stagingFolder)
	c := &Cache{Config: cfg, folder: f, above: []string{cfg.Dir, in}}
	if err = ownFolders(in); err == nil {
		c.staging, err = newStaging(in)
	}
	if errors.Is(err, ErrUnsafe) {
		return nil, fmt.Errorf("compile cache: %w", err)
	}
	if err != nil {
		cfg.Log.Warn("compiled code is only read", "reason", err)
		c.pause.Store(1<<63 - 1)
		c.above = nil
		c.staging, err = tempStaging()
	}

	if err != nil {
		cfg.Log.Warn("compiled code is not kept", "reason", err)
		return nil, nil
	}
	removeAbandoned(in)
	return c, nil
}

// Private returns a cache without a folder, for what a child process makes: that
// has to be somewhere until it is loaded. It is nil, and that is logged, if there
// is no place for it.
func Private(cfg Config) *Cache {
	s, err := tempStaging()
	if err != nil {
		cfg.Log.Error("no folder to compile in: plugins cannot be compiled", "reason", err)
		return nil
	}
	return &Cache{Config: cfg, staging: s}
}

// Keeps reports whether compiled code outlives this process.
func (c *Cache) Keeps() bool { return c != nil && c.folder != nil }

// Paused reports whether nothing is stored for now: the last time has failed.
func (c *Cache) Paused() bool { return !c.Keeps() || time.Now().UnixNano() < c.pause.Load() }

// Failed notes that something could not be stored.
func (c *Cache) Failed() { c.pause.Store(time.Now().Add(storePause).UnixNano()) }

// Close removes the staging directory, and closes what was loaded.
func (c *Cache) Close(ctx context.Context) (err error) {
	if c == nil {
		return nil
	}
	if c.loader != nil {
		err = c.loader.Close(ctx)
	}
	return errors.Join(err, c.staging.close())
}

// Ready makes the runtime that loads, the first time. It is false if there is none.
func (c *Cache) Ready(ctx context.Context) bool {
	if c == nil {
		return false
	}
	c.once.Do(func() {
		cache, where, err := compiler.FileCache(filepath.Join(c.staging.dir, "code"))
		if err == nil {
			c.loader, err = c.Runtime(context.WithoutCancel(ctx), cache)
		}
		if err != nil {
			c.Log.Warn("compiled code is not kept", "reason", err)
			c.loader = nil
		}
		c.where = where
	})

	return c.loader != nil
}

const (
	// format changes whenever entries are laid out differently.
	format = 3
	// keyLen is the length of a key.
	keyLen = 32
	// moduleName is the file of an entry that is no code.
	moduleName = "module"
	// storePause is how long nothing is stored after that has failed: a disk that
	// is full now is full in a moment, and to find out takes a compilation.
	storePause = time.Minute
)

// key names the entry of a module: it changes with all that changes the outcome of
// a build. The name of the folder where wazero looks has its version, the system
// and the processor; the features of the processor are in the names of the files,
// which are wazero's.
func (c *Cache) key(digest string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s: format %d, rewriter %d, state %d, features %d, runtime %s",
		digest, format, fuel.RewriterVersion, snapshot.Version, compiler.Features, filepath.Base(c.where)))
	return hex.EncodeToString(sum[:keyLen/2])
}

// Find loads a module. It is nil if it is not there. The cache must be Ready.
func (c *Cache) Find(digest string) *Loaded {
	if !c.Keeps() {
		return nil
	}
	key := c.key(digest)
	var module string
	var code []stored
	for _, file := range c.folder.list(key) {
		if file.name == moduleName {
			module = file.path
		} else {
			code = append(code, file)
		}
	}

	l := c.load(module, code)
	if l != nil {
		c.folder.used(key)
	}
	return l
}

// Store has a module built in a new folder, keeps the result, if the cache keeps
// code, and loads that. The cache must be Ready.
func (c *Cache) Store(digest string, build func(dir string) (compiler.Output, error)) (*Loaded, error) {
	if err := c.ownStaging(); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(c.staging.dir, "new-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	out, err := build(temp)
	if err != nil {
		return nil, err
	}
	if c.Paused() {
		return c.loadBuilt(out)
	}

	key := c.key(digest)
	if err := errors.Join(c.folder.put(key, moduleName, out.Module), c.folder.put(key, out.Name, out.Code)); err != nil {
		return nil, err
	}
	c.folder.bound()
	l := c.Find(digest)
	if l == nil { // another process has made room for its own code
		return nil, errors.New("the compiled code is gone from the cache")
	}

	return l, nil
}

// loadBuilt loads what a build made from where it is.
func (c *Cache) loadBuilt(out compiler.Output) (*Loaded, error) {
	for _, name := range []string{out.Module, out.Code} {
		info, err := os.Lstat(name)
		if err == nil {
			err = owned.File(name, info)
		}
		if err != nil {
			return nil, err
		}
	}

	l := c.load(out.Module, []stored{{path: out.Code, name: out.Name}})
	if l == nil {
		return nil, errors.New("the compiled code cannot be loaded")
	}
	return l, nil
}

// load loads a module from the files of a build. It is nil if they are not what a
// build makes.
func (c *Cache) load(module string, code []stored) *Loaded {
	data, err := os.ReadFile(module)
	if err != nil || len(code) == 0 {
		return nil
	}
	program := compiler.Decode(data)
	if program == nil {
		return nil
	}

	compiled := c.loadCode(program.Wasm, code)
	if compiled == nil {
		return nil
	}
	program.Wasm = nil
	return &Loaded{program, compiled, c.loader}
}

// loadCode has wazero load code of an entry: one of the files, which have the
// names wazero looks for, one for each kind of processor. Nil if it did not.
func (c *Cache) loadCode(outline []byte, code []stored) wazero.CompiledModule {
	if c.ownStaging(filepath.Dir(c.where), c.where) != nil {
		return nil
	}

	for i, file := range code {
		if i > 0 && file.name == code[i-1].name {
			continue // two processes have just stored it
		}
		mu, _ := c.loading.LoadOrStore(file.name, new(sync.Mutex))
		mu.(*sync.Mutex).Lock()
		defer mu.(*sync.Mutex).Unlock()
		link := filepath.Join(c.where, file.name)
		_ = os.Remove(link) // of a load that was cut short
		if os.Link(file.path, link) != nil && os.Symlink(file.path, link) != nil {
			return nil
		}
		defer os.Remove(link)
	}

	// A context that is done ends a compilation by several workers before it
	// starts, and nobody asks for it where code is only loaded.
	ctx, cancel := context.WithCancel(experimental.WithCompilationWorkers(context.Background(), 2))
	cancel()
	compiled, err := c.loader.CompileModule(ctx, outline)
	if err != nil {
		return nil
	}
	return compiled
}

// LoadsOutline reports whether the runtime takes the outline of a module whose code
// is not stored. It must not.
func (c *Cache) LoadsOutline(outline []byte) bool { return c.loadCode(outline, nil) != nil }

// ownStaging makes the staging directory and folders in it, if they are not there,
// and checks whose they are.
func (c *Cache) ownStaging(below ...string) error {
	return ownFolders(slices.Concat(c.above, []string{c.staging.dir}, below)...)
}
