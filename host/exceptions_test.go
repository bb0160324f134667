package host_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// withTag gives the guest a tag without value, number 0. The type of helpers has none.
func withTag(m *wasmbin.Module) {
	m.Tags = []uint32{uint32(len(m.Types))}
	m.Types = append(m.Types, wasmbin.FuncType{})
}

// TestExceptions: an exception of WebAssembly unwinds the guest's functions, and is the
// guest's failure if it leaves it. Calls after it find no trace of it.
func TestExceptions(t *testing.T) {
	throw := opX(wasmbin.OpThrow, 0)
	caught := seq(
		code{byte(wasmbin.OpBlock), void, byte(wasmbin.OpTryTable), void, 1, 2, 0}, call(fnHelper), tell(i32(1)),
		code{byte(wasmbin.OpEnd), byte(wasmbin.OpEnd)}, tell(i32(2)), i32(0),
	)
	o := run(t, guest{invoke: caught, helper: throw, change: withTag}, host.Call{})
	require.NoError(t, o.err)
	require.Equal(t, []int32{2}, o.codes())

	o = run(t, guest{invoke: seq(call(fnHelper), i32(0)), helper: throw, change: withTag}, host.Call{})
	require.Equal(t, abi.Internal, o.Kind)
	require.ErrorIs(t, o.err, host.ErrTrap)

	for name, g := range map[string]guest{
		"called":      {invoke: seq(call(fnHelper), i32(0)), helper: throw},
		"direct":      {invoke: throw},
		"rethrown":    {invoke: seq(code{byte(wasmbin.OpTry), void}, throw, code{byte(wasmbin.OpCatchAll), byte(wasmbin.OpRethrow), 0, byte(wasmbin.OpEnd)}, i32(0))},
		"at start":    {start: throw},
		"initialized": {initialize: throw},
		"a command":   {command: throw},
	} {
		g.change = withTag
		o := run(t, g, host.Call{})
		require.ErrorContains(t, o.err, "uncaught exception", name)
		require.NotContains(t, o.err.Error(), "unreachable", name)
	}
	o = run(t, guest{invoke: seq(caught, code{byte(wasmbin.OpDrop)}, unreachable()), helper: throw, change: withTag}, host.Call{})
	require.ErrorContains(t, o.err, "unreachable", "what was caught is not why it broke")

	// Fuel and stops reach code that only exceptions repeat.
	forever := seq(
		code{byte(wasmbin.OpLoop), void, byte(wasmbin.OpTryTable), void, 1, 2, 0}, call(fnHelper),
		code{byte(wasmbin.OpEnd), byte(wasmbin.OpEnd)}, i32(0),
	)
	policy := host.Policy{Fuel: 1_000_000}
	o = run(t, guest{invoke: forever, helper: throw, change: withTag}, host.Call{Policy: policy})
	require.ErrorIs(t, o.err, host.ErrFuel)
}

// TestExceptionsOfPrograms runs programs in C and C++ as commands, twice: metered, with
// what they print in node, and each time for the same fuel.
func TestExceptionsOfPrograms(t *testing.T) {
	for _, program := range []string{"setjmp-legacy", "setjmp-standard", "cpp-legacy", "cpp-standard"} {
		t.Run(program, func(t *testing.T) {
			wasm, err := os.ReadFile("../internal/exceptions/testdata/" + program + ".wasm")
			require.NoError(t, err)
			want, err := os.ReadFile("../internal/exceptions/testdata/" + program + ".txt")
			require.NoError(t, err)

			h := newHost(t, nil)
			m := compile(t, h, wasm)
			first := do(context.Background(), h, m, host.Call{})
			require.NoError(t, first.err)
			var printed string
			require.NoError(t, json.Unmarshal(first.Value, &printed))
			require.Equal(t, strings.TrimSpace(string(want)), printed)
			second := do(context.Background(), h, m, host.Call{})
			require.Equal(t, first.Value, second.Value)
			require.Equal(t, first.Usage.Fuel, second.Usage.Fuel)
		})
	}
}
