package host

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// DescribeCompiled describes as Host.Describe does where a plugin is not
// interpreted.
func (h *Host) DescribeCompiled(ctx context.Context, wasm []byte) ([]byte, error) {
	return h.describeCompiled(ctx, wasm, DescribeOptions{})
}

// Interpretable reports whether a module, as it was rewritten, is interpreted.
func Interpretable(wasm []byte) bool {
	m, err := wasmbin.Parse(wasm)
	if err == nil {
		_, err = interpretedSize(m, describedCode)
	}
	return err == nil
}

// Interpret takes all places to interpret small plugins, or large ones, and returns
// what gives one back.
func (h *Host) Interpret(large bool) (end func()) {
	places := h.interpreting
	if large {
		places = h.interpretingLarge
	}
	for range cap(places) {
		places <- struct{}{}
	}
	return func() { <-places }
}

// Described is how a describe ended in some kind of runtime.
type Described struct {
	Manifest string
	Err      string
	Fuel     int64
	Memory   int64 // at its peak
}

// DescribeIn describes in an interpreter, or compiled.
func (h *Host) DescribeIn(t *testing.T, interpreted bool, wasm []byte, units int64) Described {
	t.Helper()
	m, err := h.Compile(t.Context(), wasm)
	require.NoError(t, err)
	defer m.Close(t.Context())
	if interpreted {
		p, err := h.interpreted(t.Context(), wasm, maxInterpretedCode)
		require.NoError(t, err)
		m, err = h.newModule(m.Info, p)
		require.NoError(t, err)
		defer m.Close(t.Context())
	}
	c, err := h.begin(t.Context(), m, &Call{Tool: abi.ExportDescribe, Policy: Policy{Fuel: units, Output: abi.MaxManifest, Timeout: time.Hour}})
	require.NoError(t, err)
	defer c.end()
	c.describing, c.answer.describing = true, true
	r, err := c.outcome(c.run())
	d := Described{Manifest: string(c.answer.manifest), Err: r.Error, Fuel: r.Usage.Fuel, Memory: r.Usage.MemoryPeak}
	if err != nil {
		d.Err = err.Error()
	}
	return d
}
