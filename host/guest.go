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

// environment holds what an instance has besides its module.
type environment struct {
	*wasi.Environment
	kernel extism.Kernel // kernel of an Extism plugin
}

// Fail implements wasi.Host.
func (c *call) Fail(err error) { c.failed = err }

// Show implements wasi.Host: it passes live output to the caller. The guest does not see the
// caller's write errors.
func (c *call) Show(stream abi.Stream, p []byte) {
	w := c.Stdout
	if stream == abi.StreamStderr {
		if c.module.Info.Shape == contract.Command && !c.Secret && c.ops.Log.Enabled(&c.ctx, slog.LevelInfo) {
			c.stderr = append(c.stderr, p[:min(len(p), answer.MaxLogged-len(c.stderr))]...)
		}
		p, w = c.answer.Stderr.Write(p), c.Stderr
	}
	if w != nil && len(p) > 0 {
		p = bytes.Clone(p) // p is guest memory: a writer that kept it would read another call's data
		c.ops.Outside(func() { _, _ = w.Write(p) })
	}
}

// Log writes a message from the plugin to the operator's log. The message never reaches the
// model.
func (c *call) Log(stream abi.Stream, data []byte) {
	log := c.ops.Log.With("plugin", c.Plugin, "tool", c.Tool, "call", c.ID)
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

// extismGuest is the guest of a call as package extism sees it.
type extismGuest struct{ *call }

// Enter implements extism.Guest.
func (g extismGuest) Enter(e *instance.Entry) (int32, error) {
	g.params = [2]uint64{}
	return g.enter(e)
}
