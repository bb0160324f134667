package guest

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/toolhost/toolhost/abi"
)

// Host is the four functions of the contract: the imports of a module, or the host
// of package guesttest. Plugins use [Call] instead.
type Host interface {
	// Read copies as much of a field as fits and returns its whole length, or
	// [abi.Absent].
	Read(f abi.Field, into []byte) int32
	// Write appends to a stream and returns [abi.Continue], [abi.Canceled] or
	// one of the Refused codes.
	Write(s abi.Stream, data []byte) int32
	// Progress returns what Write does. A negative total is unknown.
	Progress(done, total float64, message string) int32
	// Call uses a capability. The response is read as [abi.FieldResponse]. It is an
	// [abi.CallFailure] if Call returns one of the Call codes.
	Call(op string, request []byte) int32
}

// Describe writes the manifest to the host and returns one of the Invoke codes of
// the contract.
func (p *Plugin) Describe(h Host) (code int32) {
	c := newCall(h)
	defer c.recover(&code)
	doc, err := p.document()
	if err != nil {
		return c.fail(err)
	}
	_ = c.Write(abi.StreamManifest, doc)
	return abi.InvokeOK
}

// Invoke runs one call of a tool and returns one of the Invoke codes of the contract.
func (p *Plugin) Invoke(h Host) (code int32) {
	c := newCall(h)
	defer c.recover(&code)
	t, ok := p.lookup(c.tool)
	if !ok {
		panic(fmt.Sprintf("plugin %s has no tool %q", p.Name, c.tool))
	}
	if err := t.Handler.run(c); err != nil {
		return c.fail(err)
	}
	return abi.InvokeOK
}

// fail ends a call with an error.
func (c *Call) fail(err error) int32 {
	if connection, ok := errors.AsType[*connectionError](err); ok {
		data, _ := marshal(connection.Connection) // three strings
		_ = c.Write(abi.StreamError, data)
		return abi.InvokeConnection
	}
	_ = c.Write(abi.StreamError, []byte(err.Error()))
	return abi.InvokeToolError
}

// maxStack bounds the stack of a panic in the operator's log, in bytes.
const maxStack = 8 << 10

// recover turns a panic into its code. The stack goes to the operator's log.
func (c *Call) recover(code *int32) {
	r := recover()
	if r == nil {
		return
	}
	stack := make([]byte, maxStack)
	stack = stack[:runtime.Stack(stack, false)]
	message := fmt.Sprint(r)
	_ = c.Write(abi.StreamErrorLog, append([]byte("panic: "+message+"\n"), stack...))
	_ = c.Write(abi.StreamError, []byte(message))
	*code = abi.InvokePanic
}
