package contract

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// SocketsPrefix is the prefix of the names of WASI's network functions.
const SocketsPrefix = "sock_"

// The modules that Extism plugins import from. The first contains Extism's own functions.
// The second contains functions that the plugin's host defines, which are those of
// hyper-mcp here.
const (
	ExtismModule = "extism:host/env"
	ExtismUser   = "extism:host/user"
)

func checkImports(m *wasmbin.Module, info *Info, defined Imports) error {
	var unknown error // the first import that only an Extism plugin may have
	for _, im := range m.Imports {
		name := im.Module + "." + im.Name
		if im.Kind != wasmbin.KindFunc {
			return &ModuleError{"import", name, fmt.Errorf("found a %v, but a plugin may import only functions: define it in the plugin", im.Kind)}
		}
		got := Signature(m.Types[im.Type].String())
		info.Imports = append(info.Imports, name+" "+string(got))
		var known map[string]Signature
		switch im.Module {
		case abi.Version:
			known = imports
		case abi.ImportWASI:
			known = defined[abi.ImportWASI]
		case ExtismModule, ExtismUser:
			known, info.Shape = defined[im.Module], Extism
		}
		want, ok := known[im.Name]
		if !ok {
			err := foreign(im.Module, im.Name)
			if known != nil {
				err = unknownFunction(im.Module, im.Name, known)
			}
			f := HostFunction{im.Module, im.Name, m.Types[im.Type]}
			if f.allowed() && (known == nil || im.Module == ExtismUser) {
				info.HostFunctions = append(info.HostFunctions, f)
				unknown = cmp.Or[error](unknown, &ModuleError{"import", name, err})
				continue
			}
			return &ModuleError{"import", name, err}
		}
		if got != want {
			return &ModuleError{"import", name, fmt.Errorf("expected the type %s, found %s", want, got)}
		}
	}

	if info.Shape == Extism { // see CheckTools
		return nil
	}
	return unknown
}

func unknownFunction(module, name string, known map[string]Signature) error {
	names := slices.Sorted(maps.Keys(known))
	if module == abi.ImportWASI && strings.HasPrefix(name, SocketsPrefix) {
		return errors.New("plugins have no network: build without sockets")
	}
	if near := abi.Nearest(name, names); near != "" {
		return fmt.Errorf("%s has no such function, did you mean %q?", module, near)
	}
	if module == abi.Version {
		return fmt.Errorf("%s has only %s: other capabilities are operations of call", module, strings.Join(names, ", "))
	}
	if module == ExtismUser {
		return errors.New("this is a function of the host that the plugin was built for, and this host has only those of hyper-mcp there")
	}
	return fmt.Errorf("this host has no such function in %s", module)
}

// foreign explains the import of a module that was built for another host.
func foreign(module, name string) error {
	for _, other := range foreignImports {
		if strings.HasPrefix(module+"."+name, other.prefix) || other.part != "" && strings.Contains(module, other.part) {
			return errors.New(other.text)
		}
	}
	hint := fmt.Sprintf("a plugin may import from %s and %s only", abi.Version, abi.ImportWASI)
	switch {
	case module == "env":
		hint += ": an import from env is most often a symbol the linker did not find (C, Zig), an abort of AssemblyScript (build with --use abort=) or Emscripten"
	case len(module) == 1: // names that Emscripten made short
		hint += ": imports as short as this are Emscripten's, whose modules need their JavaScript: build for wasm32-wasip1 with wasi-sdk instead"
	}
	return errors.New(hint)
}

const textBindgen = "this is built by wasm-bindgen for JavaScript: build for wasm32-wasip1 without it"

// foreignImports lists imports of other plugin systems, by the prefix of module.name, or by
// a part of the module's name.
var foreignImports = []struct{ prefix, part, text string }{
	{prefix: "toolhost_v", text: "this host speaks " + abi.Version + " only: build the plugin for it"},
	{prefix: "wasi_unstable.", text: "this is WASI preview 0: build for " + abi.ImportWASI},
	{prefix: "wasi:", text: "this is WASI preview 2: build for wasm32-wasip1"},
	{prefix: "wasix_", text: "this is WASIX, whose network, threads and processes plugins do not have: build for wasm32-wasip1"},
	{prefix: "wasi_snapshot_preview2", text: "this is WASI preview 2: build for wasm32-wasip1"},
	{prefix: "gojs.", text: textGoJS},
	{prefix: "go.", text: textGoJS},
	{prefix: "wbg.", part: "_bg.", text: textBindgen},
	{prefix: "__wbindgen", text: textBindgen},
	{prefix: "env.napi_", text: "this is an addon for Node.js (N-API): build for wasm32-wasip1 without it"},
	{prefix: "env.proxy_", text: "this is a filter for a proxy (proxy-wasm), which is no tool"},
}

const textGoJS = "this is built with GOOS=js: build with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared"

// isStart reports whether an import is the contract's call_start.
func isStart(im wasmbin.Import) bool { return im.Module == abi.Version && im.Name == abi.ImportStart }
