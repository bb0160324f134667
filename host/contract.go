package host

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Shape is how the host calls a module.
type Shape string

// The shapes.
const (
	Reactor Shape = "reactor" // imports toolhost_v1, exports toolhost_invoke
	Command Shape = "command" // a WASI preview 1 program with _start
	Extism  Shape = "extism"  // imports extism:host/env
)

// Info describes the binary of a module, without running it.
type Info struct {
	Digest   string   `json:"digest"` // sha256 of the binary, in hex; empty if it was only scanned
	Size     int      `json:"size"`   // bytes
	Shape    Shape    `json:"shape"`
	Manifest []byte   `json:"-"` // custom section toolhost.manifest, or nil
	Describe bool     `json:"describe"`
	Imports  []string `json:"imports"` // module.name (type)
	Exports  []string `json:"exports"`
	MinBytes int64    `json:"memory_min"` // initial linear memory
	MaxBytes int64    `json:"memory_max"` // maximum linear memory; 4 GiB if none is declared
	script   []byte
	MCP      MCP `json:"mcp,omitempty"` // how an Extism plugin lists its tools; empty if it does not
	// Extism plugins: the callable exports.
	functions map[string]bool
	hosted    []hostedFunction // the host functions that it imports
	started   string           // the remedy for a plugin that starts up in an unsupported way, or empty
}

// signature is a comparable function type.
type signature string

// The function types of the contract, in the notation of wasmbin.FuncType.
var (
	contractImports = map[string]signature{
		abi.ImportRead:     "(i32, i32, i32) -> i32",
		abi.ImportWrite:    "(i32, i32, i32) -> i32",
		abi.ImportProgress: "(f64, f64, i32, i32) -> i32",
		abi.ImportCall:     "(i32, i32, i32, i32) -> i32",
		abi.ImportStart:    "(i32, i32, i32, i32) -> i32",
	}
	contractExports = map[string]signature{
		abi.ExportDescribe:   "() -> i32",
		abi.ExportInvoke:     "() -> i32",
		abi.ExportResume:     "(i32, i32) -> i32",
		abi.ExportRestored:   "() -> ()",
		abi.ExportInitialize: "() -> ()",
		abi.ExportStart:      "() -> ()",
	}
)

// Inspect checks a binary against the contract without running or compiling it. A
// module that breaks the contract is a [*ModuleError].
func (h *Host) Inspect(wasm []byte) (*Info, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	return h.check(m, &Info{Digest: digestOf(wasm), Size: len(wasm)})
}

func digestOf(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}

