// Package record keeps records of calls: their figures, their history, and the events of
// the audit log.
package record

import (
	"cmp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

// Note collects facts about a call while it is made.
type Note struct {
	Tool     string
	ID       string // id of the call; empty if nothing has run
	Outer    string // id of the call that made this one
	By       string // tool that made this call
	Unlisted bool   // the call is counted, but not listed
	Known    bool   // the tool exists
	Provider engine.Provider
	Version  string // version of the plugin: the digest of its file
	// Corrected is how many values of the arguments were corrected before they were passed
	// on.
	Corrected int
	Run       string // id of the run, if the call is one or continues as one
	Repeat    bool   // the answer is the result of another call, for which the cost is counted
	Followed  bool   // the cost is counted for the run that the caller waited for
	Held      bool   // the call was answered while its run waited for approval
}

// Ended returns the outcome of the call for its span.
func (n Note) Ended(r abi.Result, err error) telemetry.Ended {
	e := Ended(n.Tool, n.Provider.Plugin, r, err)
	e.Known, e.ID, e.Run = n.Known, n.ID, n.Run
	return e
}

// Ended returns the outcome of a tool's call for its span.
func Ended(tool, plugin string, r abi.Result, err error) telemetry.Ended {
	return telemetry.Ended{
		Tool: tool, Known: true, Plugin: plugin, Failure: failureOf(r, err),
		Fuel: r.Usage.Fuel, CPU: r.Usage.CPU, Wait: r.Usage.Wait, Memory: r.Usage.MemoryPeak, Output: r.Usage.OutputBytes,
	}
}

// failureOf returns why a call was not successful: the code of its error, or its outcome.
func failureOf(r abi.Result, err error) string {
	if r.Kind == abi.Success {
		return ""
	}
	if err == nil {
		return string(r.Kind)
	}
	return string(cmp.Or(reason.Of(err).Code, wire.Code(r.Kind)))
}
