package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// extismFunction implements a function of extismModule. Its parameters are on the stack,
// and the result replaces the first.
type extismFunction struct {
	params, results []api.ValueType
	call            func(c *extismCall, k *extism.Kernel, stack []uint64)
}

const i64 = api.ValueTypeI64

// one and none are the usual parameters and results of these functions: a handle, or
// nothing.
var one, none = []api.ValueType{i64}, []api.ValueType(nil)

var extismFunctions = map[string]extismFunction{
	"alloc":         {one, one, func(c *extismCall, k *extism.Kernel, stack []uint64) { stack[0] = c.allocate(k, stack[0]) }},
	"free":          {one, none, func(_ *extismCall, k *extism.Kernel, stack []uint64) { k.Free(stack[0]) }},
	"length":        {one, one, func(_ *extismCall, k *extism.Kernel, stack []uint64) { stack[0] = k.Length(stack[0]) }},
	"length_unsafe": {one, one, func(_ *extismCall, k *extism.Kernel, stack []uint64) { stack[0] = k.Length(stack[0]) }},
	"load_u8": {one, []api.ValueType{i32}, func(c *extismCall, k *extism.Kernel, stack []uint64) {
		b, ok := k.Load8(stack[0])
		c.within(ok, "load_u8", stack[0])
		stack[0] = uint64(b)
	}},
	"load_u64": {one, one, func(c *extismCall, k *extism.Kernel, stack []uint64) {
		v, ok := k.Load64(stack[0])
		c.within(ok, "load_u64", stack[0])
		stack[0] = v
	}},
	"store_u8": {[]api.ValueType{i64, i32}, none, func(c *extismCall, k *extism.Kernel, stack []uint64) {
		c.within(k.Store8(stack[0], byte(stack[1])), "store_u8", stack[0])
	}},
	"store_u64": {[]api.ValueType{i64, i64}, none, func(c *extismCall, k *extism.Kernel, stack []uint64) {
		c.within(k.Store64(stack[0], stack[1]), "store_u64", stack[0])
	}},
	"input_offset":   {none, one, func(_ *extismCall, k *extism.Kernel, stack []uint64) { stack[0], _ = k.Input() }},
	"input_length":   {none, one, func(_ *extismCall, k *extism.Kernel, stack []uint64) { _, stack[0] = k.Input() }},
	"input_load_u8":  {one, []api.ValueType{i32}, func(_ *extismCall, k *extism.Kernel, stack []uint64) { stack[0] = uint64(k.Input8(stack[0])) }},
	"input_load_u64": {one, one, func(_ *extismCall, k *extism.Kernel, stack []uint64) { stack[0] = k.Input64(stack[0]) }},
	"output_set": {[]api.ValueType{i64, i64}, none, func(c *extismCall, k *extism.Kernel, stack []uint64) {
		c.within(k.SetOutput(stack[0], stack[1]), "output_set", stack[0])
	}},
	"error_set":        {one, none, func(_ *extismCall, k *extism.Kernel, stack []uint64) { k.SetError(stack[0]) }},
	"config_get":       {one, one, extismConfig},
	"var_get":          {one, one, getExtismVariable},
	"var_set":          {[]api.ValueType{i64, i64}, none, setExtismVariable},
	"http_request":     {[]api.ValueType{i64, i64}, one, extismRequest},
	"http_status_code": {none, []api.ValueType{i32}, func(c *extismCall, _ *extism.Kernel, stack []uint64) { stack[0] = api.EncodeI32(int32(c.status)) }},
	"http_headers":     {none, one, extismHeaders},
	"get_log_level":    {none, []api.ValueType{i32}, func(_ *extismCall, _ *extism.Kernel, stack []uint64) { stack[0] = extismDebug }},
	"log_trace":        extismLog(abi.StreamDebug),
	"log_debug":        extismLog(abi.StreamDebug),
	"log_info":         extismLog(abi.StreamInfo),
	"log_warn":         extismLog(abi.StreamWarn),
	"log_error":        extismLog(abi.StreamErrorLog),
}

const (
	// extismDebug is Extism's log level debug. All calls get it, so that a plugin's
	// behavior does not depend on the operator's log level.
	extismDebug = 1
	// extismUnits is the fuel of one kernel function, in addition to what it copies: it
	// takes longer than an instruction of a guest.
	extismUnits = 20
	// extismBatch is how many of them are charged at a time.
	extismBatch = 64
)

// instantiateExtism instantiates the modules that Extism plugins import from.
func instantiateExtism(ctx context.Context, r wazero.Runtime) error {
	for module, functions := range extismModules {
		if _, err := defineExtism(r.NewHostModuleBuilder(module), module, functions).Instantiate(ctx); err != nil {
			return fmt.Errorf("module %s: %w", module, err)
		}
	}
	return nil
}

// defineExtism adds functions to a module.
func defineExtism(builder wazero.HostModuleBuilder, module string, functions map[string]extismFunction) wazero.HostModuleBuilder {
	for name, f := range functions {
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			c := callOf(ctx).asExtism()
			if c.start.running {
				c.start.impure = "it calls " + module + " while it starts up"
			}
			if c.called++; c.called == extismBatch {
				c.payExtism()
			}
			f.call(c, c.kernelOf(), stack)
		}), f.params, f.results).Export(name)
	}
	return builder
}

// extismImports returns the function types of these modules.
func extismImports() contract.Imports {
	types := contract.Imports{}
	for module, functions := range extismModules {
		types[module] = map[string]contract.Signature{}
		for name, f := range functions {
			t := wasmbin.FuncType{Params: valTypes(f.params), Results: valTypes(f.results)}
			types[module][name] = contract.Signature(t.String())
		}
	}
	return types
}

