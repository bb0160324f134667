package plugins

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// fullDisk is a folder for compiled code in which compilers find no room.
const fullDisk = "full-disk"

// TestMain makes the binary of these tests a program to compile in.
func TestMain(m *testing.M) {
	if dir, _ := os.Getwd(); strings.Contains(dir, fullDisk) {
		fmt.Println(`{"failed":"write module: no space left on device","full":true}`)
		os.Exit(0)
	}
	host.CompilerMain()
	os.Exit(m.Run())
}

// neverDescribes is a plugin that takes all its fuel to describe itself.
func neverDescribes() []byte {
	return plugintest.Plugin{
		Describe: plugintest.Do().Spin(),
		Invoke:   plugintest.Do().Echo(),
	}.Wasm()
}

// later opens a folder whose plugins are described in the background.
func later(t *testing.T, h *host.Host, files fstest.MapFS, change func(*Config)) *Registry {
	cfg := Config{Folders: []Folder{{Path: "plugins", FS: files}}, DescribeLater: true}
	if change != nil {
		change(&cfg)
	}
	return openWith(t, h, cfg)
}

// TestDescribeLater: nobody waits for a plugin that has to be asked for its manifest. It
// is a problem until then, and the others are there.
func TestDescribeLater(t *testing.T) {
	for name, cache := range map[string]string{"kept": t.TempDir(), "not kept": ""} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			files := fstest.MapFS{"bare.wasm": wasmFile(describing(named("bare"))), "sealed.wasm": wasmFile(sealed(named("sealed")))}
			r := later(t, h, files, func(c *Config) { c.CacheDir = cache })
			require.Equal(t, []string{"sealed"}, toolNames(r))
			require.Len(t, r.Problems(), 1)
			require.ErrorIs(t, r.Problems()[0].Err, errPending)
			require.ErrorContains(t, r.Problems()[0].Err, "toolhost seal writes the manifest into the file")
			require.Zero(t, h.Stats().Compiled)

			require.NoError(t, r.Compile(t.Context(), nil))
			require.Equal(t, []string{"bare", "sealed"}, toolNames(r))
			require.Empty(t, problems(r))

			again := later(t, h, files, func(c *Config) { c.CacheDir = cache })
			require.Equal(t, cache != "", len(again.Tools()) == 2)
		})
	}
}

// TestNoPluginWaitsForAnother: each plugin is there once it is described, also if one
// before it never says what it is.
func TestNoPluginWaitsForAnother(t *testing.T) {
	files := fstest.MapFS{"a.wasm": wasmFile(neverDescribes()), "b.wasm": wasmFile(describing(named("b"))), "c.wasm": wasmFile(describing(named("c")))}
	r := later(t, newHost(t), files, nil)
	require.Len(t, r.Problems(), 3)
	changes, end := aheadWith(t, r.DescribeAhead)
	defer end()

	c := <-changes
	require.Len(t, c.Problems, 1)
	require.ErrorIs(t, c.Problems[0].Err, host.ErrFuel)
	require.Equal(t, []string{"b"}, (<-changes).ToolsAdded)
	require.Equal(t, []string{"c"}, (<-changes).ToolsAdded)
	require.Len(t, r.Problems(), 1)
}

// TestReplacedByOneToDescribe: while the new version of a file is being described the
// earlier one stays in use, also if it was never compiled.
func TestReplacedByOneToDescribe(t *testing.T) {
	for _, compiled := range []bool{false, true} {
		t.Run(fmt.Sprint("compiled ", compiled), func(t *testing.T) {
			files := fstest.MapFS{"p.wasm": wasmFile(saying("p", "one", 1)), "q.wasm": wasmFile(sealed(named("q")))}
			r := later(t, newHost(t), files, nil)
			if compiled {
				require.Equal(t, "1", answer(t, r, "p"))
			}

			files["p.wasm"] = wasmFile(describing(named("p", "x")))
			c := reload(t, r)
			require.Equal(t, Changes{Problems: c.Problems}, c)
			require.ErrorContains(t, c.Problems[0].Err, "; the earlier version stays in use until then")
			require.Equal(t, []string{"p", "q"}, toolNames(r))
			if compiled {
				require.Equal(t, "1", answer(t, r, "p"))
			} else {
				_, err := r.Tools()[0].Call(t.Context(), host.Call{})
				require.ErrorIs(t, err, ErrChanged, "try again")
			}

			changes, end := aheadWith(t, r.DescribeAhead)
			defer end()
			require.Equal(t, Changes{Changed: []string{"p"}, ToolsAdded: []string{"p_x"}, ToolsRemoved: []string{"p"}}, <-changes)
			require.Empty(t, problems(r))
		})
	}
}

