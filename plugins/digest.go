package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/watch"
)

// Digest returns the SHA-256 of the plugin's file as it was loaded, in hex. It identifies a
// build, and is recorded in locks. If the file has changed since it was loaded, the error is
// [ErrChanged]; once the registry has reloaded, the error also matches [ErrReplaced].
//
// The digest is computed on demand and cached by device, inode, size and change time. A
// program cannot change a file and preserve these without setting the clock. The digest
// is computed again from the bytes that are compiled.
func (p *Plugin) Digest() (string, error) {
	p.digesting.Lock()
	defer p.digesting.Unlock()
	if d := p.known(); d != "" {
		return d, nil
	}
	digest, stamp, err := hashFile(p.folder, p.name, p.host.PluginSize())
	if err == nil && !stamp.sameContent(p.stamp) {
		err = ErrChanged
	}
	if err != nil {
		return "", p.replaced(missing(err))
	}
	p.learn(stamp, digest)
	return digest, nil
}

// ErrChanged means that a plugin's file has changed since it was loaded, so it
// cannot be compiled or its digest computed.
var ErrChanged = errors.New("the file has changed since it was loaded: reload the plugins")

// missing turns the error of a missing file into one that says that the file has
// changed.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// known returns the digest, or "" if it is not known yet.
func (p *Plugin) known() string {
	if d := p.digest.Load(); d != nil {
		return *d
	}
	d := p.digests.get(p.stamp)
	if d != "" {
		p.digest.CompareAndSwap(nil, &d)
	}
	return d
}

// learn records the digest, for later processes too.
func (p *Plugin) learn(s stamp, digest string) {
	p.digest.CompareAndSwap(nil, &digest)
	p.digests.add(s, digest)
}

// ReadDigests computes the unknown digests of the loaded plugins, several at a time, and
// returns a problem for each that it could not compute. The error is the cause of ctx.
func (r *Registry) ReadDigests(ctx context.Context) ([]Problem, error) {
	plugins := r.Plugins()
	errs := make([]error, len(plugins))
	each(ctx, len(plugins), func(i int) { _, errs[i] = plugins[i].Digest() })
	r.digests.save()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	var problems []Problem
	for i, err := range errs {
		if err != nil {
			problems = append(problems, Problem{plugins[i].File, err})
		}
	}
	return problems, nil
}

// stamp identifies a file and each of its changes.
type stamp struct {
	size     int64
	modified int64  // Unix nanoseconds
	settled  string // device, inode and time of change; empty if the next change might not alter them
}

// sameContent reports whether two stamps have the same size and modification
// time. Names, links and permissions may differ.
func (s stamp) sameContent(o stamp) bool { return s.size == o.size && s.modified == o.modified }

// settle is how long a file must be unchanged before its stamp is sure to show the
// next change: file system clocks may tick only every two seconds.
const settle = 2*time.Second + 100*time.Millisecond

// key returns a settled stamp as a key of the index.
func (s stamp) key() string { return fmt.Sprintf("%s %d %d", s.settled, s.size, s.modified) }

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	inode, changed, ok := watch.Inode(info)
	if ok && time.Since(changed) > settle && time.Since(info.ModTime()) > settle {
		s.settled = fmt.Sprintf("%s %d", inode, changed.UnixNano())
	}
	return s
}

// hashFile hashes a file. It refuses one of more than most bytes. The error is
// [ErrChanged] if the file changes while it is read.
func hashFile(folder fs.FS, name string, most int64) (string, stamp, error) {
	file, s, err := openFile(folder, name, most)
	if err != nil {
		return "", s, err
	}
	defer file.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, io.LimitReader(file, s.size+1), make([]byte, 256<<10))
	if err != nil {
		return "", s, unpath(err)
	}

	info, err := file.Stat()
	if err != nil {
		return "", s, unpath(err)
	}
	if after := stampOf(info); n != s.size || !after.sameContent(s) {
		return "", s, ErrChanged
	}

	return hex.EncodeToString(h.Sum(nil)), s, nil
}

// digests caches digests by stamp in a file, so that the next process need not read
// the plugins again.
type digests struct {
	file string // name of the file; if empty, digests are cached for this process only

	mu      sync.Mutex
	known   map[string]string
	changed bool
}

// maxDigests is the maximum number of entries in the file. A full file starts over.
const maxDigests = 4096

// openDigests reads the file, if there is a folder for it. A damaged file is ignored
// and replaced later.
func openDigests(cacheDir string) *digests {
	d := &digests{known: map[string]string{}}
	if cacheDir == "" {
		return d
	}
	d.file = filepath.Join(cacheDir, "digests")
	data, err := owned.ReadFile(d.file)
	if known := map[string]string(nil); err == nil && json.Unmarshal(data, &known) == nil && known != nil {
		d.known = known
	}
	return d
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (d *digests) get(s stamp) string {
	if s.settled == "" {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[s.key()]
}

func (d *digests) add(s stamp, digest string) {
	if s.settled == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= maxDigests {
		clear(d.known)
	}
	d.known[s.key()], d.changed = digest, true
}

// save writes the file if there are new digests. If it cannot be written, the next
// process has to read the plugins again.
func (d *digests) save() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.changed || d.file == "" {
		return
	}

	d.changed = false
	if data, err := json.Marshal(d.known); err == nil {
		_ = owned.WriteFile(d.file, data)
	}
}
