package host

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wait"
	"github.com/toolhost/toolhost/host/internal/wasi"
	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/internal/snapshot"
)

// startup provides a call with an instance whose module has just started up, and
// records what keeps other calls from sharing that state.
type startup struct {
	call    *call
	running bool                   // whether the guest is starting up, and other calls may share the result
	impure  string                 // why other calls may not
	point   *checkpoint.Checkpoint // the state it continues from; nil for a new call
	tainted bool                   // the call may have left something in the instance that cannot be reset
}

// ready gets an instance in the state right after start-up: a warm one, one from
// a snapshot, or a new one that starts up now.
func (u *startup) ready() (err error) {
	c, view := u.call, u.view()
	if u.point, err = u.resume(); err != nil {
		return err
	}
	if u.point != nil && u.point.Image == c.module.base.Digest() { // it has all of the memory
		return u.anew()
	}
	s := c.module.account.Snapshot(view)
	u.running = s == nil && view != ""
	in := s.Warm(c.meter.Payer)
	warm := in != nil
	if !warm {
		in, err = u.instantiate(s)
		if s != nil && errors.Is(err, ErrHostMemory) { // there may be memory for one of the two
			s = nil
			in, err = u.instantiate(nil)
		}
		if err != nil {
			return err
		}
	}

	c.module.tally.count(func(n *Counts) {
		switch {
		case warm:
			n.Warm++
		case s != nil:
			n.Restored++
		default:
			n.Started++
		}
	})

	c.serve(in)
	if s != nil {
		err = c.meter.Resume(s)
	} else {
		err = u.start()
	}
	if err == nil && view != "" {
		in.Memory.Refused = nil // as in an instance from a snapshot
	}
	if err == nil {
		err = c.meter.Even()
	}
	if u.running && err == nil {
		err = u.capture(view)
	}
	u.running = false
	in.Guest.(*environment).Begin()

	if err == nil && c.module.renews && !c.ops.Describing && c.Continue == nil {
		// Randomness differs between instances from here on. Every call runs
		// this, so that all calls cost the same.
		_, err = c.enter(in.Cached(abi.ExportRestored))
	}
	return err
}

// anew gets an instance that has not started up.
func (u *startup) anew() error {
	in, err := u.instantiate(nil)
	if err != nil {
		return err
	}
	u.call.module.tally.count(func(n *Counts) { n.Restored++ })
	u.call.serve(in)
	return u.call.meter.Even()
}

// instantiate makes an instance from a snapshot, or from the module if the snapshot is
// nil. It takes over the caller's use of the snapshot.
//
// The context does not interrupt it. Its time is bounded (see the bounds of
// package compiler), and the call keeps its slot and pays until it is over.
func (u *startup) instantiate(s *instance.Snapshot) (in *instance.Instance, err error) {
	var mem *instance.Memory
	var env *environment
	defer func() {
		if err == nil {
			return
		}
		if env != nil {
			env.Close()
		}
		if mem != nil {
			mem.Release()
		}
		s.Release()
	}()

	c := u.call
	if err := c.Interrupted(); err != nil {
		return nil, &instance.Stop{Reason: err}
	}
	m, image := c.module, c.module.base
	if s != nil {
		image = s.Image
	}

	if mem, err = c.meter.Payer.NewMemory(image, uint64(c.Policy.Memory), uint64(m.Info.MaxBytes)); err != nil {
		return nil, &instance.Stop{Reason: err}
	}

	env = &environment{Environment: wasi.NewEnvironment(&c.wasi)}
	config, err := env.Config()
	if err != nil {
		return nil, &instance.Stop{Reason: err}
	}
	in = &instance.Instance{Memory: mem, Env: env.State(), Guest: env, Snapshot: s, Release: env.Close}
	ctx := experimental.WithMemoryAllocator(&c.ctx, mem)
	if len(m.hosted) > 0 {
		ctx = experimental.WithImportResolver(ctx, func(name string) api.Module { return m.hosted[name] })
	}
	in.Module, err = m.loaded.Runtime.InstantiateModule(ctx, m.loaded.Compiled, config)
	if err != nil {
		return nil, err
	}
	m.account.Add(in, m.loaded.Globals)
	return in, nil
}

// start runs the start-up of a module.
func (u *startup) start() error {
	c := u.call
	if e := c.instance.Entry(snapshot.StartExport); e != nil {
		if _, err := c.enter(e); err != nil {
			return fmt.Errorf("start function[%d] failed: %w", e.Function.Definition().Index(), err)
		}
	}
	if c.module.Info.Shape == contract.Extism {
		return c.extism.StartUp()
	}
	if e := c.instance.Entry(abi.ExportInitialize); e != nil {
		if _, err := c.enter(e); err != nil {
			return err
		}
	}
	return nil
}

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
		c.ops.Log.Warn("the image of a call that waited cannot be read", "plugin", c.Plugin, "tool", c.Tool, "call", c.ID, "error", err)
		return nil, wait.CannotContinue("the plugin starts up differently here, and how it did is not kept")
	}
	image, err := checkpoint.DecodeImage(data, u.point.Image, uint64(c.Policy.Memory))
	if err != nil {
		return nil, wait.CannotContinue(err.Error())
	}
	return &image, nil
}
