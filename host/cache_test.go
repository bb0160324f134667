package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

func cachedHost(t *testing.T, dir string, size int64) *host.Host {
	t.Helper()
	h, err := host.New(context.Background(), host.Config{CacheDir: dir, CacheSize: size})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	return h
}

// prepared are the files with rewritten modules.
func prepared(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "code", "*-prepared-*"))
	require.NoError(t, err)
	return files
}

// entries are the files with compiled code.
func entries(t *testing.T, dir string) (files []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(dir, "code"))
	require.NoError(t, err)
	for _, e := range all {
		if !e.IsDir() && !strings.Contains(e.Name(), "-prepared-") {
			files = append(files, filepath.Join(dir, "code", e.Name()))
		}
	}
	return files
}

func callEcho(t *testing.T, h *host.Host) {
	t.Helper()
	o := do(context.Background(), h, compile(t, h, echo.wasm()), host.Call{Args: []byte(`{"a":1}`)})
	require.NoError(t, o.err)
	require.Equal(t, `{"a":1}`, string(o.Value))
}

// TestCacheHeals: whatever becomes of a file in the cache, the plugin is
// compiled again, and the file is whole again.
func TestCacheHeals(t *testing.T) {
	dir := t.TempDir()
	callEcho(t, cachedHost(t, dir, 0))
	require.Len(t, entries(t, dir), 1)
	file := entries(t, dir)[0]
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	flip := func(at int) []byte {
		broken := append([]byte(nil), whole...)
		broken[at] ^= 0xff
		return broken
	}
	for name, content := range map[string][]byte{
		"empty": {}, "cut off": whole[:len(whole)/2], "one byte less": whole[:len(whole)-1], "longer": append(whole[:len(whole):len(whole)], 0),
		"header": flip(0), "where a function begins": flip(len("WAZEVO") + 1 + len("1.12.0") + 4), "code": flip(len(whole) / 2), "end": flip(len(whole) - 1),
		"text": []byte("not code"),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, content, 0o600))
			callEcho(t, cachedHost(t, dir, 0))
			healed, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, whole, healed)
		})
	}
	for name, content := range map[string][]byte{"empty": {}, "text": []byte("not a module")} {
		t.Run("rewritten module: "+name, func(t *testing.T) {
			require.Len(t, prepared(t, dir), 1)
			require.NoError(t, os.WriteFile(prepared(t, dir)[0], content, 0o600))
			callEcho(t, cachedHost(t, dir, 0))
			healed, err := os.ReadFile(prepared(t, dir)[0])
			require.NoError(t, err)
			require.NotEqual(t, content, healed)
		})
	}
	t.Run("gone", func(t *testing.T) {
		require.NoError(t, os.Remove(file))
		callEcho(t, cachedHost(t, dir, 0))
		require.Equal(t, []string{file}, entries(t, dir))
	})
}

// TestCacheIsUsed: a second host takes the compiled code of the first. It is
// not written again.
func TestCacheIsUsed(t *testing.T) {
	dir := t.TempDir()
	callEcho(t, cachedHost(t, dir, 0))
	before, err := os.Stat(entries(t, dir)[0])
	require.NoError(t, err)
	callEcho(t, cachedHost(t, dir, 0))
	after, err := os.Stat(entries(t, dir)[0])
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
}

// TestCacheIsBounded: the cache keeps what was used last.
func TestCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	callEcho(t, cachedHost(t, dir, 0))
	file := entries(t, dir)[0]
	info, err := os.Stat(file)
	require.NoError(t, err)
	h := cachedHost(t, dir, info.Size()+1)
	compile(t, h, guest{invoke: i32(1)}.wasm())
	left := entries(t, dir)
	require.Len(t, left, 1)
	require.NotEqual(t, file, left[0])
	callEcho(t, h) // it is compiled again
}

// TestCacheIsSharedWhileItIsUsed: hosts that compile the same plugins at the
// same time get in nobody's way, and leave nothing behind but the code.
func TestCacheIsSharedWhileItIsUsed(t *testing.T) {
	dir := t.TempDir()
	errs := make(chan error)
	const hosts = 8
	for range hosts {
		go func() {
			h, err := host.New(context.Background(), host.Config{CacheDir: dir})
			if err == nil {
				_, err = h.Compile(context.Background(), echo.wasm())
			}
			if err == nil {
				_, err = h.Compile(context.Background(), guest{invoke: i32(1)}.wasm())
			}
			if err == nil {
				err = h.Close(context.Background())
			}
			errs <- err
		}()
	}
	for range hosts {
		require.NoError(t, <-errs)
	}
	require.Len(t, entries(t, dir), 2)
	all, err := os.ReadDir(filepath.Join(dir, "code"))
	require.NoError(t, err)
	for _, e := range all {
		require.False(t, strings.HasPrefix(e.Name(), "."), e.Name())
	}
}

// TestCacheFolderCleanedUp: somebody removes the whole folder while a host uses
// it.
func TestCacheFolderCleanedUp(t *testing.T) {
	dir := t.TempDir()
	h := cachedHost(t, dir, 0)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "code")))
	callEcho(t, h)
	require.Len(t, entries(t, dir), 1)
}
