package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fuel"
)

// run makes an instance, runs the tool in it, and discards it. It returns what
// toolhost_invoke answered; a command that exits with 0 answers abi.InvokeOK.
func (c *call) run(ctx context.Context) (code int32, err error) {
	if err := c.interrupted(); err != nil {
		return 0, &ended{err}
	}
	if need := c.module.Info.MinBytes; need > c.Policy.Memory {
		return 0, &ended{fmt.Errorf("%w: the plugin starts with %d bytes of memory, and %d are allowed", ErrMemory, need, c.Policy.Memory)}
	}
	config, release, err := c.world()
	if err != nil {
		return 0, &ended{err}
	}
	defer release()
	module, err := c.host.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, &c.mem), c.module.compiled, config)
	if err != nil {
		return 0, err
	}
	defer module.Close(context.WithoutCancel(ctx))
	c.attach(module)
	if init := module.ExportedFunction(abi.ExportInitialize); init != nil {
		if _, err := init.Call(ctx); err != nil {
			return 0, err
		}
	}
	switch {
	case c.describing:
		code, err = invoke(ctx, module, abi.ExportDescribe)
	case c.module.Info.Shape == Command:
		_, err = module.ExportedFunction(abi.ExportStart).Call(ctx)
	default:
		code, err = invoke(ctx, module, abi.ExportInvoke)
	}
	if err == nil {
		err = c.settle()
	}
	return code, err
}

// attach finds the fuel counter of the instance. What runs while it is made,
// its start function, comes by here first from a host function.
func (c *call) attach(module api.Module) {
	if c.counter == nil {
		c.counter = module.ExportedGlobal(fuel.CounterExport).(api.MutableGlobal)
	}
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
	case c.mem.refused:
		return trace, fmt.Errorf("%w: it wanted more than the %d bytes allowed", ErrMemory, c.Policy.Memory)
	case exits:
		return "", exit
	}
	return trace, fmt.Errorf("%w: %s", ErrTrap, strings.Replace(message, "wasm error: ", "", 1))
}

// ended says why the host ends a call. A host function panics with it: wazero
// unwinds the guest and returns it as the error of the call.
type ended struct{ reason error }

func (e *ended) Error() string { return e.reason.Error() }
func (e *ended) Unwrap() error { return e.reason }
