package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// hostedFunction is a function of the host that a plugin of Extism was built for. Here a
// tool is called in its place: see [abi.Manifest.HostFunctions].
type hostedFunction struct {
	module, name string
	t            wasmbin.FuncType
}

func (f hostedFunction) String() string { return f.module + "." + f.name }

// allowed reports whether a tool could be called in place of the function: it takes a block
// or nothing, and returns a block or nothing. Modules of this host's own are not replaced,
// such as that of the meter.
func (f hostedFunction) allowed() bool {
	other := func(v wasmbin.ValType) bool { return v != wasmbin.I64 }
	return !strings.HasPrefix(f.module, "toolhost") && len(f.t.Params) <= 1 && len(f.t.Results) <= 1 &&
		!slices.ContainsFunc(f.t.Params, other) && !slices.ContainsFunc(f.t.Results, other)
}

// instantiateHosted makes the modules of the functions that tools are called in place of,
// for the instances of one plugin: others may import the same ones with other types.
func instantiateHosted(ctx context.Context, r interface {
	NewHostModuleBuilder(string) wazero.HostModuleBuilder
	InstantiateModule(context.Context, wazero.CompiledModule, wazero.ModuleConfig) (api.Module, error)
}, functions []hostedFunction) (map[string]api.Module, error) {
	all := map[string]map[string]extismFunction{}
	for _, f := range functions {
		if all[f.module] == nil {
			all[f.module] = map[string]extismFunction{}
			for name, known := range extismModules[f.module] {
				all[f.module][name] = known
			}
		}
		all[f.module][f.name] = f.function()
	}

	modules := map[string]api.Module{}
	for module, functions := range all {
		compiled, err := defineExtism(r.NewHostModuleBuilder(module), module, functions).Compile(ctx)
		if err == nil {
			modules[module], err = r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName(""))
		}
		if err != nil {
			return modules, fmt.Errorf("module %s: %w", module, err)
		}
	}
	return modules, nil
}

// function calls the tool with the block as its arguments, and answers with a block of its
// result. A tool that fails ends the call with its error.
func (f hostedFunction) function() extismFunction {
	e := extismFunction{call: func(c *extismCall, k *extism.Kernel, stack []uint64) {
		tool := c.HostFunctions[f.String()]
		if tool == "" {
			panic(&instance.Stop{Reason: fmt.Errorf("%w: %s", ErrABI, f.missing())})
		}
		args := json.RawMessage("{}")
		if len(f.t.Params) > 0 {
			args = toolArguments(c.block(k, stack[0]))
		}

		result := c.callHosted(tool, args)
		if len(f.t.Results) > 0 {
			stack[0] = c.put(k, result)
		}
	}}
	if len(f.t.Params) > 0 {
		e.params = one
	}
	if len(f.t.Results) > 0 {
		e.results = one
	}
	return e
}

// missing says what a manifest lacks.
func (f hostedFunction) missing() string {
	return fmt.Sprintf("the plugin imports %s, a function of the host that it was built for: name a tool that is called in its place, as in host_functions: {%q: TOOL}", f, f.String())
}

// toolArguments are the arguments of a tool: the JSON object in a block, or {"input": text}.
func toolArguments(block []byte) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(block, &object) == nil && object != nil {
		return slices.Clone(block)
	}
	return encode(map[string]string{"input": string(block)})
}

// callHosted calls a tool that is granted to the plugin, and returns its result: a text as
// it is, any other value as JSON.
func (c *extismCall) callHosted(tool string, args json.RawMessage) []byte {
	c.performed("tool.call", map[string]any{"tool": tool, "args": args})
	var answer abi.ToolAnswer
	_ = json.Unmarshal(c.response, &answer) // written by the host
	c.response = nil
	if answer.Kind != abi.Success {
		panic(failTool(fmt.Sprintf("the tool %s failed: %s", tool, answer.Error)))
	}

	var text string
	if json.Unmarshal(answer.Value, &text) == nil {
		return []byte(text)
	}
	if len(answer.Value) > 0 {
		return answer.Value
	}
	var texts []string
	for _, b := range answer.Content {
		texts = append(texts, b.Text)
	}
	return []byte(strings.Join(texts, "\n"))
}

// performed does an operation of the host for a function of Extism's. One that is refused
// ends the call with its message.
func (c *extismCall) performed(operation string, request any) {
	if c.perform([]byte(operation), encode(request)) < 0 {
		var failure abi.CallFailure
		_ = json.Unmarshal(c.response, &failure) // written by the host
		panic(failTool(failure.Message))
	}
}
