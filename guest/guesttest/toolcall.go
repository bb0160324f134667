package guesttest

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

// callTool calls one of the other tools of the test.
func (c *call) callTool(request []byte) (any, error) {
	var in struct {
		Tool string          `json:"tool"`
		Args json.RawMessage `json:"args"`
	}
	if err := json.Unmarshal(request, &in); err != nil || in.Tool == "" {
		return nil, &guest.HostError{Code: "invalid", Message: "not a request of tool.call"}
	}
	f := c.Tools[in.Tool]
	if f == nil {
		return nil, &guest.HostError{Code: "denied", Message: fmt.Sprintf("the tool %q is not granted to this plugin", in.Tool)}
	}
	if in.Args == nil {
		in.Args = json.RawMessage("{}")
	}

	result, err := f(in.Args)
	if refused, ok := errors.AsType[*guest.HostError](err); ok {
		return nil, refused
	}
	if err != nil {
		return guest.ToolAnswer{Kind: abi.ToolError, Error: err.Error()}, nil
	}
	if answer, ok := result.(guest.ToolAnswer); ok {
		return answer, nil
	}
	value, err := json.Marshal(result)
	return guest.ToolAnswer{Kind: abi.Success, Value: value}, err
}

// ToolOf returns a function for [Host.Tools] that calls a tool of another plugin with this host.
func (h Host) ToolOf(p *guest.Plugin, tool string) func(args json.RawMessage) (any, error) {
	return func(args json.RawMessage) (any, error) {
		o := h.Call(p, tool, args)
		return guest.ToolAnswer{Kind: o.Kind, Value: o.Value, Content: o.Content, Error: o.Error, Limit: o.Limit, Connection: o.Connection}, nil
	}
}
