package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

func cachedHost(t testing.TB, dir string, size int64) *host.Host {
	t.Helper()
	return hostWith(t, host.Config{CacheDir: dir, CacheSize: size})
}

// files are those of the cache whose name begins so, and all but those if it
// begins with a bang.
func files(t testing.TB, dir, prefix string) (found []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "code", "*", "*"))
	require.NoError(t, err)
	prefix, not := strings.CutPrefix(prefix, "!")
	for _, name := range all {
		if strings.HasPrefix(filepath.Base(name), prefix) != not {
			found = append(found, name)
		}
	}
	return found
}

// modules are the files with what the runtime needs besides code, codes those
// with code.
func modules(t testing.TB, dir string) []string { return files(t, dir, "module-") }
func codes(t testing.TB, dir string) []string   { return files(t, dir, "!module-") }

func callEcho(t testing.TB, h *host.Host) {
	t.Helper()
	o := do(context.Background(), h, compile(t, h, echo.wasm()), host.Call{Args: []byte(`{"a":1}`)})
	require.NoError(t, o.err)
	require.Equal(t, `{"a":1}`, string(o.Value))
}

// cached reports whether echo is found in the cache, by a host of its own.
func cached(t testing.TB, dir string) bool {
	t.Helper()
	h, err := host.New(context.Background(), host.Config{CacheDir: dir})
	require.NoError(t, err)
	defer h.Close(context.Background())
	return found(t, h, echo.wasm())
}

// found compiles a plugin and reports whether its code was in the cache.
func found(t testing.TB, h *host.Host, wasm []byte) bool {
	t.Helper()
	before := h.Stats().Compiled
	compile(t, h, wasm)
	after := h.Stats().Compiled
	require.Equal(t, before.Cached+before.Anew+1, after.Cached+after.Anew)
	return after.Cached > before.Cached
}

// TestCacheHeals: whatever becomes of a file in the cache, the plugin is
// compiled again, and the file is whole again.
func TestCacheHeals(t *testing.T) {
	dir := t.TempDir()
	callEcho(t, cachedHost(t, dir, 0))
	require.True(t, cached(t, dir))
	for kind, list := range map[string]func(testing.TB, string) []string{"code": codes, "module": modules} {
		require.Len(t, list(t, dir), 1)
		file := list(t, dir)[0]
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		flip := func(at int) []byte {
			broken := append([]byte(nil), whole...)
			broken[at] ^= 0xff
			return broken
		}
		healed := func(t *testing.T) {
			callEcho(t, cachedHost(t, dir, 0))
			require.Equal(t, []string{file}, list(t, dir))
			again, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, whole, again)
			require.True(t, cached(t, dir))
		}
		for name, content := range map[string][]byte{
			"empty": {}, "cut off": whole[:len(whole)/2], "one byte less": whole[:len(whole)-1], "longer": append(whole[:len(whole):len(whole)], 0),
			"header": flip(0), "where a function begins": flip(len("WAZEVO") + 1 + len("1.12.0") + 4), "middle": flip(len(whole) / 2), "end": flip(len(whole) - 1),
			"text": []byte("not code"),
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				require.NoError(t, os.WriteFile(file, content, 0o600))
				healed(t)
			})
		}
		for name, content := range map[string][]byte{"empty": {}, "cut off": whole[:len(whole)/2], "text": []byte("not code")} {
			t.Run(kind+" "+name+" with a checksum that fits", func(t *testing.T) {
				require.NoError(t, os.Remove(file))
				require.NoError(t, os.WriteFile(named(file, content), content, 0o600))
				healed(t)
			})
		}
		t.Run(kind+" gone", func(t *testing.T) {
			require.NoError(t, os.Remove(file))
			healed(t)
		})
		t.Run(kind+" is a folder", func(t *testing.T) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.MkdirAll(filepath.Join(file, "in it"), 0o700))
			healed(t)
		})
		t.Run(kind+" links to nowhere", func(t *testing.T) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Symlink("nowhere", file))
			healed(t)
		})
	}
}

// named is the name a file has with other content.
func named(file string, content []byte) string {
	name, _, _ := strings.Cut(file, "-")
	return name + "-" + host.Checksum(content)
}

// TestCacheIsUsed: a second host takes the compiled code of the first. It is
// not written again.
func TestCacheIsUsed(t *testing.T) {
	dir := t.TempDir()
	require.False(t, cached(t, t.TempDir()) && cached(t, dir))
	callEcho(t, cachedHost(t, dir, 0))
	before, err := os.Stat(codes(t, dir)[0])
	require.NoError(t, err)
	h := cachedHost(t, dir, 0)
	callEcho(t, h)
	require.True(t, found(t, h, echo.wasm()))
	after, err := os.Stat(codes(t, dir)[0])
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
}