// TestReconfigureAsksNobodyAgain: what a plugin has said of itself is known as long as its
// file is the same, also without a cache.
func TestReconfigureAsksNobodyAgain(t *testing.T) {
	m := named("p")
	m.Needs.Clock = true
	h := newHost(t)
	r := later(t, h, fstest.MapFS{"p.wasm": wasmFile(describing(m)), "bad.wasm": wasmFile(plugintest.Plugin{Describe: plugintest.Do().Say(abi.StreamManifest, "{}")}.Wasm())}, nil)
	require.NoError(t, r.Compile(t.Context(), nil))
	require.Equal(t, []string{"p"}, toolNames(r))

	asked := h.Stats().Started
	for _, clock := range []bool{true, false} {
		_, err := r.Reconfigure(t.Context(), func(c *Config) { c.Grants = map[string]Grant{"p": {Clock: clock}} })
		require.NoError(t, err)
		require.Equal(t, []string{"p"}, toolNames(r))
		require.Equal(t, clock, r.Plugins()[0].Denied() == nil)
		require.Len(t, r.Problems(), 1)
		require.NotErrorIs(t, r.Problems()[0].Err, errPending)
	}
	require.Equal(t, asked, h.Stats().Started)
}

// TestInterpretedIsNeverCompiled: a plugin without a manifest may be one that no compiler
// is to see, which is known when it has said its name.
func TestInterpretedIsNeverCompiled(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{Compiler: filepath.Join(t.TempDir(), "none")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	r := openWith(t, h, Config{Folders: []Folder{folder(map[string][]byte{"p.wasm": describing(named("p"))})}, Interpret: []string{"p"}})
	require.Empty(t, problems(r))
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
}

// TestAcceptedVersionIsDescribedLater: an accepted version that is kept, and has no
// manifest, is served once it is described.
func TestAcceptedVersionIsDescribedLater(t *testing.T) {
	s := accepting(t, map[string][]byte{"box.wasm": describing(named("box"))}, nil)
	s.files["box.wasm"] = wasmFile(sealed(named("box", "evil")))
	s.cfg.DescribeLater = true
	r := s.open()
	require.Empty(t, toolNames(r))
	require.ErrorIs(t, r.Problems()[0].Err, errPending)

	require.NoError(t, r.Compile(t.Context(), nil))
	require.Equal(t, []string{"box"}, toolNames(r))
	require.ErrorContains(t, r.Problems()[0].Err, "; the accepted version stays in use")
}

// TestAcceptedVersionStaysWhileAnotherIsDescribed: an accepted version stays in use while the
// file in its place has to be asked for its manifest.
func TestAcceptedVersionStaysWhileAnotherIsDescribed(t *testing.T) {
	s := accepting(t, map[string][]byte{"p.wasm": describing(named("p", "x")), "p.toolhost.json": plugintest.JSON(named("p"))}, nil)
	s.cfg.DescribeLater = true
	r := s.open()
	accepted := toolNames(r)
	delete(s.files, "p.toolhost.json")
	c, err := r.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, c.ToolsRemoved)
	require.Equal(t, accepted, toolNames(r))
	require.NoError(t, r.Compile(t.Context(), nil))
	require.Equal(t, accepted, toolNames(r))
}

