package host

import (
	"io"

	"github.com/toolhost/toolhost/host/internal/contract"
	wasmstate "github.com/toolhost/toolhost/internal/snapshot"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Info describes the binary of a module, without running it: its digest, its shape, its
// imports and exports, and the limits of its memory.
type Info = contract.Info

// Shape is how the host calls a module.
type Shape = contract.Shape

// The shapes.
const (
	Reactor = contract.Reactor // imports toolhost_v1, exports toolhost_invoke
	Command = contract.Command // a WASI preview 1 program with _start
	Extism  = contract.Extism  // imports extism:host/env
)

// MCP is the convention by which an Extism plugin lists its tools in MCP's
// format, as hyper-mcp plugins do.
type MCP = contract.MCP

// The conventions. Empty means none.
const (
	MCPv1 = contract.MCPv1 // exports describe and call
	MCPv2 = contract.MCPv2 // exports list_tools and call_tool
)

// Inspect checks a binary against the contract without running or compiling it. A
// module that breaks the contract is a [*ModuleError].
func (h *Host) Inspect(wasm []byte) (*contract.Info, error) { return contract.Inspect(wasm, h.imports) }

// Scan checks a binary of size bytes like Inspect, but does not read its code and
// data, which may still turn out to be broken when the module is compiled.
// Info.Digest is empty. Errors of the file are returned unchanged.
func (h *Host) Scan(file io.ReaderAt, size int64) (*contract.Info, error) {
	return contract.Scan(file, size, h.imports)
}

// Isolation returns how the calls of a plugin would be isolated, without compiling
// it. An invalid module is a [*ModuleError].
func (h *Host) Isolation(wasm []byte) (Isolation, error) {
	info, err := h.Inspect(wasm)
	if err != nil {
		return Isolation{}, err
	}
	why, err := wasmstate.Why(wasm)
	if err != nil {
		return Isolation{}, &contract.ModuleError{Part: "module", Err: err}
	}
	return isolation(info, why), nil
}

// Cost is the cost of metering a module.
type Cost struct {
	Table     int     `json:"table"`     // version of the cost table
	Functions int     `json:"functions"` // defined in the module
	Growth    float64 `json:"growth"`    // growth of the file: 0.1 is a tenth larger
}

// Cost meters a binary as Compile would, without compiling it, and returns the cost of
// metering.
func (h *Host) Cost(wasm []byte) (Cost, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return Cost{}, &contract.ModuleError{Part: "module", Err: err}
	}
	cost := Cost{Table: fuel.CostVersion, Functions: len(m.Functions)}
	if _, err := fuel.Rewrite(m); err != nil {
		return Cost{}, &contract.ModuleError{Part: "module", Err: err}
	}
	cost.Growth = float64(len(m.Encode()))/float64(len(wasm)) - 1
	return cost, nil
}
