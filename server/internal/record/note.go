// Package record keeps what calls have done: their figures, their history, and the events
// of the audit log.
package record

import (
	"cmp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

// Note is what is learned of a call while it is made.
type Note struct {
	Tool     string
	ID       string // of the call; empty if nothing has run
	Outer    string // the id of the call that has made it
	By       string // the tool of that one
	Unlisted bool   // it is only counted
	Known    bool   // there is such a tool
	Provider engine.Provider
	Version  string // of the plugin: the digest of its file
	Run      string // that the call is, or continues as
	Repeat   bool   // it was answered with the result of another call, which has the cost
	Followed bool   // its run has the cost
}

// Ended is how the call has ended, for its span.
func (n Note) Ended(r abi.Result, err error) telemetry.Ended {
	e := Ended(n.Tool, n.Provider.Plugin, r, err)
	e.Known, e.ID, e.Run = n.Known, n.ID, n.Run
	return e
}

// Ended is how a call of a tool has ended, for its span.
func Ended(tool, plugin string, r abi.Result, err error) telemetry.Ended {
	return telemetry.Ended{
		Tool: tool, Known: true, Plugin: plugin, Failure: failureOf(r, err),
		Fuel: r.Usage.Fuel, CPU: r.Usage.CPU, Wait: r.Usage.Wait, Memory: r.Usage.MemoryPeak, Output: r.Usage.OutputBytes,
	}
}

// failureOf says why a call has no success: the code of its error, or its outcome.
func failureOf(r abi.Result, err error) string {
	if r.Kind == abi.Success {
		return ""
	}
	if err == nil {
		return string(r.Kind)
	}
	return string(cmp.Or(reason.Of(err).Code, wire.Code(r.Kind)))
}
