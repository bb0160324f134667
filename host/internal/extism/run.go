package extism

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// StartUp runs the start-up functions of a plugin, unless the call itself enters one of
// them.
func (c *Call) StartUp() error {
	if c.StartsItself() {
		return nil
	}

	entered := false
	for _, name := range []string{abi.ExportInitialize, contract.ExtismHaskell, contract.ExtismCtors} {
		e := c.Instance.Entry(name) // one at a time: only the stack of the current one is paid for
		if e == nil || name == contract.ExtismCtors && entered {
			continue
		}
		entered = true
		if _, err := c.Guest.Enter(e); err != nil {
			return err
		}
	}
	return nil
}

// StartsItself reports whether the called function is one of the start-up functions.
func (c *Call) StartsItself() bool {
	return c.function() == abi.ExportStart || c.function() == abi.ExportInitialize
}

// function returns the export of an Extism plugin that a call enters.
func (c *Call) function() string {
	switch {
	case c.Ops.Describing:
		return c.Info.MCP.ListFunction()
	case c.MCPTool != "":
		return c.Info.MCP.CallFunction()
	}
	return cmp.Or(c.Function, c.Ops.Tool)
}

// Run calls the tool's function. The code is one of those that the contract defines.
func (c *Call) Run() (code int32, err error) {
	name := c.function()
	if !c.Info.HasFunction(name) {
		return 0, &instance.Stop{Reason: fmt.Errorf("%w: %s", contract.ErrABI, c.Info.NoFunction(name))}
	}

	code, err = c.Guest.Enter(c.Instance.Cached(name))
	if exit, exits := errors.AsType[*sys.ExitError](err); exits && exit.ExitCode() == 0 {
		code, err = 0, nil
	}
	if err != nil {
		return 0, err
	}
	return instance.Catch(func() int32 { return c.takeOutput(code) })
}

// takeOutput takes the response from the kernel.
func (c *Call) takeOutput(code int32) int32 {
	c.pay()
	var output, text []byte
	if c.opened {
		output, text = c.Kernel.Output(), c.Kernel.Error()
	}
	switch {
	case code != 0 || len(text) > 0:
	case c.Ops.Describing:
		c.Answer.Manifest = c.take(output)
		return abi.InvokeOK
	case c.MCPTool != "":
		return c.takeMCP(output)
	default:
		c.Answer.Result = c.take(output)
		return abi.InvokeOK
	}

	if len(text) == 0 { // the error may be there
		text = output
	}
	c.Answer.Error = c.take(text)
	if len(text) == 0 {
		c.Answer.Error = fmt.Appendf(nil, "the function %s returned %d", c.function(), code)
	}
	return abi.InvokeToolError
}

// take copies the guest's response, which counts as output.
func (c *Call) take(content []byte) []byte {
	c.Meter.Charge(len(content))
	if err := cmp.Or(c.Answer.Count(len(content)), c.Meter.Keep(len(content))); err != nil {
		panic(&instance.Stop{Reason: err})
	}
	return append([]byte{}, content...)
}
