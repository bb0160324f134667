package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// maxPrintedCalls is how many calls of a run are printed.
const maxPrintedCalls = 40

// printCalls prints the calls made by a run as a tree.
func (u *ui) printCalls(called wire.InnerCalls) {
	if len(called.Calls) == 0 {
		return
	}

	u.printf("  calls:\n")
	for i, c := range called.Calls {
		if i == maxPrintedCalls {
			called.More += len(called.Calls) - i
			break
		}
		mark, state := callState(c)
		u.printf("    %s%s %s: %s, %s", strings.Repeat("  ", max(0, c.Depth-1)), mark, oneLine(c.Tool), state, callTime(c.ElapsedSeconds))
		if c.Fuel > 0 {
			u.printf(", fuel %s", count(c.Fuel))
		}
		if c.TaskID != "" {
			u.printf(", %s", c.TaskID)
		}
		u.printf("\n")
	}
	if called.More > 0 {
		u.printf("    and %d more\n", called.More)
	}
}

// callState returns the symbol for the state of a call, and a text that says
// how the call ended.
func callState(c wire.InnerCall) (mark, text string) {
	switch {
	case c.Open():
		return icon(wire.StatusRunning), "running"
	case c.Outcome == abi.Success:
		return icon(wire.StatusSucceeded), "succeeded"
	}

	mark = icon(wire.StatusFailed)
	if c.Outcome == abi.CanceledKind {
		mark = icon(wire.StatusCanceled)
	}
	return mark, strings.ReplaceAll(cmp.Or(c.Error, string(c.Outcome)), "_", " ")
}

// callTime formats the duration of a call, which is usually in milliseconds.
func callTime(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.1fms", 1000*seconds)
	}
	return elapsed(seconds)
}
