package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// The functions that start up an Extism plugin: the first one that it exports.
const (
	extismHaskell = "hs_init" // after _initialize, if it has that
	extismCtors   = "__wasm_call_ctors"
)

// extismTypes are the allowed types of an Extism function.
var extismTypes = []signature{"() -> i32", "() -> ()"}

// startExtism runs the start-up of an Extism plugin.
func (u *startup) startExtism() error {
	c, in := u.call, u.call.instance
	if c.asExtism().startsItself() {
		return nil
	}

	entered := false
	for _, name := range []string{abi.ExportInitialize, extismHaskell, extismCtors} {
		e := in.Entry(name) // one at a time: only the stack of the current one is paid for
		if e == nil || name == extismCtors && entered {
			continue
		}
		entered = true
		c.params = [2]uint64{}
		if _, err := c.enter(e); err != nil {
			return err
		}
	}
	return nil
}

// startsItself reports whether the called function is one of the start-up functions.
func (c *extismCall) startsItself() bool {
	return c.function() == abi.ExportStart || c.function() == abi.ExportInitialize
}

// function returns the export of an Extism plugin that a call enters.
func (c *extismCall) function() string {
	switch {
	case c.describing:
		return c.module.Info.MCP.list()
	case c.MCPTool != "":
		return c.module.Info.MCP.call()
	}
	return cmp.Or(c.Function, c.Tool)
}

// runExtism calls a function of an Extism plugin. Its code is one of the contract's.
func (c *extismCall) runExtism() (code int32, err error) {
	name := c.function()
	if _, found := c.module.Info.functions[name]; !found {
		return 0, &instance.Stop{Reason: fmt.Errorf("%w: %s", ErrABI, c.module.Info.noFunction(name))}
	}

	c.params = [2]uint64{}
	code, err = c.enter(c.instance.Cached(name))
	if exit, exits := errors.AsType[*sys.ExitError](err); exits && exit.ExitCode() == 0 {
		code, err = 0, nil
	}
	if err != nil {
		return 0, err
	}
	return guarded(func() int32 { return c.takeExtism(code) })
}

// takeExtism takes the response from the kernel.
func (c *extismCall) takeExtism(code int32) int32 {
	c.payExtism()
	var output, text []byte
	if k := c.kernel; k != nil {
		output, text = k.Output(), k.Error()
	}
	switch {
	case code != 0 || len(text) > 0:
	case c.describing:
		c.answer.manifest = c.take(output)
		return abi.InvokeOK
	case c.MCPTool != "":
		return c.takeMCP(output)
	default:
		c.answer.result = c.take(output)
		return abi.InvokeOK
	}

	if len(text) == 0 { // the error may be there
		text = output
	}
	c.answer.errText = c.take(text)
	if len(text) == 0 {
		c.answer.errText = fmt.Appendf(nil, "the function %s returned %d", c.function(), code)
	}
	return abi.InvokeToolError
}

// take copies the guest's response, which counts as output.
func (c *extismCall) take(content []byte) []byte {
	c.meter.charge(len(content))
	if err := cmp.Or(c.answer.count(len(content)), c.meter.keep(len(content))); err != nil {
		panic(&instance.Stop{Reason: err})
	}
	return append([]byte{}, content...)
}

// checkExtism checks the exports of an Extism plugin, and records its callable functions.
func checkExtism(m *wasmbin.Module, info *Info) error {
	info.functions = map[string]bool{}
	for _, ex := range m.Exports {
		if ex.Kind != wasmbin.KindFunc {
			continue
		}
		t, _ := m.FuncType(ex.Index) // an export out of range does not parse
		got := signature(t.String())
		if slices.Contains(extismTypes, got) {
			info.functions[ex.Name] = true
		}

		want := signature("() -> ()")
		if ex.Name == extismHaskell {
			want = "(i32, i32) -> ()"
		}
		if (ex.Name == extismHaskell || ex.Name == extismCtors) && got != want {
			return &ModuleError{"export", ex.Name, fmt.Errorf("expected the type %s, found %s", want, got)}
		}
	}

	info.MCP = mcpOf(info.functions)
	info.Describe = info.MCP != ""
	if len(info.functions) == 0 {
		return &ModuleError{"module", "", errors.New("it imports from " + extismModule + ", and exports no function that Extism could call: one without parameters that returns an i32 or nothing")}
	}
	return nil
}

// noFunction returns the error for a missing function of an Extism plugin.
func (i *Info) noFunction(name string) string {
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

// CheckTools returns a [*abi.ManifestError] for tools of a manifest that the module
// cannot implement.
func (i *Info) CheckTools(m *abi.Manifest) error {
	var problems []abi.Problem
	var names []string
	for _, f := range i.hosted {
		if m.HostFunctions[f.String()] == "" {
			problems = append(problems, abi.Problem{Pointer: "/host_functions", Message: f.missing()})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.HostFunctions)) {
		if !slices.ContainsFunc(i.hosted, func(f hostedFunction) bool { return f.String() == name }) {
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
			problems = append(problems, abi.Problem{Pointer: at + "function", Message: i.noFunction(name)})
		case i.Shape != Extism && t.Function != "":
			problems = append(problems, abi.Problem{Pointer: at + "function", Message: "only a plugin of Extism has it: this one does not import from " + extismModule})
		case i.Shape != Extism && t.Input != nil:
			problems = append(problems, abi.Problem{Pointer: at + "input", Message: "only a plugin of Extism has it: this one does not import from " + extismModule})
		}
	}

	if problems == nil {
		return nil
	}
	return &abi.ManifestError{Problems: problems, Tools: names}
}
