package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// wasmFile is a file of a folder in memory.
func wasmFile(data []byte) *fstest.MapFile { return &fstest.MapFile{Data: data, Mode: 0o644} }

// openMap opens a folder in memory that the test changes between reloads.
func openMap(t testing.TB, files fstest.MapFS) *Registry {
	t.Helper()
	return openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
}

func reload(t testing.TB, r *Registry) Changes {
	t.Helper()
	c, err := r.Reload(t.Context())
	require.NoError(t, err)
	return c
}

// saying is a plugin with one tool that answers with a number, and is described
// by a text.
func saying(name, description string, n int) []byte {
	m := plugintest.Manifest(name)
	m.Tools[0].Description = description
	return plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Say(abi.StreamResult, fmt.Sprint(n))}.Wasm()
}

// answer is what the one tool of a plugin answers now.
func answer(t testing.TB, r *Registry, tool string) string {
	t.Helper()
	found, err := r.Lookup(tool)
	require.NoError(t, err)
	result, err := found.Call(t.Context(), host.Call{})
	require.NoError(t, err)
	return string(result.Value)
}

// Each reload finds what Open would, and says what has changed since.
func TestReload(t *testing.T) {
	sidecar := func(description string) *fstest.MapFile {
		m := named("beside")
		m.Tools[0].Description = description
		return wasmFile(plugintest.JSON(m))
	}
	files := fstest.MapFS{"a.wasm": wasmFile(saying("a", "one", 1)), "b.wasm": wasmFile(saying("b", "one", 1))}
	r := openMap(t, files)
	for _, step := range []struct {
		name   string
		change func()
		want   Changes
		tools  []string
	}{
		{"nothing", func() {}, Changes{}, []string{"a", "b"}},
		{
			"a plugin is new", func() { files["c.wasm"] = wasmFile(sealed(named("c", "x", "y"))) },
			Changes{Added: []string{"c"}, ToolsAdded: []string{"c_x", "c_y"}}, []string{"a", "b", "c_x", "c_y"},
		},
		{
			"other tools", func() { files["c.wasm"] = wasmFile(sealed(named("c", "y", "z"))) },
			Changes{Changed: []string{"c"}, ToolsAdded: []string{"c_z"}, ToolsRemoved: []string{"c_x"}}, []string{"a", "b", "c_y", "c_z"},
		},
		{
			"new code, the same words", func() { files["a.wasm"] = wasmFile(saying("a", "one", 2)) },
			Changes{Changed: []string{"a"}}, []string{"a", "b", "c_y", "c_z"},
		},
		{
			"other words", func() { files["a.wasm"] = wasmFile(saying("a", "two", 2)) },
			Changes{Changed: []string{"a"}, ToolsChanged: []string{"a"}}, []string{"a", "b", "c_y", "c_z"},
		},
		{"the same again", func() { files["a.wasm"] = wasmFile(saying("a", "two", 2)) }, Changes{}, []string{"a", "b", "c_y", "c_z"}},
		{
			"one is gone", func() { delete(files, "c.wasm") },
			Changes{Removed: []string{"c"}, ToolsRemoved: []string{"c_y", "c_z"}}, []string{"a", "b"},
		},
		{"another file, the same plugin", func() {
			files["new.wasm"] = files["b.wasm"]
			delete(files, "b.wasm")
		}, Changes{Changed: []string{"b"}}, []string{"a", "b"}},
		{"with a sidecar", func() {
			files["beside.wasm"], files["beside.toolhost.json"] = wasmFile(unsealed()), sidecar("one")
		}, Changes{Added: []string{"beside"}, ToolsAdded: []string{"beside"}}, []string{"a", "b", "beside"}},
		{
			"another sidecar", func() { files["beside.toolhost.json"] = sidecar("two") },
			Changes{Changed: []string{"beside"}, ToolsChanged: []string{"beside"}}, []string{"a", "b", "beside"},
		},
		{"the sidecar is ignored", func() {
			files["a.toolhost.json"] = sidecar("two")
		}, Changes{Problems: []Problem{{"plugins/a.toolhost.json", errors.New("ignored: the module has a manifest of its own")}}}, []string{"a", "b", "beside"}},
		{"that is known already", func() {}, Changes{}, []string{"a", "b", "beside"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.change()
			require.Equal(t, step.want, reload(t, r))
			require.Equal(t, step.tools, toolNames(r))
			opened := openWith(t, r.host, r.cfg)
			require.Equal(t, toolNames(opened), toolNames(r))
			require.Equal(t, problems(opened), problems(r))
		})
	}
}

