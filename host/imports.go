package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// hostFunc is a function of the contract. Its parameters are on the stack, and
// its result replaces the first.
type hostFunc func(c *call, mem api.Memory, stack []uint64) int32

// instantiateImports makes the modules plugins import from: the contract, the
// refill of the fuel counter, and WASI preview 1.
func (h *Host) instantiateImports(ctx context.Context, r wazero.Runtime) error {
	contract := r.NewHostModuleBuilder(abi.Version)
	for name, f := range map[string]hostFunc{
		abi.ImportRead: (*call).read, abi.ImportWrite: (*call).write,
		abi.ImportProgress: (*call).progress, abi.ImportCall: (*call).capability,
	} {
		params := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}
		switch name {
		case abi.ImportProgress:
			params = []api.ValueType{api.ValueTypeF64, api.ValueTypeF64, api.ValueTypeI32, api.ValueTypeI32}
		case abi.ImportCall:
			params = append(params, api.ValueTypeI32)
		}
		contract.NewFunctionBuilder().
			WithGoModuleFunction(guarded(f), params, []api.ValueType{api.ValueTypeI32}).
			Export(name)
	}
	if _, err := contract.Instantiate(ctx); err != nil {
		return fmt.Errorf("module %s: %w", abi.Version, err)
	}
	_, err := r.NewHostModuleBuilder(fuel.ImportModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(refill), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(fuel.ImportName).Instantiate(ctx)
	if err != nil {
		return fmt.Errorf("module %s: %w", fuel.ImportModule, err)
	}
	wasi := r.NewHostModuleBuilder(abi.ImportWASI)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(wasi)
	// wazero grows its table of descriptors to the number a guest names here:
	// gigabytes of the host's memory for one call. No libc needs it.
	wasi.NewFunctionBuilder().
		WithFunc(func(_, _ uint32) uint32 { return wasiNotSupported }).
		Export("fd_renumber")
	instance, err := wasi.Instantiate(experimental.WithFunctionListenerFactory(ctx,
		experimental.FunctionListenerFactoryFunc(func(def api.FunctionDefinition) experimental.FunctionListener {
			return checked(def.ExportNames()[0])
		})))
	if err != nil {
		return fmt.Errorf("module %s: %w", abi.ImportWASI, err)
	}
	known := map[string]signature{}
	for name, def := range instance.ExportedFunctionDefinitions() {
		t := wasmbin.FuncType{Params: valTypes(def.ParamTypes()), Results: valTypes(def.ResultTypes())}
		known[name] = signature(t.String())
	}
	if h.wasi == nil {
		h.wasi = known // the same in each runtime
	}
	return nil
}

// checked is around each function of WASI, which are wazero's own: a call that
// has to end ends there too. Some of them take long for little fuel, and those
// that reach files wait for disks.
type checked string

// Before implements experimental.FunctionListener.
func (name checked) Before(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	c := callOf(ctx)
	c.touched(string(name))
	c.check()
	if len(c.Policy.Files) > 0 {
		c.guest.Lend()
	}
}

// After implements experimental.FunctionListener.
func (checked) After(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ []uint64) {
	if c := callOf(ctx); len(c.Policy.Files) > 0 {
		c.guest.Reclaim()
	}
}

// Abort implements experimental.FunctionListener: the call ends.
func (checked) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}

// wasiNotSupported is errno notsup of WASI preview 1.
const wasiNotSupported = 58

func valTypes(types []api.ValueType) []wasmbin.ValType {
	out := make([]wasmbin.ValType, len(types))
	for i, t := range types {
		out[i] = wasmbin.ValType(t)
	}
	return out
}

// refill is called by the rewritten guest when its slice of fuel is used up.
func refill(ctx context.Context, _ api.Module, stack []uint64) {
	c := callOf(ctx)
	c.guest.GiveWay()
	counter, err := c.meter.Refill(int64(stack[0]))
	if err != nil {
		panic(&ended{c.exhausted(err)})
	}
	stack[0] = uint64(counter)
}

// exhausted says how much there was of the fuel that is used up.
func (c *call) exhausted(err error) error {
	if errors.Is(err, fuel.ErrExhausted) {
		return fmt.Errorf("%w after %d units", ErrFuel, c.meter.Budget())
	}
	return err
}

// charge makes the guest pay for n bytes the host handles for it, and ends the
// call if it has to end.
func (c *call) charge(n int) {
	if n >= bytesPerUnit {
		c.pay(int64(n / bytesPerUnit))
	}
}

// check ends the call if it has to end.
func (c *call) check() { c.pay(0) }

func (c *call) pay(units int64) {
	left, err := c.meter.Charge(int64(c.counter.Get()), units)
	c.counter.Set(uint64(left))
	if err != nil {
		panic(&ended{c.exhausted(err)})
	}
}

