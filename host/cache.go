package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

// codeCache keeps compiled code in a folder that processes share.
//
// wazero keeps such a folder too, but it believes what lies there: a file that
// was cut off is an error for ever, and the part of a file that says where
// functions begin has no checksum. So wazero gets a desk of its own, a folder
// that only this host uses. What it compiles is moved from there to the shared
// folder, under a name that has its digest, and what is there and has the digest
// it says is put on the desk again. Files are complete before they have their
// name, and never change. The key is the digest of the rewritten module, which
// covers the module and the versions of all that rewrites it. The rewritten
// module is kept beside it, by the digest of the plugin (see prepare).
type codeCache struct {
	shared string
	desk   string
	folder string // where wazero looks on the desk, named after its version and the system
	most   int64  // bytes in the shared folder

	compiling sync.Mutex // what is new on the desk is of the module that holds it
}

// codeFolder is the shared folder within Config.CacheDir.
const codeFolder = "code"

// deskPrefix starts the names of desks, which lie within the shared folder:
// moving a file must not copy it.
const deskPrefix = ".desk-"

// deskAge is how old a desk is when its host must have ended without Close.
const deskAge = 48 * time.Hour

func openCodeCache(dir string, most int64) (*codeCache, error) {
	c := &codeCache{shared: filepath.Join(dir, codeFolder), most: most}
	if err := os.MkdirAll(c.shared, 0o700); err != nil {
		return nil, err
	}
	entries, _ := os.ReadDir(c.shared)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), deskPrefix) && time.Since(info.ModTime()) > deskAge {
			_ = os.RemoveAll(filepath.Join(c.shared, e.Name()))
		}
	}
	desk, err := os.MkdirTemp(c.shared, deskPrefix+"*")
	c.desk, c.folder = desk, desk
	return c, err
}

// open returns the cache that wazero uses.
func (c *codeCache) open() (wazero.CompilationCache, error) {
	cache, err := wazero.NewCompilationCacheWithDir(c.desk)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.desk)
	for _, e := range entries {
		c.folder = filepath.Join(c.desk, e.Name())
	}
	return cache, err
}

func (c *codeCache) close() {
	if c != nil {
		_ = os.RemoveAll(c.desk)
	}
}

// compile compiles a rewritten module, or finds it in the cache.
func (h *Host) compile(ctx context.Context, wasm []byte) (wazero.CompiledModule, error) {
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	if h.code == nil {
		return h.runtime.CompileModule(ctx, wasm)
	}
	c := h.code
	_ = os.MkdirAll(c.folder, 0o700) // somebody may have cleaned up
	digest := sha256.Sum256(wasm)
	key := hex.EncodeToString(digest[:16]) + "-"
	if laid := c.lay(key); len(laid) > 0 {
		compiled, err := h.runtime.CompileModule(ctx, wasm)
		for _, name := range laid {
			_ = os.Remove(name)
		}
		if err == nil {
			return compiled, nil
		}
	}
	c.compiling.Lock()
	defer c.compiling.Unlock()
	before := c.onDesk()
	compiled, err := h.runtime.CompileModule(ctx, wasm)
	if err != nil {
		return nil, err
	}
	for _, name := range c.onDesk() {
		if !slices.Contains(before, name) {
			c.store(key, name)
		}
	}
	c.bound()
	return compiled, nil
}

// lay puts the entries of a module on the desk and returns their files there.
// There is one for each kind of processor that uses the folder. One that is not
// what its name says is removed.
func (c *codeCache) lay(key string) (laid []string) {
	entries, _ := os.ReadDir(c.shared)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), key)
		name, digest, two := strings.Cut(rest, "-")
		if !ok || !two {
			continue
		}
		from := filepath.Join(c.shared, e.Name())
		if sum(from) != digest {
			_ = os.Remove(from)
			continue
		}
		to := filepath.Join(c.folder, name)
		if os.Link(from, to) == nil {
			laid = append(laid, to)
			touch(from)
		}
	}
	return laid
}

func (c *codeCache) onDesk() (names []string) {
	entries, _ := os.ReadDir(c.folder)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".tmp") {
			names = append(names, e.Name())
		}
	}
	return names
}

// store moves a file from the desk to the shared folder. One that cannot be
// moved is compiled again by the next process.
func (c *codeCache) store(key, name string) {
	from := filepath.Join(c.folder, name)
	if digest := sum(from); digest == "" || os.Rename(from, filepath.Join(c.shared, key+name+"-"+digest)) != nil {
		_ = os.Remove(from)
	}
}

// bound removes what was not used for the longest time until the folder is
// small enough. A process that is about to use it compiles it again.
func (c *codeCache) bound() {
	entries, _ := os.ReadDir(c.shared)
	var files []fs.FileInfo
	var total int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if total <= c.most {
			return
		}
		if os.Remove(filepath.Join(c.shared, f.Name())) == nil {
			total -= f.Size()
		}
	}
}

// touch notes that an entry was used: the oldest are removed first.
func touch(name string) {
	now := time.Now()
	_ = os.Chtimes(name, now, now)
}

// sum is the digest of a file in hex, and empty if it cannot be read.
func sum(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}