// What has not changed is the same plugin, with its compiled code.
func TestReloadKeepsWhatIsTheSame(t *testing.T) {
	for name, plugin := range map[string][]byte{"sealed": sealed(named("p")), "describes itself": describing(named("p"))} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{"p.wasm": wasmFile(plugin), "q.wasm": wasmFile(saying("q", "one", 1))}
			r := openMap(t, files)
			p, q := r.Plugins()[0], r.Plugins()[1]
			require.Equal(t, "1", answer(t, r, "q"))
			_, err := p.Tools[0].Call(t.Context(), host.Call{})
			require.NoError(t, err)
			module := p.module
			compiled := r.host.Stats().Compiled.Anew
			files["q.wasm"] = wasmFile(saying("q", "one", 2))
			require.Equal(t, Changes{Changed: []string{"q"}}, reload(t, r))
			require.Same(t, p, r.Plugins()[0])
			require.Same(t, module, p.module)
			require.NotSame(t, q, r.Plugins()[1])
			_, err = p.Tools[0].Call(t.Context(), host.Call{})
			require.NoError(t, err)
			require.Equal(t, compiled, r.host.Stats().Compiled.Anew)
			require.Equal(t, "2", answer(t, r, "q"))
		})
	}
}

// A file that can no longer be loaded is a problem. Its plugin stays in use if it was called,
// or compiled ahead of its first call; otherwise nothing is left to use.
func TestReloadOfBrokenFiles(t *testing.T) {
	files := fstest.MapFS{"p.wasm": wasmFile(saying("p", "one", 1))}
	const goesOn = "; the earlier version stays in use until the file is repaired or removed"
	for _, test := range []struct {
		name   string
		change func()
		goesOn bool
	}{
		{"cut off", func() { files["p.wasm"] = wasmFile(files["p.wasm"].Data[:60]) }, true},
		{"no wasm", func() { files["p.wasm"] = wasmFile([]byte("404 not found")) }, true},
		{"empty", func() { files["p.wasm"] = wasmFile(nil) }, true},
		{"traps when it is asked what it is", func() {
			files["p.wasm"] = wasmFile(plugintest.Plugin{Describe: plugintest.Do().Trap(), Invoke: plugintest.Do().Echo()}.Wasm())
		}, true},
		{"a folder", func() { files["p.wasm"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755} }, false}, // which no plugin can be
		{"gone", func() { delete(files, "p.wasm") }, false},
	} {
		for _, compiled := range []string{"by a call", "ahead", "never"} {
			t.Run(test.name+"/compiled "+compiled, func(t *testing.T) {
				good := wasmFile(saying("p", "one", 1))
				files["p.wasm"] = good
				h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir()})
				require.NoError(t, err)
				defer h.Close(context.Background())
				r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: files}}})
				p := r.Plugins()[0]
				switch compiled {
				case "by a call":
					require.Equal(t, "1", answer(t, r, "p"))
				case "ahead":
					require.NoError(t, p.compileAhead(t.Context(), host.CompileOptions{LowPriority: true}))
					require.Nil(t, p.module, "its code takes no memory")
				}

				test.change()
				c := reload(t, r)
				if !test.goesOn || compiled == "never" {
					require.Equal(t, []string{"p"}, c.Removed)
					require.Empty(t, r.Tools())
					require.Nil(t, p.module)
					_, err := p.Tools[0].Call(t.Context(), host.Call{})
					require.ErrorIs(t, err, ErrReplaced)
					return
				}

				require.Len(t, c.Problems, 1)
				require.ErrorContains(t, c.Problems[0].Err, goesOn)
				require.Equal(t, Changes{Problems: c.Problems}, c)
				require.NoError(t, r.Compile(t.Context(), nil), "a plugin kept in use cannot be compiled again")
				require.Equal(t, "1", answer(t, r, "p"))
				require.Equal(t, Changes{}, reload(t, r), "nothing new")

				files["p.wasm"] = good
				require.Equal(t, Changes{Solved: []string{"plugins/p.wasm"}}, reload(t, r))
				require.Empty(t, problems(r))
				require.Same(t, p, r.Plugins()[0])
				require.NoError(t, r.Compile(t.Context(), nil))
				require.Nil(t, p.module, "it is as any other")
				require.Equal(t, "1", answer(t, r, "p"))

				test.change()
				require.Len(t, reload(t, r).Problems, 1)
				files["p.wasm"] = wasmFile(saying("p", "two", 2))
				require.Equal(t, Changes{Changed: []string{"p"}, ToolsChanged: []string{"p"}}, reload(t, r))
				require.Equal(t, "2", answer(t, r, "p"))
				require.Nil(t, p.module)
			})
		}
	}
}

