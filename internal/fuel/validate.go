package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// validate refuses what the rewritten module would make valid: indices just
// above the original's.
func (r *rewriter) validate(rd *wasmbin.Reader, in *wasmbin.Instr, locals uint32) error {
	limit, what := uint32(0), ""
	switch in.Op {
	case wasmbin.OpLocalGet, wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		limit, what = locals, "local"
	case wasmbin.OpGlobalGet, wasmbin.OpGlobalSet:
		limit, what = r.globals, "global"
	case wasmbin.OpCall, wasmbin.OpReturnCall:
		limit, what = r.funcs, "function"
	case wasmbin.OpRefFunc:
		if limit, what = r.funcs, "function"; in.X < limit {
			return r.refer(rd, in)
		}
	case wasmbin.OpCallIndirect, wasmbin.OpReturnCallIndirect:
		limit, what = uint32(r.types), "type"
	case wasmbin.OpTableGrow:
		r.grown = true
		return nil
	default:
		return nil
	}

	if in.X >= limit {
		return rd.Errorf(in, "%v: no %s %d", in.Op, what, in.X)
	}
	return nil
}

// takes is what values a branch to the block that in opens takes.
func (r *rewriter) takes(in *wasmbin.Instr) []wasmbin.ValType {
	if !in.Block.Typed {
		if in.Block.Result != 0 && in.Op != wasmbin.OpLoop {
			return []wasmbin.ValType{in.Block.Result}
		}
		return nil
	}
	t := &r.m.Types[in.Block.Index]
	if in.Op == wasmbin.OpLoop {
		return t.Params
	}
	return t.Results
}

// appendPassing appends the type of a block that takes these values and leaves
// them, adding it to the module if it is new.
func (r *rewriter) appendPassing(b []byte, values []wasmbin.ValType) []byte {
	if len(values) == 0 {
		return append(b, 0x40)
	}
	return wasmbin.AppendS64(b, int64(r.passingType(values)))
}

func (r *rewriter) passingType(values []wasmbin.ValType) uint32 {
	list := &values[0] // of a type of the module, if there are several
	if i, ok := r.passed[list]; ok {
		return i
	}

	t := wasmbin.FuncType{Params: values, Results: values}
	key := t.String()
	i, ok := r.passing[key]
	if !ok {
		i = uint32(len(r.m.Types))
		r.m.Types = append(r.m.Types, t)
		r.passing[key] = i
	}
	if len(values) > 1 {
		r.passed[list] = i // a name takes long to make
	}

	return i
}

// localCount is how many locals a function has, parameters included.
func localCount(code *wasmbin.Code, t *wasmbin.FuncType) uint32 {
	n := uint32(len(t.Params))
	for _, group := range code.Locals {
		n += group.Count
	}
	return n
}