// extismCall is the Extism state of a call.
type extismCall struct {
	*call
	kernel    *extism.Kernel // nil before its first use
	called    int            // functions called but not yet charged
	variables map[string][]byte
	stored    int // bytes of the variables
	status    int // status of the last HTTP request
	headers   []byte
}

// asExtism returns the Extism state of the call.
func (c *call) asExtism() *extismCall {
	c.extism.call = c
	return &c.extism
}

// kernelOf returns the kernel of the call, which holds its input.
func (c *extismCall) kernelOf() *extism.Kernel {
	if c.kernel != nil {
		return c.kernel
	}

	k := &c.instance.Guest.(*environment).kernel
	k.Reset(extism.Config{Limit: uint64(c.Policy.Memory), Pay: func(bytes uint64) error { return c.meter.Keep(int(bytes)) }})
	c.kernel = k
	input, err := c.input()
	if err != nil {
		panic(&instance.Stop{Reason: fmt.Errorf("%w: input: %w", ErrABI, err)})
	}
	c.meter.Charge(len(input))
	if err := k.SetInput(input); err != nil {
		panic(&instance.Stop{Reason: c.full(err)})
	}
	return k
}

// payExtism charges the guest for the functions that it called.
func (c *extismCall) payExtism() {
	c.meter.Pay(int64(c.called * extismUnits))
	c.called = 0
}

// input returns the input of an Extism function.
func (c *extismCall) input() ([]byte, error) {
	switch {
	case c.describing:
		return c.listInput(), nil
	case c.MCPTool != "":
		return c.callInput(), nil
	case c.Input == nil:
		return c.Args, nil
	}
	text, err := abi.ExpandTemplate(*c.Input, c.Args)
	return []byte(text), err
}

// full returns the error of a kernel without room for a block.
func (c *extismCall) full(err error) error {
	if errors.Is(err, extism.ErrFull) {
		return fmt.Errorf("%w: the plugin needs more than the %d bytes allowed", ErrMemory, c.Policy.Memory)
	}
	return err
}

// allocate is Extism's alloc. Without room it returns 0, and the plugin is likely to crash.
func (c *extismCall) allocate(k *extism.Kernel, n uint64) uint64 {
	c.meter.Charge(int(min(n, uint64(c.Policy.Memory))))
	handle, err := k.Alloc(n)
	switch {
	case errors.Is(err, extism.ErrFull):
		c.instance.Memory.Refused = c.full(err)
	case err != nil:
		panic(&instance.Stop{Reason: err})
	}
	return handle
}

// put responds with a new block of that content.
func (c *extismCall) put(k *extism.Kernel, content []byte) uint64 {
	c.meter.Charge(len(content))
	handle, err := k.Put(content)
	if err != nil {
		panic(&instance.Stop{Reason: c.full(err)})
	}
	return handle
}

// block returns the content of a guest's block, and charges for it.
func (c *extismCall) block(k *extism.Kernel, handle uint64) []byte {
	content := k.Block(handle)
	c.meter.Pay(int64(len(content) / meter.BytesPerUnit)) // a call that has to end ends here
	return content
}

// within ends a call that used an offset outside the kernel's memory. That is likely the
// offset of a block that found no room.
func (c *extismCall) within(ok bool, function string, at uint64) {
	if !ok && c.instance.Memory.Refused != nil {
		panic(&instance.Stop{Reason: c.instance.Memory.Refused})
	}
	if !ok {
		panic(&instance.Stop{Reason: fmt.Errorf("%w: %s was given the offset %d, which is outside of the memory that it has allocated", ErrABI, function, at)})
	}
}

func extismConfig(c *extismCall, k *extism.Kernel, stack []uint64) {
	value, found := c.Policy.Config[string(c.block(k, stack[0]))]
	stack[0] = 0
	if found {
		stack[0] = c.put(k, []byte(value))
	}
}

// Limits on the variables of a call. As in Extism, they count all variables with their
// overhead.
const (
	extismVariables    = 1 << 20 // bytes
	extismVariableCost = 40
)

func getExtismVariable(c *extismCall, k *extism.Kernel, stack []uint64) {
	value := c.variables[string(c.block(k, stack[0]))]
	k.Free(stack[0])
	stack[0] = c.put(k, value)
}

func setExtismVariable(c *extismCall, k *extism.Kernel, stack []uint64) {
	name, value := string(c.block(k, stack[0])), slices.Clone(c.block(k, stack[1]))
	k.Free(stack[0])
	k.Free(stack[1])

	e := c
	if old, found := e.variables[name]; found {
		e.stored -= len(name) + len(old) + extismVariableCost
		delete(e.variables, name)
	}
	if stack[1] == 0 {
		return
	}
	e.stored += len(name) + len(value) + extismVariableCost
	if e.stored > extismVariables {
		panic(&instance.Stop{Reason: fmt.Errorf("%w: the variables of the plugin have more than %d bytes", ErrMemory, extismVariables)})
	}
	if err := c.meter.Keep(len(name) + len(value) + extismVariableCost); err != nil {
		panic(&instance.Stop{Reason: err})
	}
	if e.variables == nil {
		e.variables = map[string][]byte{}
	}
	e.variables[name] = value
}

// extismLog returns a function that logs a block and frees it.
func extismLog(stream abi.Stream) extismFunction {
	return extismFunction{one, none, func(c *extismCall, k *extism.Kernel, stack []uint64) {
		c.logCounted(stream, c.block(k, stack[0]))
		k.Free(stack[0])
	}}
}

// logCounted logs text that counts as output of the call.
func (c *extismCall) logCounted(stream abi.Stream, text []byte) {
	if err := c.answer.Count(len(text)); err != nil {
		panic(&instance.Stop{Reason: err})
	}
	c.log(stream, text)
}
