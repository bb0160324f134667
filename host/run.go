package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// busyProcessors says what a call waited for if it ended without ever getting a
// processor.
const busyProcessors = "other calls of at least its urgency have all processors: retry when some have ended, or give the host more processors"

// run gets an instance, runs the tool in it, and returns the instance. The code is the
// one that toolhost_invoke returned; for a command that exits with 0 it is
// abi.InvokeOK.
func (c *call) run() (code int32, err error) {
	if err := c.Interrupted(); err != nil {
		return 0, &instance.Stop{Reason: err}
	}
	if need := c.module.Info.MinBytes; need > c.Policy.Memory {
		return 0, &instance.Stop{Reason: fmt.Errorf("%w: the plugin starts with %d bytes of memory, but only %d are allowed", ErrMemory, need, c.Policy.Memory)}
	}

	if err := c.meter.Keep(len(c.Args)); err != nil { // also while it waits
		return 0, &instance.Stop{Reason: err}
	}
	defer c.release()
	if err := c.acquire(); err != nil {
		return 0, &instance.Stop{Reason: err}
	}
	return c.runAdmitted()
}

// runAdmitted is the rest of run, for a call that holds its slots. A single function
// would have too many defers for the compiler to optimize.
func (c *call) runAdmitted() (code int32, err error) {
	t := &c.module.tally
	t.count(func(n *Counts) { n.Running++ })
	defer t.count(func(n *Counts) { n.Running-- })
	if err := c.Compute(); err != nil {
		return 0, &instance.Stop{Reason: &guestcall.WaitedError{Err: err, For: busyProcessors}}
	}
	defer c.guest.Idle()

	clean := false
	defer func() { c.leave(clean) }() // also after a panic or runtime.Goexit in the caller's writers
	began := time.Now()
	if err := c.start.ready(); err != nil {
		return 0, err
	}
	if c.Continue == nil {
		c.startFuel, c.startTime = c.meter.Used(), time.Since(began)
	}
	if err := c.pending.Arrive(); err != nil {
		return 0, err
	}

	switch in := c.instance; {
	case c.module.Info.Shape == contract.Extism:
		code, err = c.extism.Run()
	case c.ops.Describing:
		code, err = c.enter(in.Entry(abi.ExportDescribe))
	case c.module.Info.Shape == contract.Command:
		_, err = c.enter(in.Entry(abi.ExportStart))
	default:
		if c.Continue == nil {
			code, err = c.enter(in.Cached(abi.ExportInvoke))
		} else {
			code, err = c.start.proceed()
		}
		for err == nil && code == abi.InvokeWaiting {
			code, err = c.resume()
		}
	}
	if err == nil {
		err = c.settle()
	}
	clean = errors.Is(err, ErrSuspended) || err == nil && (code == abi.InvokeOK || code == abi.InvokeToolError || code == abi.InvokeConnection)
	return code, err
}

// serve makes c the call that an instance serves.
func (c *call) serve(in *instance.Instance) {
	env := in.Guest.(*environment)
	env.Serve(&c.wasi)
	if c.extism != nil {
		c.extism.Instance, c.extism.Kernel = in, &env.kernel
	}
	c.instance, c.meter.Counter, c.meter.Memory = in, in.Counter, in.Memory
	if c.meter.Live != nil {
		c.meter.Live.Waited.Store(int64(c.waited))
	}
}

// enter runs a function of the guest with c.params, and returns its result, if any.
func (c *call) enter(e *instance.Entry) (int32, error) {
	c.meter.Entry = e
	err := e.Function.CallWithStack(&c.ctx, c.params[:])
	c.meter.Entry = nil
	return api.DecodeI32(c.params[0]), err
}

// resume waits, without a processor, for an operation to end, and reports it to the
// guest. It returns the guest's response.
func (c *call) resume() (int32, error) {
	if !c.pending.Any() {
		return 0, &instance.Stop{Reason: fmt.Errorf("%w: the plugin returned %d, waiting, but no operation is pending", ErrABI, abi.InvokeWaiting)}
	}
	id, code, err := c.pending.Next()
	if err != nil {
		return 0, err
	}

	c.params[0], c.params[1] = api.EncodeI32(id), api.EncodeI32(code)
	c.instance.Shrink(abi.ExportInvoke) // the call pays for one stack
	code, err = c.enter(c.instance.Cached(abi.ExportResume))
	c.ops.Response = nil
	return code, err
}

// leave gives up the instance, if the call has one. The instance is not reused after a
// trap, a limit, a stop or an exit, or after anything else that may have left traces.
func (c *call) leave(clean bool) {
	in := c.instance
	if in == nil {
		return
	}
	c.pending.Close()
	c.meter.Note(c.meter.Left())
	c.fuel = c.meter.Used()
	c.peak, c.refused, c.threw = int64(in.Memory.Peak), in.Memory.Refused, !clean && in.Threw()
	if c.extism != nil {
		c.peak += c.extism.Size()
	}
	env := in.Guest.(*environment)
	c.unwritten = env.Refused()
	env.Serve(nil)
	c.instance, c.meter.Counter, c.meter.Memory = nil, nil, nil
	in.Finish(clean && !c.start.tainted && len(c.Policy.Files) == 0)
}

// settle ends a call that exceeded a limit and returned before its next check.
func (c *call) settle() error {
	if c.failed != nil {
		return &instance.Stop{Reason: c.failed}
	}
	return c.meter.Finish()
}
