package plugins

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// agedFS is a folder whose files were all changed an hour earlier than they
// were. It counts the bytes that are read.
type agedFS struct {
	fs.FS
	read  *atomic.Int64
	after func(name string) // called when a file was read to its end
}

func (a agedFS) Open(name string) (fs.File, error) {
	file, err := a.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &agedFile{file.(*os.File), a, name}, nil
}

type agedFile struct {
	*os.File
	fs   agedFS
	name string
}

func (f *agedFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	return agedInfo{info}, err
}

func (f *agedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.fs.read.Add(int64(n))
	if err == io.EOF && f.fs.after != nil {
		f.fs.after(f.name)
	}
	return n, err
}

func (f *agedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.fs.read.Add(int64(n))
	return n, err
}

// WriteTo is not that of a file, which reads without being seen.
func (f *agedFile) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{f})
}

type agedInfo struct{ fs.FileInfo }

func (i agedInfo) ModTime() time.Time { return i.FileInfo.ModTime().Add(-time.Hour) }

func (i agedInfo) Sys() any {
	stat := *i.FileInfo.Sys().(*syscall.Stat_t)
	stat.Ctim.Sec -= 3600
	return &stat
}

// padded is a plugin with something large in it that says n.
func padded(name string, n byte) []byte {
	return append(sealed(named(name)), custom("padding", bytes.Repeat([]byte{n}, 1<<20))...)
}

// custom is a custom section.
func custom(name string, data []byte) []byte {
	size := 1 + len(name) + len(data)
	out := []byte{0, byte(size) | 0x80, byte(size>>7) | 0x80, byte(size>>14) | 0x80, byte(size >> 21)}
	return append(append(append(out, byte(len(name))), name...), data...)
}

// settledFolder is a folder with the plugin p, padded with n.
func settledFolder(t *testing.T, n byte) (file string, f agedFS, folders []Folder) {
	dir := t.TempDir()
	file = filepath.Join(dir, "p.wasm")
	require.NoError(t, os.WriteFile(file, padded("p", n), 0o600))
	f = agedFS{FS: os.DirFS(dir), read: new(atomic.Int64)}
	return file, f, []Folder{{Path: "plugins", FS: f}}
}

// replace writes a file anew so that the system's clock has moved on.
func replace(t *testing.T, file string, data []byte) {
	t.Helper()
	before, err := os.Stat(file)
	require.NoError(t, err)
	for {
		require.NoError(t, os.WriteFile(file, data, 0o600))
		after, err := os.Stat(file)
		require.NoError(t, err)
		if after.ModTime() != before.ModTime() {
			return
		}
	}
}

func digest(t *testing.T, r *Registry) string {
	t.Helper()
	require.Len(t, r.Plugins(), 1)
	d, err := r.Plugins()[0].Digest()
	require.NoError(t, err)
	return d
}

// Opening a folder reads what plugins say of themselves and nothing more. Their
// digest is read on demand, once, and the next process knows it.
func TestDigestIsReadOnce(t *testing.T) {
	_, files, folders := settledFolder(t, 1)
	cfg := Config{Folders: folders, CacheDir: t.TempDir()}
	h := newHost(t)
	r := openWith(t, h, cfg)
	require.Empty(t, r.Plugins()[0].Info.Digest)
	require.Less(t, files.read.Load(), int64(64<<10))
	require.Equal(t, digestOf(padded("p", 1)), digest(t, r))
	_, err := r.ReadDigests(t.Context())
	require.NoError(t, err)
	read := files.read.Load()
	require.Greater(t, read, int64(1<<20))
	require.Equal(t, digestOf(padded("p", 1)), digest(t, r))
	require.Equal(t, digestOf(padded("p", 1)), digest(t, openWith(t, h, cfg)))
	require.Less(t, files.read.Load()-read, int64(64<<10))

	cfg.CacheDir = ""
	require.Equal(t, digestOf(padded("p", 1)), digest(t, openWith(t, h, cfg)))
	require.Greater(t, files.read.Load()-read, int64(1<<20), "nobody keeps it")
}

