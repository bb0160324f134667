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

// Digest returns the SHA-256 of the plugin's file in hex, as the file was loaded. It
// identifies a build, and a lock has it. If the file has changed since, the error is
// [ErrChanged]; it also matches [ErrReplaced] once the registry has reloaded.
//
// The digest is computed on demand and cached by device, inode, size and change time,
// which no program can preserve while it changes a file, unless it sets the clock. It is
// computed again from the bytes that are compiled.
func (p *Plugin) Digest() (string, error) {
	p.digesting.Lock()
	defer p.digesting.Unlock()
	if d := p.known(); d != "" {
		return d, nil
	}
	digest, stamp, err := hashFile(p.folder, p.name)
	if err == nil && !stamp.sameContent(p.stamp) {
		err = ErrChanged
	}
	if err != nil {
		return "", p.replaced(missing(err))
	}
	p.learn(stamp, digest)
	return digest, nil
}

// ErrChanged says that a plugin cannot be compiled or its digest computed because
// its file has changed since it was loaded.
var ErrChanged = errors.New("the file has changed since it was loaded: reload the plugins")

// missing adds to an error that the file has changed, if it is not there.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// known is the digest if it is known already.
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

// learn notes the digest, also for later processes.
func (p *Plugin) learn(s stamp, digest string) {
	p.digest.CompareAndSwap(nil, &digest)
	p.digests.add(s, digest)
}

// ReadDigests computes the unknown digests of the loaded plugins, several at a time,
// and returns those that failed. The error is the cause of ctx.
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
	settled  string // device, inode and time of change; empty if the next change might have the same
}

// sameContent reports whether a file has the size and modification time it had.
// Names, links and permissions may differ.
func (s stamp) sameContent(o stamp) bool { return s.size == o.size && s.modified == o.modified }

// settle is how long a file must be unchanged before its stamp is sure to show the
// next change: clocks of file systems tick as slowly as every two seconds.
const settle = 2*time.Second + 100*time.Millisecond

// key is a settled stamp as the index has it.
func (s stamp) key() string { return fmt.Sprintf("%s %d %d", s.settled, s.size, s.modified) }

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	inode, changed, ok := watch.Inode(info)
	if ok && time.Since(changed) > settle && time.Since(info.ModTime()) > settle {
		s.settled = fmt.Sprintf("%s %d", inode, changed.UnixNano())
	}
	return s
}

// hashFile hashes a file. The error is [ErrChanged] if it changes meanwhile.
func hashFile(folder fs.FS, name string) (string, stamp, error) {
	file, s, err := openFile(folder, name, MaxWasm)
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
	file string // empty: for this process only

	mu      sync.Mutex
	known   map[string]string
	changed bool
}

// maxDigests is the most entries of the file. A full one starts anew.
const maxDigests = 4096

// openDigests reads the file, if there is a folder for it. A damaged one is ignored and
// replaced later.
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

// save writes the file if there is something new. A file that cannot be written costs
// the next process the time to read the plugins.
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
