package webui

import (
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// Dimensions of the bars of calls, in their own units.
const (
	treeWidth = 1000
	minBar    = 6 // shortest visible bar
)

// A callTree shows the calls made by a run's tool, with bars of time.
type callTree struct {
	Rows []treeRow
	More int // number of calls that are not shown
	Span string
}

// A treeRow is a call, placed in the time of its run.
type treeRow struct {
	wire.InnerCall
	X, Width int // position and width of the bar
	Begins   string
}

// newCallTree returns the tree of a run's calls.
func newCallTree(run wire.Run, called wire.InnerCalls, now time.Time) callTree {
	v := callTree{More: called.More}
	if len(called.Calls) == 0 {
		return v
	}

	begin, end := called.Calls[0].At, now
	if !run.StartedAt.IsZero() && run.StartedAt.Before(begin) {
		begin = run.StartedAt
	}
	if run.Status.Terminal() {
		end = run.FinishedAt
	}
	span := max(end.Sub(begin), time.Microsecond)
	v.Span = duration(span)
	for _, c := range called.Calls {
		after := min(max(0, c.At.Sub(begin)), span)
		row := treeRow{InnerCall: c, Begins: duration(after), X: int(treeWidth * float64(after) / float64(span))}
		row.Width = max(minBar, int(treeWidth*c.ElapsedSeconds/span.Seconds()))
		row.X = min(row.X, treeWidth-minBar)
		row.Width = min(row.Width, treeWidth-row.X)
		v.Rows = append(v.Rows, row)
	}
	return v
}

// Level returns the depth at which the page indents the call.
func (r treeRow) Level() int { return min(r.Depth, abi.MaxToolDepth+1) }

// State returns how the call ended.
func (r treeRow) State() state {
	switch {
	case r.Open() && r.TaskID != "":
		return state{"wait", "◷", "not ended"}
	case r.Open():
		return state{"live", "▶", "running"}
	}
	return endOf(r.Outcome, r.Error)
}
