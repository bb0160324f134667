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
// goroutine: it checks the request, pays for it, and keeps nothing of its bytes, which are
// memory of the guest. It returns the work to wait for, or nil and the answer: the length
// of c.response, which it has set, or a code of refuse.
type operation struct {
	allowed func(c *call) bool // whether the call may use it
	denied  string             // the answer if not
	begin   func(c *call, request []byte) (work, int32)
}

// work is what an operation waits for. It may run on any goroutine, at the same time as
// the guest, so it touches nothing of the call that belongs to the guest's goroutine. It
// returns soon after ctx is done.
type work func(ctx context.Context) end

// end is how a work has ended. finish is the second half of the operation, on the
// guest's goroutine again: it answers as begin does.
type end struct {
	finish func() int32
	bytes  int  // on Go's heap that it keeps until then, about
	cut    bool // ctx was done first, and the operation can be begun again
}

// begun is what an operation says of itself while its first half runs.
type begun struct {
	id    int32 // of one that is started; 0: the guest waits for it
	apart bool  // it is a call of a tool that is made apart
	once  bool  // it must not be done twice
	takes bool  // it removes messages: the call continues only from a state that has them
}

// atOnce is begin of an operation that waits for nothing, or not for long.
func atOnce(answer func(c *call, request []byte) int32) func(*call, []byte) (work, int32) {
	return func(c *call, request []byte) (work, int32) { return nil, answer(c, request) }
}

// maxOp bounds the name of an operation, in bytes.
const maxOp = 64

// operations are those of all capabilities, and the one on others.
func operations() map[string]operation {
	all := map[string]operation{"op.cancel": {allowed: func(*call) bool { return true }, begin: atOnce(cancelOperation)}}
	for _, c := range Capabilities {
		maps.Copy(all, c.ops)
	}
	return all
}

// callCapability is the call function of the contract: the guest waits for the end of
// the operation.
func callCapability(c *call, mem api.Memory, stack []uint64) int32 {
	request := bytesAt(mem, abi.ImportCall, stack[2], stack[3])
	return c.perform(bytesAt(mem, abi.ImportCall, stack[0], stack[1]), request)
}

// perform begins an operation and waits for its end.
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
	c.meter.check() // a call that has to end ends here
	return ended.finish()
}

// operation begins an operation, if the call may use it.
func (c *call) operation(name, request []byte) (work, int32) {
	op := string(name[:min(len(name), maxOp+1)])
	c.meter.charge(len(request))
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

// respond answers an operation.
func (c *call) respond(response []byte) int32 {
	c.response = response
	c.meter.charge(len(response))
	return int32(len(response))
}

func (c *call) deny(why string) int32 { return c.refuse(abi.CallDenied, "denied", why) }

// refuseStopped answers an operation that was cut short by a stop.
func (c *call) refuseStopped() int32 {
	return c.refuse(abi.CallCanceled, "canceled", "the call is being stopped")
}

// refuseCanceled answers an operation that was cut short, by a stop or by the guest.
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
