package plugins

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// watched is a registry that is watched until the test ends.
type watched struct {
	*Registry
	t    *testing.T
	told chan Changes
}

func openWatched(t *testing.T, dirs ...string) watched {
	t.Helper()
	cfg := Config{}
	for _, dir := range dirs {
		cfg.Folders = append(cfg.Folders, Dir(dir))
	}
	return watchWith(t, cfg)
}

func watchWith(t *testing.T, cfg Config) watched {
	t.Helper()
	w := watched{openWith(t, newHost(t), cfg), t, make(chan Changes, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Watch(ctx, func(c Changes) { w.told <- c })
	}()
	t.Cleanup(func() { cancel(); <-ended })

	return w
}

// until waits for the tools to be these. What else is told on the way is no
// matter: a change that takes long may be seen half done.
func (w watched) until(tools ...string) {
	w.t.Helper()
	late := time.After(2 * time.Minute) // only if no more changes are reported
	for !slices.Equal(toolNames(w.Registry), tools) {
		select {
		case <-w.told:
		case <-late:
			require.Equal(w.t, tools, toolNames(w.Registry))
		}
	}
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, data, 0o644))
}

// swap makes a link lead elsewhere, at once.
func swap(t *testing.T, target, link string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, link+".new"))
	require.NoError(t, os.Rename(link+".new", link))
}

// What people and machines do with folders of plugins.
func TestWatch(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	for _, test := range []struct {
		name   string
		before func(t *testing.T, root string) // there are plugins in root/plugins
		steps  func(t *testing.T, root string, w watched)
	}{
		{"files come, change and go", nil, func(t *testing.T, root string, w watched) {
			w.until("a")
			write(t, root+"/plugins/b.wasm", sealed(named("b")))
			w.until("a", "b")
			write(t, root+"/plugins/b.wasm", sealed(named("b", "x", "y")))
			w.until("a", "b_x", "b_y")
			require.NoError(t, os.Remove(root+"/plugins/a.wasm"))
			w.until("b_x", "b_y")
			require.NoError(t, os.Rename(root+"/plugins/b.wasm", root+"/plugins/b.off"))
			w.until()
			write(t, root+"/plugins/c.wasm", unsealed())
			write(t, root+"/plugins/c.toolhost.yaml", []byte("contract: 1\n"))
			require.NoError(t, os.Rename(root+"/plugins/b.off", root+"/plugins/b.wasm"))
			w.until("b_x", "b_y")
		}},
		{"a file is copied in pieces", nil, func(t *testing.T, root string, w watched) {
			file, err := os.Create(root + "/plugins/b.wasm")
			require.NoError(t, err)
			defer file.Close()
			for wasm := sealed(named("b")); len(wasm) > 0; wasm = wasm[min(len(wasm), 50):] {
				_, err := file.Write(wasm[:min(len(wasm), 50)])
				require.NoError(t, err)
			}
			w.until("a", "b")
		}},
		{"the folder appears later, and its parents too", func(t *testing.T, root string) {
			require.NoError(t, os.RemoveAll(root+"/plugins"))
			swap(t, root+"/later/deep", root+"/plugins")
		}, func(t *testing.T, root string, w watched) {
			w.until()
			write(t, root+"/later/deep/b.wasm", sealed(named("b")))
			w.until("b")
			require.NoError(t, os.RemoveAll(root+"/later"))
			w.until()
			write(t, root+"/later/deep/c.wasm", sealed(named("c")))
			w.until("c")
		}},
		{"the folder is replaced by another", nil, func(t *testing.T, root string, w watched) {
			write(t, root+"/next/b.wasm", sealed(named("b")))
			require.NoError(t, os.Rename(root+"/plugins", root+"/old"))
			require.NoError(t, os.Rename(root+"/next", root+"/plugins"))
			w.until("b")
			write(t, root+"/plugins/c.wasm", sealed(named("c")))
			w.until("b", "c")
			require.NoError(t, os.RemoveAll(root+"/plugins"))
			w.until()
			write(t, root+"/plugins/d.wasm", sealed(named("d")))
			w.until("d")
		}},
		{"a link to the folder is swapped", func(t *testing.T, root string) {
			require.NoError(t, os.MkdirAll(root+"/releases", 0o755))
			require.NoError(t, os.Rename(root+"/plugins", root+"/releases/1"))
			swap(t, "releases/1", root+"/plugins")
		}, func(t *testing.T, root string, w watched) {
			w.until("a")
			write(t, root+"/releases/2/b.wasm", sealed(named("b")))
			swap(t, "releases/2", root+"/plugins")
			w.until("b")
			write(t, root+"/releases/2/c.wasm", sealed(named("c")))
			w.until("b", "c")
		}},
		{"a link above the folder is swapped", func(t *testing.T, root string) {
			require.NoError(t, os.MkdirAll(root+"/releases/1", 0o755))
			require.NoError(t, os.Rename(root+"/plugins", root+"/releases/1/tools"))
			swap(t, root+"/releases/1", root+"/current")
			swap(t, "current/tools", root+"/plugins")
		}, func(t *testing.T, root string, w watched) {
			w.until("a")
			write(t, root+"/releases/2/tools/b.wasm", sealed(named("b")))
			swap(t, root+"/releases/2", root+"/current")
			w.until("b")
			swap(t, root+"/releases/1", root+"/current")
			w.until("a")
		}},
		{"as Kubernetes mounts them", func(t *testing.T, root string) {
			write(t, root+"/plugins/..1/b.wasm", sealed(named("b")))
			swap(t, "..1", root+"/plugins/..data")
			swap(t, "..data/b.wasm", root+"/plugins/b.wasm")
		}, func(t *testing.T, root string, w watched) {
			w.until("a", "b")
			write(t, root+"/plugins/..2/b.wasm", sealed(named("b", "x", "y")))
			swap(t, "..2", root+"/plugins/..data")
			w.until("a", "b_x", "b_y")
			write(t, root+"/plugins/..3/b.wasm", sealed(named("b", "z")))
			swap(t, "..3", root+"/plugins/..data")
			w.until("a", "b_z")
		}},
		{"a link to a file that is built elsewhere", func(t *testing.T, root string) {
			write(t, root+"/build/b.wasm", sealed(named("b")))
			swap(t, "../build/b.wasm", root+"/plugins/b.wasm")
		}, func(t *testing.T, root string, w watched) {
			w.until("a", "b")
			write(t, root+"/build/b.wasm", sealed(named("b", "x", "y")))
			w.until("a", "b_x", "b_y")
			write(t, root+"/build/b.wasm", sealed(named("b", "z")))
			w.until("a", "b_z")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			write(t, root+"/plugins/a.wasm", sealed(named("a")))
			if test.before != nil {
				test.before(t, root)
			}
			test.steps(t, root, openWatched(t, root+"/plugins"))
		})
	}
}

