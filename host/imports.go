package host

import (
	"context"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wasi"
	"github.com/toolhost/toolhost/internal/fuel"
)

// contractFunctions holds the functions of the contract. Their parameters are on the
// stack, and the result replaces the first.
var contractFunctions = map[string]struct {
	params []api.ValueType
	call   func(c *call, mem api.Memory, stack []uint64) int32
}{
	abi.ImportRead:     {[]api.ValueType{i32, i32, i32}, read},
	abi.ImportWrite:    {[]api.ValueType{i32, i32, i32}, write},
	abi.ImportProgress: {[]api.ValueType{f64, f64, i32, i32}, progress},
	abi.ImportCall:     {[]api.ValueType{i32, i32, i32, i32}, callCapability},
	abi.ImportStart:    {[]api.ValueType{i32, i32, i32, i32}, startCapability},
}

const i32, i64, f64 = api.ValueTypeI32, api.ValueTypeI64, api.ValueTypeF64

// instantiateImports instantiates the modules that plugins import from: the contract,
// the kernel of Extism, the refill of the fuel counter, and WASI preview 1.
func instantiateImports(ctx context.Context, r wazero.Runtime) error {
	builder := r.NewHostModuleBuilder(abi.Version)
	for name, f := range contractFunctions {
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			c := callOf(ctx)
			if !readsScript(name, stack) {
				c.start.Imports(abi.Version)
			}
			c.meter.Check() // a call that has to end does so before it has any effect
			stack[0] = api.EncodeI32(f.call(c, mod.Memory(), stack))
		}), f.params, []api.ValueType{i32}).Export(name)
	}

	if _, err := builder.Instantiate(ctx); err != nil {
		return fmt.Errorf("module %s: %w", abi.Version, err)
	}
	if err := extism.Instantiate(ctx, r); err != nil {
		return err
	}

	_, err := r.NewHostModuleBuilder(fuel.ImportModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(refill), []api.ValueType{i64}, []api.ValueType{i64}).
		Export(fuel.ImportName).Instantiate(ctx)
	if err != nil {
		return fmt.Errorf("module %s: %w", fuel.ImportModule, err)
	}

	return wasi.Instantiate(ctx, r)
}

// readsScript reports whether a contract function reads a section of the module, which is
// the same for all calls.
func readsScript(function string, stack []uint64) bool {
	return function == abi.ImportRead && abi.Field(api.DecodeI32(stack[0])) == abi.FieldScript
}

// refill is called by the rewritten guest when its slice of fuel is used up.
func refill(ctx context.Context, _ api.Module, stack []uint64) {
	c := callOf(ctx)
	c.guest.GiveWay()
	stack[0] = uint64(c.meter.Refill(int64(stack[0])))
}

// bytesAt returns a range of guest memory. A pointer out of range is a bug or an
// attack, and ends the call. The pointer of an empty range may have any value:
// some languages use odd ones.
func bytesAt(mem api.Memory, function string, ptr, length uint64) []byte {
	if uint32(length) == 0 {
		return nil
	}
	b, ok := mem.Read(uint32(ptr), uint32(length))
	if !ok {
		panic(&instance.Stop{Reason: fmt.Errorf("%w: %s was given %d bytes at %d, but its memory ends at %d", ErrABI, function, uint32(length), uint32(ptr), mem.Size())})
	}
	return b
}

func read(c *call, mem api.Memory, stack []uint64) int32 {
	field, found := c.field(abi.Field(api.DecodeI32(stack[0])))
	into := bytesAt(mem, abi.ImportRead, stack[1], stack[2])
	if !found {
		return abi.Absent
	}
	n := copy(into, field)
	c.meter.Charge(n)
	return int32(len(field))
}

// field returns the value of a field of the contract, and whether the field exists. An
// existing field may be empty.
func (c *call) field(f abi.Field) ([]byte, bool) {
	if c.ops.Describing && f != abi.FieldScript {
		return nil, false
	}

	switch f {
	case abi.FieldArgs:
		return c.Args, true
	case abi.FieldTool:
		return []byte(c.Tool), true
	case abi.FieldContext:
		return c.context(), true
	case abi.FieldResponse:
		return c.ops.Response, c.ops.Response != nil
	case abi.FieldScript:
		return c.module.Info.Script, c.module.Info.Script != nil
	}
	return nil, false
}

func write(c *call, mem api.Memory, stack []uint64) int32 {
	data := bytesAt(mem, abi.ImportWrite, stack[1], stack[2])
	stream := abi.Stream(api.DecodeI32(stack[0]))
	c.meter.Charge(len(data))
	if c.ops.Describing && stream != abi.StreamManifest && stream != abi.StreamError || !c.ops.Describing && stream == abi.StreamManifest {
		return abi.RefusedStream
	}

	err := c.answer.Count(len(data))
	buffer := c.answer.Buffer(stream)
	if err == nil && (buffer != nil || stream == abi.StreamContent) {
		err = c.meter.Keep(len(data))
	}
	if err != nil {
		c.failed = err // it ends the call at its next check
		return abi.RefusedOutput
	}

	switch stream {
	case abi.StreamOutput, abi.StreamStderr:
		c.Show(stream, data)
	case abi.StreamContent:
		if err := c.answer.Add(data); err != nil {
			return c.ops.Refuse(abi.RefusedContent, "invalid", err.Error())
		}
	case abi.StreamDebug, abi.StreamInfo, abi.StreamWarn, abi.StreamErrorLog:
		c.Log(stream, data)
	default:
		if buffer == nil {
			return abi.RefusedStream
		}
		*buffer = append(*buffer, data...)
		c.answer.Given = c.answer.Given || stream == abi.StreamResult
	}

	return c.advice()
}

// advice returns the code that tells the guest whether to continue.
func (c *call) advice() int32 {
	if c.ops.IsStopping() {
		return abi.Canceled
	}
	return abi.Continue
}

func progress(c *call, mem api.Memory, stack []uint64) int32 {
	done, total := api.DecodeF64(stack[0]), api.DecodeF64(stack[1])
	message := bytesAt(mem, abi.ImportProgress, stack[2], stack[3])
	c.meter.Charge(len(message))
	if !finite(done) || !finite(total) || done < 0 || !utf8.Valid(message) {
		return abi.RefusedProgress
	}
	c.ops.Said.Done, c.ops.Said.Total, c.ops.Said.Message = done, total, answer.Clip(string(message), answer.MaxMessage)
	c.ops.SayProgress()
	return c.advice()
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// callCapability is the contract's call function: the guest waits for the operation
// to end.
func callCapability(c *call, mem api.Memory, stack []uint64) int32 {
	request := bytesAt(mem, abi.ImportCall, stack[2], stack[3])
	return c.ops.Perform(bytesAt(mem, abi.ImportCall, stack[0], stack[1]), request)
}

// startCapability is the contract's call_start function: the guest learns how the
// operation ended when it waits.
func startCapability(c *call, mem api.Memory, stack []uint64) int32 {
	request := bytesAt(mem, abi.ImportStart, stack[2], stack[3])
	if code := c.pending.Admit(request); code < 0 {
		return code
	}
	return c.pending.Start(bytesAt(mem, abi.ImportStart, stack[0], stack[1]), request)
}
