package host

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// cacheFolder is what processes share of compiled code: a folder for each
// module, named after what its code depends on, and in it files that have a
// checksum in their name. A file is complete before it has that name and never
// changes, so that nobody has to lock anything: who finds what does not fit its
// name removes it, and who cannot read or write compiles.
//
// The code that lies here is executed. The checksum is there for what breaks by
// itself; what keeps others from putting code here is that the folder belongs to
// this user alone, which is checked when it is opened.
type cacheFolder struct {
	entries string
	most    int64 // bytes in it

	// pause is until when nothing is stored: a disk that is full now is full in
	// a moment, and to find out takes a compilation.
	pause atomic.Int64 // Unix nanoseconds
}

// Folders within Config.CacheDir.
const (
	entriesFolder = "code"
	desksFolder   = "desk"
)

// storePause is how long nothing is stored after that has failed.
const storePause = time.Minute

// ErrCacheFolder: the folder for compiled code, or a folder in it, belongs to
// another user or can be written by others, who could have this process execute
// what they like.
var ErrCacheFolder = errors.New("unsafe cache folder")

// openFolder makes the folder and those in it, for this user only. Its error
// matches ErrCacheFolder, or is why there is none.
func openFolder(dir string, most int64) (*cacheFolder, error) {
	f := &cacheFolder{entries: filepath.Join(dir, entriesFolder), most: most}
	if err := os.MkdirAll(f.entries, 0o700); err != nil {
		return nil, err
	}
	for _, name := range []string{dir, f.entries} {
		if err := safeFolder(name, name == dir); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// safeFolder reports whether others than this user, or root, can put files into
// a folder. In one above that is sticky they can, but not replace what is there.
func safeFolder(name string, above bool) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	switch owner, known := ownerOf(info); {
	case known && owner != os.Geteuid() && (owner != 0 || !above):
		return fmt.Errorf("%w: %s belongs to the user %d: choose a folder of your own", ErrCacheFolder, name, owner)
	case known && info.Mode().Perm()&0o022 != 0 && (!above || info.Mode()&fs.ModeSticky == 0):
		return fmt.Errorf("%w: %s can be written by others: chmod go-w %[2]s, after you have removed what is in it", ErrCacheFolder, name)
	}
	return nil
}

// entry is the folder of a key.
func (f *cacheFolder) entry(key string) string { return filepath.Join(f.entries, key) }

// stored is a file of an entry.
type stored struct {
	path string
	name string // without its checksum
}

// list returns what is whole of an entry, and removes what is not.
func (f *cacheFolder) list(key string) (files []stored) {
	all, _ := os.ReadDir(f.entry(key))
	for _, e := range all {
		path := filepath.Join(f.entry(key), e.Name())
		name, sum, _ := strings.Cut(e.Name(), "-")
		if have, err := checksumFile(path); err != nil || have != sum {
			_ = os.RemoveAll(path)
			continue
		}
		files = append(files, stored{path, name})
	}
	return files
}

// used notes that an entry was used: the others are removed first.
func (f *cacheFolder) used(key string) {
	now := time.Now()
	_ = os.Chtimes(f.entry(key), now, now)
}

// put moves a file into an entry, in place of one of that name. The file is on the
// same file system.
func (f *cacheFolder) put(key, name, from string) error {
	sum, err := checksumFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.entry(key), 0o700); err != nil {
		return err
	}
	path := filepath.Join(f.entry(key), name+"-"+sum)
	if err := os.Rename(from, path); err != nil {
		return err
	}
	for _, other := range f.list(key) {
		if other.name == name && other.path != path {
			_ = os.Remove(other.path)
		}
	}
	return nil
}

// paused reports whether nothing is stored for now.
func (f *cacheFolder) paused() bool { return time.Now().UnixNano() < f.pause.Load() }

// failed notes that something could not be stored.
func (f *cacheFolder) failed() { f.pause.Store(time.Now().Add(storePause).UnixNano()) }

// bound removes the entries that were not used for the longest time until the
// folder is small enough. A process that is about to use one compiles it again.
func (f *cacheFolder) bound() {
	type entry struct {
		path string
		used time.Time
		size int64
	}
	var entries []entry
	var total int64
	all, _ := os.ReadDir(f.entries)
	for _, e := range all {
		info, err := e.Info()
		if err != nil {
			continue
		}
		in := entry{filepath.Join(f.entries, e.Name()), info.ModTime(), 0}
		_ = filepath.WalkDir(in.path, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil {
					in.size += info.Size()
				}
			}
			return nil
		})
		entries, total = append(entries, in), total+in.size
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path)) })
	for _, e := range entries {
		if total <= f.most {
			return
		}
		if os.RemoveAll(e.path) == nil {
			total -= e.size
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is two checksums that processors compute, in hex: a third of the
// time of a digest that would hold against people, of whom the folder is safe.
func checksum(r io.Reader) (string, error) {
	a, b := crc32.New(castagnoli), crc32.NewIEEE()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(a, b)}, struct{ io.Reader }{r}, make([]byte, 64<<10))
	return fmt.Sprintf("%x.%08x%08x", n, a.Sum32(), b.Sum32()), err
}

func checksumFile(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() >= maxStored {
		return "", cmp.Or(err, errors.New("it is too large"))
	}
	return checksum(file)
}

// maxStored bounds what is read of a file, in bytes. The code of the largest
// plugin has a quarter of that.
const maxStored = 1 << 30
