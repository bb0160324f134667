package codecache

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/internal/owned"
)

const (
	// entriesFolder is the folder of entries within Config.Dir.
	entriesFolder = "code"
	// maxStored is the size in bytes from which a file is not read. The code of the
	// largest plugin takes a quarter of that.
	maxStored = 1 << 30
)

// folder is the part of the cache that processes share. Each module has an entry: a
// folder named after everything that its code depends on, with files that have a
// checksum in their name. A file is complete before it gets that name and never
// changes, so no locks are needed: a process removes files that do not match their
// name, and compiles what it cannot read or write.
//
// The code is executed. The checksum detects damage; others cannot put code here,
// because the folder belongs to this user alone, or to root.
type folder struct {
	dir     string // the whole folder
	entries string
	most    int64 // limit on the size of the entries, in bytes
}

// openFolder makes the folder and its subfolders, for this user only. Its
// error matches ErrUnsafe, or says why the folder could not be made.
func openFolder(dir string, most int64) (*folder, error) {
	f := &folder{dir: dir, entries: filepath.Join(dir, entriesFolder), most: most}
	return f, ownFolders(f.dir, f.entries)
}

// ownFolders makes missing nested folders, and checks the owners of all: after
// a clean-up, another user may have made them again.
func ownFolders(names ...string) error {
	for _, name := range names {
		if err := os.MkdirAll(name, 0o700); err != nil {
			return err
		}
		if err := owned.Folder(name); err != nil {
			return err
		}
	}
	return nil
}

// entry returns the folder of the entry with this key.
func (f *folder) entry(key string) string { return filepath.Join(f.entries, key) }

// stored is a file of an entry.
type stored struct {
	path string
	name string // name without the checksum
}

// list returns the intact files of an entry, sorted by name, and removes damaged
// ones. A file that cannot be read now may be intact, and stays.
func (f *folder) list(key string) (files []stored) {
	for _, dir := range []string{f.dir, f.entries, f.entry(key)} {
		if owned.Folder(dir) != nil {
			return nil
		}
	}

	all, _ := os.ReadDir(f.entry(key))
	for _, e := range all {
		path := filepath.Join(f.entry(key), e.Name())
		name, sum, _ := strings.Cut(e.Name(), "-")
		have, err := checksumFile(path)
		switch {
		case err == nil && have == sum:
			files = append(files, stored{path, name})
		case err == nil, errors.Is(err, ErrUnsafe), errors.Is(err, errTooLarge), errors.Is(err, fs.ErrNotExist):
			_ = os.RemoveAll(path)
		}
	}

	return files
}

// used marks an entry as recently used: others are removed first.
func (f *folder) used(key string) {
	now := time.Now()
	_ = os.Chtimes(f.entry(key), now, now)
}

// put moves a file into an entry, replacing files of the same name. The file must be on
// the same file system.
func (f *folder) put(key string, file stored) error {
	sum, err := checksumFile(file.path)
	if err != nil {
		return err
	}

	entry := f.entry(key)
	if err := ownFolders(f.dir, f.entries, entry); err != nil {
		return err
	}
	whole := file.name + "-" + sum
	if err := os.Rename(file.path, filepath.Join(entry, whole)); err != nil {
		return err
	}

	all, _ := os.ReadDir(entry)
	for _, e := range all {
		if strings.HasPrefix(e.Name(), file.name+"-") && e.Name() != whole {
			_ = os.RemoveAll(filepath.Join(entry, e.Name()))
		}
	}
	return nil
}

// bound removes the least recently used entries until the folder is small
// enough. A process that is about to use one compiles it again. Unknown folders
// are left alone.
func (f *folder) bound() {
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
		if _, notKey := hex.DecodeString(e.Name()); err != nil || !e.IsDir() || len(e.Name()) != keyLen || notKey != nil {
			continue
		}
		path := filepath.Join(f.entries, e.Name())
		size := sizeOf(path)
		entries, total = append(entries, entry{path, info.ModTime(), size}), total+size
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

// sizeOf returns the size of the files of an entry in bytes.
func sizeOf(dir string) (size int64) {
	files, _ := os.ReadDir(dir)
	for _, file := range files {
		if info, err := file.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	errTooLarge = errors.New("the file is too large")
)

// Checksum returns two hardware-accelerated checksums of what r contains, in hex. They
// detect damage, not tampering, and take a third of the time of a digest.
func Checksum(r io.Reader) (string, error) {
	a, b := crc32.New(castagnoli), crc32.NewIEEE()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(a, b)}, struct{ io.Reader }{r}, make([]byte, 64<<10))
	return fmt.Sprintf("%x.%08x%08x", n, a.Sum32(), b.Sum32()), err
}

// checksumFile returns the checksum of a file that this user has written.
func checksumFile(name string) (string, error) {
	info, err := os.Lstat(name)
	if err == nil {
		err = owned.File(name, info)
	}
	if err != nil {
		return "", err
	}
	if info.Size() >= maxStored {
		return "", errTooLarge
	}

	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return Checksum(file)
}
