package snapshot

import "github.com/toolhost/toolhost/internal/wasmbin"

// findings are the relevant properties of a module's code.
type findings struct {
	changes  string // the first instruction that changes state that cannot be restored
	segments bool   // whether it uses data segments by their index
}

// stateful lists the instructions that change state which a host cannot restore. A data
// segment that is dropped does not matter: without memory.init no code can notice.
var stateful = map[wasmbin.Op]string{
	wasmbin.OpTableSet:   "table.set",
	wasmbin.OpTableGrow:  "table.grow",
	wasmbin.OpTableFill:  "table.fill",
	wasmbin.OpTableCopy:  "table.copy",
	wasmbin.OpTableInit:  "table.init",
	wasmbin.OpElemDrop:   "elem.drop",
	wasmbin.OpDataDrop:   "data.drop",
	wasmbin.OpMemoryInit: "memory.init",
}

func scan(m *wasmbin.Module) (findings, error) {
	var (
		f  findings
		rd wasmbin.Reader
		in wasmbin.Instr
	)
	rd.Exceptions = true // [Why] reads modules that nothing has rewritten
	for i := range m.Codes {
		rd.Reset(&m.Codes[i], len(m.Types))
		for rd.Next(&in) {
			if in.Op != wasmbin.OpTableSet && in.Op < wasmbin.OpMemoryInit {
				continue
			}
			if name, ok := stateful[in.Op]; ok && f.changes == "" {
				f.changes = name
			}
			if in.Op == wasmbin.OpMemoryInit || in.Op == wasmbin.OpDataDrop {
				f.segments = true
			}
		}

		if err := rd.Err(); err != nil {
			return f, err
		}
	}

	return f, nil
}

// why tells the author of a module why it cannot be restored.
func (f findings) why(m *wasmbin.Module) string {
	switch {
	case f.changes != "":
		return "its code uses " + f.changes
	case m.ImportCount(wasmbin.KindMemory)+m.ImportCount(wasmbin.KindTable)+m.ImportCount(wasmbin.KindGlobal) > 0:
		return "it imports a memory, a table or a global"
	case len(m.Memories) == 0:
		return "it has no memory"
	}

	for _, g := range m.Globals {
		if !g.Mutable {
			continue
		}
		switch g.Type {
		case wasmbin.I32, wasmbin.I64, wasmbin.F32, wasmbin.F64:
		default:
			return "it has a mutable global that holds a vector or a reference"
		}
	}

	_, why := dataArea(m)
	return why
}
