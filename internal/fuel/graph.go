package fuel

import "math"

// A graph is the control flow of one function. Its nodes are stretches of
// instructions that run from their first to their last, in the order of the
// code, so that an edge to an earlier node, or to the node itself, is a loop's
// back edge, and every other edge leads forward.
type graph struct {
	nodes      []node
	loops      []loop  // loops[0] stands for the function itself
	labels     []int32 // node that each label leads to, exit for the end of the function
	tables     []int32 // labels of the br_table instructions, one after the other
	calls      []site  // in the order of the code
	calling    bool    // whether it calls something
	selfChecks bool    // whether it checks the counter when it is entered and when it returns
}

// exit is the node that a return leads to.
const exit = math.MaxInt32

// node is a stretch of instructions. Potentials are set by place.
type node struct {
	first, last uint32 // ordinals of its instructions: first up to before last
	cost        int64
	loop        int32 // innermost loop it is in
	target      int32 // label of the branch, or where an if goes whose condition is zero
	table       int32 // start of its labels in tables, for endTable
	tableLen    int32
	end         ending
	lead        bool  // whether its first instruction is the end, else or loop that begins it
	busy        bool  // whether it calls something, or is charged by size
	leaves      int32 // number of calls
	called      int64 // price up to the last call, with what callers charge for callees

	in, out int64 // potential where it is entered and where it is left
	start   int64 // charged when it starts, after being entered with in
	trap    int64 // price up to the trap if nothing but traps follows, else below zero
}

// ending says how a node is left.
type ending byte

const (
	endFall   ending = iota // into the next node
	endBr                   // to target
	endThread               // to target past a dispatch, see dispatch
	endBrIf                 // to target or into the next node
	endIf                   // into the next node or to target
	endTable                // to one of its table
	endJoin                 // past the else, to target
	endReturn               // out of the function by its last instruction
	endFinish               // out of the function at its end
	endTrap                 // nowhere
)

// loop is a loop of the code.
type loop struct {
	parent     int32
	header     int32
	end        int32 // the node after its last one
	backs      int   // number of back edges
	selfChecks bool  // whether it checks the counter by itself whenever it runs
	dispatch   dispatch
}

// dispatch is the start of a loop that does nothing but branch by a local. Go
// compiles every function into such a loop: to jump, it sets the local and goes
// back to the loop. A jump to a label in scope can go there at once, for the same
// price.
type dispatch struct {
	local    uint32
	cost     int64
	table    int32 // labels in tables
	tableLen int32 // 0 if the loop does not begin this way
}

// maxBacks is how many back edges of a loop are each checked. A check at the header
// is less code, and slower: the runtime's compiler spills what the loop carries around
// a call at the head of an interpreter's loop, once for each bytecode.
const maxBacks = 1024

// checksHeader reports whether the loop is checked at its header, because it has so
// many back edges that a check on each would take too much code.
func (l *loop) checksHeader() bool { return l.backs > maxBacks && !l.selfChecks }

// checksBack reports whether the loop is checked on its back edges.
func (l *loop) checksBack() bool { return l.backs <= maxBacks && !l.selfChecks }

// site is a call of a function of the module.
type site struct {
	node   int32
	callee uint32 // index among the functions of the module, or indirect
	before bool   // whether to check the counter before the call
	after  bool   // whether to check it after the call
}

// indirect is the callee of a call through a reference.
const indirect = math.MaxUint32

// countBacks counts the back edges of loops.
func (g *graph) countBacks() {
	for i := range g.nodes {
		g.each(int32(i), func(to int32) {
			if to <= int32(i) {
				g.loops[g.nodes[to].loop].backs++
			}
		})
	}
}

// each calls visit for every way out of node i but traps: the node it
// leads to, or exit.
func (g *graph) each(i int32, visit func(to int32)) {
	nd := &g.nodes[i]
	switch nd.end {
	case endFall:
		visit(i + 1)
	case endBr, endThread, endJoin:
		visit(g.labels[nd.target])
	case endBrIf, endIf:
		visit(i + 1)
		visit(g.labels[nd.target])
	case endTable:
		for _, l := range g.tables[nd.table : nd.table+nd.tableLen] {
			visit(g.labels[l])
		}
	case endReturn, endFinish:
		visit(exit)
	}
}