// What changed before anybody watched is found too.
func TestWatchBeginsWithAReload(t *testing.T) {
	dir := t.TempDir()
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}})
	write(t, dir+"/a.wasm", sealed(named("a")))
	ctx, cancel := context.WithCancel(t.Context())
	r.Watch(ctx, func(c Changes) {
		require.Equal(t, []string{"a"}, c.Added)
		cancel()
	})
	require.Equal(t, []string{"a"}, toolNames(r))
}

// Folders that are not of the system are not watched, and a registry that is
// closed neither.
func TestWatchEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	open(t, map[string][]byte{"p.wasm": sealed(named("p"))}).Watch(ctx, nil)

	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(t.TempDir()), {Path: "memory", FS: fstest.MapFS{}}}})
	ended := make(chan struct{})
	go func() { defer close(ended); r.Watch(t.Context(), nil) }()
	require.NoError(t, r.Close(t.Context()))
	<-ended
}

// A change is read once it has settled, and in the end also when it never does.
func TestWatchWaitsForQuiet(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/plugins/a.wasm", sealed(named("a")))
	w := openWatched(t, root+"/plugins")
	w.until("a")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // a neighbor that is always written
		for n := byte(0); ctx.Err() == nil; n++ {
			_ = os.WriteFile(root+"/plugins/busy.wasm", []byte{n}, 0o600)
			time.Sleep(time.Millisecond)
		}
	}()
	write(t, root+"/plugins/b.wasm", sealed(named("b")))
	w.until("a", "b")
}

// A file that is not a plugin's does not change what a poll finds, however often it
// is written.
func TestWatchIgnoresOtherFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.wasm", sealed(named("a")))
	write(t, dir+"/notes.txt", []byte("1"))
	before := look([]string{dir}, "")
	write(t, dir+"/notes.txt", []byte("2"))
	require.Equal(t, before, look([]string{dir}, ""))
	write(t, dir+"/a.toolhost.json", []byte("{}"))
	require.NotEqual(t, before, look([]string{dir}, ""))
}