// Scan checks a binary of size bytes like Inspect, but does not read its code and
// data, which may still turn out to be broken when the module is compiled.
// Info.Digest is empty. Errors of the file are returned unchanged.
func (h *Host) Scan(file io.ReaderAt, size int64) (*Info, error) {
	m, err := wasmbin.Scan(file, size, abi.SectionManifest, abi.SectionScript, sectionGo)
	if malformed := (*wasmbin.Error)(nil); errors.As(err, &malformed) {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	if err != nil {
		return nil, err
	}
	return h.check(m, &Info{Size: int(size)})
}

// check checks a module against the contract and completes its Info.
func (h *Host) check(m *wasmbin.Module, info *Info) (*Info, error) {
	manifests := 0
	for _, c := range m.Customs {
		switch c.Name {
		case abi.SectionManifest:
			if manifests++; manifests > 1 {
				return nil, &ModuleError{"module", "", fmt.Errorf("found two custom sections %q: keep one", c.Name)}
			}
			info.Manifest = c.Data
		case abi.SectionScript:
			info.script = c.Data
		}
	}

	if err := compiler.CountOverhead(m).Check(); err != nil {
		return nil, moduleError(err)
	}
	if err := h.checkImports(m, info); err != nil {
		return nil, err
	}
	if err := checkExports(m, info); err != nil {
		return nil, err
	}

	return info, nil
}

func (h *Host) checkImports(m *wasmbin.Module, info *Info) error {
	var unknown error // the first import that only an Extism plugin may have
	for _, im := range m.Imports {
		name := im.Module + "." + im.Name
		if im.Kind != wasmbin.KindFunc {
			return &ModuleError{"import", name, fmt.Errorf("found a %v, but a plugin may import only functions: define it in the plugin", im.Kind)}
		}
		got := signature(m.Types[im.Type].String())
		info.Imports = append(info.Imports, name+" "+string(got))
		var known map[string]signature
		switch im.Module {
		case abi.Version:
			known = contractImports
		case abi.ImportWASI:
			known = h.wasi
		case extismModule, extismUser:
			known, info.Shape = h.extism[im.Module], Extism
		}
		want, ok := known[im.Name]
		if !ok {
			err := foreign(im.Module)
			if known != nil {
				err = unknownFunction(im.Module, im.Name, known)
			}
			f := hostedFunction{im.Module, im.Name, m.Types[im.Type]}
			if f.allowed() && (known == nil || im.Module == extismUser) {
				info.hosted = append(info.hosted, f)
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

func unknownFunction(module, name string, known map[string]signature) error {
	names := slices.Sorted(maps.Keys(known))
	if module == abi.ImportWASI && strings.HasPrefix(name, socketPrefix) {
		return errors.New("plugins have no network: build without sockets")
	}
	if near := abi.Nearest(name, names); near != "" {
		return fmt.Errorf("%s has no such function, did you mean %q?", module, near)
	}
	if module == abi.Version {
		return fmt.Errorf("%s has only %s: other capabilities are operations of call", module, strings.Join(names, ", "))
	}
	if module == extismUser {
		return errors.New("this is a function of the host that the plugin was built for, and this host has only those of hyper-mcp there")
	}
	return fmt.Errorf("this host has no such function in %s", module)
}

// foreign explains the import of a module that was built for another host.
func foreign(module string) error {
	hint := fmt.Sprintf("a plugin may import from %s and %s only", abi.Version, abi.ImportWASI)
	if module == "go" {
		module = "gojs"
	}
	for _, other := range foreignModules {
		if strings.HasPrefix(module, other.prefix) {
			return errors.New(other.text)
		}
	}
	if module == "env" {
		hint += ": an import from env is most often a symbol the linker did not find (C, Zig), an abort of AssemblyScript (build with --use abort=) or Emscripten"
	}
	return errors.New(hint)
}

// foreignModules are the import modules of other plugin systems, by prefix.
var foreignModules = []struct{ prefix, text string }{
	{"toolhost_v", "this host speaks " + abi.Version + " only: build the plugin for it"},
	{"wasi_unstable", "this is WASI preview 0: build for " + abi.ImportWASI},
	{"wasi:", "this is WASI preview 2: build for wasm32-wasip1"},
	{"wasix_", "this is WASIX, whose network, threads and processes plugins do not have: build for wasm32-wasip1"},
	{"wasi_snapshot_preview2", "this is WASI preview 2: build for wasm32-wasip1"},
	{"gojs", "this is built with GOOS=js: build with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared"},
	{"wbg", "this is built by wasm-bindgen for JavaScript: build for wasm32-wasip1 without it"},
	{"__wbindgen", "this is built by wasm-bindgen for JavaScript: build for wasm32-wasip1 without it"},
}

// sectionGo is a custom section written by Go's linker.
const sectionGo = "go:buildid"

// A program that also exports the functions of a reactor starts up in its _start, which
// the host never runs. Go's runtime does not work without that; C's and Rust's may.
const asReactor = "the plugin exports " + abi.ExportStart + " and no " + abi.ExportInitialize +
	", so it was never started up: build it as a reactor (TinyGo: -buildmode=c-shared, C: -mexec-model=reactor, Rust: crate-type cdylib)"

var errBuildMode = errors.New("missing: this Go program was built without -buildmode=c-shared, so its functions cannot be called: " +
	"build with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared, and call guest.Serve in an init function")

func checkExports(m *wasmbin.Module, info *Info) error {
	found := map[string]wasmbin.Export{}
	for _, ex := range m.Exports {
		found[ex.Name] = ex
		info.Exports = append(info.Exports, ex.Name)
		if want, ok := contractExports[ex.Name]; ok {
			if ex.Kind != wasmbin.KindFunc {
				return &ModuleError{"export", ex.Name, fmt.Errorf("expected a function %s, found a %v", want, ex.Kind)}
			}
			t, _ := m.FuncType(ex.Index) // an export out of range does not parse
			if got := signature(t.String()); got != want {
				return &ModuleError{"export", ex.Name, fmt.Errorf("expected the type %s, found %s", want, got)}
			}
		}
	}

	_, invoke := found[abi.ExportInvoke]
	_, start := found[abi.ExportStart]
	_, initialize := found[abi.ExportInitialize]
	_, info.Describe = found[abi.ExportDescribe]
	switch {
	case info.Shape == Extism:
		if err := checkExtism(m, info); err != nil {
			return err
		}
	case invoke && start && !initialize:
		info.Shape, info.started = Reactor, asReactor
		if _, isGo := m.Custom(sectionGo); isGo {
			return &ModuleError{"export", abi.ExportInitialize, errBuildMode}
		}
	case invoke:
		info.Shape = Reactor
	case start:
		info.Shape = Command
	default:
		return &ModuleError{"export", abi.ExportInvoke, fmt.Errorf("missing, and there is no %s either: a plugin exports one of the two", abi.ExportStart)}
	}

	if _, resume := found[abi.ExportResume]; !resume && slices.ContainsFunc(m.Imports, isStart) {
		return &ModuleError{"export", abi.ExportResume, fmt.Errorf("missing: a plugin that imports %s has to export it, because it learns there how its operations end", abi.ImportStart)}
	}

	memory, ok := found[abi.ExportMemory]
	if !ok {
		return &ModuleError{"export", abi.ExportMemory, errors.New("missing: functions of the host read and write there")}
	}
	if memory.Kind != wasmbin.KindMemory {
		return &ModuleError{"export", abi.ExportMemory, fmt.Errorf("expected a memory, found a %v", memory.Kind)}
	}
	limits := m.Memories[memory.Index]
	info.MinBytes, info.MaxBytes = int64(limits.Min)*wasmbin.PageSize, wasmbin.MaxPages*wasmbin.PageSize
	if limits.HasMax {
		info.MaxBytes = int64(limits.Max) * wasmbin.PageSize
	}

	return nil
}

// isStart reports whether an import is the contract's call_start.
func isStart(im wasmbin.Import) bool { return im.Module == abi.Version && im.Name == abi.ImportStart }
