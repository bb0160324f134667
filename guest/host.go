package guest

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/typed"
)

// Host has the four functions of the contract: [abi.ImportRead], [abi.ImportWrite],
// [abi.ImportProgress] and [abi.ImportCall]. Plugins use [Call] instead.
type Host interface {
	Read(f abi.Field, into []byte) int32
	Write(s abi.Stream, data []byte) int32
	Progress(done, total float64, message string) int32
	Call(op string, request []byte) int32
}

var errNotServed = errors.New("no plugin is served: call guest.Serve in an init function. The host never runs main")

// Describe writes the manifest to the host and returns one of the Invoke codes.
func (p *Plugin) Describe(h Host) (code int32) {
	c := newCall(h)
	defer c.recover(&code)
	if p == nil {
		return c.fail(errNotServed)
	}
	doc, err := p.document()
	if err != nil {
		return c.fail(err)
	}
	_ = c.Write(abi.StreamManifest, doc)
	return abi.InvokeOK
}

// Invoke runs one call to a tool and returns one of the Invoke codes.
func (p *Plugin) Invoke(h Host) (code int32) {
	c := newCall(h)
	defer c.recover(&code)
	if p == nil {
		panic(errNotServed)
	}
	defer setRunning(c)()
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
		data, _ := typed.Marshal(connection.Connection) // three strings
		_ = c.Write(abi.StreamError, data)
		return abi.InvokeConnection
	}
	_ = c.Write(abi.StreamError, []byte(err.Error()))
	return abi.InvokeToolError
}

// recover turns a panic into its code. The stack goes to the operator's log.
func (c *Call) recover(code *int32) {
	r := recover()
	if r == nil {
		return
	}
	stack := make([]byte, 8<<10)
	stack = stack[:runtime.Stack(stack, false)]
	message := fmt.Sprint(r)
	_ = c.Write(abi.StreamErrorLog, append([]byte("panic: "+message+"\n"), stack...))
	_ = c.Write(abi.StreamError, []byte(message))
	*code = abi.InvokePanic
}
