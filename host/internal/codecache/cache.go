// Package codecache keeps compiled code in a folder that processes share, and records
// which modules cannot be compiled.
//
// wazero has such a folder too, but trusts its content: function offsets have no
// checksum, a truncated file is an error forever, and a file that cannot be written
// fails the compilation. So wazero gets a staging directory that belongs to this
// process. Checked code is linked there, for a runtime that loads and never compiles.
// Another runtime compiles the missing code.
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
	"syscall"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/exceptions"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/snapshot"
)

// Config configures a Cache.
type Config struct {
	Dir  string // folder shared between processes; if empty, code is kept only in this process
	Size int64  // maximum size of the code in Dir, in bytes
	Log  *slog.Logger
	// Runtime returns a runtime with all host modules that plugins import, and with the
	// given cache. The runtime closes the cache, even if Runtime fails.
	Runtime func(context.Context, wazero.CompilationCache) (wazero.Runtime, error)
}

// Cache is a store of compiled code. A nil Cache is valid and stores nothing.
// It is safe for concurrent use.
type Cache struct {
	Config
	folder  *folder  // if nil, code is kept only in this process
	stores  bool     // whether new code can be stored in folder
	staging []string // the folders of this user that contain the staging directory, and that directory last

	once    sync.Once
	loader  wazero.Runtime // loads staged code; may be nil
	where   string         // folder from which loader loads files
	loading sync.Map       // *sync.Mutex by staged file
}

// Loaded is a module that was loaded into the runtime.
type Loaded struct {
	*compiler.Program // its field Wasm is not set
	Compiled          wazero.CompiledModule
	Runtime           wazero.Runtime
	Key               string // key by which to find the code again; empty if the code is not kept
	Found             bool   // whether the code came from the cache
	Free              func() // frees the resources that belong to this module alone; nil if there are none
}

// ErrUnsafe means that the folder for compiled code, or a folder in it, belongs
// to another user, is writable by others, or is a link. Others could make this
// process execute their code.
var ErrUnsafe = owned.ErrUnsafe

// Open opens a cache. If the folder cannot be used, Open logs that and returns nil; then
// compiling only takes longer. If it would be unsafe to use the folder, the error matches
// ErrUnsafe. A file in place of the folder is an error too, because the configuration then
// names the wrong thing.
func Open(cfg Config) (*Cache, error) {
	f, err := openFolder(cfg.Dir, cfg.Size)
	var in, dir string
	if err == nil {
		in = filepath.Join(cfg.Dir, stagingFolder)
		err = ownFolders(in)
	}
	switch {
	case errors.Is(err, ErrUnsafe), errors.Is(err, syscall.ENOTDIR) && in == "":
		return nil, fmt.Errorf("compile cache: %w", err)
	case in == "":
		cfg.Log.Warn("compiled code is not kept", "reason", err)
		return nil, nil
	}

	if err == nil {
		dir, err = os.MkdirTemp(in, stagingPrefix+"*")
	}
	if err == nil {
		removeAbandoned(in)
		return &Cache{Config: cfg, folder: f, stores: true, staging: []string{cfg.Dir, in, dir}}, nil
	}
	cfg.Log.Warn("compiled code is only read", "reason", err)
	c := Private(cfg)
	if c != nil {
		c.folder = f
	}
	return c, nil
}

// Private returns a cache without a shared folder, for the output of a child
// process until it is loaded. If no folder can be made, Private logs that and
// returns nil.
func Private(cfg Config) *Cache {
	in, err := owned.Temp()
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(in, stagingPrefix+"*")
	}
	if err != nil {
		cfg.Log.Error("no folder to compile in", "reason", err)
		return nil
	}
	return &Cache{Config: cfg, staging: []string{dir}}
}

// Persistent reports whether compiled code outlives this process.
func (c *Cache) Persistent() bool { return c != nil && c.folder != nil }

// Stores reports whether compiled code can be added.
func (c *Cache) Stores() bool { return c != nil && c.stores }

// Close removes the staging directory, and closes the loaded modules.
func (c *Cache) Close(ctx context.Context) (err error) {
	if c == nil {
		return nil
	}
	if c.loader != nil {
		err = c.loader.Close(ctx)
	}
	_ = os.RemoveAll(c.dir())
	return err
}

// dir returns the staging directory.
func (c *Cache) dir() string { return c.staging[len(c.staging)-1] }

