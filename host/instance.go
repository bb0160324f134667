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
	invoke   *entry    // nil before its first call
	renew    *entry    // toolhost_restored, likewise

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
	if err := c.admit(); err != nil {
		return 0, &ended{err}
	}
	defer c.dismiss()
	if err := c.compute(); err != nil {
		return 0, &ended{&WaitedError{Err: err, For: busyProcessors}}
	}
	defer c.guest.Idle()
	clean := false
	defer func() { c.leave(clean) }() // which a panic or runtime.Goexit of the caller's writers passes too
	if err := c.ready(ctx); err != nil {
		return 0, err
	}
	switch in := c.instance; {
	case c.describing:
		code, err = c.enter(in.entry(abi.ExportDescribe))
	case c.module.Info.Shape == Command:
		_, err = c.enter(in.entry(abi.ExportStart))
	default:
		code, err = c.enter(in.cached(&in.invoke, abi.ExportInvoke))
	}
	if err == nil {
		err = c.settle()
	}
	clean = err == nil && (code == abi.InvokeOK || code == abi.InvokeToolError || code == abi.InvokeConnection)
	return code, err
}

// ready gets an instance in the state in which the module has just started up:
// a warm one, one from a snapshot, or one that has just done so.
func (c *call) ready(ctx context.Context) error {
	s, err := c.snapshot()
	if err != nil {
		return err
	}
	var in *instance
	if s != nil {
		in = s.warm()
	}
	warm := in != nil
	if !warm {
		in, err = c.instantiate(ctx, s)
		if s != nil && errors.Is(err, ErrHostMemory) { // there may be room for one of the two
			s = nil
			in, err = c.instantiate(ctx, nil)
		}
		if err != nil {
			return err
		}
	}
	c.module.count(in, warm)
	c.serve(in)
	if s != nil {
		err = c.resume(s)
	} else {
		err = c.startUp()
	}
	if err == nil && c.module.renews && !c.describing {
		// What is random there differs between instances from here on. All call
		// it, so that calls do not differ in what they cost.
		_, err = c.enter(in.cached(&in.renew, abi.ExportRestored))
	}
	return err
}

// count counts where the instance of a call is from.
func (m *Module) count(in *instance, warm bool) {
	switch {
	case warm:
		m.account.count(countWarm, 1)
	case in.snapshot != nil:
		m.account.count(countRestored, 1)
	default:
		m.account.count(countStarted, 1)
	}
}

// instantiate makes an instance from a snapshot, which it uses in place of the
// caller, or from the module if that is nil.
//
// It is not cut short by the context: what that takes is bounded (see
// maxEntries), and the call keeps its place and pays until it is over.
func (c *call) instantiate(ctx context.Context, s *snapshot) (in *instance, err error) {
	if err := c.interrupted(); err != nil {
		s.release()
		return nil, &ended{err}
	}
	m := c.module
	from := m.base
	if s != nil {
		from = s.image
	}
	mem, err := m.account.newMemory(from, uint64(c.Policy.Memory), uint64(m.Info.MaxBytes))
	if err != nil {
		s.release()
		return nil, &ended{err}
	}
	world, config, release, err := c.world()
	if err != nil {
		mem.release()
		s.release()
		return nil, &ended{err}
	}
	module, err := m.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, mem), m.compiled, config)
	if err != nil {
		release()
		mem.release()
		s.release()
		return nil, err
	}
	in = &instance{module: module, account: m.account, mem: mem, world: world, snapshot: s, release: release}
	m.account.count(countInstances, 1)
	in.counter = module.ExportedGlobal(fuel.CounterExport).(api.MutableGlobal)
	for i := range m.globals {
		in.globals = append(in.globals, module.ExportedGlobal(wasmstate.GlobalExport(i)).(api.MutableGlobal))
	}
	if s != nil {
		in.restore(s)
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
func (c *call) startUp() error {
	if e := c.instance.entry(wasmstate.StartExport); e != nil {
		if _, err := c.enter(e); err != nil {
			return fmt.Errorf("start function[%d] failed: %w", e.function.Definition().Index(), err)
		}
	}
	if e := c.instance.entry(abi.ExportInitialize); e != nil {
		if _, err := c.enter(e); err != nil {
			return err
		}
	}
	return nil
}

// leave ends the service of an instance, if there is one. One that can be put
// back to its snapshot waits for the next call, any other is discarded: after a
// trap, a limit, a stop or an exit, and after whatever may have left something
// behind.
func (c *call) leave(clean bool) {
	in := c.instance
	if in == nil {
		return
	}
	c.fuel = c.meter.Used(int64(c.counter.Get()))
	c.peak, c.refused = int64(in.mem.peak), in.mem.refused
	in.world.call, c.instance, c.counter = nil, nil, nil
	if clean && !c.tainted && in.snapshot != nil && len(c.Policy.Files) == 0 && in.reset() && c.host.pool.keep(in) {
		return
	}
	in.discard()
}

// discard closes an instance and gives back what it holds.
func (in *instance) discard() {
	_ = in.module.Close(context.Background())
	in.release()
	in.mem.release()
	in.account.count(countInstances, -1)
	in.snapshot.release()
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
