package host

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
)

// operation is a function of a capability. Its first half, begin, runs on the guest's
// goroutine: it checks the request and charges for it. It must not keep the request, which
// is guest memory. It returns the work to wait for, or nil and the answer: the length of
// c.response, which it has set, or a code of refuse.
type operation struct {
	allowed func(c *call) bool // whether the call may use it
	denied  string             // the error text otherwise
	begin   func(c *call, request []byte) (work, int32)
}

// work is the part of an operation that waits. It may run on any goroutine, concurrently
// with the guest, so it must not touch state of the guest's goroutine. It returns soon
// after ctx is done.
type work func(ctx context.Context) end

// end is the outcome of a work. finish is the second half of the operation, on
// the guest's goroutine: it answers as begin does.
type end struct {
	finish func() int32
	bytes  int  // approximate heap that it keeps until then
	cut    bool // ctx was done first, and the operation can be repeated
}

// begun describes an operation while its first half runs.
type begun struct {
	id    int32 // id of a started operation; 0: the guest waits for it
	apart bool  // it is a detached tool call
	once  bool  // it needs at-most-once semantics
	takes bool  // it removes messages: the call can continue only from a state that has them
}

// atOnce makes a begin function of an operation that does not wait, or only briefly.
func atOnce(answer func(c *call, request []byte) int32) func(*call, []byte) (work, int32) {
	return func(c *call, request []byte) (work, int32) { return nil, answer(c, request) }
}

// maxOp is the longest name of an operation, in bytes.
const maxOp = 64

// operations returns the operations of all capabilities, and the one on other operations.
func operations() map[string]operation {
	all := map[string]operation{"op.cancel": {allowed: func(*call) bool { return true }, begin: atOnce(cancelOperation)}}
	for _, some := range []map[string]operation{
		askOperations, checkpointOperations, clockOperations, httpOperations, kvOperations, messageOperations,
		reportOperations, secretOperations, sessionOperations, toolOperations,
	} {
		maps.Copy(all, some)
	}
	return all
}

// callCapability is the contract's call function: the guest waits for the operation
// to end.
func callCapability(c *call, mem api.Memory, stack []uint64) int32 {
	request := bytesAt(mem, abi.ImportCall, stack[2], stack[3])
	return c.perform(bytesAt(mem, abi.ImportCall, stack[0], stack[1]), request)
}

// perform begins an operation and waits for it to end.
func (c *call) perform(name, request []byte) int32 {
	c.begun = begun{}
	work, code := c.operation(name, request)
	if work == nil {
		return code
	}
	switch {
	case c.begun.takes:
		c.pending.forget()
	case c.begun.once:
		c.pending.act()
	}

	c.guest.Idle()
	ended := work(&c.ctx)
	c.guest.Compute()
	c.meter.Check() // a call that has to end ends here
	return ended.finish()
}

// operation begins an operation, if the call is allowed to use it.
func (c *call) operation(name, request []byte) (work, int32) {
	op := string(name[:min(len(name), maxOp+1)])
	c.meter.Charge(len(request))
	if c.describing {
		return nil, c.deny("a plugin cannot call the host while it describes itself")
	}

	o, known := c.host.operations[op]
	if !known {
		message := "this host has no such capability"
		if near := abi.Nearest(op, slices.Sorted(maps.Keys(c.host.operations))); near != "" {
			message += fmt.Sprintf(", did you mean %q?", near)
		}
		return nil, c.refuse(abi.CallUnknown, "unknown", message)
	}

	if !o.allowed(c) {
		return nil, c.deny(o.denied)
	}
	if c.May != nil && c.May(&c.ctx) != nil {
		return nil, c.refuseStopped()
	}
	return o.begin(c, request)
}

// respond sets the response of an operation.
func (c *call) respond(response []byte) int32 {
	c.response = response
	c.meter.Charge(len(response))
	return int32(len(response))
}

func (c *call) deny(why string) int32 { return c.refuse(abi.CallDenied, "denied", why) }

// refuseStopped answers an operation that a stop interrupted.
func (c *call) refuseStopped() int32 {
	return c.refuse(abi.CallCanceled, "canceled", "the call is being stopped")
}

// refuseCanceled answers an operation that was interrupted by a stop or by the guest.
func (c *call) refuseCanceled() int32 {
	if c.stopping() {
		return c.refuseStopped()
	}
	return c.refuse(abi.CallCanceled, "canceled", "the operation was canceled")
}

func (c *call) refuse(code int32, name, message string) int32 {
	c.response = encode(abi.CallFailure{Code: name, Message: message})
	return code
}
