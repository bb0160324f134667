package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPatchApplies holds that the patch is one of the release in go.mod.
func TestPatchApplies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wazero")
	version, err := patchedCopy(dir)
	require.NoError(t, err)
	require.NotEmpty(t, version)
	machine, err := os.ReadFile(filepath.Join(dir, "internal", "engine", "wazevo", "backend", "isa", "amd64", "machine.go"))
	require.NoError(t, err)
	require.Contains(t, string(machine), "tryLowerStoreToAluImmM")
}

func TestTable(t *testing.T) {
	process := func(layout float64) comparison {
		return comparison{
			released: {"fib": {layout, 1.2 * layout}, "vm": {2 * layout, 2 * layout}},
			patched:  {"fib": {layout, 1.1 * layout}, "vm": {2 * layout, 2 * layout}},
		}
	}
	require.Equal(t, `| workload | metered / plain, released | metered / plain, patched | patched / released, metered | patched / released, plain |
|---|---|---|---|---|
| fib | 1.200 ± 0.000 | 1.100 ± 0.000 | 0.917 ± 0.000 | 1.000 ± 0.000 |
| vm | 1.000 ± 0.000 | 1.000 ± 0.000 | 1.000 ± 0.000 | 1.000 ± 0.000 |
| **geometric mean** | 1.095 ± 0.000 | 1.049 ± 0.000 | 0.957 ± 0.000 | 1.000 ± 0.000 |
`, table([]comparison{process(1), process(1.5)}))
}

func TestCell(t *testing.T) {
	require.Equal(t, " 1.000 ± 0.693 |", cell([]float64{-0.6931471805599453, 0.6931471805599453}))
}
