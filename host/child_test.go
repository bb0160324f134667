package host_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// inChild is a host that compiles in child processes: the binary of this test.
func inChild(t testing.TB, cfg host.Config) *host.Host {
	t.Helper()
	cfg.Compiler = host.ThisProgram()
	require.NotEmpty(t, cfg.Compiler)
	return hostWith(t, cfg)
}

// TestCompileInChild: what a child makes is called as what this process makes,
// with a folder for code and without one.
func TestCompileInChild(t *testing.T) {
	dir := t.TempDir()
	for name, cfg := range map[string]host.Config{"kept": {CacheDir: dir}, "not kept": {}} {
		t.Run(name, func(t *testing.T) {
			h := inChild(t, cfg)
			callEcho(t, h)
			require.EqualValues(t, 1, h.Stats().Compiled.Anew)
			require.Equal(t, cfg.CacheDir != "", h.KeepsCode())
		})
	}
	require.True(t, found(t, inChild(t, host.Config{CacheDir: dir}), echo.wasm()), "it was kept")
	require.True(t, found(t, cachedHost(t, dir, 0), echo.wasm()), "it is found in process too")
}

// heavy is a module that takes some memory to compile: many functions of some
// size, within all bounds.
func heavy() []byte {
	g := echo
	g.change = func(m *wasmbin.Module) {
		var body []byte
		for range 400 {
			body = append(body, set(0, op(wasmbin.OpI32Add, get(0), get(1)))...)
		}
		for range 2000 {
			m.Functions = append(m.Functions, uint32(len(m.Types)))
			m.Codes = append(m.Codes, wasmbin.Code{Body: append(append([]byte(nil), body...), byte(wasmbin.OpEnd))})
		}
		m.Types = append(m.Types, wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32, wasmbin.I32}})
	}
	return g.wasm()
}

func digestOf(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}

// TestRefusalsAreKept: a permanent refusal by the compiler is recorded in the
// folder, whatever the limits are. Files there that are not refusals are ignored.
func TestRefusalsAreKept(t *testing.T) {
	dir := t.TempDir()
	bad := guest{invoke: i64(0)}.wasm()
	_, err := cachedHost(t, dir, 0).Compile(t.Context(), bad)
	require.ErrorIs(t, err, host.ErrABI)

	file := filepath.Join(dir, "refused", digestOf(bad))
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	require.ErrorContains(t, inChild(t, host.Config{CacheDir: dir, CompileMemory: 1 << 40}).Refused(digestOf(bad)), "it does not compile")

	for name, content := range map[string]string{
		"empty": "", "cut off": string(whole[:len(whole)/2]), "no reason": `{}`, "another version": `{"version":"older","refused":"x"}`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		h := cachedHost(t, dir, 0)
		require.NoError(t, h.Refused(digestOf(bad)), name)
		_, err := h.Compile(t.Context(), bad)
		require.ErrorContains(t, err, "it does not compile", name)
	}

	require.NoError(t, os.WriteFile(file, whole, 0o600))
	require.NoError(t, os.Chmod(file, 0o666))
	require.NoError(t, cachedHost(t, dir, 0).Refused(digestOf(bad)), "others can have written it")
}

// TestCompileEndsWithTheHost: nobody waits for a compilation when the host is
// closed.
func TestCompileEndsWithTheHost(t *testing.T) {
	h := inChild(t, host.Config{})
	compiled := make(chan error)
	go func() {
		_, err := h.Compile(context.Background(), heavy())
		compiled <- err
	}()
	require.NoError(t, h.Close(t.Context()))
	if err := <-compiled; err != nil { // else it was quicker
		require.ErrorIs(t, err, host.ErrClosed)
	}
}

// TestCompilerThatIsNone: a program that does not compile is no fault of a
// plugin, and the next try may find another one there.
func TestCompilerThatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "compiler")
	h := hostWith(t, host.Config{Compiler: path})
	_, err := h.Compile(t.Context(), echo.wasm())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, host.ErrABI)
	require.NoError(t, h.Refused(digestOf(echo.wasm())))

	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, path))
	callEcho(t, h)
}

// TestInterpret: a module that is interpreted behaves as one that is compiled,
// and no compiler sees it.
func TestInterpret(t *testing.T) {
	h := hostWith(t, host.Config{Compiler: filepath.Join(t.TempDir(), "none")})
	before := h.Stats().Memory
	m, err := h.CompileWith(t.Context(), echo.wasm(), host.CompileOptions{Interpret: true})
	require.NoError(t, err)
	require.Greater(t, h.Stats().Memory, before, "what the interpreter keeps counts")

	for range 3 {
		o := do(t.Context(), h, m, host.Call{Args: []byte(`{"a":1}`)})
		require.NoError(t, o.err)
		require.Equal(t, `{"a":1}`, string(o.Value))
	}
	spins, err := h.CompileWith(t.Context(), guest{invoke: seq(forever(), i32(0))}.wasm(), host.CompileOptions{Interpret: true})
	require.NoError(t, err)
	o := do(t.Context(), h, spins, host.Call{Policy: host.Policy{Fuel: 100_000}})
	require.ErrorIs(t, o.err, host.ErrFuel)
	require.Equal(t, abi.LimitFuel, o.Limit)

	require.NoError(t, m.Close(t.Context()))
	require.NoError(t, spins.Close(t.Context()))
	require.LessOrEqual(t, h.Stats().Memory, before)
}

// TestInterpretedStackCounts: the values of an interpreted guest lie on a heap that the
// guest does not see. Each call pushes all locals of a function.
func TestInterpretedStackCounts(t *testing.T) {
	const calls, locals = 1900, 900
	counter := load(i32(0))
	helper := seq(when(counter, store(0, op(wasmbin.OpI32Sub, load(i32(0)), i32(1))), call(fnHelper)), drop(read(abi.FieldScript, 0, 8))) // each function of the host checks the stack
	wasm := guest{invoke: seq(store(0, i32(calls)), call(fnHelper), drop(write(abi.StreamResult, dataAt, 2)), i32(0)), helper: helper, data: "{}", change: func(m *wasmbin.Module) {
		m.Codes[0].Locals = []wasmbin.LocalGroup{{Count: locals, Type: wasmbin.I32}}
	}}.wasm()

	h := hostWith(t, host.Config{})
	m, err := h.CompileWith(t.Context(), wasm, host.CompileOptions{Interpret: true})
	require.NoError(t, err)
	o := do(t.Context(), h, m, host.Call{})
	require.NoError(t, o.err)
	require.Greater(t, h.Stats().MemoryPeak, int64(calls*locals*8))
	require.NoError(t, m.Close(t.Context()))
}

// TestInterpretIsBounded: what an interpreter cannot hold is refused.
func TestInterpretIsBounded(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 1 << 20})
	_, err := h.CompileWith(t.Context(), heavy(), host.CompileOptions{Interpret: true})
	require.ErrorIs(t, err, host.ErrHostMemory)

	many := echo
	many.change = func(m *wasmbin.Module) {
		m.Codes[0].Locals = append(m.Codes[0].Locals, wasmbin.LocalGroup{Count: 5000, Type: wasmbin.I32})
	}
	_, err = newHost(t, nil).CompileWith(t.Context(), many.wasm(), host.CompileOptions{Interpret: true})
	require.ErrorIs(t, err, host.ErrABI)
	require.ErrorContains(t, err, "at most 1000 are allowed")
	require.False(t, errors.Is(err, host.ErrHostMemory))
}
