package plugins

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
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
		w.Watch(ctx, func(c Changes, err error) {
			if err != nil {
				t.Error(err)
			}
			w.told <- c
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })

	return w
}

// until waits for the tools to be these. What else is told on the way is no
// matter: a change that takes long may be seen half done.
func (w watched) until(tools ...string) {
	w.t.Helper()
	late := time.After(5 * time.Minute) // only where nothing is told any more
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
	r.Watch(ctx, func(c Changes, err error) {
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, c.Added)
		cancel()
	})
	require.Equal(t, []string{"a"}, toolNames(r))
}

// Folders that are not of the system are not watched, and a registry that is
// closed neither.
func TestWatchEnds(t *testing.T) {
	open(t, map[string][]byte{"p.wasm": sealed(named("p"))}).Watch(t.Context(), nil)

	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(t.TempDir()), {Path: "memory", FS: fstest.MapFS{}}}})
	ended := make(chan struct{})
	go func() { defer close(ended); r.Watch(t.Context(), nil) }()
	require.NoError(t, r.Close(t.Context()))
	<-ended
}

// A folder the system does not watch is told of once, and the others are
// watched.
func TestWatchWhatCannotBe(t *testing.T) {
	dir := t.TempDir()
	sealedOff := filepath.Join(dir, "off")
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("root may watch everything")
	}
	require.NoError(t, os.Mkdir(sealedOff, 0o311))
	w, err := watch([]Folder{Dir(dir), Dir(sealedOff)})
	defer w.close()
	require.ErrorContains(t, err, "the folder "+sealedOff+" is not watched, reload its plugins by hand")
	require.Contains(t, w.names, dir)
	require.NotContains(t, w.names, sealedOff)
}

// The number of folders that are watched is bounded, however many links lead to
// others.
func TestWatchIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxWatched + 10 {
		name := filepath.Join(dir, "elsewhere", string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676)))
		require.NoError(t, os.MkdirAll(name, 0o755))
		require.NoError(t, os.Symlink(name+"/p.wasm", filepath.Join(dir, filepath.Base(name)+".wasm")))
	}
	w, err := watch([]Folder{Dir(dir)})
	defer w.close()
	require.ErrorContains(t, err, "there are 1024 others already")
	require.Len(t, w.names, maxWatched)
	require.LessOrEqual(t, len(w.WatchList()), maxWatched)
}

// Where a path leads, and what would have it lead elsewhere.
func TestFollow(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)

	require.NoError(t, os.MkdirAll(root+"/a/b", 0o755))
	for link, target := range map[string]string{
		"relative": "a/b", "absolute": root + "/a", "a/up": "../a/b", "chain": "relative", "dangling": "nowhere/deep", "loop": "loop", "root": "/",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}

	for _, test := range []struct {
		path, real string
		turns      []entry
	}{
		{"a/b", "a/b", []entry{{"a", "b"}}},
		{"relative", "a/b", []entry{{"", "relative"}, {"a", "b"}}},
		{"absolute/b", "a/b", []entry{{"", "absolute"}, {"a", "b"}}},
		{"absolute/up", "a/b", []entry{{"", "absolute"}, {"a", "up"}, {"a", "b"}}},
		{"chain", "a/b", []entry{{"", "chain"}, {"", "relative"}, {"a", "b"}}},
		{"a/none/deep", "", []entry{{"a", "none"}}},
		{"dangling/x", "", []entry{{"", "dangling"}, {"", "nowhere"}}},
	} {
		real, turns := follow(filepath.Join(root, test.path))
		want := test.real
		if want != "" {
			want = filepath.Join(root, want)
		}
		require.Equal(t, want, real, test.path)
		for i := range test.turns {
			test.turns[i].dir = filepath.Join(root, test.turns[i].dir)
		}
		require.Equal(t, test.turns, turns, test.path)
	}

	real, turns := follow(filepath.Join(root, "loop"))
	require.Empty(t, real)
	require.Len(t, turns, maxLinks+1)
	real, _ = follow(filepath.Join(root, "root"))
	require.Equal(t, "/", real)
}

// inFolder is watches of the folder /p, whose events are the test's, and of the
// name in in /, and how long until they have something to tell.
func inFolder() (w *watches, events chan fsnotify.Event, errs chan error) {
	events, errs = make(chan fsnotify.Event, 16), make(chan error)
	return &watches{Watcher: &fsnotify.Watcher{Events: events, Errors: errs}, names: map[string][]string{"/p": nil, "/": {"link"}}}, events, errs
}

// A change is told when it has been quiet for a while, and in the end also when
// it never is.
func TestWatchWaitsForQuiet(t *testing.T) {
	at := func(name string) fsnotify.Event { return fsnotify.Event{Name: name, Op: fsnotify.Write} }
	for _, test := range []struct {
		name string
		send func(ctx context.Context, events chan<- fsnotify.Event, errs chan<- error)
		want time.Duration
	}{
		{"one write", func(_ context.Context, events chan<- fsnotify.Event, _ chan<- error) { events <- at("/p/a.wasm") }, debounce},
		{"a copy", func(_ context.Context, events chan<- fsnotify.Event, _ chan<- error) {
			for range 10 {
				events <- at("/p/a.wasm")
				time.Sleep(debounce / 2)
			}
		}, 5 * debounce},
		{"writes without end", func(ctx context.Context, events chan<- fsnotify.Event, _ chan<- error) {
			for ctx.Err() == nil {
				select {
				case events <- at("/p/a.wasm"):
				case <-ctx.Done():
				}
			}
		}, maxDelay},
		{"a link above", func(_ context.Context, events chan<- fsnotify.Event, _ chan<- error) { events <- at("/link") }, debounce},
		{"the folder itself", func(_ context.Context, events chan<- fsnotify.Event, _ chan<- error) { events <- at("/p") }, debounce},
		{"too many", func(_ context.Context, _ chan<- fsnotify.Event, errs chan<- error) { errs <- fsnotify.ErrEventOverflow }, debounce},
		{"a neighbour first", func(_ context.Context, events chan<- fsnotify.Event, _ chan<- error) {
			events <- at("/other")
			time.Sleep(time.Hour)
			events <- at("/p/a.wasm")
		}, time.Hour + debounce},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w, events, errs := inFolder()
				go test.send(ctx, events, errs)
				begin := time.Now()
				w.wait(ctx)
				took := time.Since(begin)
				require.GreaterOrEqual(t, took, test.want)
				require.LessOrEqual(t, took, test.want+2*debounce)
			})
		})
	}
}

// A neighbour that never rests costs a bounded number of looks, and reloads
// nothing.
func TestWatchOfABusyNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w, events, _ := inFolder()
		var taken atomic.Int64
		go func() {
			for ctx.Err() == nil {
				select {
				case events <- fsnotify.Event{Name: "/neighbour", Op: fsnotify.Write}:
					taken.Add(1)
				case <-ctx.Done():
				}
			}
		}()
		const long = time.Minute
		time.AfterFunc(long, func() { cancel(errors.New("enough")) })
		begin := time.Now()
		w.wait(ctx)
		require.GreaterOrEqual(t, time.Since(begin), long, "nothing is to be reloaded")
		require.LessOrEqual(t, taken.Load(), int64(long/debounce+1)*(burst+1))
	})
}
