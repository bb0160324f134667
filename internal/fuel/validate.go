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
			return r.refer(in.X)
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

// arity returns how many values a branch to the block that in opens passes.
func (r *rewriter) arity(in *wasmbin.Instr) int {
	loop := in.Op == wasmbin.OpLoop
	switch {
	case in.Block.Typed && loop:
		return len(r.m.Types[in.Block.Index].Params)
	case in.Block.Typed:
		return len(r.m.Types[in.Block.Index].Results)
	case in.Block.Result != 0 && !loop:
		return 1
	}
	return 0
}

// localCount returns how many locals a function has, parameters included.
func localCount(code *wasmbin.Code, t *wasmbin.FuncType) uint32 {
	return uint32(len(t.Params) + code.NumLocals())
}
