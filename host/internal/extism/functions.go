package extism

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// function implements a function that Extism plugins import. Its parameters are on the
// stack, and the result replaces the first.
type function struct {
	params, results []api.ValueType
	call            func(c *Call, k *Kernel, stack []uint64)
}

const i32, i64 = api.ValueTypeI32, api.ValueTypeI64

// one and none are the usual parameters and results of these functions: a handle, or
// nothing.
var one, none = []api.ValueType{i64}, []api.ValueType(nil)

var functions = map[string]function{
	"alloc":         {one, one, func(c *Call, k *Kernel, stack []uint64) { stack[0] = c.allocate(k, stack[0]) }},
	"free":          {one, none, func(_ *Call, k *Kernel, stack []uint64) { k.Free(stack[0]) }},
	"length":        {one, one, func(_ *Call, k *Kernel, stack []uint64) { stack[0] = k.Length(stack[0]) }},
	"length_unsafe": {one, one, func(_ *Call, k *Kernel, stack []uint64) { stack[0] = k.Length(stack[0]) }},
	"load_u8": {one, []api.ValueType{i32}, func(c *Call, k *Kernel, stack []uint64) {
		stack[0] = uint64(c.memory(k, "load_u8", stack[0], 1)[0])
	}},
	"load_u64": {one, one, func(c *Call, k *Kernel, stack []uint64) {
		stack[0] = binary.LittleEndian.Uint64(c.memory(k, "load_u64", stack[0], 8))
	}},
	"store_u8": {[]api.ValueType{i64, i32}, none, func(c *Call, k *Kernel, stack []uint64) {
		c.memory(k, "store_u8", stack[0], 1)[0] = byte(stack[1])
	}},
	"store_u64": {[]api.ValueType{i64, i64}, none, func(c *Call, k *Kernel, stack []uint64) {
		binary.LittleEndian.PutUint64(c.memory(k, "store_u64", stack[0], 8), stack[1])
	}},
	"input_offset":   {none, one, func(_ *Call, k *Kernel, stack []uint64) { stack[0], _ = k.Input() }},
	"input_length":   {none, one, func(_ *Call, k *Kernel, stack []uint64) { _, stack[0] = k.Input() }},
	"input_load_u8":  {one, []api.ValueType{i32}, func(_ *Call, k *Kernel, stack []uint64) { stack[0] = uint64(k.Input8(stack[0])) }},
	"input_load_u64": {one, one, func(_ *Call, k *Kernel, stack []uint64) { stack[0] = k.Input64(stack[0]) }},
	"output_set": {[]api.ValueType{i64, i64}, none, func(c *Call, k *Kernel, stack []uint64) {
		if !k.SetOutput(stack[0], stack[1]) {
			c.outside("output_set", stack[0])
		}
	}},
	"error_set":        {one, none, func(_ *Call, k *Kernel, stack []uint64) { k.SetError(stack[0]) }},
	"config_get":       {one, one, getConfig},
	"var_get":          {one, one, getVariable},
	"var_set":          {[]api.ValueType{i64, i64}, none, setVariable},
	"http_request":     {[]api.ValueType{i64, i64}, one, request},
	"http_status_code": {none, []api.ValueType{i32}, func(c *Call, _ *Kernel, stack []uint64) { stack[0] = api.EncodeI32(int32(c.status)) }},
	"http_headers":     {none, one, responseHeaders},
	"get_log_level":    {none, []api.ValueType{i32}, func(_ *Call, _ *Kernel, stack []uint64) { stack[0] = debugLevel }},
	"log_trace":        logging(abi.StreamDebug),
	"log_debug":        logging(abi.StreamDebug),
	"log_info":         logging(abi.StreamInfo),
	"log_warn":         logging(abi.StreamWarn),
	"log_error":        logging(abi.StreamErrorLog),
}

const (
	// debugLevel is Extism's log level debug. All calls get it, so that a plugin's
	// behavior does not depend on the operator's log level.
	debugLevel = 1
	// functionUnits is the fuel that one kernel function costs, in addition to what it
	// copies: it takes longer than an instruction of a guest.
	functionUnits = 20
	// batch is how many kernel functions are charged at a time.
	batch = 64
)

// Instantiate instantiates the modules that Extism plugins import from.
func Instantiate(ctx context.Context, r wazero.Runtime) error {
	for module, functions := range modules {
		if _, err := define(r.NewHostModuleBuilder(module), module, functions).Instantiate(ctx); err != nil {
			return fmt.Errorf("module %s: %w", module, err)
		}
	}
	return nil
}

// define adds functions to a module.
func define(builder wazero.HostModuleBuilder, module string, functions map[string]function) wazero.HostModuleBuilder {
	for name, f := range functions {
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			c := ctx.Value(Key{}).(*Call)
			c.Start.Imports(module)
			if c.called++; c.called == batch {
				c.pay()
			}
			f.call(c, c.kernelOf(), stack)
		}), f.params, f.results).Export(name)
	}
	return builder
}

// Imports returns the types of the functions in the modules that Extism plugins import from.
func Imports() contract.Imports {
	types := contract.Imports{}
	for module, functions := range modules {
		types[module] = map[string]contract.Signature{}
		for name, f := range functions {
			types[module][name] = contract.SignatureOf(f.params, f.results)
		}
	}
	return types
}

func getConfig(c *Call, k *Kernel, stack []uint64) {
	value, found := c.Config[string(c.block(k, stack[0]))]
	stack[0] = 0
	if found {
		stack[0] = c.put(k, []byte(value))
	}
}

// Limits on the variables of a call. As in Extism, they count all variables with their
// overhead.
const (
	maxVariables = 1 << 20 // bytes
	variableCost = 40
)

func getVariable(c *Call, k *Kernel, stack []uint64) {
	value := c.variables[string(c.block(k, stack[0]))]
	k.Free(stack[0])
	stack[0] = c.put(k, value)
}

func setVariable(c *Call, k *Kernel, stack []uint64) {
	name, value := string(c.block(k, stack[0])), slices.Clone(c.block(k, stack[1]))
	k.Free(stack[0])
	k.Free(stack[1])

	e := c
	if old, found := e.variables[name]; found {
		e.stored -= len(name) + len(old) + variableCost
		delete(e.variables, name)
	}
	if stack[1] == 0 {
		return
	}
	e.stored += len(name) + len(value) + variableCost
	if e.stored > maxVariables {
		panic(&instance.Stop{Reason: fmt.Errorf("%w: the variables of the plugin have more than %d bytes", instance.ErrMemory, maxVariables)})
	}
	if err := c.Meter.Keep(len(name) + len(value) + variableCost); err != nil {
		panic(&instance.Stop{Reason: err})
	}
	if e.variables == nil {
		e.variables = map[string][]byte{}
	}
	e.variables[name] = value
}

// logging returns a function that logs a block and frees it.
func logging(stream abi.Stream) function {
	return function{one, none, func(c *Call, k *Kernel, stack []uint64) {
		c.logCounted(stream, c.block(k, stack[0]))
		k.Free(stack[0])
	}}
}

// logCounted logs text that counts as output of the call.
func (c *Call) logCounted(stream abi.Stream, text []byte) {
	if err := c.Answer.Count(len(text)); err != nil {
		panic(&instance.Stop{Reason: err})
	}
	c.Guest.Log(stream, text)
}
