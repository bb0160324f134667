package host

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// startExtism runs the start-up of an Extism plugin.
func (u *startup) startExtism() error {
	c, in := u.call, u.call.instance
	if c.asExtism().startsItself() {
		return nil
	}

	entered := false
	for _, name := range []string{abi.ExportInitialize, contract.ExtismHaskell, contract.ExtismCtors} {
		e := in.Entry(name) // one at a time: only the stack of the current one is paid for
		if e == nil || name == contract.ExtismCtors && entered {
			continue
		}
		entered = true
		c.params = [2]uint64{}
		if _, err := c.enter(e); err != nil {
			return err
		}
	}
	return nil
}

// startsItself reports whether the called function is one of the start-up functions.
func (c *extismCall) startsItself() bool {
	return c.function() == abi.ExportStart || c.function() == abi.ExportInitialize
}

// function returns the export of an Extism plugin that a call enters.
func (c *extismCall) function() string {
	switch {
	case c.describing:
		return c.module.Info.MCP.ListFunction()
	case c.MCPTool != "":
		return c.module.Info.MCP.CallFunction()
	}
	return cmp.Or(c.Function, c.Tool)
}

// runExtism calls a function of an Extism plugin. Its code is one of the contract's.
func (c *extismCall) runExtism() (code int32, err error) {
	name := c.function()
	if !c.module.Info.HasFunction(name) {
		return 0, &instance.Stop{Reason: fmt.Errorf("%w: %s", ErrABI, c.module.Info.NoFunction(name))}
	}

	c.params = [2]uint64{}
	code, err = c.enter(c.instance.Cached(name))
	if exit, exits := errors.AsType[*sys.ExitError](err); exits && exit.ExitCode() == 0 {
		code, err = 0, nil
	}
	if err != nil {
		return 0, err
	}
	return instance.Catch(func() int32 { return c.takeExtism(code) })
}

// takeExtism takes the response from the kernel.
func (c *extismCall) takeExtism(code int32) int32 {
	c.payExtism()
	var output, text []byte
	if k := c.kernel; k != nil {
		output, text = k.Output(), k.Error()
	}
	switch {
	case code != 0 || len(text) > 0:
	case c.describing:
		c.answer.Manifest = c.take(output)
		return abi.InvokeOK
	case c.MCPTool != "":
		return c.takeMCP(output)
	default:
		c.answer.Result = c.take(output)
		return abi.InvokeOK
	}

	if len(text) == 0 { // the error may be there
		text = output
	}
	c.answer.Error = c.take(text)
	if len(text) == 0 {
		c.answer.Error = fmt.Appendf(nil, "the function %s returned %d", c.function(), code)
	}
	return abi.InvokeToolError
}

// take copies the guest's response, which counts as output.
func (c *extismCall) take(content []byte) []byte {
	c.meter.Charge(len(content))
	if err := cmp.Or(c.answer.Count(len(content)), c.meter.Keep(len(content))); err != nil {
		panic(&instance.Stop{Reason: err})
	}
	return append([]byte{}, content...)
}