// deafFS is a folder that cannot be listed while there is an error.
type deafFS struct {
	fstest.MapFS
	err error
}

func (d *deafFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if d.err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: d.err}
	}
	return d.MapFS.ReadDir(name)
}

// A reload neither compiles nor loads code to keep a plugin in use: the next call does.
func TestReloadCompilesNothing(t *testing.T) {
	files := &deafFS{MapFS: fstest.MapFS{"ahead.wasm": wasmFile(saying("ahead", "one", 1)), "never.wasm": wasmFile(saying("never", "one", 2))}}
	h, err := host.New(t.Context(), host.Config{CacheDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	p := r.Plugins()[0]
	require.NoError(t, p.compileAhead(t.Context(), host.CompileOptions{LowPriority: true}))
	compiled := h.Stats().Compiled

	files.err = fs.ErrPermission
	require.Equal(t, []string{"never"}, reload(t, r).Removed)
	require.Equal(t, compiled, h.Stats().Compiled)
	require.Nil(t, p.module)
	files.MapFS["ahead.wasm"] = wasmFile(nil)
	require.Equal(t, "1", answer(t, r, "ahead"))
	require.Equal(t, compiled.Cached+1, h.Stats().Compiled.Cached)
}

// The plugins of a folder that cannot be read stay in use if they are compiled; those of
// one that is gone do not.
func TestReloadOfBrokenFolders(t *testing.T) {
	files := &deafFS{MapFS: fstest.MapFS{"p.wasm": wasmFile(saying("p", "one", 1)), "q.wasm": wasmFile(saying("q", "one", 1)), "r.wasm": wasmFile(saying("r", "one", 1))}}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	require.Equal(t, "1", answer(t, r, "p"))
	require.Equal(t, "1", answer(t, r, "r"))
	files.err = fs.ErrPermission
	c := reload(t, r)
	require.Equal(t, []string{"q"}, c.Removed, "it is not compiled")
	require.Equal(t, []string{"plugins: the folder cannot be read: permission denied"}, []string{c.Problems[0].String()})
	require.Equal(t, []string{"p", "r"}, toolNames(r))
	files.err = nil
	require.Equal(t, []string{"q"}, reload(t, r).Added)
	files.err = fs.ErrNotExist
	require.Equal(t, []string{"p", "q", "r"}, reload(t, r).Removed)
}

// A name that a second file claims belongs to neither, and returns to the file that
// is left.
func TestReloadCollisions(t *testing.T) {
	files := fstest.MapFS{"1.wasm": wasmFile(sealed(named("a", "x"))), "good.wasm": wasmFile(sealed(named("good")))}
	r := openMap(t, files)
	files["2.wasm"] = wasmFile(describing(named("a", "y")))
	c := reload(t, r)
	require.Equal(t, []string{"a"}, c.Removed)
	require.Len(t, c.Problems, 2)
	require.Equal(t, []string{"good"}, toolNames(r))
	delete(files, "1.wasm")
	require.Equal(t, Changes{Added: []string{"a"}, ToolsAdded: []string{"a_y"}, Solved: []string{"plugins/1.wasm"}}, reload(t, r))
	require.Empty(t, problems(r))
}

// A plugin that stays in use although its file is broken does not block its names:
// repairing it under another file name has the same result as a restart.
func TestReloadOfBrokenFileInTheWay(t *testing.T) {
	files := fstest.MapFS{"1.wasm": wasmFile(saying("p", "one", 1)), "good.wasm": wasmFile(sealed(named("good")))}
	r := openMap(t, files)
	p := r.Plugins()[0]
	require.Equal(t, "1", answer(t, r, "p"))
	files["1.wasm"] = wasmFile(files["1.wasm"].Data[:60])
	require.Len(t, reload(t, r).Problems, 1)
	require.Equal(t, "1", answer(t, r, "p"))

	files["2.wasm"] = wasmFile(saying("p", "one", 2))
	require.Equal(t, []string{"p"}, reload(t, r).Changed)
	require.Equal(t, "2", answer(t, r, "p"))
	require.Nil(t, p.module)
	opened := openWith(t, r.host, r.cfg)
	require.Equal(t, toolNames(opened), toolNames(r))
	require.Equal(t, problems(opened), problems(r))
	require.Empty(t, reload(t, r), "it is the same each time")
}

// Two files that change names, and a plugin whose file changes its name while
// another takes the old one, are what a restart finds.
func TestReloadOfSwappedFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name+".wasm") }
	for n, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(file(name), saying(name, "one", n), 0o600))
		require.NoError(t, os.Chtimes(file(name), time.Time{}, time.Unix(1, 0)))
	}

	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}})
	require.Equal(t, "0", answer(t, r, "a"))
	for range 2 {
		require.NoError(t, os.Rename(file("a"), file("c")))
		require.NoError(t, os.Rename(file("b"), file("a")))
		require.NoError(t, os.Rename(file("c"), file("b")))
		require.Equal(t, Changes{Changed: []string{"a", "b"}}, reload(t, r))
		require.Equal(t, "0", answer(t, r, "a"))
		require.Equal(t, "1", answer(t, r, "b"))
		require.Empty(t, problems(r))
	}

}

