package contract

import (
	"errors"
	"fmt"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

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
		if want, ok := exports[ex.Name]; ok {
			if ex.Kind != wasmbin.KindFunc {
				return &ModuleError{"export", ex.Name, fmt.Errorf("expected a function %s, found a %v", want, ex.Kind)}
			}
			t, _ := m.FuncType(ex.Index) // an export out of range does not parse
			if got := Signature(t.String()); got != want {
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
		info.Shape, info.Remedy = Reactor, asReactor
		if _, isGo := m.Custom(sectionGo); isGo {
			return &ModuleError{"export", abi.ExportInitialize, errBuildMode}
		}
	case invoke:
		info.Shape = Reactor
	case start:
		info.Shape = Command
	default:
		return &ModuleError{"export", abi.ExportInvoke, fmt.Errorf("missing, and there is no %s either, so this is a library: a plugin exports one of the two", abi.ExportStart)}
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
