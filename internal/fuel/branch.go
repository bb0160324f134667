package fuel

import (
	"cmp"
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// to returns the node that a label leads to, and whether the way there is checked.
func (w *writer) to(label int32) (int32, bool) {
	to := w.g.labels[label]
	return to, to <= w.cur && w.g.loops[w.g.nodes[to].loop].checksBack()
}

func (w *writer) branch(in *wasmbin.Instr, nd *node) {
	to, back := w.to(nd.target)
	w.payTo(to)

	switch {
	case nd.end == endThread:
		w.opX(wasmbin.OpBr, w.depth(nd.target))
	case back && !w.passes(in.X):
		w.branchBack(in.X)
	default:
		if back {
			w.checkpoint()
		}
		w.copy(in)
	}
}

// payTo charges the edge to a node, and does what leaving the function takes.
func (w *writer) payTo(to int32) {
	w.pay(w.g.edge(w.cur, to))
	if to == exit {
		w.exit()
	}
}

// passes reports whether a branch depth blocks out passes values.
func (w *writer) passes(depth uint32) bool { return w.opened[len(w.opened)-1-int(depth)].arity > 0 }

// depth returns how many blocks out the block of a label is.
func (w *writer) depth(label int32) uint32 {
	i, ok := slices.BinarySearchFunc(w.opened, label, func(o opened, label int32) int { return cmp.Compare(o.label, label) })
	if ok {
		return uint32(len(w.opened) - 1 - i)
	}
	panic("fuel: label out of scope")
}

// branchIf writes a br_if. If taking it costs something, it becomes an if, or with
// values on the stack, which an if would have to pass on, a charge before it.
func (w *writer) branchIf(in *wasmbin.Instr, nd *node) {
	to, back := w.to(nd.target)
	n := w.g.edge(w.cur, to)
	free := n == 0 && !back && !w.leaves(to)
	values := w.passes(in.X)

	switch {
	case free && (values || !fuses(w.before)):
		w.copy(in)
	case values:
		w.scratch = max(w.scratch, 1)
		w.set(w.first)
		if n != 0 {
			w.chargeIf(n, w.first)
		}
		if back {
			w.checkpoint()
		}
		if to == exit {
			w.exit()
		}
		w.get(w.first)
		w.copy(in)
	default:
		w.block(wasmbin.OpIf)
		w.payTo(to)
		if back {
			w.branchBack(in.X + 1)
		} else {
			w.opX(wasmbin.OpBr, in.X+1)
		}
		w.op(wasmbin.OpEnd)
	}
}

// fuses reports whether an operator compares. The runtime makes one machine
// instruction of a comparison and the if after it, but not of a br_if, which so
// runs faster as an if around a br.
func fuses(op wasmbin.Op) bool { return op >= wasmbin.OpI32Eqz && op <= 0x66 }

// leaves reports whether a branch leaves the function and needs exit.
func (w *writer) leaves(to int32) bool { return (w.held || w.g.selfChecks) && to == exit }

// exit writes what has to be done before the function is left.
func (w *writer) exit() {
	if w.g.selfChecks {
		w.checkpoint()
	}
	w.release()
}

// table writes a br_table. Labels that cost something to go to become blocks
// around it that charge and branch on. With values on the stack, which these
// blocks would have to pass on, they only charge, and the br_table comes after them.
func (w *writer) table(in *wasmbin.Instr) {
	place, dear := w.dearLabels(in)
	if len(dear) == 0 {
		w.copy(in)
		return
	}
	values := w.passes(in.Labels[0])
	w.scratch = max(w.scratch, 1)
	w.set(w.first)
	if values {
		w.block(wasmbin.OpBlock)
	}
	for range dear {
		w.block(wasmbin.OpBlock)
	}

	w.get(w.first).op(wasmbin.OpBrTable)
	w.out = wasmbin.AppendU32(w.out, uint32(len(in.Labels)-1))
	for _, depth := range in.Labels {
		target, ok := place[depth]
		switch {
		case ok:
		case values:
			target = uint32(len(dear))
		default:
			target = depth + uint32(len(dear))
		}
		w.out = wasmbin.AppendU32(w.out, target)
	}

	for i, label := range dear {
		w.op(wasmbin.OpEnd)
		w.payTo(label.to)
		around := uint32(len(dear) - 1 - i)
		switch {
		case values && label.checked:
			w.checkpoint()
			w.opX(wasmbin.OpBr, around)
		case values:
			w.opX(wasmbin.OpBr, around)
		case label.checked:
			w.branchBack(label.depth + around)
		default:
			w.opX(wasmbin.OpBr, label.depth+around)
		}
	}

	if values {
		w.end().get(w.first)
		w.copy(in)
	}
}

// dearLabels returns the labels of a br_table that cost something to go to, and
// where each is in that list, by its depth.
func (w *writer) dearLabels(in *wasmbin.Instr) (map[uint32]uint32, []dearLabel) {
	nd := &w.g.nodes[w.cur]
	place := make(map[uint32]uint32)
	var dear []dearLabel
	for i, depth := range in.Labels {
		to, back := w.to(w.g.tables[int(nd.table)+i])
		if !back && w.g.edge(w.cur, to) == 0 && !w.leaves(to) {
			continue
		}
		if _, ok := place[depth]; !ok {
			place[depth] = uint32(len(dear))
			dear = append(dear, dearLabel{depth, to, back})
		}
	}

	return place, dear
}

// dearLabel is a label of a br_table that costs something to go to.
type dearLabel struct {
	depth   uint32
	to      int32
	checked bool
}