// TestCannotBeAsked: that a plugin could not be asked, which is not its fault, is its problem,
// and it is not asked again at once.
func TestCannotBeAsked(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{Compiler: filepath.Join(t.TempDir(), "none")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	r := later(t, h, fstest.MapFS{"p.wasm": wasmFile(describing(named("p")))}, nil)
	require.ErrorIs(t, r.Problems()[0].Err, errPending)
	require.NoError(t, r.describe(t.Context(), false, nil))
	require.NotErrorIs(t, r.Problems()[0].Err, errPending)
	require.ErrorContains(t, r.Problems()[0].Err, "no such file or directory")

	before := r.set.Load()
	require.NoError(t, r.describe(t.Context(), false, nil))
	require.Same(t, before, r.set.Load())
}

// TestFailedDescribeIsRemembered: a plugin that cannot say what it is is asked
// once, however often the folder is read.
func TestFailedDescribeIsRemembered(t *testing.T) {
	files := fstest.MapFS{"p.wasm": wasmFile(neverDescribes())}
	h := newHost(t)
	r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	require.Len(t, r.Problems(), 1)
	require.ErrorIs(t, r.Problems()[0].Err, host.ErrFuel)

	compiled := h.Stats().Compiled.Anew
	require.NotZero(t, compiled)
	for range 3 {
		_, err := r.Reload(t.Context())
		require.NoError(t, err)
		require.Len(t, r.Problems(), 1)
	}

	require.Equal(t, compiled, h.Stats().Compiled.Anew)

	files["p.wasm"] = wasmFile(describing(named("p")))
	_, err := r.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems(r))
}

// aheadWith starts compiling or describing ahead, and returns what it reports and what
// ends it.
func aheadWith(t *testing.T, ahead func(context.Context, func(Changes))) (reports <-chan Changes, end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done, changes := make(chan struct{}), make(chan Changes, 10)
	go func() {
		defer close(done)
		ahead(ctx, func(c Changes) { changes <- c })
	}()
	return changes, func() {
		cancel()
		<-done
	}
}

// TestCompileAhead: plugins are compiled although nobody calls them, also those a
// reload brings, one after the other, but for those that are not to be called or
// not to be compiled.
func TestCompileAhead(t *testing.T) {
	needy := named("needy")
	needy.Needs.Clock = true
	files := fstest.MapFS{}
	add := func(m *abi.Manifest) { files[m.Name+".wasm"] = wasmFile(sealed(m)) }
	for _, m := range []*abi.Manifest{named("a"), named("b"), named("interpreted"), needy} {
		add(m)
	}
	files["late.wasm"] = wasmFile(describing(named("late")))

	h, err := host.New(t.Context(), host.Config{CacheDir: t.TempDir(), Compiler: host.ThisProgram()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: files}}, Interpret: []string{"interpreted"}, DescribeLater: true})
	changes, end := aheadWith(t, r.CompileAhead)
	defer end()
	require.Equal(t, []string{"late"}, (<-changes).ToolsAdded)

	compiled := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return h.Stats().Compiled.Anew+h.Stats().Compiled.Cached == n }, 2*time.Minute, time.Millisecond)
	}
	compiled(4)
	add(named("c"))
	_, err = r.Reload(t.Context())
	require.NoError(t, err)
	compiled(5)

	require.Equal(t, int64(3), h.Stats().Compiled.Anew, "one code of those that are sealed, and that of the other, which was interpreted too")

	for _, tool := range r.Tools() {
		if tool.Plugin.Denied() == nil {
			_, err := tool.Call(t.Context(), host.Call{Args: []byte(`{}`)})
			require.NoError(t, err, tool.Name)
		}
	}
}

// TestCompileAheadOnAFullDisk: a plugin whose code cannot be stored is reported, and its
// caller learns why.
func TestCompileAheadOnAFullDisk(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{CacheDir: filepath.Join(t.TempDir(), fullDisk), Compiler: host.ThisProgram()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })

	r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: fstest.MapFS{"a.wasm": wasmFile(sealed(named("a")))}}}})
	changes, end := aheadWith(t, r.CompileAhead)
	defer end()
	found := (<-changes).Problems
	require.Len(t, found, 1)
	require.ErrorIs(t, found[0].Err, host.ErrSpace)
	require.Equal(t, found, r.Problems())

	result, err := r.Tools()[0].Call(t.Context(), host.Call{})
	require.ErrorIs(t, err, host.ErrSpace)
	require.Equal(t, host.ErrSpace.Error(), result.Error)
}

