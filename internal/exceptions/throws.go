package exceptions

import "github.com/toolhost/toolhost/internal/wasmbin"

// throwing finds the functions of a module that may end with an exception: those
// that throw, whether they catch it or not, those that call by reference, and those
// that call such functions. Imported functions do not throw.
func throwing(m *wasmbin.Module) ([]bool, error) {
	imported := uint32(m.ImportCount(wasmbin.KindFunc))
	throws := make([]bool, len(m.Codes))
	callers := make([][]uint32, len(m.Codes))
	var work, indirect []uint32
	mark := func(f uint32) {
		if !throws[f] {
			throws[f] = true
			work = append(work, f)
		}
	}

	rd := wasmbin.Reader{Exceptions: true}
	var in wasmbin.Instr
	for i := range m.Codes {
		f, byRef := uint32(i), false
		rd.Reset(&m.Codes[i], len(m.Types))
		for rd.Next(&in) {
			switch in.Op {
			case wasmbin.OpThrow, wasmbin.OpRethrow, wasmbin.OpThrowRef:
				mark(f)
			case wasmbin.OpCallIndirect, wasmbin.OpReturnCallIndirect:
				byRef = true
			case wasmbin.OpCall, wasmbin.OpReturnCall:
				if callee := in.X - imported; in.X >= imported && int(callee) < len(callers) {
					callers[callee] = append(callers[callee], f)
				}
			}
		}

		if err := rd.Err(); err != nil {
			return nil, err
		}
		if byRef {
			indirect = append(indirect, f)
		}
	}

	if len(work) > 0 {
		for _, f := range indirect {
			mark(f)
		}
	}
	for len(work) > 0 {
		f := work[len(work)-1]
		work = work[:len(work)-1]
		for _, caller := range callers[f] {
			mark(caller)
		}
	}

	return throws, nil
}
