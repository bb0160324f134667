package host

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fuel"
	wasmstate "github.com/toolhost/toolhost/internal/snapshot"
)

// instance is a module that is ready to run, and serves one call at a time.
type instance struct {
	module   api.Module
	account  *account
	mem      *memory
	world    *world
	counter  api.MutableGlobal
	globals  []api.MutableGlobal
	snapshot *snapshot // what it started from; nil if it started up itself
	release  func()    // closes the granted folders

	waiting *list.Element // in the pool
	since   time.Time
}

// run gets an instance, runs the tool in it, and gives it back. It returns what
// toolhost_invoke answered; a command that exits with 0 answers abi.InvokeOK.
func (c *call) run(ctx context.Context) (code int32, err error) {
	if err := c.interrupted(); err != nil {
		return 0, &ended{err}
	}
	if need := c.module.Info.MinBytes; need > c.Policy.Memory {
		return 0, &ended{fmt.Errorf("%w: the plugin starts with %d bytes of memory, and %d are allowed", ErrMemory, need, c.Policy.Memory)}
	}
	leave, err := c.module.enter(c)
	if err != nil {
		return 0, &ended{err}
	}
	defer leave()
	in, err := c.ready(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { c.leave(in, code, err) }()
	switch {
	case c.describing:
		code, err = invoke(ctx, in.module, abi.ExportDescribe)
	case c.module.Info.Shape == Command:
		_, err = in.module.ExportedFunction(abi.ExportStart).Call(ctx)
	default:
		code, err = invoke(ctx, in.module, abi.ExportInvoke)
	}
	if err == nil {
		err = c.settle()
	}
	return code, err
}

// ready returns an instance in the state in which the module has just started
// up: a warm one, one from a snapshot, or one that has just done so.
func (c *call) ready(ctx context.Context) (in *instance, err error) {
	view := c.view()
	s, mine, err := c.shared(view)
	if err != nil {
		return nil, err
	}
	if s != nil && len(c.Policy.Files) == 0 {
		in = c.host.pool.warm(s)
	}
	warm := in != nil
	if !warm {
		in, err = c.instantiate(ctx, s)
	}
	if err == nil {
		c.module.count(in, warm)
		c.serve(in)
		err = c.begun(ctx, warm, s)
	}
	if mine && err == nil {
		in, err = c.take(ctx, view, in)
	} else if mine {
		c.module.stored(view, nil, "")
	}
	if restored := c.restored(in, err); restored != nil {
		_, err = restored.Call(ctx)
	}
	if err != nil && in != nil {
		c.leave(in, 0, err)
		in = nil
	}
	return in, err
}

// begun brings the instance to where the module has started up.
func (c *call) begun(ctx context.Context, warm bool, s *snapshot) error {
	if s == nil {
		return c.startUp(ctx)
	}
	if !warm { // else it was done when it was reset
		c.instance.restore(s)
	}
	return c.resume(s)
}

// instantiate makes an instance from a snapshot, or from the module if that is
// nil.
func (c *call) instantiate(ctx context.Context, s *snapshot) (*instance, error) {
	m := c.module
	mem := &memory{account: m.account, image: m.base, limit: uint64(c.Policy.Memory), most: uint64(m.Info.MaxBytes)}
	if s != nil {
		mem.image = s.image
	}
	if err := m.account.take(mem.image.size); err != nil {
		return nil, &ended{err}
	}
	mem.size = mem.image.size
	mem.lay()
	world, config, release, err := c.world()
	if err != nil {
		mem.release()
		return nil, &ended{err}
	}
	module, err := c.host.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, mem), m.compiled, config)
	if err != nil {
		release()
		mem.release()
		return nil, err
	}
	in := &instance{module: module, account: m.account, mem: mem, world: world, snapshot: s, release: release}
	in.counter = module.ExportedGlobal(fuel.CounterExport).(api.MutableGlobal)
	for i := range m.globals {
		in.globals = append(in.globals, module.ExportedGlobal(wasmstate.GlobalExport(i)).(api.MutableGlobal))
	}
	return in, nil
}

// serve makes c the call that an instance serves.
func (c *call) serve(in *instance) {
	in.world.call = c
	c.instance, c.counter = in, in.counter
}

// resume continues from a snapshot. What led to it is paid for by each call.
func (c *call) resume(s *snapshot) error {
	left, err := c.meter.Charge(0, s.fuel)
	c.counter.Set(uint64(left))
	if err != nil {
		return &ended{c.exhausted(err)}
	}
	return nil
}

// startUp runs what a module does before its first call.
func (c *call) startUp(ctx context.Context) error {
	c.starting = true
	defer func() { c.starting = false }()
	if f := c.instance.module.ExportedFunction(wasmstate.StartExport); f != nil {
		if _, err := f.Call(ctx); err != nil {
			return fmt.Errorf("start function[%d] failed: %w", f.Definition().Index(), err)
		}
	}
	if f := c.instance.module.ExportedFunction(abi.ExportInitialize); f != nil {
		if _, err := f.Call(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restored is the function that makes random state differ between instances.
// It runs in each of them, so that calls do not differ in what they cost.
func (c *call) restored(in *instance, err error) api.Function {
	if err != nil || c.describing || !c.module.renews {
		return nil
	}
	return in.module.ExportedFunction(abi.ExportRestored)
}

// leave ends the service of an instance. One that can be put back to its
// snapshot waits for the next call, any other is discarded: after a trap, a
// limit, a stop or an exit, and after whatever may have left something behind.
func (c *call) leave(in *instance, code int32, err error) {
	if c.instance == in {
		c.fuel = c.meter.Used(int64(c.counter.Get()))
		c.peak, c.refused = int64(in.mem.peak), in.mem.refused
		in.world.call, c.instance, c.counter = nil, nil, nil
	}
	returned := code == abi.InvokeOK || code == abi.InvokeToolError || code == abi.InvokeConnection
	if err == nil && returned && !c.tainted && in.snapshot != nil && len(c.Policy.Files) == 0 && in.reset() && c.host.pool.keep(in) {
		return
	}
	in.discard()
}

// discard closes an instance and gives back what it holds.
func (in *instance) discard() {
	_ = in.module.Close(context.Background())
	in.release()
	in.mem.release()
}

// settle ends a call that used more than its budget since its last check, or
// met a limit and returned before the next one.
func (c *call) settle() error {
	if c.failed != nil {
		return &ended{c.failed}
	}
	if err := c.meter.Finish(int64(c.counter.Get())); err != nil {
		return &ended{c.exhausted(err)}
	}
	return nil
}

func invoke(ctx context.Context, module api.Module, name string) (int32, error) {
	results, err := module.ExportedFunction(name).Call(ctx)
	if err != nil {
		return 0, err
	}
	return api.DecodeI32(results[0]), nil
}

// reason turns an error of the runtime into the reason the call ended, with the
// plugin's stack.
func (c *call) reason(err error) (trace string, reason error) {
	message, trace, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	var (
		exit *sys.ExitError
		mine *ended
	)
	exits := errors.As(err, &exit)
	switch {
	case errors.As(err, &mine):
		return trace, mine.reason
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

// overLimit says that a guest wanted more memory than its call may have.
func overLimit(limit uint64) error {
	return fmt.Errorf("%w: it wanted more than the %d bytes allowed", ErrMemory, limit)
}

// ended says why the host ends a call. A host function panics with it: wazero
// unwinds the guest and returns it as the error of the call.
type ended struct{ reason error }

func (e *ended) Error() string { return e.reason.Error() }
func (e *ended) Unwrap() error { return e.reason }
