package host

import (
	"log/slog"

	"github.com/toolhost/toolhost/abi"
)

// maxLogged bounds what one call may put into the operator's log, in bytes.
const maxLogged = 64 << 10

// logLine logs what a plugin says to the operator. It never reaches the model.
func (c *call) logLine(stream abi.Stream, data []byte) {
	log := c.host.log.With("plugin", c.Plugin, "tool", c.Tool, "call", c.ID)
	before := c.logged
	c.logged += int64(len(data))
	switch {
	case c.logged <= maxLogged:
		c.guest.Lend()
		defer c.guest.Reclaim()
		log.Log(&c.ctx, level(stream), clean(data))
	case before <= maxLogged:
		log.Warn("the plugin logs too much, the rest of this call is dropped", "bytes_allowed", maxLogged)
	}
}

func level(stream abi.Stream) slog.Level {
	switch stream {
	case abi.StreamDebug:
		return slog.LevelDebug
	case abi.StreamInfo:
		return slog.LevelInfo
	case abi.StreamWarn:
		return slog.LevelWarn
	}
	return slog.LevelError
}
