package host

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
)

// The budget of a describe: enough for the start of a large runtime. The fuel
// is less than a second of computing, and the time what a busy machine may take
// for it.
const (
	describeFuel    = 500_000_000
	describeTimeout = time.Minute
)

// Describe compiles a plugin, runs its toolhost_describe in the sandbox with a small
// budget and no grants, and returns the manifest it writes. Its errors are those of
// [Host.Compile] and [Host.Call], or match [ErrNoManifest] if the module has no such
// export or writes nothing.
func (h *Host) Describe(ctx context.Context, wasm []byte) ([]byte, error) {
	return h.DescribeWith(ctx, wasm, DescribeOptions{})
}

// DescribeOptions are the options for describing one plugin. The zero value suits a host
// that loads it.
type DescribeOptions struct {
	Compile CompileOptions
	// Fuel is the budget in units. 0 is 500 million. A build tool that writes the
	// manifest into the file can allow more, which a script with large libraries needs.
	Fuel int64
}

// DescribeWith is Describe with options.
func (h *Host) DescribeWith(ctx context.Context, wasm []byte, opts DescribeOptions) ([]byte, error) {
	info, err := h.Scan(bytes.NewReader(wasm), int64(len(wasm)))
	if err != nil {
		return nil, err
	}
	if !info.Describe {
		return nil, &ModuleError{"export", abi.ExportDescribe, ErrNoManifest}
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
	c.describing, c.answer.describing = true, true

	r, err := c.outcome(c.run())
	switch {
	case err != nil:
		return nil, err
	case r.Kind != abi.Success:
		return nil, &CallError{Tool: req.Tool, Err: fmt.Errorf("%w: %s", ErrABI, r.Error)}
	case c.answer.manifest == nil:
		return nil, &CallError{Tool: req.Tool, Err: ErrNoManifest}
	}
	return c.answer.manifest, nil
}