// A file that changes has another digest, whatever its size: in the next
// process. In this one it is not what was loaded.
func TestDigestOfAFileThatChanged(t *testing.T) {
	file, _, folders := settledFolder(t, 1)
	cfg := Config{Folders: folders, CacheDir: t.TempDir()}
	h := newHost(t)
	known, unknown := openWith(t, h, cfg), openWith(t, h, cfg)
	require.Equal(t, digestOf(padded("p", 1)), digest(t, known))
	replace(t, file, padded("p", 2))
	require.Equal(t, digestOf(padded("p", 1)), digest(t, known))
	_, err := unknown.Plugins()[0].Digest()
	require.ErrorIs(t, err, ErrChanged)
	problems, err := unknown.ReadDigests(t.Context())
	require.NoError(t, err)

	require.Equal(t, []Problem{{"plugins/p.wasm", ErrChanged}}, problems)
	for _, r := range []*Registry{known, unknown} {
		_, err := r.Tools()[0].Call(t.Context(), host.Call{})
		require.ErrorIs(t, err, ErrChanged)
	}

	r := openWith(t, h, cfg)
	require.Equal(t, digestOf(padded("p", 2)), digest(t, r))
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)

	replace(t, file, padded("p", 1))
	_, err = known.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err, "it is again what it was")
}

// Changes to a file's metadata do not matter.
func TestOtherLinksAndPermissions(t *testing.T) {
	file, _, folders := settledFolder(t, 1)
	r := openWith(t, newHost(t), Config{Folders: folders, CacheDir: t.TempDir()})
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.Link(file, filepath.Join(t.TempDir(), "backup")))
	_, err := r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
}

// A digest that was kept and is wrong is found where the plugin is compiled:
// nothing runs under it, and it is forgotten.
func TestKeptDigestIsWrong(t *testing.T) {
	_, _, folders := settledFolder(t, 1)
	cfg := Config{Folders: folders, CacheDir: t.TempDir()}
	h := newHost(t)
	_, err := openWith(t, h, cfg).ReadDigests(t.Context())
	require.NoError(t, err)
	index := filepath.Join(cfg.CacheDir, "digests")
	data, err := os.ReadFile(index)
	require.NoError(t, err)
	wrong := strings.Replace(string(data), digestOf(padded("p", 1)), digestOf(padded("p", 2)), 1)
	require.NotEqual(t, string(data), wrong)
	require.NoError(t, os.WriteFile(index, []byte(wrong), 0o600))

	r := openWith(t, h, cfg)
	result, err := r.Tools()[0].Call(t.Context(), host.Call{})
	require.ErrorIs(t, err, ErrChanged)
	require.Equal(t, abi.Internal, result.Kind)
	r = openWith(t, h, cfg)
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
	require.Equal(t, digestOf(padded("p", 1)), digest(t, r))
}

// Whatever becomes of the file with digests, it costs time only.
func TestDigestsHeal(t *testing.T) {
	_, files, folders := settledFolder(t, 1)
	cfg := Config{Folders: folders, CacheDir: t.TempDir()}
	h := newHost(t)
	index := filepath.Join(cfg.CacheDir, "digests")
	read := func() bool {
		before := files.read.Load()
		r := openWith(t, h, cfg)
		_, err := r.ReadDigests(t.Context())
		require.NoError(t, err)
		require.Equal(t, digestOf(padded("p", 1)), digest(t, r))
		return files.read.Load()-before > 1<<20
	}
	require.True(t, read())
	require.False(t, read())
	whole, err := os.ReadFile(index)
	require.NoError(t, err)

	for name, data := range map[string][]byte{"empty": {}, "cut off": whole[:len(whole)-5], "text": []byte("no index\n"), "more": append(whole[:len(whole):len(whole)], "x y\n"...)} {
		require.NoError(t, os.WriteFile(index, data, 0o600))
		require.True(t, read(), name)
		require.False(t, read(), name)
	}

	require.NoError(t, os.Remove(index))
	require.NoError(t, os.MkdirAll(filepath.Join(index, "in it"), 0o700))
	require.True(t, read())
	require.True(t, read(), "there is nowhere to keep it")
}

