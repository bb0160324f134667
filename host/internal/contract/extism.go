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

// Functions that start up an Extism plugin. ExtismCtors is called only if the plugin exports
// neither _initialize nor ExtismHaskell.
const (
	ExtismHaskell = "hs_init" // called after _initialize, if the plugin exports that
	ExtismCtors   = "__wasm_call_ctors"
)

// checkExtism checks the exports of an Extism plugin, and records its callable functions.
func checkExtism(m *wasmbin.Module, info *Info) error {
	info.functions = map[string]bool{}
	for _, ex := range m.Exports {
		if ex.Kind != wasmbin.KindFunc {
			continue
		}
		t, _ := m.FuncType(ex.Index) // an export out of range does not parse
		got := Signature(t.String())
		if slices.Contains(extismTypes, got) {
			info.functions[ex.Name] = true
		}

		want := Signature("() -> ()")
		if ex.Name == ExtismHaskell {
			want = "(i32, i32) -> ()"
		}
		if (ex.Name == ExtismHaskell || ex.Name == ExtismCtors) && got != want {
			return &ModuleError{"export", ex.Name, fmt.Errorf("expected the type %s, found %s", want, got)}
		}
	}

	info.MCP = mcpOf(info.functions)
	info.Describe = info.MCP != ""
	if len(info.functions) == 0 {
		return &ModuleError{"module", "", errors.New("it imports from " + ExtismModule + ", and exports no function that Extism could call: one without parameters that returns an i32 or nothing")}
	}
	return nil
}

// NoFunction returns the error text for a function that an Extism plugin does not export.
func (i *Info) NoFunction(name string) string {
	names := slices.Sorted(maps.Keys(i.functions))
	if near := abi.Nearest(name, names); near != "" {
		return fmt.Sprintf("the plugin exports no function %q without parameters, did you mean %q?", name, near)
	}
	return fmt.Sprintf("the plugin exports no function %q without parameters: it has %s", name, strings.Join(names[:min(len(names), 20)], ", "))
}

// NoManifest returns why a module without a manifest cannot be loaded. The error matches
// [ErrNoManifest].
func (i *Info) NoManifest() error {
	if i.Shape != Extism {
		return ErrNoManifest
	}
	names := slices.Sorted(maps.Keys(i.functions))
	return fmt.Errorf("%w; a plugin of Extism says in its manifest which of its functions are tools: it has %s", ErrNoManifest, strings.Join(names[:min(len(names), 20)], ", "))
}

// CheckTools returns a [*abi.ManifestError] if the manifest has tools that the module
// cannot implement.
func (i *Info) CheckTools(m *abi.Manifest) error {
	var problems []abi.Problem
	var names []string
	for _, f := range i.HostFunctions {
		if m.HostFunctions[f.String()] == "" {
			problems = append(problems, abi.Problem{Pointer: "/host_functions", Message: f.Missing()})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.HostFunctions)) {
		if !slices.ContainsFunc(i.HostFunctions, func(f HostFunction) bool { return f.String() == name }) {
			problems = append(problems, abi.Problem{Pointer: "/host_functions", Message: fmt.Sprintf("the plugin does not import %q", name)})
		}
	}

	for n, t := range m.Tools {
		at := fmt.Sprintf("/tools/%d/", n)
		name := cmp.Or(t.Function, t.Name)
		names = append(names, t.Name)
		switch {
		case t.MCPTool != "" && i.MCP == "":
			problems = append(problems, abi.Problem{Pointer: at + "mcp_tool", Message: "only a plugin of hyper-mcp has it: this one exports neither describe and call, nor list_tools and call_tool"})
		case t.MCPTool != "":
		case i.Shape == Extism && !i.functions[name]:
			problems = append(problems, abi.Problem{Pointer: at + "function", Message: i.NoFunction(name)})
		case i.Shape != Extism && t.Function != "":
			problems = append(problems, abi.Problem{Pointer: at + "function", Message: "only a plugin of Extism has it: this one does not import from " + ExtismModule})
		case i.Shape != Extism && t.Input != nil:
			problems = append(problems, abi.Problem{Pointer: at + "input", Message: "only a plugin of Extism has it: this one does not import from " + ExtismModule})
		}
	}

	if problems == nil {
		return nil
	}
	return &abi.ManifestError{Problems: problems, Tools: names}
}

// extismTypes are the allowed types of an Extism function.
var extismTypes = []Signature{"() -> i32", "() -> ()"}
