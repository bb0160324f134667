// Package plugintest assembles small plugins, for tests in which a plugin has to
// behave or misbehave in one known way. It runs no compiler, and hosts compile its
// plugins quickly.
package plugintest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// CacheDir returns a folder for compiled plugins that outlives a test run, because
// compiling a Go plugin takes seconds, and half a minute under the race detector. It
// creates the folder if necessary.
func CacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "toolhost-test", "cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		panic(err) // no test can run
	}
	return dir
}

// Plugin is a hand-made plugin. Its zero value answers every call without a result,
// and has no manifest.
type Plugin struct {
	Manifest *abi.Manifest // manifest to seal into the plugin; nil leaves it out
	Describe *Program      // body of toolhost_describe; nil leaves the function out
	Invoke   *Program      // body of toolhost_invoke, or of a command's _start
	Resume   *Program      // body of toolhost_resume; nil leaves the function out
	Command  bool          // whether the plugin is a WASI command instead of a reactor
	Import   string        // name of another function to import from the contract
}

// Manifest returns the manifest of a plugin with one tool, which has the same name
// and takes any object.
func Manifest(name string) *abi.Manifest {
	return &abi.Manifest{
		ABI: abi.Version, Name: name, Version: "1.0.0", Description: "Made for a test.",
		Tools: []abi.Tool{Tool(name)},
	}
}

// Tool returns a tool that takes any object.
func Tool(name string) abi.Tool {
	return abi.Tool{Name: name, Description: "Made for a test.", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

// JSON returns a manifest in the format of a sidecar.
func JSON(m *abi.Manifest) []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // a schema that is no JSON: the test is wrong
	}
	return data
}

// Indices of the functions that plugins import.
const (
	fnRead = iota
	fnWrite
	fnProgress
	fnCall
	fnExit
	fnOpen
	fnStart // imported only by a plugin with Resume
)

// Offsets in memory, in bytes; pages is the size of the memory.
const (
	describeAt = 0
	invokeAt   = 1 << 16
	resumeAt   = 3 << 15 // in the second half of Invoke's part
	bufferAt   = 2 << 16
	pages      = 4
)

var (
	i32, i64, f64 = wasmbin.I32, wasmbin.I64, wasmbin.F64
	answers       = []wasmbin.ValType{i32}
)

// Wasm returns the plugin as a WebAssembly binary. It panics if the plugin's texts
// are longer than 64 KiB.
func (p Plugin) Wasm() []byte {
	m := &wasmbin.Module{Memories: []wasmbin.Limits{{Min: pages}}}
	imports := func(module, name string, params, results []wasmbin.ValType) {
		m.Imports = append(m.Imports, wasmbin.Import{Module: module, Name: name, Type: uint32(len(m.Types))})
		m.Types = append(m.Types, wasmbin.FuncType{Params: params, Results: results})
	}
	imports(abi.Version, abi.ImportRead, []wasmbin.ValType{i32, i32, i32}, answers)
	imports(abi.Version, abi.ImportWrite, []wasmbin.ValType{i32, i32, i32}, answers)
	imports(abi.Version, abi.ImportProgress, []wasmbin.ValType{f64, f64, i32, i32}, answers)
	imports(abi.Version, abi.ImportCall, []wasmbin.ValType{i32, i32, i32, i32}, answers)
	imports(abi.ImportWASI, "proc_exit", []wasmbin.ValType{i32}, nil)
	imports(abi.ImportWASI, "path_open", []wasmbin.ValType{i32, i32, i32, i32, i32, i64, i64, i32, i32}, answers)
	if p.Resume != nil {
		imports(abi.Version, abi.ImportStart, []wasmbin.ValType{i32, i32, i32, i32}, answers)
	}
	if p.Import != "" {
		imports(abi.Version, p.Import, nil, nil)
	}
	export := func(name string, program *Program, at int, params, results []wasmbin.ValType) {
		m.Exports = append(m.Exports, wasmbin.Export{Name: name, Index: uint32(len(m.Imports) + len(m.Codes))})
		m.Functions = append(m.Functions, uint32(len(m.Types)))
		m.Types = append(m.Types, wasmbin.FuncType{Params: params, Results: results})
		code, data := program.assemble(at, results != nil)
		if len(data) > 1<<16 {
			panic("too many texts for a hand-made plugin")
		}
		m.Codes = append(m.Codes, wasmbin.Code{Locals: []wasmbin.LocalGroup{{Count: 1, Type: i32}}, Body: code})
		m.Data = append(m.Data, wasmbin.Data{Offset: append(constant(nil, at), byte(wasmbin.OpEnd)), Init: data})
	}
	if p.Command {
		export(abi.ExportStart, p.Invoke, invokeAt, nil, nil)
	} else {
		export(abi.ExportInvoke, p.Invoke, invokeAt, nil, answers)
	}
	if p.Resume != nil {
		export(abi.ExportResume, p.Resume, resumeAt, []wasmbin.ValType{i32, i32}, answers)
	}
	if p.Describe != nil {
		export(abi.ExportDescribe, p.Describe, describeAt, nil, answers)
	}
	m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportMemory, Kind: wasmbin.KindMemory})
	if p.Manifest != nil {
		m.Customs = append(m.Customs, wasmbin.NewCustom(abi.SectionManifest, JSON(p.Manifest)))
	}
	return m.Encode()
}

