package main

import (
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// maxPrintedCalls is how many calls of a run are printed.
const maxPrintedCalls = 40

// printCalls prints the nested calls of a run as a tree.
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
		u.printf("    %s%s %s: %s, %s", strings.Repeat("  ", max(0, c.Depth-1)), callIcon(c), oneLine(c.Tool), callState(c), callTime(c.ElapsedSeconds))
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

func callIcon(c wire.InnerCall) string {
	switch {
	case c.Open():
		return icon(wire.StatusRunning)
	case c.Outcome == abi.Success:
		return icon(wire.StatusSucceeded)
	case c.Outcome == abi.CanceledKind:
		return icon(wire.StatusCanceled)
	}
	return icon(wire.StatusFailed)
}

// callState says how a call ended.
func callState(c wire.InnerCall) string {
	switch {
	case c.Open():
		return "running"
	case c.Outcome == abi.Success:
		return "succeeded"
	case c.Error != "":
		return strings.ReplaceAll(c.Error, "_", " ")
	}
	return strings.ReplaceAll(string(c.Outcome), "_", " ")
}

// callTime formats the duration of a call, usually milliseconds.
func callTime(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.1fms", 1000*seconds)
	}
	return elapsed(seconds)
}