// A file that was changed a moment ago is read at once: its next change might
// look the same. Its digest is not kept either.
func TestDigestOfAFileThatIsNew(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	file, soon := filepath.Join(dir, "p.wasm"), time.Now().Add(time.Hour) // however long it takes from here
	require.NoError(t, os.WriteFile(file, padded("p", 1), 0o600))
	require.NoError(t, os.Chtimes(file, soon, soon))
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}, CacheDir: cache})
	require.NotEmpty(t, r.Plugins()[0].known())
	_, err := r.ReadDigests(t.Context())
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(cache, "digests"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A digest of a file that is being written is of nothing.
func TestDigestWhileTheFileIsWritten(t *testing.T) {
	file, files, folders := settledFolder(t, 1)
	files.after = func(name string) {
		if name == "p.wasm" {
			replace(t, file, padded("p", 2))
		}
	}
	folders[0].FS = files
	r := openWith(t, newHost(t), Config{Folders: folders, CacheDir: t.TempDir()})
	_, err := r.Plugins()[0].Digest()
	require.ErrorIs(t, err, ErrChanged)
}

// The file with digests does not grow forever.
func TestDigestsAreBounded(t *testing.T) {
	dir := t.TempDir()
	d := openDigests(dir)
	for n := range maxDigests + 100 {
		d.add(stamp{settled: fmt.Sprint(n)}, digestOf([]byte{byte(n)}))
	}
	d.save()
	d = openDigests(dir)
	require.Len(t, d.known, 100)
	require.NotEmpty(t, d.get(stamp{settled: fmt.Sprint(maxDigests)}))
}

// A pipe is no plugin, and nobody waits for its other end.
func TestPipeIsNoPlugin(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "p.wasm"), 0o600))
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}})
	require.Len(t, problems(r), 1)
	require.Contains(t, problems(r)[0], "expected a file")
}

// Only what a plugin says of itself is read, so that its code is checked when it
// is compiled: what is wrong there is a problem from then on.
func TestBrokenCode(t *testing.T) {
	dir := t.TempDir()
	m, err := wasmbin.Parse(sealed(named("p")))
	require.NoError(t, err)
	m.Codes[0].Body = []byte{0xff, byte(wasmbin.OpEnd)}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.wasm"), m.Encode(), 0o600))
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}})
	require.Empty(t, problems(r))
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.ErrorIs(t, err, host.ErrABI)
	require.Len(t, problems(r), 1)
	require.Contains(t, problems(r)[0], "p.wasm: module: malformed wasm")
}

// swapping is a folder in which a pipe takes the place of each plugin between the
// look at it and its opening.
type swapping struct {
	statDirFS
	dir string
}

func (s swapping) Stat(name string) (fs.FileInfo, error) {
	info, err := s.statDirFS.Stat(name)
	if file := filepath.Join(s.dir, name); err == nil && strings.HasSuffix(name, ".wasm") {
		err = os.Remove(file)
		if err == nil {
			err = syscall.Mkfifo(file, 0o600)
		}
	}
	return info, err
}

// It would hold up the reload, and the end of the process, until somebody opens
// the other end.
func TestPipeTakesThePlaceOfAFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.wasm"), sealed(named("p")), 0o600))
	folder := Dir(dir)
	folder.FS = swapping{folder.FS.(statDirFS), dir}
	r := openWith(t, newHost(t), Config{Folders: []Folder{folder}})
	require.Equal(t, []string{filepath.Join(dir, "p.wasm") + ": expected a file"}, problems(r))
}