// Program is the body of a function in a hand-made plugin, built step by step. Each
// method adds a step and returns the program. A nil Program does nothing.
type Program struct{ steps []func(a *assembler) }

// Do returns an empty program.
func Do() *Program { return &Program{} }

type assembler struct {
	at         int // address of the data in memory
	code, data []byte
}

func (p *Program) assemble(at int, answers bool) (code, data []byte) {
	a := &assembler{at: at}
	if answers && at == invokeAt { // an empty result means that the tool has none
		a.write(abi.StreamResult, func() { a.constant(0); a.constant(0) })
	}
	if p != nil {
		for _, step := range p.steps {
			step(a)
		}
	}
	if answers {
		a.constant(0)
	}
	return append(a.code, byte(wasmbin.OpEnd)), a.data
}

func constant(code []byte, n int) []byte {
	return wasmbin.AppendS64(wasmbin.AppendOp(code, wasmbin.OpI32Const), int64(n))
}

func (a *assembler) constant(n int)              { a.code = constant(a.code, n) }
func (a *assembler) op(op wasmbin.Op)            { a.code = wasmbin.AppendOp(a.code, op) }
func (a *assembler) opX(op wasmbin.Op, x uint32) { a.code = wasmbin.AppendOpX(a.code, op, x) }
func (a *assembler) loop()                       { a.code = append(a.code, byte(wasmbin.OpLoop), 0x40) } // a block without a type
func (a *assembler) float(bits ...byte) {
	a.code = append(append(a.code, byte(wasmbin.OpF64Const)), bits...)
}
func (a *assembler) text(s string) {
	a.constant(a.at + len(a.data))
	a.constant(len(s))
	a.data = append(a.data, s...)
}
func (a *assembler) write(stream abi.Stream, f func()) {
	a.constant(int(stream))
	f()
	a.opX(wasmbin.OpCall, fnWrite)
	a.op(wasmbin.OpDrop)
}

func (p *Program) then(step func(a *assembler)) *Program {
	p.steps = append(p.steps, step)
	return p
}

// Say writes a text to one of the call's streams.
func (p *Program) Say(stream abi.Stream, text string) *Program {
	return p.then(func(a *assembler) { a.write(stream, func() { a.text(text) }) })
}

// Echo writes the arguments of the call to the result.
func (p *Program) Echo() *Program { return p.Read(abi.FieldArgs) }

// EchoLarge is like Echo, but for arguments of up to 8 MiB. It allocates memory for
// them.
func (p *Program) EchoLarge() *Program { return p.EchoUpTo(8 << 20) }

// EchoUpTo is like Echo, but for arguments of up to size bytes. It allocates memory
// for them.
func (p *Program) EchoUpTo(size int) *Program {
	return p.then(func(a *assembler) {
		a.constant((size + 1<<16 - 1) >> 16)
		a.opX(wasmbin.OpMemoryGrow, 0)
		a.opX(wasmbin.OpLocalSet, 0) // and is not looked at
		a.read(abi.FieldArgs, pages<<16, size)
	})
}

// Read writes a field of the call to the result.
func (p *Program) Read(field abi.Field) *Program {
	return p.then(func(a *assembler) { a.read(field, bufferAt, (pages<<16)-bufferAt) })
}

// read copies a field of the call to the result, using size bytes of memory at an
// address.
func (a *assembler) read(field abi.Field, at, size int) {
	a.constant(int(field))
	a.constant(at)
	a.constant(size)
	a.opX(wasmbin.OpCall, fnRead)
	a.opX(wasmbin.OpLocalSet, 0)
	a.write(abi.StreamResult, func() {
		a.constant(at)
		a.opX(wasmbin.OpLocalGet, 0)
	})
}

// Progress reports that 1 of 2 units is done, with a message.
func (p *Program) Progress(message string) *Program {
	return p.then(func(a *assembler) {
		a.float(0, 0, 0, 0, 0, 0, 0xf0, 0x3f)
		a.float(0, 0, 0, 0, 0, 0, 0, 0x40)
		a.text(message)
		a.opX(wasmbin.OpCall, fnProgress)
		a.op(wasmbin.OpDrop)
	})
}

