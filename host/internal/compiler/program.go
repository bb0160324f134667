// Package compiler turns the bytes of a plugin into code that the runtime can
// load. [Build] rewrites the module (metered, bounded, with its state where the
// host can restore it), has wazero compile the result, and leaves two files.
//
// Both steps process untrusted bytes, and wazero's compiler cannot be
// interrupted within a function: a small module can keep it busy for minutes,
// make it allocate gigabytes, or overflow its stack, which ends the process.
// [Process] therefore runs Build in a child process with limits on memory,
// processor time and wall time, and as few rights as the system lets it give up.
//
// The host executes the result of a build. The child process confines what the compiler
// does while it runs, not what a wrong instruction in its output would do later.
package compiler

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/snapshot"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Program is a plugin that was rewritten for the runtime.
type Program struct {
	snapshot.Program
	Overhead uint64 // bytes that each instance takes in addition to its memory
}

// Key returns the digest of everything that determines a plugin's code, in hex: the whole
// file without custom sections, but with the names of functions, which stack traces need.
// Plugins that differ only in other parts, such as their scripts, share the same code.
func Key(wasm []byte) string {
	h := sha256.New()
	for custom, section := range wasmbin.Sections(wasm) {
		if custom == "" || custom == "name" {
			h.Write(section)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Rewrite prepares a plugin for the runtime: bounded, metered, and with its state where the
// host can restore it. It also returns the rewritten module in decoded form. Its error is
// an [*Error].
func Rewrite(wasm []byte) (*Program, *wasmbin.Module, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, nil, refuse(err)
	}
	overhead := CountOverhead(m)
	if err := overhead.Check(); err != nil {
		return nil, nil, err
	}

	stats, err := fuel.Rewrite(m)
	if err != nil {
		return nil, nil, refuse(err)
	}
	p, err := snapshot.Prepare(m)
	if err != nil {
		return nil, nil, refuse(err)
	}

	if err := checkSize(m); err != nil {
		return nil, nil, err
	}
	p.Wasm = m.Encode()
	return &Program{*p, overhead.bytes(&stats)}, m, nil
}

// Limits on code after metering. They limit how long a host without a child process is busy,
// because nothing interrupts wazero's compiler within a function. In known programs, the
// largest function has 0.9 MB, and the largest number of locals is 207,000.
const (
	maxFunction = 3 << 20  // bytes of code of one function
	maxLocals   = 16 << 20 // locals of all functions together
)

func checkSize(m *wasmbin.Module) error {
	locals := 0
	for i := range m.Codes {
		if n := len(m.Codes[i].Body); n > maxFunction {
			return refuse(fmt.Errorf("function %d of its code has %d bytes, at most %d: split it, or build with optimization (-O2)", i, n, maxFunction))
		}
		locals += m.Codes[i].NumLocals()
	}
	if locals > maxLocals {
		return refuse(fmt.Errorf("%d locals in all functions, at most %d: build with optimization (-O2), or split the plugin", locals, maxLocals))
	}
	return nil
}

// programHead is the header of a program in a file.
type programHead struct {
	Program
	WasmSize, ImageSize int
}

// Encode returns the file form of a program: the length of the header in four bytes, the
// header as JSON, the module and the image.
func (p *Program) Encode() []byte {
	head := *p
	head.Wasm, head.Image = nil, nil
	text, _ := json.Marshal(programHead{head, len(p.Wasm), len(p.Image)}) // only numbers and texts

	out := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	return append(append(append(out, text...), p.Wasm...), p.Image...)
}

// Decode decodes the output of Encode, or returns nil if data is something
// else. The program shares memory with data.
func Decode(data []byte) *Program {
	if len(data) < 4 {
		return nil
	}
	n := int(binary.LittleEndian.Uint32(data))
	data = data[4:]

	var head programHead
	if n > len(data) || json.NewDecoder(bytes.NewReader(data[:n])).Decode(&head) != nil {
		return nil
	}
	data = data[n:]
	if head.WasmSize < 0 || head.WasmSize > len(data) || head.ImageSize != len(data)-head.WasmSize {
		return nil
	}

	p := head.Program
	p.Wasm = data[:head.WasmSize:head.WasmSize]
	if head.ImageSize > 0 {
		p.Image = data[head.WasmSize:]
	}
	return &p
}