// bytesPerUnit is how many bytes the host copies for a unit of fuel, as many as
// the guest's own memory.copy.
const bytesPerUnit = 64

// guarded wraps a function of the contract: a call that has to end ends there,
// before anything is done.
func guarded(f hostFunc) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		c := callOf(ctx)
		c.touchedContract()
		c.check()
		stack[0] = api.EncodeI32(f(c, mod.Memory(), stack))
	}
}

// bytes returns a range of guest memory. A pointer that lies outside is a bug
// or an attack; either way the call is over. A pointer to nothing may be any:
// languages have odd ones for it.
func (c *call) bytes(mem api.Memory, function string, ptr, length uint64) []byte {
	if uint32(length) == 0 {
		return nil
	}
	b, ok := mem.Read(uint32(ptr), uint32(length))
	if !ok {
		panic(&ended{fmt.Errorf("%w: %s was given %d bytes at %d, and its memory ends at %d", ErrABI, function, uint32(length), uint32(ptr), mem.Size())})
	}
	return b
}

func (c *call) read(mem api.Memory, stack []uint64) int32 {
	field, found := c.field(abi.Field(api.DecodeI32(stack[0])))
	into := c.bytes(mem, abi.ImportRead, stack[1], stack[2])
	if !found {
		return abi.Absent
	}
	n := copy(into, field)
	c.charge(n)
	return int32(len(field))
}

// field returns a field of the contract; what is empty may still be there.
func (c *call) field(f abi.Field) ([]byte, bool) {
	if c.describing && f != abi.FieldScript {
		return nil, false
	}
	switch f {
	case abi.FieldArgs:
		return c.Args, true
	case abi.FieldTool:
		return []byte(c.Tool), true
	case abi.FieldContext:
		return c.facts(), true
	case abi.FieldResponse:
		return c.response, c.response != nil
	case abi.FieldScript:
		return c.module.Info.script, c.module.Info.script != nil
	}
	return nil, false
}

func (c *call) write(mem api.Memory, stack []uint64) int32 {
	data := c.bytes(mem, abi.ImportWrite, stack[1], stack[2])
	stream := abi.Stream(api.DecodeI32(stack[0]))
	c.charge(len(data))
	if c.describing && stream != abi.StreamManifest && stream != abi.StreamError || !c.describing && stream == abi.StreamManifest {
		return abi.RefusedStream
	}
	if !c.account(len(data)) {
		return abi.RefusedOutput
	}
	switch stream {
	case abi.StreamResult, abi.StreamError, abi.StreamManifest, abi.StreamContent:
		if err := c.keep(len(data)); err != nil {
			c.failed = err
			return abi.RefusedOutput
		}
	}
	switch stream {
	case abi.StreamResult:
		c.result = append(c.result, data...)
	case abi.StreamError:
		c.errText = append(c.errText, data...)
	case abi.StreamManifest:
		c.manifest = append(c.manifest, data...)
	case abi.StreamOutput:
		c.emit(c.Stdout, data)
	case abi.StreamStderr:
		c.stderr.write(data)
		c.emit(c.Stderr, data)
	case abi.StreamContent:
		block, err := abi.DecodeBlock(data)
		if err != nil || len(c.content) == maxBlocks {
			return abi.RefusedContent
		}
		c.content = append(c.content, block)
	case abi.StreamDebug, abi.StreamInfo, abi.StreamWarn, abi.StreamErrorLog:
		c.logLine(stream, data)
	default:
		return abi.RefusedStream
	}
	return c.answer()
}

// maxBlocks bounds the content of one result.
const maxBlocks = 256

// answer tells the guest whether to go on.
func (c *call) answer() int32 {
	if c.stopping() {
		return abi.Canceled
	}
	return abi.Continue
}

// maxMessage bounds a progress message, in bytes.
const maxMessage = 512

func (c *call) progress(mem api.Memory, stack []uint64) int32 {
	done, total := api.DecodeF64(stack[0]), api.DecodeF64(stack[1])
	message := c.bytes(mem, abi.ImportProgress, stack[2], stack[3])
	c.charge(len(message))
	if !finite(done) || !finite(total) || done < 0 || !utf8.Valid(message) {
		return abi.RefusedProgress
	}
	if c.Progress != nil {
		p := Progress{Done: done, Total: total, Message: clip(string(message), maxMessage)}
		c.outside(func() { c.Progress(p) })
	}
	return c.answer()
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// account counts bytes against the output limit of the call, and ends the call
// at its next check when there are too many.
func (c *call) account(n int) bool {
	if c.written+int64(n) > c.Policy.Output {
		c.failed = fmt.Errorf("%w: it wrote more than the %d bytes allowed", ErrOutput, c.Policy.Output)
		return false
	}
	c.written += int64(n)
	return true
}