// TestRefusedPlugin: what cannot be compiled is a problem with its reason, also
// in the next process, and is not tried again.
func TestRefusedPlugin(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	module, err := wasmbin.Parse(sealed(named("bad")))
	require.NoError(t, err)
	for i := range module.Codes {
		module.Codes[i] = wasmbin.Code{Body: []byte{byte(wasmbin.OpI64Const), 0, byte(wasmbin.OpEnd)}}
	}

	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.wasm"), module.Encode(), 0o600))

	for _, tried := range []bool{false, true} {
		h, err := host.New(t.Context(), host.Config{CacheDir: cache, Compiler: host.ThisProgram()})
		require.NoError(t, err)
		r := openWith(t, h, Config{Folders: []Folder{Dir(dir)}, CacheDir: cache})
		_, err = r.ReadDigests(t.Context())
		require.NoError(t, err)
		require.Equal(t, tried, len(r.Problems()) == 1)

		result, err := r.Tools()[0].Call(t.Context(), host.Call{})
		require.ErrorIs(t, err, host.ErrABI)
		require.Contains(t, result.Error, "the plugin bad (bad.wasm) cannot be run: module: it does not compile")
		require.NotContains(t, result.Error, dir, "a model is not told of folders")
		require.Len(t, r.Problems(), 1)
		require.ErrorContains(t, r.Problems()[0].Err, "it does not compile")
		require.ErrorIs(t, r.Plugins()[0].Refused(), host.ErrABI)
		require.NoError(t, h.Close(t.Context()))
	}
}

// TestRefusedPluginIsNotPending: a plugin that cannot be compiled to describe itself is a
// problem with the reason, and not asked again and again.
func TestRefusedPluginIsNotPending(t *testing.T) {
	module, err := wasmbin.Parse(describing(named("bad")))
	require.NoError(t, err)
	for i := range module.Codes {
		module.Codes[i] = wasmbin.Code{Body: []byte{byte(wasmbin.OpI64Const), 0, byte(wasmbin.OpEnd)}}
	}
	wasm := module.Encode()

	h := newHost(t)
	_, err = h.Compile(t.Context(), wasm)
	require.ErrorIs(t, err, host.ErrABI)
	r := later(t, h, fstest.MapFS{"bad.wasm": wasmFile(wasm)}, nil)
	require.Len(t, r.Problems(), 1)
	require.ErrorContains(t, r.Problems()[0].Err, "it does not compile")
}

// TestUrgentCallerOvertakes: a call of a plugin that is being compiled at low
// priority compiles it anew, and the caller that began the first compilation returns.
func TestUrgentCallerOvertakes(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	low, urgent := make(chan error), make(chan error)
	go func() { low <- p.compileAhead(t.Context(), host.CompileOptions{LowPriority: true}) }()
	<-files.opened
	go func() {
		_, err := p.use(t.Context(), host.CompileOptions{})
		urgent <- err
	}()
	require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.compiling.canceled }, 2*time.Minute, time.Millisecond)
	files.allow <- struct{}{}
	<-files.opened // anew
	files.allow <- struct{}{}
	require.NoError(t, <-urgent)
	require.ErrorIs(t, <-low, errOvertaken)
	require.Equal(t, 1, p.users)
	require.Empty(t, r.Problems())
	p.unuse()
}

// TestGiveUpWhenOvertaken: nobody waits for a compilation whose place another one
// has taken.
func TestGiveUpWhenOvertaken(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	ctx, cancel := context.WithCancel(t.Context())
	low, urgent := make(chan error), make(chan error)
	go func() { low <- p.compileAhead(ctx, host.CompileOptions{LowPriority: true}) }()
	<-files.opened
	go func() {
		_, err := p.use(t.Context(), host.CompileOptions{})
		urgent <- err
	}()
	require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.compiling.canceled }, 2*time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-low, context.Canceled)
	files.allow <- struct{}{}
	<-files.opened
	files.allow <- struct{}{}
	require.NoError(t, <-urgent)
	require.Equal(t, 1, p.users)
	p.unuse()
}