// A call that runs in a plugin ends in it, whatever became of its file, and the
// last one frees it.
func TestReloadWhileInUse(t *testing.T) {
	files := fstest.MapFS{"p.wasm": wasmFile(saying("p", "one", 1))}
	r := openMap(t, files)
	p := r.Plugins()[0]
	module, err := p.use(t.Context(), host.CompileOptions{})
	require.NoError(t, err)
	_, err = p.use(t.Context(), host.CompileOptions{})
	require.NoError(t, err)
	files["p.wasm"] = wasmFile(saying("p", "one", 2))
	require.Equal(t, []string{"p"}, reload(t, r).Changed)
	require.Equal(t, "2", answer(t, r, "p"))
	result, err := r.host.Call(t.Context(), module, host.Call{})
	require.NoError(t, err)
	require.Equal(t, "1", string(result.Value))
	p.unuse()
	require.NotNil(t, p.module)
	p.unuse()
	require.Nil(t, p.module)
	_, err = p.use(t.Context(), host.CompileOptions{})
	require.ErrorIs(t, err, ErrReplaced)
	require.Empty(t, reload(t, r))
}

// Close frees plugins that were replaced, too.
func TestCloseFreesWhatWasReplaced(t *testing.T) {
	files := fstest.MapFS{"p.wasm": wasmFile(saying("p", "one", 1))}
	r := openMap(t, files)
	p := r.Plugins()[0]
	_, err := p.use(t.Context(), host.CompileOptions{})
	require.NoError(t, err)
	delete(files, "p.wasm")
	reload(t, r)
	require.NoError(t, r.Close(t.Context()))
	require.NotNil(t, p.module, "a call runs in it, against the rules")
	p.unuse()
	require.Nil(t, p.module)
	require.Zero(t, r.host.Stats().Memory)
}

// A caller that waits for a plugin to be compiled gets an error if the plugin is
// replaced meanwhile, and then finds the new one.
func TestReloadWhileCompiling(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	caller := make(chan error)
	go func() { _, err := p.use(t.Context(), host.CompileOptions{}); caller <- err }()
	<-files.opened
	allow := files.allow
	files.allow = nil
	files.MapFS["p.wasm"] = wasmFile(saying("p", "one", 2))
	require.Equal(t, []string{"p"}, reload(t, r).Changed)
	allow <- struct{}{}
	require.ErrorIs(t, <-caller, ErrReplaced)
	require.Equal(t, "2", answer(t, r, "p"))
	require.Empty(t, problems(r))
}

// gateFS lets each listing of the folder go on when the test says so.
type gateFS struct {
	fstest.MapFS
	listed, allow chan struct{} // nil: it does not stop
}

func (g *gateFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if g.listed != nil {
		g.listed <- struct{}{}
		<-g.allow
	}
	return g.MapFS.ReadDir(name)
}

