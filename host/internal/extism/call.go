package extism

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
)

// Key is the context key under which a host function finds the *[Call] whose guest called
// it.
type Key struct{}

// A Call is a running call to a tool in an Extism plugin. Its functions run on the
// goroutine of its guest.
type Call struct {
	Tool
	Start    Start
	Guest    Guest
	Instance *instance.Instance // the instance that runs the call
	Kernel   *Kernel            // the instance's kernel, with what the previous call left in it
	Info     *contract.Info
	Ops      *guestcall.Call
	Meter    *meter.Meter
	Answer   *answer.Answer
	Config   map[string]string // the plugin's settings, from the operator

	opened    bool // whether Kernel has the input
	called    int  // number of functions called but not yet charged for
	variables map[string][]byte
	stored    int // size of the variables in bytes
	status    int // status of the last HTTP request
	headers   []byte
}

// A Tool is the tool that is called, as its manifest describes it.
type Tool struct {
	Function      string  // export to call; empty means the tool's name
	Input         *string // template of the input; nil means Args
	MCPTool       string  // the tool's name in a hyper-mcp plugin
	Args          json.RawMessage
	HostFunctions map[string]string // tools, by the names of the functions that they stand in for
}

// A Start is the start-up of the module.
type Start interface {
	// Imports records that the guest calls a function that it imports from module.
	Imports(module string)
}

// A Guest runs the plugin.
type Guest interface {
	// Enter runs an exported function that has no parameters, and returns its result, if
	// any.
	Enter(e *instance.Entry) (int32, error)
	// Log logs a message from the plugin.
	Log(stream abi.Stream, text []byte)
}

// Size returns the size of the call's kernel, in bytes.
func (c *Call) Size() int64 {
	if !c.opened {
		return 0
	}
	return int64(c.Kernel.Size())
}

// kernelOf returns the kernel of the call, which holds its input.
func (c *Call) kernelOf() *Kernel {
	if c.opened {
		return c.Kernel
	}

	k := c.Kernel
	k.Reset(Config{Limit: uint64(c.Ops.Memory), Pay: func(bytes uint64) error { return c.Meter.Keep(int(bytes)) }})
	c.opened = true
	input, err := c.input()
	if err != nil {
		panic(&instance.Stop{Reason: fmt.Errorf("%w: input: %w", contract.ErrABI, err)})
	}
	c.Meter.Charge(len(input))
	if err := k.SetInput(input); err != nil {
		panic(&instance.Stop{Reason: c.full(err)})
	}
	return k
}

// pay charges the guest for the functions that it called.
func (c *Call) pay() {
	c.Meter.Pay(int64(c.called * functionUnits))
	c.called = 0
}

// input returns the input of an Extism function.
func (c *Call) input() ([]byte, error) {
	switch {
	case c.Ops.Describing:
		return c.listInput(), nil
	case c.MCPTool != "":
		return c.callInput(), nil
	case c.Input == nil:
		return c.Args, nil
	}
	text, err := abi.ExpandTemplate(*c.Input, c.Args)
	return []byte(text), err
}

// full returns the error for a kernel that has no room for a block.
func (c *Call) full(err error) error {
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("%w: the plugin needs more than the %d bytes allowed", instance.ErrMemory, c.Ops.Memory)
	}
	return err
}

// allocate is Extism's alloc. If there is no room it returns 0, and the plugin is likely to crash.
func (c *Call) allocate(k *Kernel, n uint64) uint64 {
	c.Meter.Charge(int(min(n, uint64(c.Ops.Memory))))
	handle, err := k.Alloc(n)
	switch {
	case errors.Is(err, ErrFull):
		c.Instance.Memory.Refused = c.full(err)
	case err != nil:
		panic(&instance.Stop{Reason: err})
	}
	return handle
}

// put returns the handle of a new block with this content.
func (c *Call) put(k *Kernel, content []byte) uint64 {
	c.Meter.Charge(len(content))
	handle, err := k.Put(content)
	if err != nil {
		panic(&instance.Stop{Reason: c.full(err)})
	}
	return handle
}

// block returns the content of a guest's block, and charges for it.
func (c *Call) block(k *Kernel, handle uint64) []byte {
	content := k.Block(handle)
	c.Meter.Pay(int64(len(content) / meter.BytesPerUnit)) // a call that has to end ends here
	return content
}

// memory returns n bytes of the kernel's memory for a function of the guest.
func (c *Call) memory(k *Kernel, function string, at, n uint64) []byte {
	bytes := k.Range(at, n)
	if bytes == nil {
		c.outside(function, at)
	}
	return bytes
}

// outside ends a call that used an offset outside the kernel's memory. That is likely the
// offset of a block that found no room.
func (c *Call) outside(function string, at uint64) {
	if c.Instance.Memory.Refused != nil {
		panic(&instance.Stop{Reason: c.Instance.Memory.Refused})
	}
	panic(&instance.Stop{Reason: fmt.Errorf("%w: %s was given the offset %d, which is outside of the memory that it has allocated", contract.ErrABI, function, at)})
}
