package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// change returns the binary of a plain reactor after f has changed it.
func change(f func(m *wasmbin.Module)) []byte { return guest{change: f}.wasm() }

// importing returns a reactor that imports one more function.
func importing(module, name string, t wasmbin.FuncType) []byte {
	return change(func(m *wasmbin.Module) {
		m.Imports[fnYield] = wasmbin.Import{Module: module, Name: name, Type: uint32(len(m.Types))}
		m.Types = append(m.Types, t)
	})
}

func importingKind(im wasmbin.Import) []byte {
	im.Module, im.Name = "env", "it"
	return change(func(m *wasmbin.Module) {
		m.Imports = append(m.Imports, im)
		if im.Kind == wasmbin.KindMemory {
			m.Memories = nil
		}
	})
}

// exporting returns a reactor with one more export.
func exporting(name string, kind wasmbin.Kind, index uint32) []byte {
	return change(func(m *wasmbin.Module) {
		m.Exports = append(m.Exports, wasmbin.Export{Name: name, Kind: kind, Index: index})
	})
}

func withoutExport(name string) []byte {
	return change(func(m *wasmbin.Module) {
		for i := range m.Exports {
			if m.Exports[i].Name == name {
				m.Exports[i].Name = "other"
			}
		}
	})
}

// TestRefusals holds what is refused and every word a user sees of it.
func TestRefusals(t *testing.T) {
	plain := guest{}.wasm()
	global := func(m *wasmbin.Module) {
		m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32}, Init: append(i32(0), byte(wasmbin.OpEnd))}}
	}
	for name, c := range map[string]struct {
		wasm []byte
		want string
	}{
		"an empty file":     {nil, `module: malformed wasm: the file is empty`},
		"a text file":       {[]byte("Dear diary,\n"), `module: malformed wasm: this is a text file, not a WebAssembly binary`},
		"text of a module":  {[]byte("(module)\n"), `module: malformed wasm: this is WebAssembly text; translate it with wat2wasm first`},
		"not a module":      {[]byte("\x01\x02\x03\xff\x00\x10\x80\x90"), `module: malformed wasm: not a WebAssembly binary: it does not start with "\0asm"`},
		"a native program":  {[]byte("\x7fELF\x02\x01\x01\x00"), `module: malformed wasm: this is a native program, not a WebAssembly binary: build it for wasm32-wasip1, in Go with GOOS=wasip1 GOARCH=wasm`},
		"a component":       {[]byte("\x00asm\x0d\x00\x01\x00"), `module: unsupported wasm: this is a component, and only core modules are accepted; build for wasm32-wasip1 instead of wasip2, or take the core module out of it with wasm-tools`},
		"a later version":   {[]byte("\x00asm\x02\x00\x00\x00"), `module: unsupported wasm: unknown version of the binary format; only version 1 is accepted`},
		"a cut off header":  {plain[:6], `module: malformed wasm: the file ends within its first 8 bytes; is it cut off?`},
		"a cut off section": {plain[:len(plain)-3], `module: malformed wasm: code section at byte 0x265: unexpected end in section; is the file cut off?`},
		"an empty module":   {plain[:8], `export "toolhost_invoke": missing, and there is no _start either, so this is a library: a plugin exports one of the two`},

		"a misspelled function":      {importing(abi.Version, "wirte", sig("iii", true)), `import "toolhost_v1.wirte": toolhost_v1 has no such function, did you mean "write"?`},
		"a function nobody has":      {importing(abi.Version, "teleport", sig("iii", true)), `import "toolhost_v1.teleport": toolhost_v1 has only call, call_start, progress, read, write: other capabilities are operations of call`},
		"a wrong type":               {importing(abi.Version, "write", sig("ii", true)), `import "toolhost_v1.write": expected the type (i32, i32, i32) -> i32, found (i32, i32) -> i32`},
		"a wrong result":             {importing(abi.Version, "progress", sig("ddii", false)), `import "toolhost_v1.progress": expected the type (f64, f64, i32, i32) -> i32, found (f64, f64, i32, i32) -> ()`},
		"a misspelled WASI function": {importing(abi.ImportWASI, "fd_wirte", sig("iiii", true)), `import "wasi_snapshot_preview1.fd_wirte": wasi_snapshot_preview1 has no such function, did you mean "fd_write"?`},
		"an unknown WASI function":   {importing(abi.ImportWASI, "teleport", sig("i", true)), `import "wasi_snapshot_preview1.teleport": this host has no such function in wasi_snapshot_preview1`},
		"sockets":                    {importing(abi.ImportWASI, "sock_open", sig("iii", true)), `import "wasi_snapshot_preview1.sock_open": plugins have no network: build without sockets`},
		"WASIX":                      {importing("wasix_32v1", "sock_open", sig("iii", true)), `import "wasix_32v1.sock_open": this is WASIX, whose network, threads and processes plugins do not have: build for wasm32-wasip1`},
		"a wrong WASI type":          {importing(abi.ImportWASI, "fd_write", sig("iii", true)), `import "wasi_snapshot_preview1.fd_write": expected the type (i32, i32, i32, i32) -> i32, found (i32, i32, i32) -> i32`},
		"a memory":                   {importingKind(wasmbin.Import{Kind: wasmbin.KindMemory, Memory: wasmbin.Limits{Min: 1}}), `import "env.it": found a memory, but a plugin may import only functions: define it in the plugin`},
		"a table":                    {importingKind(wasmbin.Import{Kind: wasmbin.KindTable, Table: wasmbin.TableType{Elem: wasmbin.FuncRef}}), `import "env.it": found a table, but a plugin may import only functions: define it in the plugin`},
		"a global":                   {importingKind(wasmbin.Import{Kind: wasmbin.KindGlobal, Global: wasmbin.GlobalType{Type: wasmbin.I32}}), `import "env.it": found a global, but a plugin may import only functions: define it in the plugin`},
		"another version":            {importing("toolhost_v2", "write", sig("iii", true)), `import "toolhost_v2.write": this host speaks toolhost_v1 only: build the plugin for it`},
		"the meter":                  {importing(fuel.ImportModule, fuel.ImportName, sig("i", true)), `import "toolhost.fuel.refill": a plugin may import from toolhost_v1 and wasi_snapshot_preview1 only`},
		"WASI preview 0":             {importing("wasi_unstable", "fd_write", sig("iiii", true)), `import "wasi_unstable.fd_write": this is WASI preview 0: build for wasi_snapshot_preview1`},
		"WASI preview 2":             {importing("wasi:io/streams@0.2.0", "read", sig("i", true)), `import "wasi:io/streams@0.2.0.read": this is WASI preview 2: build for wasm32-wasip1`},
		"Go for JavaScript":          {importing("gojs", "runtime.wasmExit", sig("i", false)), `import "gojs.runtime.wasmExit": this is built with GOOS=js: build with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared`},
		"wasm-bindgen":               {importing("__wbindgen_placeholder__", "__wbindgen_describe", sig("i", false)), `import "__wbindgen_placeholder__.__wbindgen_describe": this is built by wasm-bindgen for JavaScript: build for wasm32-wasip1 without it`},
		"wbg":                        {importing("wbg", "__wbg_log", sig("i", false)), `import "wbg.__wbg_log": this is built by wasm-bindgen for JavaScript: build for wasm32-wasip1 without it`},
		"env":                        {importing("env", "abort", sig("iiii", false)), `import "env.abort": a plugin may import from toolhost_v1 and wasi_snapshot_preview1 only: an import from env is most often a symbol the linker did not find (C, Zig), an abort of AssemblyScript (build with --use abort=) or Emscripten`},
		"elsewhere":                  {importing("math", "sin", sig("d", true)), `import "math.sin": a plugin may import from toolhost_v1 and wasi_snapshot_preview1 only`},

		"no memory":                {withoutExport(abi.ExportMemory), `export "memory": missing: functions of the host read and write there`},
		"memory is a function":     {change(func(m *wasmbin.Module) { m.Exports[0].Kind = wasmbin.KindFunc }), `export "memory": expected a memory, found a func`},
		"neither invoke nor start": {withoutExport(abi.ExportInvoke), `export "toolhost_invoke": missing, and there is no _start either, so this is a library: a plugin exports one of the two`},
		"invoke has no result":     {change(func(m *wasmbin.Module) { m.Exports[1].Index = fnHelper }), `export "toolhost_invoke": expected the type () -> i32, found () -> ()`},
		"describe takes something": {exporting(abi.ExportDescribe, wasmbin.KindFunc, fnRandom), `export "toolhost_describe": expected the type () -> i32, found (i32, i32) -> i32`},
		"start answers":            {exporting(abi.ExportStart, wasmbin.KindFunc, fnYield), `export "_start": expected the type () -> (), found () -> i32`},
		"initialize answers":       {exporting(abi.ExportInitialize, wasmbin.KindFunc, fnYield), `export "_initialize": expected the type () -> (), found () -> i32`},
		"restored answers":         {exporting(abi.ExportRestored, wasmbin.KindFunc, fnYield), `export "toolhost_restored": expected the type () -> (), found () -> i32`},
		"describe is a memory":     {exporting(abi.ExportDescribe, wasmbin.KindMemory, 0), `export "toolhost_describe": expected a function () -> i32, found a memory`},
		"two manifests":            {wasmbin.AppendCustom(wasmbin.AppendCustom(plain, abi.SectionManifest, nil), abi.SectionManifest, nil), `module: found two custom sections "toolhost.manifest": keep one`},
		"the counter":              {exporting(fuel.CounterExport, wasmbin.KindFunc, fnHelper), `module: export "toolhost.fuel.counter": reserved name: it belongs to the meter`},
		"a reserved name":          {exporting("toolhost.fuelling", wasmbin.KindFunc, fnHelper), `module: export "toolhost.fuelling": reserved name: it belongs to the meter`},
		"large tables": {change(func(m *wasmbin.Module) {
			table := wasmbin.Table{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1 << 19}}}
			m.Tables = []wasmbin.Table{table, table, table}
		}), `table: 1572864 entries are in the tables at the start, expected at most 1048576`},
		"code that is not valid":      {guest{invoke: i64(0)}.wasm(), `module: it does not compile: invalid function[1] export["toolhost_invoke"]: cannot use i64 as result[0] type i32`},
		"a body that stops in middle": {guest{invoke: code{byte(wasmbin.OpBlock), void}}.wasm(), `module: malformed wasm: code section at byte 0x27a: function body ends within a block`},
		"a constant that is assigned": {guest{change: global, invoke: seq(opX(wasmbin.OpGlobalSet, 0, i32(1)), i32(0))}.wasm(), `module: it does not compile: invalid function[1] export["toolhost_invoke"]: global.set when not mutable`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			_, err := h.Compile(context.Background(), c.wasm)
			require.EqualError(t, err, c.want)
			var module *host.ModuleError
			require.ErrorAs(t, err, &module)
			require.ErrorIs(t, err, host.ErrABI)
		})
	}
}