// Ready makes the runtime that loads code, on its first call, and reports whether there is
// one.
func (c *Cache) Ready(ctx context.Context) bool {
	if c == nil {
		return false
	}

	c.once.Do(func() {
		cache, where, err := compiler.FileCache(filepath.Join(c.dir(), "code"))
		if err == nil {
			c.where = where
			c.loader, err = c.Runtime(context.WithoutCancel(ctx), cache)
		}
		if err != nil {
			c.Log.Warn("compiled code is not kept", "reason", err)
			c.loader = nil
		}
	})
	return c.loader != nil
}

const (
	// format changes whenever the layout of entries changes.
	format = 3
	// keyLen is the length of a key.
	keyLen = 32
	// moduleName is the name of the one file of an entry that is not code.
	moduleName = "module"
)

// key returns the key of a module's entry from the digest of its source. It changes with everything
// that changes the result of a build. The name of wazero's folder contains wazero's version, the
// system and the processor, and wazero's file names reflect the features of the processor.
func (c *Cache) key(digest string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s: format %d, exceptions %d, rewriter %d, state %d, features %d, runtime %s",
		digest, format, exceptions.Version, fuel.RewriterVersion, snapshot.Version, compiler.Features, filepath.Base(c.where)))
	return hex.EncodeToString(sum[:keyLen/2])
}

// Find loads a module, or returns nil if the cache does not have it. The cache must be
// Ready.
func (c *Cache) Find(digest string) *Loaded {
	if !c.Persistent() {
		return nil
	}
	key := c.key(digest)
	l := c.load(c.folder.list(key))
	if l != nil {
		l.Key, l.Found = digest, true
		c.folder.used(key)
	}
	return l
}

// Store builds a module in a new folder, stores the result if the cache can, and
// loads it. The cache must be Ready.
func (c *Cache) Store(digest string, build func(dir string) error) (*Loaded, error) {
	if err := ownFolders(c.staging...); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(c.dir(), "new-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	if err := build(temp); err != nil {
		return nil, err
	}

	module, code, err := compiler.Built(temp)
	if err != nil {
		return nil, err
	}

	var l *Loaded
	files := []stored{{module, moduleName}, {code, filepath.Base(code)}}
	if c.stores {
		key := c.key(digest)
		for _, file := range files {
			if err := c.folder.put(key, file); err != nil {
				return nil, err
			}
		}
		c.folder.bound()
		l = c.load(c.folder.list(key))
	} else {
		l = c.load(files)
	}
	if l == nil { // another process may have evicted it
		return nil, errors.New("the compiled code cannot be loaded")
	}
	if c.stores {
		l.Key = digest
	}
	return l, nil
}

// load loads a module from the files of an entry. It returns nil if a build could
// not have made them.
func (c *Cache) load(files []stored) *Loaded {
	at := slices.IndexFunc(files, func(f stored) bool { return f.name == moduleName })
	if at < 0 || len(files) < 2 {
		return nil
	}

	data, err := os.ReadFile(files[at].path)
	if err != nil {
		return nil
	}
	program := compiler.Decode(data)
	if program == nil {
		return nil
	}

	compiled := c.loadCode(program.Wasm, files)
	if compiled == nil {
		return nil
	}
	program.Wasm = nil
	return &Loaded{Program: program, Compiled: compiled, Runtime: c.loader}
}

// loadCode makes wazero load the code of an entry: one of the files, which
// have the names that wazero looks for, one for each kind of processor. It
// returns nil if wazero loads none.
func (c *Cache) loadCode(outline []byte, files []stored) wazero.CompiledModule {
	if ownFolders(slices.Concat(c.staging, []string{filepath.Dir(c.where), c.where})...) != nil {
		return nil
	}

	for i, file := range files {
		if file.name == moduleName || i > 0 && file.name == files[i-1].name { // two processes have just stored the same file
			continue
		}
		mu, _ := c.loading.LoadOrStore(file.name, new(sync.Mutex))
		mu.(*sync.Mutex).Lock()
		defer mu.(*sync.Mutex).Unlock()
		link := filepath.Join(c.where, file.name)
		_ = os.Remove(link) // left by an interrupted load
		if os.Link(file.path, link) != nil && os.Symlink(file.path, link) != nil {
			return nil
		}
		defer os.Remove(link)
	}

	// With several workers, a context that is done ends a compilation before
	// it starts. It is not checked if code is only loaded.
	ctx, cancel := context.WithCancel(experimental.WithCompilationWorkers(context.Background(), 2))
	cancel()
	compiled, err := c.loader.CompileModule(ctx, outline)
	if err != nil {
		return nil
	}
	return compiled
}
