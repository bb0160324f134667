package host

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/snapshot"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Info describes the binary of a module, without running it: its digest, its shape, its
// imports and exports, and the limits of its memory.
type Info = contract.Info

// Shape is the way in which the host calls a module.
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

// Inspect checks a binary against the contract without running or compiling it. If the
// module breaks the contract, the error is a [*ModuleError].
func (h *Host) Inspect(wasm []byte) (*contract.Info, error) { return contract.Inspect(wasm, h.imports) }

// Scan checks a binary of size bytes like Inspect, but does not read its code and data,
// which may still turn out to be broken when the module is compiled. Info.Digest is
// empty. Errors from reading the file are returned unchanged.
func (h *Host) Scan(file io.ReaderAt, size int64) (*contract.Info, error) {
	return contract.Scan(file, size, h.imports)
}

// Isolation returns how the calls of a plugin would be isolated, without compiling it.
// If the module is invalid, the error is a [*ModuleError].
func (h *Host) Isolation(wasm []byte) (Isolation, error) {
	info, err := h.Inspect(wasm)
	if err != nil {
		return Isolation{}, err
	}
	why, err := snapshot.Why(wasm)
	if err != nil {
		return Isolation{}, &contract.ModuleError{Part: "module", Err: err}
	}
	return isolation(info, why), nil
}

// Cost is the cost of metering a module.
type Cost struct {
	Table     int     `json:"table"`     // version of the cost table
	Functions int     `json:"functions"` // number of functions that the module defines
	Growth    float64 `json:"growth"`    // relative growth of the file: 0.1 is a tenth larger
}

// Cost returns the cost of metering a binary. It rewrites the binary as Compile would, but
// does not compile it.
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

// The budget of a describe call. The fuel is enough to start a large runtime,
// and is less than a second of computing. The time allows for a busy machine.
const (
	describeFuel    = 500_000_000
	describeTimeout = time.Minute
)

// Describe compiles a plugin, runs its toolhost_describe in the sandbox with a small
// budget and no grants, and returns the manifest that it writes. Its errors are
// those of [Host.Compile] and [Host.Call]. They match [ErrNoManifest] if the module
// has no such export or writes nothing.
func (h *Host) Describe(ctx context.Context, wasm []byte) ([]byte, error) {
	return h.DescribeWith(ctx, wasm, DescribeOptions{})
}

// DescribeOptions are the options for describing one plugin. The zero value is right for a
// host that loads the plugin.
type DescribeOptions struct {
	Compile CompileOptions
	// Fuel is the budget, in units of fuel. 0 means 500 million. A build tool that writes
	// the manifest into the file can allow more, which a script with large libraries needs.
	Fuel int64
}

// DescribeWith is like Describe, but takes options.
func (h *Host) DescribeWith(ctx context.Context, wasm []byte, opts DescribeOptions) ([]byte, error) {
	info, err := h.Scan(bytes.NewReader(wasm), int64(len(wasm)))
	if err != nil {
		return nil, err
	}
	if !info.Describe {
		return nil, &ModuleError{Part: "export", Name: abi.ExportDescribe, Err: ErrNoManifest}
	}

	m, err := h.CompileWith(ctx, wasm, opts.Compile)
	if err != nil {
		return nil, err
	}
	defer m.Close(context.WithoutCancel(ctx))
	return m.describe(ctx, cmp.Or(opts.Fuel, describeFuel))
}

// describe runs toolhost_describe.
func (m *Module) describe(ctx context.Context, units int64) ([]byte, error) {
	req := &Call{Tool: abi.ExportDescribe, Policy: Policy{Fuel: units, Output: abi.MaxManifest, Timeout: describeTimeout}}
	c, err := m.host.begin(ctx, m, req)
	if err != nil {
		return nil, &CallError{Tool: req.Tool, Err: err}
	}
	defer c.end()
	c.ops.Describing, c.answer.Describing = true, true

	r, err := c.outcome(c.run())
	switch {
	case err != nil:
		return nil, err
	case r.Kind != abi.Success:
		return nil, &CallError{Tool: req.Tool, Err: fmt.Errorf("%w: %s", ErrABI, r.Error)}
	case c.answer.Manifest == nil:
		return nil, &CallError{Tool: req.Tool, Err: contract.ErrNoManifest}
	}
	return c.answer.Manifest, nil
}

// MCPManifest returns the manifest of a plugin that lists its tools in MCP's format. The
// name must begin with a letter. list is what the plugin returned when asked for its tools.
func MCPManifest(name string, list []byte) ([]byte, error) { return extism.Manifest(name, list) }
