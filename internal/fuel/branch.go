package fuel

import (
	"cmp"
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// to is the node a label leads to, and whether the way there is checked.
func (w *writer) to(label int32) (int32, bool) {
	to := w.g.labels[label]
	return to, to <= w.cur && w.g.loops[w.g.nodes[to].loop].checksBack()
}

func (w *writer) branch(in *wasmbin.Instr, nd *node) {
	to, back := w.to(nd.target)
	if nd.end == endThread && w.dead {
		w.out = w.out[:w.marks[0]] // the constant and the local.set
	}
	w.pay(w.g.edge(w.cur, to))
	if to == exit {
		w.exit()
	}

	switch {
	case nd.end == endThread:
		w.opX(wasmbin.OpBr, w.depth(nd.target))
		w.r.stats.Threaded++
	case back:
		w.branchBack(in.X, w.takes(in.X))
	default:
		w.copy(in)
	}
}

// takes is how many values a branch depth blocks out takes.
func (w *writer) takes(depth uint32) int {
	return len(w.opened[len(w.opened)-1-int(depth)].takes)
}

// depth is how many blocks out the block of a label is.
func (w *writer) depth(label int32) uint32 {
	i, ok := slices.BinarySearchFunc(w.opened, label, func(o opened, label int32) int { return cmp.Compare(o.label, label) })
	if ok {
		return uint32(len(w.opened) - 1 - i)
	}
	panic("fuel: label out of scope")
}

// branchIf writes a br_if. If taking it costs something, it becomes an if.
func (w *writer) branchIf(in *wasmbin.Instr, nd *node) {
	to, back := w.to(nd.target)
	n := w.g.edge(w.cur, to)
	if n == 0 && !back && !w.leaves(to) && !fuses(w.before) {
		w.copy(in)
		return
	}

	w.op(wasmbin.OpIf)
	w.out = w.r.appendPassing(w.out, w.opened[len(w.opened)-1-int(in.X)].takes)
	w.pay(n)
	if to == exit {
		w.exit()
	}
	if back {
		w.branchBack(in.X+1, w.takes(in.X))
	} else {
		w.opX(wasmbin.OpBr, in.X+1)
	}

	w.op(wasmbin.OpEnd)
}

// fuses reports whether an operator compares. The runtime makes one machine
// instruction of a comparison and the if after it, but not of a br_if, which so
// runs faster as an if around a br.
func fuses(op wasmbin.Op) bool { return op >= wasmbin.OpI32Eqz && op <= 0x66 }

// leaves reports whether a branch leaves the function and needs exit.
func (w *writer) leaves(to int32) bool { return (w.held || w.g.selfChecks) && to == exit }

// exit is what has to be done before the function is left.
func (w *writer) exit() {
	if w.g.selfChecks {
		w.checkpoint()
	}
	w.release()
}

// table writes a br_table. Labels that cost something to go to become blocks
// around it that charge and go on.
func (w *writer) table(in *wasmbin.Instr) {
	nd := &w.g.nodes[w.cur]
	labels := w.g.tables[nd.table : nd.table+nd.tableLen]
	place := make(map[uint32]uint32) // new depth of a label that costs something
	var dear []uint32
	var nodes []int32
	var checked []bool
	for i, depth := range in.Labels {
		to, back := w.to(labels[i])
		if !back && w.g.edge(w.cur, to) == 0 && !w.leaves(to) {
			continue
		}
		if _, ok := place[depth]; !ok {
			place[depth] = uint32(len(dear))
			dear = append(dear, depth)
			nodes = append(nodes, to)
			checked = append(checked, back)
		}
	}

	if len(dear) == 0 {
		w.copy(in)
		return
	}
	w.scratch = max(w.scratch, 1)

	w.set(w.first)
	for range dear {
		w.block(wasmbin.OpBlock)
	}

	w.get(w.first).op(wasmbin.OpBrTable)
	w.out = wasmbin.AppendU32(w.out, uint32(len(in.Labels)-1))
	for _, depth := range in.Labels {
		if d, ok := place[depth]; ok {
			w.out = wasmbin.AppendU32(w.out, d)
		} else {
			w.out = wasmbin.AppendU32(w.out, depth+uint32(len(dear)))
		}
	}

	for i, depth := range dear {
		w.op(wasmbin.OpEnd)
		w.pay(w.g.edge(w.cur, nodes[i]))
		if nodes[i] == exit {
			w.exit()
		}
		around := uint32(len(dear) - 1 - i)
		if checked[i] {
			w.branchBack(depth+around, 0)
		} else {
			w.opX(wasmbin.OpBr, depth+around)
		}
	}
}
