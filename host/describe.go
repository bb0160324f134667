package host

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
)

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

// DescribeOptions are the options for describing one plugin. The zero value is right for
// a host that loads it.
type DescribeOptions struct {
	Compile CompileOptions
	// Fuel is the budget in units. 0 means 500 million. A build tool that writes the
	// manifest into the file can allow more; a script with large libraries needs it.
	Fuel int64
}

// DescribeWith is Describe with options.
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
	c.describing, c.ops.Describing, c.answer.Describing = true, true, true

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

// MCPManifest returns the manifest of a plugin that lists its tools in MCP's format.
// The name must begin with a letter. list is the plugin's response.
func MCPManifest(name string, list []byte) ([]byte, error) { return extism.Manifest(name, list) }
