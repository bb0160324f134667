package host

import (
	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// MCPManifest returns the manifest of a plugin that lists its tools in MCP's format.
// The name must begin with a letter. list is the plugin's response.
func MCPManifest(name string, list []byte) ([]byte, error) { return extism.Manifest(name, list) }

// asExtism returns the call as that of an Extism plugin.
func (c *call) asExtism() *extism.Call {
	if c.extism == nil {
		c.extism = &extism.Call{
			Tool:  extism.Tool{Function: c.Function, Input: c.Input, MCPTool: c.MCPTool, Args: c.Args, HostFunctions: c.HostFunctions},
			Guest: extismGuest{c}, Info: c.module.Info, Ops: &c.ops, Meter: &c.meter, Answer: &c.answer, Config: c.Policy.Config,
		}
	}
	c.extism.Instance = c.instance
	return c.extism
}

// extismGuest is the guest of a call as package extism sees it.
type extismGuest struct{ call *call }

// Enter implements extism.Guest.
func (g extismGuest) Enter(e *instance.Entry) (int32, error) {
	g.call.params = [2]uint64{}
	return g.call.enter(e)
}

// Kernel implements extism.Guest.
func (g extismGuest) Kernel() *extism.Kernel { return &g.call.instance.Guest.(*environment).kernel }

// Imports implements extism.Guest.
func (g extismGuest) Imports(module string) { g.call.start.imports(module) }

// Log implements extism.Guest.
func (g extismGuest) Log(stream abi.Stream, text []byte) { g.call.log(stream, text) }