func TestInspect(t *testing.T) {
	h := newHost(t, nil)
	wasm := wasmbin.AppendCustom(guest{describe: i32(0), change: func(m *wasmbin.Module) {
		m.Memories[0] = wasmbin.Limits{Min: 2, Max: 5, HasMax: true}
		m.Imports, m.Codes[0].Body = m.Imports[:fnRandom], code{byte(wasmbin.OpEnd)}
		for i := range m.Exports[1:] {
			m.Exports[i+1].Index -= imported - fnRandom
		}
	}}.wasm(), abi.SectionManifest, []byte(`{"abi":"toolhost_v1"}`))
	info, err := h.Inspect(wasm)
	require.NoError(t, err)
	require.Len(t, info.Digest, 64)
	require.Equal(t, &host.Info{
		Digest: info.Digest, Size: len(wasm), Shape: host.Reactor, Manifest: []byte(`{"abi":"toolhost_v1"}`), Describe: true,
		Imports: []string{
			"toolhost_v1.read (i32, i32, i32) -> i32", "toolhost_v1.write (i32, i32, i32) -> i32",
			"toolhost_v1.progress (f64, f64, i32, i32) -> i32", "toolhost_v1.call (i32, i32, i32, i32) -> i32",
			"wasi_snapshot_preview1.proc_exit (i32) -> ()", "wasi_snapshot_preview1.fd_write (i32, i32, i32, i32) -> i32",
		},
		Exports: []string{"memory", "toolhost_invoke", "toolhost_describe"}, MinBytes: 2 << 16, MaxBytes: 5 << 16,
	}, info)

	info, err = h.Inspect(guest{command: code{}}.wasm())
	require.NoError(t, err)
	require.Equal(t, host.Command, info.Shape)
	require.Nil(t, info.Manifest)
	require.EqualValues(t, uint64(4<<30), info.MaxBytes, "a memory without a maximum")

	cost, err := h.Cost(guest{invoke: seq(times(3), i32(0))}.wasm())
	require.NoError(t, err)
	require.Positive(t, cost.Functions)
	require.Positive(t, cost.Growth)
}

// A table may grow up to what the host has for it, whatever it declares: what
// it lies in is memory of the host that no limit of the call counts.
func TestTablesAreBounded(t *testing.T) {
	for name, limits := range map[string]wasmbin.Limits{
		"no maximum":      {Min: 10},
		"a large maximum": {Min: 10, Max: 1 << 31, HasMax: true},
	} {
		t.Run(name, func(t *testing.T) {
			growth := func(n int64) code {
				return opX(wasmbin.OpTableGrow, 0, code{byte(wasmbin.OpRefNull), byte(wasmbin.FuncRef)}, i32(n))
			}
			o := run(t, guest{
				invoke: seq(tell(growth(1<<20)), tell(growth(1<<20-10)), tell(growth(1)), i32(0)),
				change: func(m *wasmbin.Module) {
					m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: limits}}}
				},
			}, host.Call{})
			require.NoError(t, o.err)
			require.Equal(t, []int32{-1, 10, -1}, o.codes())
		})
	}
}