// TestCacheTellsModulesApart: modules that differ only in a constant look the
// same to the runtime when it loads their code from the cache. Each still gets
// its own code, in one host and in the next.
func TestCacheTellsModulesApart(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		h := cachedHost(t, dir, 0)
		for n := range int64(3) {
			m := compile(t, h, guest{invoke: seq(tell(i32(n)), i32(0))}.wasm())
			o := do(context.Background(), h, m, host.Call{})
			require.NoError(t, o.err)
			require.Equal(t, []int32{int32(n)}, o.codes())
		}
	}
	require.Len(t, codes(t, dir), 3)
}

// TestCacheIsBounded: the cache keeps what was used last.
func TestCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	plugin := func(n int) []byte { return guest{invoke: seq(tell(i32(int64(n))), i32(0))}.wasm() }
	h := cachedHost(t, dir, 0)
	for n := range 3 {
		compile(t, h, plugin(n))
		old := time.Now().Add(time.Duration(n-10) * time.Hour)
		for _, entry := range folders(t, dir) {
			if info, err := os.Stat(entry); err == nil && time.Since(info.ModTime()) < time.Hour {
				require.NoError(t, os.Chtimes(entry, old, old))
			}
		}
	}
	require.Len(t, folders(t, dir), 3)
	var one int64
	for _, name := range append(codes(t, dir), modules(t, dir)...) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		one += info.Size() / 3
	}
	require.True(t, found(t, cachedHost(t, dir, 0), plugin(0)), "and is the last used from now on")
	compile(t, cachedHost(t, dir, 2*one+one/2), plugin(3))
	require.Len(t, folders(t, dir), 2)
	h = cachedHost(t, dir, 0)
	require.True(t, found(t, h, plugin(0)))
	require.True(t, found(t, h, plugin(3)))
	require.False(t, found(t, h, plugin(1)))
	require.False(t, found(t, cachedHost(t, dir, 1), plugin(2)))
	callEcho(t, cachedHost(t, dir, 1))
	require.Empty(t, folders(t, dir), "a cache too small for anything")
}

func folders(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "code", "*"))
	require.NoError(t, err)
	return found
}

// TestCacheIsSharedWhileItIsUsed: hosts that compile the same plugins at the
// same time get in nobody's way, and leave nothing behind but the code.
func TestCacheIsSharedWhileItIsUsed(t *testing.T) {
	dir := t.TempDir()
	errs := make(chan error)
	const hosts = 8
	for range hosts {
		go func() { errs <- useCache(dir) }()
	}
	for range hosts {
		require.NoError(t, <-errs)
	}
	require.Len(t, codes(t, dir), 2)
	requireTidy(t, dir)
}

// useCache compiles and calls two plugins.
func useCache(dir string) error {
	ctx := context.Background()
	h, err := host.New(ctx, host.Config{CacheDir: dir})
	if err != nil {
		return err
	}
	for _, wasm := range [][]byte{echo.wasm(), guest{invoke: seq(tell(i32(7)), i32(0))}.wasm()} {
		m, err := h.Compile(ctx, wasm)
		if err != nil {
			return err
		}
		if _, err := h.Call(ctx, m, host.Call{Args: []byte(`{}`)}); err != nil {
			return err
		}
	}
	return h.Close(ctx)
}

// TestRefusedPluginStopsNobody: a plugin that the runtime does not compile affects
// no other. Plugins compiled after it are kept.
func TestRefusedPluginStopsNobody(t *testing.T) {
	dir := t.TempDir()
	h := cachedHost(t, dir, 0)
	_, err := h.Compile(context.Background(), guest{invoke: i64(0)}.wasm())
	require.ErrorIs(t, err, host.ErrABI)
	require.ErrorContains(t, err, "it does not compile")
	require.Empty(t, folders(t, dir))
	callEcho(t, h)
	require.True(t, cached(t, dir))
}

// TestCompileEndsWithItsContext, and keeps nothing.
func TestCompileEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := fmt.Errorf("nobody waits")
	cancel(gone)
	_, err := cachedHost(t, dir, 0).Compile(ctx, echo.wasm())
	require.ErrorIs(t, err, gone)
	require.NotErrorIs(t, err, host.ErrABI)
	require.Empty(t, folders(t, dir))
}

// TestOutlineDoesNotRun: what stands for a module whose code is in the cache can
// be loaded only, never compiled, on one processor either.
func TestOutlineDoesNotRun(t *testing.T) {
	h := cachedHost(t, t.TempDir(), 0)
	require.False(t, h.LoadsOutline(t, echo.wasm(), false))
	require.False(t, h.LoadsOutline(t, guest{invoke: i32(1)}.wasm(), false))
	require.True(t, h.LoadsOutline(t, echo.wasm(), true))
}