// Create creates a file in the first granted folder. If the host refuses, nothing happens.
func (p *Program) Create(name string) *Program {
	const (
		preopened = 3 // the first file descriptor after stdio
		create    = 1 // an oflag
		write     = 1 << 6
	)
	return p.then(func(a *assembler) {
		a.constant(preopened)
		a.constant(0)
		a.text(name)
		a.constant(create)
		for _, rights := range []int64{write, 0} {
			a.code = wasmbin.AppendS64(append(a.code, byte(wasmbin.OpI64Const)), rights)
		}
		a.constant(0)
		a.constant(bufferAt) // the new file descriptor
		a.opX(wasmbin.OpCall, fnOpen)
		a.op(wasmbin.OpDrop)
	})
}

// Sleep waits for a number of seconds without computing, or until the call is asked to stop.
// The clock must be granted.
func (p *Program) Sleep(seconds int) *Program {
	return p.then(func(a *assembler) {
		a.text("sleep")
		a.text(fmt.Sprintf(`{"ms":%d}`, 1000*seconds))
		a.opX(wasmbin.OpCall, fnCall)
		a.op(wasmbin.OpDrop)
	})
}

// Ask asks the user questions, and writes the answers to the result. Asking must be granted.
func (p *Program) Ask(questions string) *Program { return p.Use("ask", questions) }

// Use calls a capability, and writes its response to the result.
func (p *Program) Use(op, request string) *Program {
	return p.Request(op, request).Read(abi.FieldResponse)
}

// Report sends a report on the call, which is JSON: {"status", "unit", "summary"}.
func (p *Program) Report(report string) *Program { return p.Request("report", report) }

// Request calls a capability, and ignores its response.
func (p *Program) Request(op, request string) *Program {
	return p.then(func(a *assembler) {
		a.text(op)
		a.text(request)
		a.opX(wasmbin.OpCall, fnCall)
		a.op(wasmbin.OpDrop)
	})
}

// Start starts an operation, and ignores its id.
func (p *Program) Start(op, request string) *Program {
	return p.then(func(a *assembler) {
		a.text(op)
		a.text(request)
		a.opX(wasmbin.OpCall, fnStart)
		a.op(wasmbin.OpDrop)
	})
}

// Checkpoint writes the checkpoint of an earlier attempt to the result, and saves a
// new one.
func (p *Program) Checkpoint(data string) *Program {
	return p.then(func(a *assembler) {
		a.text("checkpoint.load")
		a.text("{}")
		a.opX(wasmbin.OpCall, fnCall)
		a.op(wasmbin.OpDrop)
	}).Read(abi.FieldResponse).then(func(a *assembler) {
		a.text("checkpoint.save")
		a.text(fmt.Sprintf(`{"data":%q}`, base64.StdEncoding.EncodeToString([]byte(data))))
		a.opX(wasmbin.OpCall, fnCall)
		a.op(wasmbin.OpDrop)
	})
}

// Spin loops forever without calling the host.
func (p *Program) Spin() *Program {
	return p.then(func(a *assembler) {
		a.loop()
		a.opX(wasmbin.OpBr, 0)
		a.op(wasmbin.OpEnd)
	})
}

// Count counts to n. It computes, and does nothing else.
func (p *Program) Count(n int) *Program {
	return p.then(func(a *assembler) {
		a.constant(n)
		a.opX(wasmbin.OpLocalSet, 0)
		a.loop()
		a.opX(wasmbin.OpLocalGet, 0)
		a.constant(1)
		a.op(wasmbin.OpI32Sub)
		a.opX(wasmbin.OpLocalTee, 0)
		a.opX(wasmbin.OpBrIf, 0)
		a.op(wasmbin.OpEnd)
	})
}

// Flood writes output forever.
func (p *Program) Flood() *Program {
	return p.then(func(a *assembler) {
		a.loop()
		a.write(abi.StreamOutput, func() { a.constant(0); a.constant(pages << 16) })
		a.opX(wasmbin.OpBr, 0)
		a.op(wasmbin.OpEnd)
	})
}

// Hog allocates memory until that fails, and then traps.
func (p *Program) Hog() *Program {
	return p.then(func(a *assembler) {
		a.loop()
		a.constant(16)
		a.opX(wasmbin.OpMemoryGrow, 0)
		a.constant(-1)
		a.op(wasmbin.OpI32Ne)
		a.opX(wasmbin.OpBrIf, 0)
		a.op(wasmbin.OpEnd)
		a.op(wasmbin.OpUnreachable)
	})
}

// Trap crashes.
func (p *Program) Trap() *Program {
	return p.then(func(a *assembler) { a.op(wasmbin.OpUnreachable) })
}

// Return ends a reactor's function with a code of the contract.
func (p *Program) Return(code int32) *Program {
	return p.then(func(a *assembler) { a.constant(int(code)); a.op(wasmbin.OpReturn) })
}

// Exit exits with an exit code, as a command does.
func (p *Program) Exit(code int32) *Program {
	return p.then(func(a *assembler) { a.constant(int(code)); a.opX(wasmbin.OpCall, fnExit) })
}
