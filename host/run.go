package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/rootfs"
	"github.com/toolhost/toolhost/internal/snapshot"
)

// busyProcessors is what a call waited for that had no processor until it ended.
const busyProcessors = "other calls of at least its urgency have all processors: retry when some have ended, or give the host more processors"

// run gets an instance, runs the tool in it, and gives it back. It returns what
// toolhost_invoke answered; a command that exits with 0 answers abi.InvokeOK.
func (c *call) run() (code int32, err error) {
	if err := c.interrupted(); err != nil {
		return 0, &instance.Stop{Reason: err}
	}
	if need := c.module.Info.MinBytes; need > c.Policy.Memory {
		return 0, &instance.Stop{Reason: fmt.Errorf("%w: the plugin starts with %d bytes of memory, but only %d are allowed", ErrMemory, need, c.Policy.Memory)}
	}

	if err := c.meter.keep(len(c.Args)); err != nil { // also while it waits
		return 0, &instance.Stop{Reason: err}
	}
	defer c.release()
	if err := c.acquire(); err != nil {
		return 0, &instance.Stop{Reason: err}
	}
	return c.runAdmitted()
}

// runAdmitted is run for a call that holds its slots. In one function they would
// have more defers than the compiler makes cheap.
func (c *call) runAdmitted() (code int32, err error) {
	t := &c.module.tally
	t.count(func(n *Counts) { n.Running++ })
	defer t.count(func(n *Counts) { n.Running-- })
	if err := c.compute(); err != nil {
		return 0, &instance.Stop{Reason: &WaitedError{Err: err, For: busyProcessors}}
	}
	defer c.guest.Idle()

	clean := false
	defer func() { c.leave(clean) }() // which a panic or runtime.Goexit of the caller's writers passes too
	if err := c.ready(); err != nil {
		return 0, err
	}

	switch in := c.instance; {
	case c.describing:
		code, err = c.enter(in.Entry(abi.ExportDescribe))
	case c.module.Info.Shape == Command:
		_, err = c.enter(in.Entry(abi.ExportStart))
	default:
		code, err = c.enter(in.Cached(abi.ExportInvoke))
	}
	if err == nil {
		err = c.settle()
	}
	clean = err == nil && (code == abi.InvokeOK || code == abi.InvokeToolError || code == abi.InvokeConnection)
	return code, err
}

// ready gets an instance in the state in which the module has just started up: a
// warm one, one from a snapshot, or one that has just done so.
func (c *call) ready() (err error) {
	view := c.view()
	s := c.module.account.Snapshot(view)
	c.starting = s == nil && view != ""
	in := s.Warm()
	warm := in != nil
	if !warm {
		in, err = c.instantiate(s)
		if s != nil && errors.Is(err, ErrHostMemory) { // there may be memory for one of the two
			s = nil
			in, err = c.instantiate(nil)
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
		err = c.meter.resume(s)
	} else {
		err = c.startUp()
	}
	if err == nil && view != "" {
		in.Memory.Refused = nil // as in an instance from a snapshot
	}
	if err == nil {
		err = c.meter.even()
	}
	if c.starting && err == nil {
		err = c.capture(view)
	}
	c.starting = false

	if err == nil && c.module.renews && !c.describing {
		// What is random there differs between instances from here on. All call
		// it, so that calls do not differ in what they cost.
		_, err = c.enter(in.Cached(abi.ExportRestored))
	}
	return err
}

// instantiate makes an instance from a snapshot, which it uses in place of the
// caller, or from the module if that is nil.
//
// The context does not cut it short: its time is bounded (see the bounds of
// package compiler), and the call keeps its slot and pays until it is over.
func (c *call) instantiate(s *instance.Snapshot) (in *instance.Instance, err error) {
	var mem *instance.Memory
	var env *environment
	defer func() {
		if err == nil {
			return
		}
		if env != nil {
			env.close()
		}
		if mem != nil {
			mem.Release()
		}
		s.Release()
	}()

	if err := c.interrupted(); err != nil {
		return nil, &instance.Stop{Reason: err}
	}
	m, image := c.module, c.module.base
	if s != nil {
		image = s.Image
	}

	if mem, err = m.account.NewMemory(image, uint64(c.Policy.Memory), uint64(m.Info.MaxBytes)); err != nil {
		return nil, &instance.Stop{Reason: err}
	}

	env = newEnvironment(c)
	config, err := env.config()
	if err != nil {
		return nil, &instance.Stop{Reason: err}
	}
	in = &instance.Instance{Memory: mem, Env: &env.state, Guest: env, Snapshot: s, Release: env.close}
	in.Module, err = m.loaded.Runtime.InstantiateModule(experimental.WithMemoryAllocator(&c.ctx, mem), m.loaded.Compiled, config)
	if err != nil {
		return nil, err
	}
	m.account.Add(in, m.loaded.Globals)
	return in, nil
}

// serve makes c the call that an instance serves.
func (c *call) serve(in *instance.Instance) {
	in.Guest.(*environment).call = c
	c.instance, c.meter.counter, c.meter.memory = in, in.Counter, in.Memory
	if c.meter.live != nil {
		c.meter.live.waited.Store(int64(c.waited))
	}
}

// startUp runs what a module does before its first call.
func (c *call) startUp() error {
	if e := c.instance.Entry(snapshot.StartExport); e != nil {
		if _, err := c.enter(e); err != nil {
			return fmt.Errorf("start function[%d] failed: %w", e.Function.Definition().Index(), err)
		}
	}
	if e := c.instance.Entry(abi.ExportInitialize); e != nil {
		if _, err := c.enter(e); err != nil {
			return err
		}
	}
	return nil
}

// enter runs a function of the guest, and returns what it answers if it answers
// anything.
func (c *call) enter(e *instance.Entry) (int32, error) {
	c.meter.entry = e
	err := e.Function.CallWithStack(&c.ctx, c.returned[:])
	c.meter.entry = nil
	return api.DecodeI32(c.returned[0]), err
}

// leave ends the service of an instance, if there is one. After a trap, a limit, a
// stop or an exit, and after whatever may have left something behind, it is not
// used again.
func (c *call) leave(clean bool) {
	in := c.instance
	if in == nil {
		return
	}
	c.meter.note(c.meter.left())
	c.fuel = c.meter.fuel.Used(c.meter.left())
	c.peak, c.refused = int64(in.Memory.Peak), in.Memory.Refused
	env := in.Guest.(*environment)
	c.unwritten = slices.ContainsFunc(env.folders, (*rootfs.FS).Refused)
	env.call, c.instance, c.meter.counter, c.meter.memory = nil, nil, nil, nil
	in.Finish(clean && !c.tainted && len(c.Policy.Files) == 0)
}

// settle ends a call that met a limit and returned before its next check.
func (c *call) settle() error {
	if c.failed != nil {
		return &instance.Stop{Reason: c.failed}
	}
	return c.meter.finish()
}

// reason turns an error of the runtime into the reason the call ended, with the
// plugin's stack.
func (c *call) reason(err error) (trace string, reason error) {
	message, trace, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	var (
		exit *sys.ExitError
		stop *instance.Stop
	)
	exits := errors.As(err, &exit)

	switch {
	case errors.As(err, &stop):
		return trace, stop.Reason
	case c.failed != nil: // and the guest gave up before its next check
		return trace, c.failed
	case exits && exit.ExitCode() == 0:
		return "", exit
	case c.refused != nil:
		return trace, c.refused
	case exits:
		return "", exit
	}

	return trace, fmt.Errorf("%w: %s", ErrTrap, strings.Replace(message, "wasm error: ", "", 1))
}
