package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/owned"
)

// codeCache lets wazero use compiled code that lies in a folder which processes
// share.
//
// wazero has such a folder too, but it believes what lies there: where functions
// begin has no checksum, a file that was cut off is an error for ever, and one
// that cannot be written fails the compilation. So wazero gets a desk, a folder
// of this host only. Code is laid there once it was checked, for a runtime that
// loads and never compiles. What is missing is compiled by a runtime of its own,
// so that the file it makes is known to be this module's, however many are
// compiled at a time.
type codeCache struct {
	host   *Host
	folder *cacheFolder // nil keeps no code beyond this process
	above  []string     // folders of this user's that the desk is in
	desk   string
	held   *os.File // its lock

	once   sync.Once
	loader *engine // loads what is laid; nil if there is no desk
	where  string  // it looks there

	laying sync.Map // *sync.Mutex by what is laid
}

// deskPrefix and a number name a desk.
const deskPrefix = "toolhost-"

// deskLock is a file on a desk that is locked while its host lives.
const deskLock = "lock"

// deskAge is how old a desk is that somebody has surely locked who will.
const deskAge = time.Minute

// openCodeCache opens the folder. What cannot be used is logged, and costs time
// only. What must not be used is an error that matches ErrCacheFolder, and what
// is no folder is one too: somebody has named the wrong thing.
func openCodeCache(h *Host, dir string, most int64) (*codeCache, error) {
	folder, err := openFolder(dir, most)
	switch {
	case errors.Is(err, ErrCacheFolder), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("compile cache: %w", err)
	case err != nil:
		h.log.Warn("compiled code is not kept", "reason", err)
		return nil, nil
	}
	desks := filepath.Join(dir, desksFolder)
	c := &codeCache{host: h, folder: folder, above: []string{dir, desks}}
	if c.desk, c.held, err = newDesk(desks); errors.Is(err, ErrCacheFolder) {
		return nil, fmt.Errorf("compile cache: %w", err)
	} else if err != nil {
		h.log.Warn("compiled code is only read", "reason", err)
		folder.pause.Store(1<<63 - 1)
		c.above = nil
		c.desk, c.held, err = tempDesk()
	}
	if err != nil {
		h.log.Warn("compiled code is not kept", "reason", err)
		return nil, nil
	}
	clearDesks(desks)
	return c, nil
}

// privateCode is a code cache for one host that has no folder: what a child
// process makes has to lie somewhere until it is loaded. It is nil, and that is
// logged, if there is no room for that.
func privateCode(h *Host) *codeCache {
	desk, held, err := tempDesk()
	if err != nil {
		h.log.Error("no folder to compile in: plugins cannot be compiled", "reason", err)
		return nil
	}
	return &codeCache{host: h, desk: desk, held: held}
}

// tempDesk makes a desk where everybody may have one.
func tempDesk() (desk string, held *os.File, err error) {
	in, err := owned.Temp()
	if err != nil {
		return "", nil, err
	}
	return makeDesk(in)
}

// newDesk makes a desk in a folder of this user's. Its error matches
// ErrCacheFolder if it is not.
func newDesk(in string) (desk string, held *os.File, err error) {
	if err := ownFolders(in); err != nil {
		return "", nil, err
	}
	return makeDesk(in)
}

func makeDesk(in string) (desk string, held *os.File, err error) {
	if desk, err = os.MkdirTemp(in, deskPrefix+"*"); err != nil {
		return "", nil, err
	}
	held, err = os.OpenFile(filepath.Join(desk, deskLock), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err == nil && !lock(held) {
		err = errors.Join(errors.New("its lock is taken"), held.Close())
	}
	if err != nil {
		_ = os.RemoveAll(desk)
		return "", nil, err
	}
	return desk, held, nil
}

// isDesk reports whether a folder is one of ours: somebody may have named a
// folder that has a folder "desk" of its own.
func isDesk(e fs.DirEntry) bool {
	number, ours := strings.CutPrefix(e.Name(), deskPrefix)
	_, err := strconv.ParseUint(number, 10, 64)
	return e.IsDir() && ours && err == nil
}

// clearDesks removes the desks of hosts that ended without Close: nobody has
// their lock. One that has no lock yet is empty.
func clearDesks(desks string) {
	all, _ := os.ReadDir(desks)
	for _, e := range all {
		desk := filepath.Join(desks, e.Name())
		info, err := e.Info()
		if err != nil || !isDesk(e) || time.Since(info.ModTime()) < deskAge {
			continue
		}
		file, err := os.OpenFile(filepath.Join(desk, deskLock), os.O_RDWR, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_ = os.Remove(desk)
		case err == nil && lock(file):
			_ = os.RemoveAll(desk)
		}
		_ = file.Close() // a nil file is an error that nobody needs
	}
}

func (c *codeCache) close(ctx context.Context) error {
	if c == nil {
		return nil
	}
	err := c.loader.close(ctx)
	_ = os.RemoveAll(c.desk)
	if closed := c.held.Close(); !errors.Is(closed, os.ErrClosed) { // the host may be closed twice
		err = errors.Join(err, closed)
	}
	return err
}

// open makes the runtime that loads, the first time.
func (c *codeCache) open(ctx context.Context) bool {
	c.once.Do(func() {
		cache, where, err := compiler.FileCache(filepath.Join(c.desk, "laid"))
		if err == nil {
			c.loader, err = c.host.newEngine(context.WithoutCancel(ctx), compiler.Config(), cache)
		}
		if err != nil {
			c.host.log.Warn("compiled code is not kept", "reason", err)
		}
		c.where = where
	})
	return c.loader != nil
}

// onDesk is the desk with the folders it is in, and some in it.
func (c *codeCache) onDesk(below ...string) []string {
	return slices.Concat(c.above, []string{c.desk}, below)
}

// load has wazero load code of an entry: one of the files, which have the names
// wazero looks for, one for each kind of processor. Nil if it did not.
func (c *codeCache) load(outline []byte, code []stored) wazero.CompiledModule {
	if ownFolders(c.onDesk(filepath.Dir(c.where), c.where)...) != nil {
		return nil
	}
	for i, file := range code {
		if i > 0 && file.name == code[i-1].name {
			continue // two processes have just stored it
		}
		mu, _ := c.laying.LoadOrStore(file.name, new(sync.Mutex))
		mu.(*sync.Mutex).Lock()
		defer mu.(*sync.Mutex).Unlock()
		laid := filepath.Join(c.where, file.name)
		_ = os.Remove(laid) // of a load that was cut short
		if os.Link(file.path, laid) != nil && os.Symlink(file.path, laid) != nil {
			return nil
		}
		defer os.Remove(laid)
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
