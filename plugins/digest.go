package plugins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/internal/owned"
)

// Digest returns the SHA-256 of the plugin's file in hex, as the file was loaded. It
// identifies a build, and pins name it. If the file has changed since, the error is
// [ErrChanged]; it also matches [ErrReplaced] once the registry has reloaded.
//
// The digest is computed on demand and cached by device, inode, size and change time,
// which no program can keep while changing a file, short of setting the clock. It is
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

// ReadDigests computes the unknown digests of plugins, several at a time, and
// returns those that failed. The error is the cause of ctx.
func ReadDigests(ctx context.Context, list []*Plugin) ([]Problem, error) {
	errs := make([]error, len(list))
	each(ctx, len(list), func(i int) { _, errs[i] = list[i].Digest() })
	var problems []Problem
	for i, p := range list {
		p.digests.save()
		if errs[i] != nil {
			problems = append(problems, Problem{p.File, errs[i]})
		}
	}

	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return problems, nil
}

// stamp identifies a file and each of its changes.
type stamp struct {
	size     int64
	modified int64  // Unix nanoseconds
	inode    string // with its device and when it was changed; empty where the system does not say
	at       time.Time
	changed  time.Time // the later of the two
}

// sameContent reports whether a file has the size and modification time it had.
// Names, links and permissions may differ.
func (s stamp) sameContent(o stamp) bool { return s.size == o.size && s.modified == o.modified }

// settle is how long a file must be unchanged before its stamp is sure to show the
// next change: clocks of file systems tick as slowly as every two seconds.
const settle = 2*time.Second + 100*time.Millisecond

// settled reports whether another change of the file has another stamp.
func (s stamp) settled() bool { return s.inode != "" && s.at.Sub(s.changed) > settle }

// key is the stamp as the index has it.
func (s stamp) key() string { return fmt.Sprintf("%s %d %d", s.inode, s.size, s.modified) }

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano(), changed: info.ModTime(), at: time.Now()}
	if inode, changed, ok := inodeOf(info); ok {
		s.inode = fmt.Sprintf("%s %d", inode, changed.UnixNano())
		if changed.After(s.changed) {
			s.changed = changed
		}
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
	if after := stampOf(info); n != s.size || after.key() != s.key() {
		return "", s, ErrChanged
	}

	return hex.EncodeToString(h.Sum(nil)), s, nil
}

// digests caches digests by stamp in a file, so that the next process need not read
// the plugins again. A nil *digests caches nothing.
type digests struct {
	file string

	mu      sync.Mutex
	known   map[string]string
	used    map[string]bool // by this process
	changed bool
}

// maxDigests is the most entries of the file.
const maxDigests = 4096

// openDigests reads the file. A damaged one is ignored and replaced later.
func openDigests(cacheDir string) *digests {
	if cacheDir == "" {
		return nil
	}
	d := &digests{file: filepath.Join(cacheDir, "digests"), known: map[string]string{}, used: map[string]bool{}}
	data, _ := owned.ReadFile(d.file)
	sum, lines, _ := strings.Cut(string(data), "\n")
	if digestOf([]byte(lines)) != sum { // the first line is the digest of the others
		return d
	}

	for line := range strings.Lines(lines) {
		digest, key, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		d.known[key] = digest
	}
	return d
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (d *digests) get(s stamp) string {
	if d == nil || !s.settled() {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[s.key()] = true
	return d.known[s.key()]
}

func (d *digests) add(s stamp, digest string) {
	if d == nil || !s.settled() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[s.key()], d.used[s.key()], d.changed = digest, true, true
}

// forget removes a digest that was found to be wrong.
func (d *digests) forget(s stamp) {
	if d == nil {
		return
	}
	defer d.save()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, s.key())
	delete(d.used, s.key())
	d.changed = true
}

// save writes the file, if there is something new: what this process used, and
// as much else as fits. A file that cannot be written costs the next process the time
// to read the plugins.
func (d *digests) save() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.changed {
		return
	}

	d.changed = false
	var lines bytes.Buffer
	n := 0
	for _, used := range []bool{true, false} {
		for key, digest := range d.known {
			if d.used[key] == used && n < maxDigests {
				n++
				fmt.Fprintf(&lines, "%s %s\n", digest, key)
			}
		}
	}

	_ = owned.WriteFile(d.file, append([]byte(digestOf(lines.Bytes())+"\n"), lines.Bytes()...))
}
