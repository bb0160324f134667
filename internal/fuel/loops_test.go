package fuel

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

const void = byte(0x40)

// endless are functions of type () -> () that never return by themselves.
var endless = map[string]func() []byte{
	"loop": func() []byte {
		return module([]fn{{name: "f", body: code(wasmbin.OpLoop, void, wasmbin.OpBr, uint32(0), wasmbin.OpEnd)}}, nil)
	},
	"br_if loop": func() []byte {
		return module([]fn{{name: "f", body: code(wasmbin.OpLoop, void, wasmbin.OpI32Const, 1, wasmbin.OpBrIf, uint32(0), wasmbin.OpEnd)}}, nil)
	},
	"br_table loop": func() []byte {
		return module([]fn{{name: "f", body: code(wasmbin.OpLoop, void, wasmbin.OpI32Const, 7,
			wasmbin.OpBrTable, uint32(2), uint32(1), uint32(1), uint32(0), wasmbin.OpEnd)}}, nil)
	},
	"loop checked at its header": func() []byte {
		var backs []byte
		for range maxBacks {
			backs = append(backs, wasmbin.AppendOpX([]byte{byte(wasmbin.OpI32Const), 0}, wasmbin.OpBrIf, 0)...)
		}
		return module([]fn{{name: "f", body: code(wasmbin.OpLoop, void, backs, wasmbin.OpBr, uint32(0), wasmbin.OpEnd)}}, nil)
	},
	"recursion": func() []byte {
		// Leaves the stack by returning after 100 levels, and starts again.
		return module([]fn{
			{name: "f", body: code(wasmbin.OpLoop, void, wasmbin.OpI32Const, 100, wasmbin.OpCall, uint32(1), wasmbin.OpBr, uint32(0), wasmbin.OpEnd)},
			{sig: sig(vals{i32}, nil), body: code(wasmbin.OpLocalGet, uint32(0), wasmbin.OpIf, void, wasmbin.OpLocalGet, uint32(0),
				wasmbin.OpI32Const, 1, wasmbin.OpI32Sub, wasmbin.OpCall, uint32(1), wasmbin.OpEnd)},
		}, nil)
	},
	"double recursion": func() []byte {
		return module([]fn{
			{name: "f", body: code(wasmbin.OpI32Const, 60, wasmbin.OpCall, uint32(1))},
			{sig: sig(vals{i32}, nil), body: code(wasmbin.OpLocalGet, uint32(0), wasmbin.OpIf, void,
				wasmbin.OpLocalGet, uint32(0), wasmbin.OpI32Const, 1, wasmbin.OpI32Sub, wasmbin.OpCall, uint32(1),
				wasmbin.OpLocalGet, uint32(0), wasmbin.OpI32Const, 1, wasmbin.OpI32Sub, wasmbin.OpCall, uint32(1), wasmbin.OpEnd)},
		}, nil)
	},
	"return_call": func() []byte {
		return module([]fn{{name: "f", body: code(wasmbin.OpReturnCall, uint32(0))}}, nil)
	},
	"return_call_indirect": func() []byte {
		return module([]fn{{name: "f", body: code(wasmbin.OpI32Const, 0, wasmbin.OpReturnCallIndirect, uint32(0), uint32(0))}},
			func(m *wasmbin.Module) {
				m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}}}
				m.Elements = []wasmbin.Element{{Offset: code(wasmbin.OpI32Const, 0), Funcs: []uint32{0}}}
			})
	},
	"bulk fill": func() []byte {
		return module([]fn{{name: "f", body: code(wasmbin.OpLoop, void, wasmbin.OpI32Const, 0, wasmbin.OpI32Const, 0, wasmbin.OpI32Const, 1<<16,
			wasmbin.OpMemoryFill, byte(0), wasmbin.OpBr, uint32(0), wasmbin.OpEnd)}},
			func(m *wasmbin.Module) { m.Memories = []wasmbin.Limits{{Min: 1}} })
	},
}

func TestEndlessStopsAtBudget(t *testing.T) {
	for name, build := range endless {
		t.Run(name, func(t *testing.T) {
			g := instantiate(t, build(), nil, nil)
			for _, budget := range []int64{0, 1, 777, Slice, 10*Slice + 1} {
				_, used, err := g.call(budget, "f")
				require.ErrorIs(t, err, ErrExhausted)
				require.Equal(t, budget, used)
			}
		})
	}
}

func TestEndlessStopsWhenInterrupted(t *testing.T) {
	stopped := errors.New("stopped")
	for name, build := range endless {
		t.Run(name, func(t *testing.T) {
			g := instantiate(t, build(), nil, nil)
			var stop atomic.Bool
			g.meter = NewMeter(MaxBudget, func() error {
				if stop.Load() {
					return stopped
				}
				return nil
			})
			timer := time.AfterFunc(time.Millisecond, func() { stop.Store(true) })
			defer timer.Stop()
			_, used, err := g.run("f")
			require.ErrorIs(t, err, stopped)
			require.Positive(t, used)
		})
	}
}
