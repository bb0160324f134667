package host

import (
	"bytes"
	"log/slog"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wasi"
)

// environment is what an instance has besides its module.
type environment struct {
	*wasi.Environment
	kernel extism.Kernel // of an Extism plugin
}

// wasiHost is a call as package wasi sees it.
type wasiHost struct{ call *call }

// Touched implements wasi.Host.
func (h wasiHost) Touched(function string, params []uint64) { h.call.start.touched(function, params) }

// Show implements wasi.Host.
func (h wasiHost) Show(stream abi.Stream, p []byte) { h.call.show(stream, p) }

// Fail implements wasi.Host.
func (h wasiHost) Fail(err error) { h.call.failed = err }

// show passes live output to the caller. The guest does not see its write errors.
func (c *call) show(stream abi.Stream, p []byte) {
	w := c.Stdout
	if stream == abi.StreamStderr {
		if c.module.Info.Shape == contract.Command && !c.Secret && c.host.log.Enabled(&c.ctx, slog.LevelInfo) {
			c.stderr = append(c.stderr, p[:min(len(p), answer.MaxLogged-len(c.stderr))]...)
		}
		p, w = c.answer.Stderr.Write(p), c.Stderr
	}
	if w != nil && len(p) > 0 {
		p = bytes.Clone(p) // p is guest memory: a writer that kept it would read another call's data
		c.ops.Outside(func() { _, _ = w.Write(p) })
	}
}

// log writes a plugin's message for the operator. It never reaches the model.
func (c *call) log(stream abi.Stream, data []byte) {
	log := c.host.log.With("plugin", c.Plugin, "tool", c.Tool, "call", c.ID)
	before := c.answer.Logged
	c.answer.Logged += int64(len(data))
	switch {
	case c.answer.Logged <= answer.MaxLogged:
		c.guest.Lend()
		defer c.guest.Reclaim()
		log.Log(&c.ctx, levels[stream], c.Plugin+" | "+answer.Clean(answer.Shorten(data))) // the prefix keeps it apart from the host's own messages
	case before <= answer.MaxLogged:
		log.Warn("the plugin logs too much: the rest of this call's log is dropped", "bytes_allowed", answer.MaxLogged)
	}
}

var levels = map[abi.Stream]slog.Level{
	abi.StreamDebug: slog.LevelDebug, abi.StreamInfo: slog.LevelInfo, abi.StreamWarn: slog.LevelWarn, abi.StreamErrorLog: slog.LevelError,
}

// asExtism returns the call as that of an Extism plugin.
func (c *call) asExtism() *extism.Call {
	if c.extism == nil {
		c.extism = &extism.Call{
			Tool:  extism.Tool{Function: c.Function, Input: c.Input, MCPTool: c.MCPTool, Args: c.Args, HostFunctions: c.HostFunctions},
			Guest: extismGuest{c}, Info: c.module.Info, Ops: &c.ops, Meter: &c.meter, Answer: &c.answer, Config: c.Policy.Config,
		}
	}
	c.extism.Instance = c.instance
	return c.extism
}

// extismGuest is the guest of a call as package extism sees it.
type extismGuest struct{ call *call }

// Enter implements extism.Guest.
func (g extismGuest) Enter(e *instance.Entry) (int32, error) {
	g.call.params = [2]uint64{}
	return g.call.enter(e)
}

// Kernel implements extism.Guest.
func (g extismGuest) Kernel() *extism.Kernel { return &g.call.instance.Guest.(*environment).kernel }

// Imports implements extism.Guest.
func (g extismGuest) Imports(module string) { g.call.start.imports(module) }

// Log implements extism.Guest.
func (g extismGuest) Log(stream abi.Stream, text []byte) { g.call.log(stream, text) }
