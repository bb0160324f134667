package complexity

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// goProgram is a large Go program, of 14 MB.
func goProgram(t testing.TB) []byte {
	return build(t, "cmd/vet")
}

// build builds a program for WASI.
func build(t testing.TB, pkg string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program.wasm")
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	wasm, err := os.ReadFile(out)
	require.NoError(t, err)
	return wasm
}

// TestRealPrograms: what the Go compiler makes stays inside, with room for
// functions several times as large.
func TestRealPrograms(t *testing.T) {
	fulltest.Only(t, "compiles real programs")
	m, err := prepared(t, goProgram(t))
	require.NoError(t, err)
	require.NoError(t, Check(m))
	margin(t, m)
	stackHeights(t, m)
}

// margin checks that no function comes near a bound.
func margin(t *testing.T, m *wasmbin.Module) {
	const room = 3
	c, total := newCounter(m), newEstimate(m)
	for i := range m.Codes {
		f := c.function(i)
		for _, n := range []*uint64{&f.size, &f.blocks, &f.loops, &f.depth, &f.preds, &f.walk, &f.live, &f.meets, &f.phis, &f.access, &f.values, &f.calls, &f.traps} {
			*n *= room
		}
		require.Nil(t, f.check(total.mutable), "function %d", i)
	}
}

// stackHeights checks that the height of the operand stack is what a valid module
// has at the end of each block: nothing but what the block leaves.
func stackHeights(t *testing.T, m *wasmbin.Module) {
	c := newCounter(m)
	var in wasmbin.Instr
	for i := range m.Codes {
		for c.begin(i); len(c.frames) > 0 && c.rd.Next(&in); c.instr(&in) {
			if in.Op != wasmbin.OpEnd && in.Op != wasmbin.OpElse || c.dead {
				continue
			}
			if f := &c.frames[len(c.frames)-1]; f.height+f.leaves != c.height {
				require.Failf(t, "wrong height", "function %d, byte %d: %d, expected %d", i, in.Pos, c.height, f.height+f.leaves)
			}
		}
	}
}
