package host

import (
	"fmt"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// maxEntries bounds the tables of a plugin, all together. They lie beside its
// memory, at 8 bytes an entry, and the largest programs have some ten thousand.
const maxEntries = 1 << 20

func checkTables(m *wasmbin.Module) error {
	var entries uint64
	for _, t := range m.Tables {
		entries += uint64(t.Limits.Min)
	}
	if entries > maxEntries {
		return &ModuleError{Part: "table", Err: fmt.Errorf("the tables start with %d entries, expected at most %d", entries, maxEntries)}
	}
	return nil
}

// boundTables gives each table of a checked module a maximum it may grow to.
// A growth beyond it fails, as any growth may.
func boundTables(wasm []byte) ([]byte, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	bound := false
	for i := range m.Tables {
		l := &m.Tables[i].Limits
		if most := max(l.Min, maxEntries/uint32(len(m.Tables))); !l.HasMax || l.Max > most {
			l.Max, l.HasMax, bound = most, true, true
		}
	}
	if !bound {
		return wasm, nil
	}
	return m.Encode(), nil
}
