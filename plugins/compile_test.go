package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// TestCompileAll: all plugins are compiled once, and their calls need no file
// any more.
func TestCompileAll(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{"a", "b", "c"} {
		files[name+".wasm"] = &fstest.MapFile{Data: sealed(named(name)), Mode: 0o644}
	}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	var seen []string
	progress := func(done, total int, file string, err error) {
		seen = append(seen, file)
		require.Equal(t, len(seen), done)
		require.Equal(t, 3, total)
		require.NoError(t, err)
	}
	require.NoError(t, r.Compile(t.Context(), progress))
	require.ElementsMatch(t, []string{"plugins/a.wasm", "plugins/b.wasm", "plugins/c.wasm"}, seen)
	for name := range files {
		delete(files, name)
	}
	for _, tool := range r.Tools() {
		_, err := tool.Call(t.Context(), host.Call{})
		require.NoError(t, err)
	}
}

// TestCompileSaysWhatFailed, and compiles the others.
func TestCompileSaysWhatFailed(t *testing.T) {
	files := fstest.MapFS{
		"a.wasm": {Data: sealed(named("a")), Mode: 0o644},
		"b.wasm": {Data: sealed(named("b")), Mode: 0o644},
	}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	delete(files, "a.wasm")
	failed := 0
	err := r.Compile(t.Context(), func(_, _ int, _ string, err error) {
		if err != nil {
			failed++
		}
	})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "plugins/a.wasm")
	require.Equal(t, 1, failed)

	gone := errors.New("the operator went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	require.ErrorIs(t, r.Compile(ctx, nil), gone)
}

// blockingFS is a folder whose file p.wasm is opened once the test allows it.
type blockingFS struct {
	fstest.MapFS
	opened chan struct{} // receives at each open
	allow  chan struct{} // lets one continue; nil lets all
}

func (b *blockingFS) Open(name string) (fs.File, error) {
	if allow := b.allow; allow != nil && name == "p.wasm" {
		b.opened <- struct{}{}
		<-allow
	}
	return b.MapFS.Open(name)
}

// blocked is a registry whose plugin p is compiled once the test allows it.
func blocked(t *testing.T) (*Registry, *blockingFS) {
	files := &blockingFS{MapFS: fstest.MapFS{"p.wasm": {Data: sealed(named("p"))}}, opened: make(chan struct{})}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	files.allow = make(chan struct{})
	return r, files
}

// A caller that waits for a compilation gives up with its own context, and the others
// have their module.
func TestOneOfTwoCallersGivesUp(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	gone := errors.New("the caller went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	first, second := make(chan error), make(chan error)
	go func() { _, err := p.use(ctx, host.CompileOptions{}); first <- err }()
	<-files.opened
	go func() { _, err := p.use(t.Context(), host.CompileOptions{}); second <- err }()
	require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.compiling.waiting == 2 }, 2*time.Minute, time.Millisecond)
	cancel(gone)
	require.ErrorIs(t, <-first, gone)
	files.allow <- struct{}{}
	require.NoError(t, <-second)
	require.Equal(t, 1, p.users)
	p.unuse()
	require.Empty(t, r.Problems())
}

// lateCtx is done, but looking up its cause blocks until tell is closed.
type lateCtx struct {
	context.Context
	asked, tell chan struct{}
}

func (c lateCtx) Value(key any) any {
	close(c.asked)
	<-c.tell
	return c.Context.Value(key)
}

// A caller that gives up just as the compilation ends still gets its result,
// and counts as a user.
func TestGiveUpAsCompilationEnds(t *testing.T) {
	for name, end := range map[string]func(*blockingFS){
		"compiled": func(*blockingFS) {},
		"failed":   func(f *blockingFS) { delete(f.MapFS, "p.wasm") },
	} {
		t.Run(name, func(t *testing.T) {
			r, files := blocked(t)
			p := r.Plugins()[0]
			type used struct {
				module *host.Module
				err    error
			}
			first, second := make(chan used, 1), make(chan used, 1)
			use := func(ctx context.Context, to chan used) {
				m, err := p.use(ctx, host.CompileOptions{})
				to <- used{m, err}
			}
			go use(t.Context(), first)
			<-files.opened
			done, cancel := context.WithCancel(t.Context())
			cancel()
			late := lateCtx{done, make(chan struct{}), make(chan struct{})}
			go use(late, second)
			<-late.asked // it no longer waits, and has not said so yet
			end(files)
			files.allow <- struct{}{}
			a := <-first
			close(late.tell)
			b := <-second
			require.Equal(t, a, b)
			if a.err != nil {
				require.ErrorIs(t, a.err, fs.ErrNotExist)
				require.Zero(t, p.users)
				return
			}

			require.NotNil(t, b.module)
			require.Equal(t, 2, p.users)
			p.unuse()
			_, err := r.host.Call(t.Context(), b.module, host.Call{})
			require.NoError(t, err)
			p.unuse()
			require.NoError(t, r.Close(t.Context()))
			require.Nil(t, p.module)
		})
	}
}

// If all callers give up, the compilation ends, and the next caller starts its own.
func TestAllCallersGiveUp(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	gone := errors.New("the caller went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	first, second := make(chan error), make(chan error)
	go func() { _, err := p.use(ctx, host.CompileOptions{}); first <- err }()
	<-files.opened
	cancel(gone)
	require.ErrorIs(t, <-first, gone)
	go func() { _, err := p.use(t.Context(), host.CompileOptions{}); second <- err }()
	files.allow <- struct{}{}
	<-files.opened
	files.allow <- struct{}{}
	require.NoError(t, <-second)
	require.Equal(t, 1, p.users)
	p.unuse()
	require.Empty(t, r.Problems(), "that nobody waited is no fault of the plugin")
}

// Close ends what is being compiled, and waits for it.
func TestCloseWhileCompiling(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	caller, closed := make(chan error), make(chan error)
	go func() { _, err := p.use(t.Context(), host.CompileOptions{}); caller <- err }()
	<-files.opened
	go func() { closed <- r.Close(t.Context()) }()
	require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.gone != nil }, 2*time.Minute, time.Millisecond)
	files.allow <- struct{}{}
	require.ErrorIs(t, <-caller, host.ErrClosed)
	require.NoError(t, <-closed)
	_, err := p.use(t.Context(), host.CompileOptions{})
	require.ErrorIs(t, err, host.ErrClosed)
}

