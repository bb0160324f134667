package plugins

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestMain makes the binary of these tests a program to compile in.
func TestMain(m *testing.M) {
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

// TestNobodyWaitsForADescribe: where the time to describe is over, a plugin that
// needs it is a problem, and the others are there. It is described later.
func TestNobodyWaitsForADescribe(t *testing.T) {
	for name, cache := range map[string]string{"kept": t.TempDir(), "not kept": ""} {
		t.Run(name, func(t *testing.T) {
			r := openWith(t, newHost(t), Config{
				Folders:  []Folder{folder(map[string][]byte{"late.wasm": describing(named("late")), "sealed.wasm": sealed(named("sealed"))})},
				CacheDir: cache, DescribeTime: 1, // nanosecond: over before it begins
			})
			require.Equal(t, []string{"sealed"}, toolNames(r))
			require.Len(t, r.Problems(), 1)
			require.ErrorIs(t, r.Problems()[0].Err, errLate)
			require.ErrorContains(t, r.Problems()[0].Err, "run toolhost compile")

			require.NoError(t, r.Compile(t.Context(), nil))
			require.Equal(t, []string{"late", "sealed"}, toolNames(r))
			require.Empty(t, problems(r))
		})
	}
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
	require.NotZero(t, compiled, "the interpreter did not suffice")
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

// ahead starts compiling ahead, and returns what it reports and what ends it.
func ahead(t *testing.T, r *Registry) (reports <-chan Changes, end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done, changes := make(chan struct{}), make(chan Changes, 10)
	go func() {
		defer close(done)
		r.CompileAhead(ctx, func(c Changes) { changes <- c })
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
	r := openWith(t, h, Config{Folders: []Folder{{Path: "plugins", FS: files}}, Interpret: []string{"interpreted"}, DescribeTime: 1})
	changes, end := ahead(t, r)
	defer end()
	require.Equal(t, []string{"late"}, (<-changes).ToolsAdded)

	compiled := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return h.Stats().Compiled.Anew+h.Stats().Compiled.Cached == n }, 2*time.Minute, time.Millisecond)
	}
	compiled(3)
	add(named("c"))
	_, err = r.Reload(t.Context())
	require.NoError(t, err)
	compiled(4)

	require.Equal(t, int64(2), h.Stats().Compiled.Anew, "one code of those that are sealed, and one of the other")

	for _, tool := range r.Tools() {
		if tool.Plugin.Denied() == nil {
			_, err := tool.Call(t.Context(), host.Call{Args: []byte(`{}`)})
			require.NoError(t, err, tool.Name)
		}
	}
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

// TestRefusedPluginIsNotLateForEver: a plugin that cannot be compiled to describe
// itself is a problem, and not asked again and again, also where there is no time
// for it.
func TestRefusedPluginIsNotLateForEver(t *testing.T) {
	module, err := wasmbin.Parse(describing(named("bad")))
	require.NoError(t, err)
	for i := range module.Codes {
		module.Codes[i] = wasmbin.Code{Body: []byte{byte(wasmbin.OpI64Const), 0, byte(wasmbin.OpEnd)}}
	}
	wasm := module.Encode()

	h := newHost(t)
	_, err = h.Compile(t.Context(), wasm)
	require.ErrorIs(t, err, host.ErrABI)
	r := openWith(t, h, Config{Folders: []Folder{folder(map[string][]byte{"bad.wasm": wasm})}, DescribeTime: 1})
	require.Empty(t, r.set.Load().late)
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
