package host

import (
	"encoding/hex"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wait"
	"github.com/toolhost/toolhost/internal/checkpoint"
)

// resume decodes the state from which a call continues. It is nil for a new call.
func (u *startup) resume() (*checkpoint.Checkpoint, error) {
	c := u.call
	if c.Continue == nil {
		return nil, nil
	}
	point, err := checkpoint.Decode(c.Continue, uint64(c.Policy.Memory))
	switch {
	case err != nil:
		return nil, wait.CannotContinue(err.Error())
	case hex.EncodeToString(point.Plugin[:]) != c.module.Info.Digest:
		return nil, wait.CannotContinue("the plugin has changed since")
	case c.module.Info.Shape == contract.Command || c.module.Isolation.Mode != Reset:
		return nil, wait.CannotContinue("the plugin cannot be put back to a state")
	}
	return point, nil
}

// proceed restores the state from which a call continues. It returns the guest's last
// response: that it waits.
func (u *startup) proceed() (code int32, err error) {
	c := u.call
	image, err := u.image()
	if err != nil {
		return 0, err
	}
	st, err := c.pending.Decode(u.point.Host)
	if err != nil {
		return 0, err
	}

	if err := c.instance.Load(u.point, image); err != nil {
		return 0, &instance.Stop{Reason: err}
	}
	u.point = nil
	return abi.InvokeWaiting, c.pending.Restore(st)
}

// image returns the base image of the state, if the plugin now starts up differently.
func (u *startup) image() (*checkpoint.Image, error) {
	c := u.call
	if c.instance.Started(u.point.Image) {
		return nil, nil
	}
	if c.Suspend == nil {
		return nil, wait.CannotContinue("the plugin starts up differently here")
	}
	data, err := c.Suspend.Image(hex.EncodeToString(u.point.Image[:]))
	if err != nil {
		c.host.log.Warn("the image of a call that waited cannot be read", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
		return nil, wait.CannotContinue("the plugin starts up differently here, and how it did is not kept")
	}
	image, err := checkpoint.DecodeImage(data, u.point.Image, uint64(c.Policy.Memory))
	if err != nil {
		return nil, wait.CannotContinue(err.Error())
	}
	return &image, nil
}
