package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// The first call starts its plugin up, and later ones resume from there. Nothing that
// a caller is told may depend on which of them came first.

// longStart is code without a check that costs some 10,000 units.
func longStart() (c code) {
	for range 5000 {
		c = seq(c, drop(load(i32(0))))
	}
	return c
}

// TestFirstFuel: the limit of the first call is not seen in the costs of later ones,
// also if the start-up used more than that limit.
func TestFirstFuel(t *testing.T) {
	want := int64(0)
	for _, limit := range []int64{0, 1, 7777} {
		h := newHost(t, nil)
		m := compile(t, h, guest{initialize: longStart(), invoke: i32(0)}.wasm())
		do(t.Context(), h, m, host.Call{Session: "a", Policy: host.Policy{Fuel: limit}})
		for range 2 {
			o := do(t.Context(), h, m, host.Call{Session: "b"})
			require.NoError(t, o.err)
			if want == 0 {
				want = o.Usage.Fuel
			}
			require.Equal(t, want, o.Usage.Fuel, "after a first call with %d units", limit)
		}
	}
}

// TestFirstTrap: a call that traps costs the same and has the same reason, whether it
// started its plugin up or not.
func TestFirstTrap(t *testing.T) {
	for name, g := range map[string]guest{
		"after a long start": {
			initialize: longStart(),
			helper:     times(200_000, drop(op(0x6e, i32(1), op(wasmbin.OpI32Sub, get(3), i32(130_000))))),
			invoke:     seq(code{0x10, byte(fnHelper)}, i32(0)),
		},
		"after a growth that was refused": {initialize: drop(grow(5000)), invoke: unreachable()},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, g.wasm())
			first := do(t.Context(), h, m, host.Call{})
			require.ErrorIs(t, first.err, host.ErrTrap)
			for range 2 {
				later := do(t.Context(), h, m, host.Call{})
				require.ErrorIs(t, later.err, host.ErrTrap)
				require.Equal(t, first.Usage.Fuel, later.Usage.Fuel)
			}
		})
	}
}