// Reloads take turns, end with their context and with the registry, and then
// nothing has changed.
func TestReloadIsEnded(t *testing.T) {
	files := &gateFS{MapFS: fstest.MapFS{"p.wasm": wasmFile(sealed(named("p")))}}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	files.listed, files.allow = make(chan struct{}), make(chan struct{})
	files.MapFS["q.wasm"] = wasmFile(describing(named("q")))
	gone := errors.New("the operator went away")
	ended := make(chan error)
	begin := func(ctx context.Context) { go func() { _, err := r.Reload(ctx); ended <- err }() }

	ctx, cancel := context.WithCancelCause(t.Context())
	begin(ctx)
	<-files.listed
	waiting, leave := context.WithCancelCause(t.Context())
	begin(waiting) // for its turn
	leave(gone)
	require.ErrorIs(t, <-ended, gone)
	cancel(gone)
	files.allow <- struct{}{}
	require.ErrorIs(t, <-ended, gone)
	require.Equal(t, []string{"p"}, toolNames(r))

	begin(t.Context())
	<-files.listed
	begin(t.Context())
	frozen := make(chan struct{})
	go func() { r.Freeze(); close(frozen) }()

	require.ErrorIs(t, <-ended, host.ErrClosed, "the one that waits")
	select {
	case <-frozen:
		t.Fatal("a reload runs")
	default:
	}

	files.allow <- struct{}{}
	require.ErrorIs(t, <-ended, host.ErrClosed)
	<-frozen
	_, err := r.Reload(t.Context())
	require.ErrorIs(t, err, host.ErrClosed)
	require.Equal(t, []string{"p"}, toolNames(r))
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err, "calls go on")
}

// switchFS is a folder that changes as a whole.
type switchFS struct{ now atomic.Pointer[fstest.MapFS] }

func (s *switchFS) Open(name string) (fs.File, error) { return s.now.Load().Open(name) }

// Calls, lookups, Compile and other reloads go on while the plugins are replaced
// again and again: none of them fails, all see one set or the other, and nothing
// is left of what was replaced.
func TestReloadUnderLoad(t *testing.T) {
	rounds := 50
	if fulltest.Enabled() {
		rounds = 300
	}
	folder := &switchFS{}
	install := func(version int) {
		text := fmt.Sprint("version ", version)
		folder.now.Store(&fstest.MapFS{
			"a.wasm": wasmFile(saying("a", text, version)), "b.wasm": wasmFile(saying("b", text, version)), "same.wasm": wasmFile(saying("same", "version 100", 100)),
		})
	}
	install(100)
	h := newHost(t)
	r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: folder}}})
	for _, tool := range []string{"a", "b", "same"} {
		answer(t, r, tool)
	}
	same := r.Plugins()[2]
	before := h.Stats()

	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	var calls atomic.Int64
	for _, name := range []string{"a", "b", "same"} {
		busy.Go(func() {
			for ctx.Err() == nil {
				tool, err := r.Lookup(name)
				if !assert.NoError(t, err) {
					return
				}
				result, err := tool.Call(t.Context(), host.Call{})
				if errors.Is(err, ErrReplaced) || errors.Is(err, ErrChanged) {
					continue
				}
				if !assert.NoError(t, err) || !assert.Equal(t, tool.Tool.Description, "version "+string(result.Value)) {
					return
				}
				calls.Add(1)
			}
		})
	}

	busy.Go(func() {
		for ctx.Err() == nil {
			tools := r.Tools()
			assert.Equal(t, tools[0].Tool.Description, tools[1].Tool.Description, "half of a set")
			if err := r.Compile(t.Context(), nil); err != nil {
				assert.ErrorIs(t, err, ErrChanged)
			}
		}
	})
	for version := 1; version <= rounds; version++ {
		install(100 + version) // as long as the others
		c := reload(t, r)
		require.Equal(t, []string{"a", "b"}, c.Changed)
		for calls.Load() < int64(version) && !t.Failed() { // or nothing would run in most of them
			runtime.Gosched()
		}
	}

	stop()
	busy.Wait()
	require.Empty(t, problems(r))
	require.Same(t, same, r.Plugins()[2])
	for _, tool := range []string{"a", "b", "same"} {
		answer(t, r, tool)
	}
	reload(t, r)
	after := h.Stats()
	require.Equal(t, before.MemoryOf.Images, after.MemoryOf.Images)
	require.LessOrEqual(t, after.Instances, 3*host.DefaultWarm)
	require.Zero(t, after.Running)
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, h.Stats().Memory)
	require.Zero(t, h.Stats().Instances)
}
