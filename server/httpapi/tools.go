package httpapi

import (
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

func listTools(r *request, _ none) (wire.Tools, error) {
	tools := []wire.Definition{} // an empty list in JSON, not null
	for _, d := range r.api.service.AllDefinitions(r.caller.Session) {
		if !d.Deferred || r.get("all") == "true" {
			tools = append(tools, r.promising(d))
		}
	}
	return wire.Tools{Tools: tools}, nil
}

// promising returns a definition that promises nothing about later requests, if these may
// be in other sessions.
func (r *request) promising(d wire.Definition) wire.Definition {
	if r.caller.Unnamed {
		d.Description = strings.Replace(d.Description, server.EndsNotified, server.EndsChecked, 1)
	}
	return d
}

func listDeclarations(r *request, _ none) (wire.Declarations, error) {
	return r.api.service.Declarations(r.get("query"), r.number("limit", defaultPage)), nil
}

func getTool(r *request, _ none) (wire.Definition, error) {
	name := r.PathValue("tool")
	for _, d := range r.api.service.AllDefinitions(r.caller.Session) {
		if d.Name == name {
			return r.promising(d), nil
		}
	}

	if _, err := r.api.service.Lookup(name); err != nil {
		return wire.Definition{}, err
	}
	return wire.Definition{}, refuse(wire.CodeDenied, "permission denied: %s lacks grants that it needs", shorten(name))
}

// callBody is a [wire.Call] whose arguments are checked while the body is read,
// and not again.
type callBody struct {
	wire.Call
	Args server.Args `json:"args"`
}

// callTool calls a tool. A call that was started always returns a result. The error says
// why a call was refused.
func callTool(r *request, in callBody) (abi.Result, error) {
	req, err := r.callRequest(in)
	if err != nil {
		return abi.Result{}, err
	}

	result, err := r.api.service.Call(r.Context(), req)
	if err == nil {
		return result, nil
	}

	switch server.ReasonOf(err).Code {
	case wire.CodeNotFound, wire.CodeDenied, wire.CodeClosing, wire.CodeCanceled, wire.CodeConflict, wire.CodeLimit, wire.CodeUnavailable:
		return abi.Result{}, err
	}
	if result.Kind == abi.Internal && !server.Broke(err) {
		r.api.log.Error("call failed", "session", r.caller.Session, "tool", in.Tool, "error", err)
	}
	return result, nil // it has no internals of the server
}

func (r *request) callRequest(in callBody) (server.Request, error) {
	key, err := r.key()
	if err != nil {
		return server.Request{}, err
	}
	if in.Tool == "" {
		return server.Request{}, errNoTool
	}
	if err := server.CheckLocale(in.Locale); err != nil {
		return server.Request{}, err
	}
	for _, limit := range []struct {
		name string
		n    int64
	}{{"fuel", in.Limits.Fuel}, {"memory_bytes", in.Limits.MemoryBytes}, {"output_bytes", in.Limits.OutputBytes}} {
		if limit.n < 0 {
			return server.Request{}, invalid("limits."+limit.name, "must not be negative")
		}
	}

	timeout, err := seconds("limits.timeout_seconds", in.Limits.TimeoutSeconds)
	limits := server.Limits{Fuel: in.Limits.Fuel, Memory: in.Limits.MemoryBytes, Output: in.Limits.OutputBytes, Timeout: timeout}
	return server.Request{
		Session: r.caller.Session, Unnamed: r.caller.Unnamed, Tool: in.Tool, Parsed: in.Args, Limits: limits, Locale: in.Locale, DryRun: in.DryRun,
		Key: key, AskLater: true,
	}, err
}

var errNoTool = invalid("tool", "required")
