package host

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
)

// operation is a function of a capability. It puts its response into c.response
// and returns the length of that, or the code of refuse.
type operation struct {
	allowed func(c *call) bool // whether the call may use it
	denied  string             // the answer if not
	run     func(c *call, request []byte) int32
}

// maxOp bounds the name of an operation, in bytes.
const maxOp = 64

// operations are those of all capabilities.
func operations() map[string]operation {
	all := map[string]operation{}
	for _, c := range Capabilities {
		maps.Copy(all, c.ops)
	}
	return all
}

// callCapability is the call function of the contract.
func callCapability(c *call, mem api.Memory, stack []uint64) int32 {
	name := bytesAt(mem, abi.ImportCall, stack[0], stack[1])
	op := string(name[:min(len(name), maxOp+1)])
	request := bytesAt(mem, abi.ImportCall, stack[2], stack[3])
	c.meter.charge(len(request))
	c.screen.charge(len(request))
	if c.describing {
		return c.deny("a plugin cannot call the host while it describes itself")
	}

	o, known := c.host.operations[op]
	if !known {
		message := "this host has no such capability"
		if near := abi.Nearest(op, slices.Sorted(maps.Keys(c.host.operations))); near != "" {
			message += fmt.Sprintf(", did you mean %q?", near)
		}
		return c.refuse(abi.CallUnknown, "unknown", message)
	}

	if !o.allowed(c) {
		return c.deny(o.denied)
	}
	if code := c.screen.refuse(op, request); code != 0 {
		return code
	}
	return o.run(c, request)
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

func (c *call) refuse(code int32, name, message string) int32 {
	c.response = encode(abi.CallFailure{Code: name, Message: message})
	return code
}
