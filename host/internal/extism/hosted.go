package extism

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// InstantiateHosted instantiates, for the instances of one plugin, the modules that contain
// the host functions that tools stand in for. Other plugins may import the same functions
// with other types.
func InstantiateHosted(ctx context.Context, r wazero.Runtime, functions []contract.HostFunction) (map[string]api.Module, error) {
	all := map[string]map[string]function{}
	for _, f := range functions {
		if all[f.Module] == nil {
			all[f.Module] = map[string]function{}
			maps.Copy(all[f.Module], modules[f.Module])
		}
		all[f.Module][f.Name] = standIn(f)
	}

	modules := map[string]api.Module{}
	for module, functions := range all {
		compiled, err := define(r.NewHostModuleBuilder(module), module, functions).Compile(ctx)
		if err == nil {
			modules[module], err = r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName(""))
		}
		if err != nil {
			return modules, fmt.Errorf("module %s: %w", module, err)
		}
	}
	return modules, nil
}

// standIn returns a function that calls the tool with the block as its arguments, and
// answers with a block that holds its result. If the tool fails, its error ends the
// call.
func standIn(f contract.HostFunction) function {
	e := function{call: func(c *Call, k *Kernel, stack []uint64) {
		tool := c.HostFunctions[f.String()]
		if tool == "" {
			panic(&instance.Stop{Reason: fmt.Errorf("%w: %s", contract.ErrABI, f.Missing())})
		}
		args := json.RawMessage("{}")
		if len(f.Type.Params) > 0 {
			args = toolArguments(c.block(k, stack[0]))
		}

		result := c.callHosted(tool, args)
		if len(f.Type.Results) > 0 {
			stack[0] = c.put(k, result)
		}
	}}
	if len(f.Type.Params) > 0 {
		e.params = one
	}
	if len(f.Type.Results) > 0 {
		e.results = one
	}
	return e
}

// toolArguments returns the arguments of a tool: the JSON object in a block, or {"input":
// text}.
func toolArguments(block []byte) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(block, &object) == nil && object != nil {
		return slices.Clone(block)
	}
	return guestcall.JSON(map[string]string{"input": string(block)})
}

// callHosted calls a granted tool, and returns its result: a text as it is, any other
// value as JSON.
func (c *Call) callHosted(tool string, args json.RawMessage) []byte {
	var answer abi.ToolAnswer
	c.perform("tool.call", guestcall.JSON(map[string]any{"tool": tool, "args": args}), &answer)
	if answer.Kind != abi.Success {
		panic(fail(fmt.Sprintf("the tool %s failed: %s", tool, answer.Error)))
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

// perform performs an operation of the host for an Extism function, and reads its response.
// If the operation is refused, its message ends the call.
func (c *Call) perform(operation string, request []byte, response any) {
	if c.Ops.Perform([]byte(operation), request) < 0 {
		var failure abi.CallFailure
		_ = json.Unmarshal(c.Ops.Response, &failure) // written by the host
		panic(fail(failure.Message))
	}
	_ = json.Unmarshal(c.Ops.Response, response) // likewise
	c.Ops.Response = nil
}
