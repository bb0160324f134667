package fuel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// planned returns the graphs of a module whose charges are placed, and what callers
// charge in advance for each function.
func planned(t *testing.T, wasm []byte) ([]*graph, []int64) {
	m, err := wasmbin.Parse(wasm)
	require.NoError(t, err)
	r := newRewriter(m)

	var planned []*graph
	_, err = r.rewrite(func(graphs []*graph) error {
		planned = graphs
		return r.bodies(graphs)
	})
	require.NoError(t, err)
	return planned, r.prepaid
}

// TestPlaces shows where functions are charged, by the ordinals of their nodes.
func TestPlaces(t *testing.T) {
	get, c, end := wasmbin.AppendOpX(nil, wasmbin.OpLocalGet, 0), wasmbin.OpI32Const, wasmbin.OpEnd
	drop := code(get, wasmbin.OpDrop)
	drop = drop[:len(drop)-1]
	tests := map[string]struct {
		body []byte
		want []string
	}{
		"straight": {code(drop, drop), []string{"entry 2"}},
		"loop": {
			code(wasmbin.OpLoop, void, drop, get, wasmbin.OpBrIf, uint32(0), end, drop),
			[]string{"entry 4", "1 to 1: 3"},
		},
		"interpreter: once for each turn": {
			code(wasmbin.OpLoop, void, wasmbin.OpBlock, void, wasmbin.OpBlock, void, get, wasmbin.OpBrTable, uint32(2), uint32(0), uint32(1), uint32(3), end,
				drop, drop, wasmbin.OpBr, uint32(1), end, drop, wasmbin.OpBr, uint32(0), end),
			[]string{"2 to 1: 5", "3 to 1: 4", "entry 2"},
		},
		"the way with the call is the rare one, the other costs nothing": {
			code(drop, wasmbin.OpBlock, void, get, wasmbin.OpBrIf, uint32(0), c, 7, wasmbin.OpCall, uint32(0), end, drop),
			[]string{"entry 4", "1: 2"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			graphs, _ := planned(t, module([]fn{{name: "f", sig: sig(vals{i32}, nil), body: tt.body}}, nil))
			require.ElementsMatch(t, tt.want, charges(graphs[0]))
		})
	}
}

// charges lists what a function that nobody has paid for charges.
func charges(g *graph) []string {
	var list []string
	if n := g.entry(0); n != 0 {
		list = append(list, fmt.Sprintf("entry %d", n))
	}
	for i := range g.nodes {
		if n := g.nodes[i].start; n != 0 {
			list = append(list, fmt.Sprintf("%d: %d", i, n))
		}
		g.each(int32(i), func(to int32) {
			if n := g.edge(int32(i), to); n != 0 {
				list = append(list, fmt.Sprintf("%d to %d: %d", i, to, n))
			}
		})
	}
	return list
}

// TestPotentialsAreBounded: where the counter is looked at, no more has been charged in
// advance than runs on any path from there, and little is owed.
func TestPotentialsAreBounded(t *testing.T) {
	modules := [][]byte{}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		random := make([]byte, 800)
		for i := range random {
			random[i] = byte(rng.Uint32())
		}
		modules = append(modules, generate(random))
	}
	files, err := filepath.Glob("../../bench/workloads/*.wasm")
	require.NoError(t, err)
	for _, name := range files {
		wasm, err := os.ReadFile(name)
		require.NoError(t, err)
		modules = append(modules, wasm)
	}

	for _, wasm := range modules {
		graphs, prepaid := planned(t, wasm)
		for f, g := range graphs {
			require.GreaterOrEqual(t, g.nodes[0].in, int64(0))
			require.LessOrEqual(t, prepaid[f], int64(maxPrepaid))
			rest := g.rest()
			for i, nd := range g.nodes {
				if nd.trap >= 0 || rest[i] == unlimited {
					continue
				}
				starts := nd.in + nd.start
				if nd.busy || nd.end == endBrIf && g.labels[nd.target] <= int32(i) {
					require.LessOrEqual(t, starts, rest[i])
				}
				if nd.leaves > 0 {
					require.GreaterOrEqual(t, starts-nd.called, int64(-maxDebt))
				}
				if g.loops[nd.loop].header == int32(i) {
					require.LessOrEqual(t, nd.in, rest[i])
					require.GreaterOrEqual(t, nd.in, int64(-maxLoopDebt))
				}
			}
		}
	}
}

// rest is the least that runs from each node to the end of the function, unlimited if
// nothing leads there.
func (g *graph) rest() []int64 {
	rest := make([]int64, len(g.nodes))
	for i := range rest {
		rest[i] = unlimited
	}

	for changed := true; changed; {
		changed = false
		for i := range g.nodes {
			least := int64(unlimited)
			g.each(int32(i), func(to int32) {
				if to == exit {
					least = 0
				} else {
					least = min(least, rest[to])
				}
			})
			if n := least + g.nodes[i].cost; n < rest[i] {
				rest[i], changed = n, true
			}
		}
	}
	return rest
}