// A plugin that does not compile is a problem until it does.
func TestCompileFailureIsAProblem(t *testing.T) {
	files := fstest.MapFS{"p.wasm": {Data: sealed(named("p"))}}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	kept := files["p.wasm"]
	delete(files, "p.wasm")
	require.ErrorIs(t, r.Compile(t.Context(), nil), fs.ErrNotExist)
	require.Len(t, r.Problems(), 1)
	require.Equal(t, "plugins/p.wasm", r.Problems()[0].File)
	require.ErrorIs(t, r.Problems()[0].Err, fs.ErrNotExist)
	files["p.wasm"] = kept
	require.NoError(t, r.Compile(t.Context(), nil))
	require.Empty(t, r.Problems())
}

// Compile begins no plugin once its context is done.
func TestCompileIsCanceledBetweenPlugins(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 50 {
		name := fmt.Sprintf("p%d", i)
		files[name+".wasm"] = &fstest.MapFile{Data: sealed(named(name))}
	}

	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	enough := errors.New("that is enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	seen := 0
	err := r.Compile(ctx, func(done, _ int, _ string, _ error) {
		if seen++; done == 3 {
			cancel(enough)
		}
	})
	require.ErrorIs(t, err, enough)
	require.LessOrEqual(t, seen, 3+2*runtime.GOMAXPROCS(0))
}

// Where compiled code is kept on disk, compiling all plugins leaves none of them
// in memory, but for those that are used.
func TestCompileKeepsWhatIsUsed(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{CacheDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	r := openWith(t, h, Config{Folders: []Folder{folder(map[string][]byte{"a.wasm": sealed(named("a")), "b.wasm": sealed(named("b"))})}})
	a, b := r.Plugins()[0], r.Plugins()[1]
	_, err = a.use(t.Context(), host.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Compile(t.Context(), nil))
	require.NotNil(t, a.module)

	require.Nil(t, b.module)
	for _, tool := range r.Tools() {
		_, err := tool.Call(t.Context(), host.Call{})
		require.NoError(t, err)
	}

	a.unuse()
	require.Zero(t, a.users)
	require.Zero(t, b.users)
}

// A call waits for the compilation of its plugin no longer than it may take. That
// ends with its last caller, and the next one has one of its own.
func TestCallWaitsForCompilation(t *testing.T) {
	r, files := blocked(t)
	tool := r.Tools()[0]
	type called struct {
		result abi.Result
		err    error
	}
	first := make(chan called)
	go func() {
		result, err := tool.Call(t.Context(), host.Call{Policy: host.Policy{Timeout: time.Millisecond}})
		first <- called{result, err}
	}()
	<-files.opened
	c := <-first
	require.ErrorIs(t, c.err, context.DeadlineExceeded)
	require.Equal(t, abi.LimitReached, c.result.Kind)
	require.Equal(t, abi.LimitTime, c.result.Limit)
	var waited *host.WaitedError
	require.ErrorAs(t, c.err, &waited)
	require.Equal(t, host.TimeoutError{Limit: time.Millisecond}, waited.Err)
	require.Equal(t, "time limit of 1ms reached while the call waited: its plugin was still being compiled, which is done once: try again in some seconds, or with more time", c.result.Error)
	files.allow <- struct{}{}

	go func() {
		result, err := tool.Call(t.Context(), host.Call{})
		first <- called{result, err}
	}()
	<-files.opened
	files.allow <- struct{}{}
	require.NoError(t, (<-first).err)
	require.Zero(t, tool.Plugin.users)
}

// A plugin that was compiled beforehand leaves its call all of its time. Who no
// longer waits for that is let go at once.
func TestCompileBeforehand(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	gone := errors.New("the caller went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	compiled := make(chan error)
	go func() { compiled <- p.Compile(ctx) }()
	<-files.opened
	cancel(gone)
	require.ErrorIs(t, <-compiled, gone)
	files.allow <- struct{}{}
	p.compilations.Wait() // what was compiled for nobody is freed
	go func() { compiled <- p.Compile(t.Context()) }()
	<-files.opened
	files.allow <- struct{}{}
	require.NoError(t, <-compiled)
	require.Zero(t, p.users)

	late, err := r.Tools()[0].Call(t.Context(), host.Call{Policy: host.Policy{Timeout: 1}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "time limit of 1ns reached", late.Error)
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
	require.NoError(t, p.Compile(t.Context()), "nothing is left to do")
}

// Code compiled for a caller that gave up is freed.
func TestCompiledForNobody(t *testing.T) {
	r, files := blocked(t)
	p := r.Plugins()[0]
	first := make(chan error)
	go func() {
		_, err := r.Tools()[0].Call(t.Context(), host.Call{Policy: host.Policy{Timeout: time.Millisecond}})
		first <- err
	}()
	<-files.opened
	require.ErrorIs(t, <-first, context.DeadlineExceeded)
	require.NoError(t, p.retire(t.Context(), ErrReplaced))
	files.allow <- struct{}{}
	p.compilations.Wait()
	require.Nil(t, p.module)
}
