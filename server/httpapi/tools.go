package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

func (a *API) tools(r *request, _ none) (Tools, error) {
	out := Tools{Tools: a.service.Definitions(r.session)}
	if out.Tools == nil {
		out.Tools = []server.Definition{}
	}
	return out, nil
}

func (a *API) tool(r *request, _ none) (server.Definition, error) {
	name := r.PathValue("tool")
	for _, d := range a.service.Definitions(r.session) {
		if d.Name == name {
			return d, nil
		}
	}
	_, err := a.service.Lookup(name)
	if err == nil {
		err = fmt.Errorf("%w: %s was not granted all it needs", host.ErrDenied, shorten(name))
	}
	return server.Definition{}, err
}

// call calls a tool. What came of a call that was made is a result, whatever
// it is; an error is why it was not made.
func (a *API) call(r *request, in Call) (abi.Result, error) {
	if err := r.noKey("for a call is made again each time: start a run with it, POST /v1/runs"); err != nil {
		return abi.Result{}, err
	}
	if err := checkArgs(in.Tool, in.Args); err != nil {
		return abi.Result{}, err
	}
	if len(in.Locale) > server.MaxLocale {
		return abi.Result{}, invalid("locale", "longer than %d bytes", server.MaxLocale)
	}
	limits := server.Limits{Fuel: in.Limits.Fuel, Memory: in.Limits.MemoryBytes, Output: in.Limits.OutputBytes}
	var err error
	if limits.Timeout, err = seconds("limits.timeout_seconds", in.Limits.TimeoutSeconds); err != nil {
		return abi.Result{}, err
	}
	for name, n := range map[string]int64{"fuel": limits.Fuel, "memory_bytes": limits.Memory, "output_bytes": limits.Output} {
		if n < 0 {
			return abi.Result{}, invalid("limits."+name, "must not be negative")
		}
	}
	release, err := a.occupy(r.Request)
	if err != nil {
		return abi.Result{}, err
	}
	r.w.whenWritten(release) // its result is not refused, so that no more of them wait than there are places
	result, err := a.service.Call(r.Context(), server.Request{
		Session: r.session, Tool: in.Tool, Args: in.Args, Limits: limits, Locale: in.Locale, DryRun: in.DryRun,
	})
	for _, refused := range []error{plugins.ErrNoTool, host.ErrDenied, host.ErrClosed, context.Canceled} {
		if errors.Is(err, refused) {
			return abi.Result{}, err
		}
	}
	if err != nil && result.Kind == abi.Internal {
		a.log.Error("call failed", "session", r.session, "tool", in.Tool, "error", err)
	}
	return result, nil // it says what a client is to know
}

// checkArgs refuses what no tool takes.
func checkArgs(tool string, args json.RawMessage) error {
	switch {
	case tool == "":
		return invalid("tool", "required")
	case len(args) > 0 && args[0] != '{':
		return invalid("args", "expected an object")
	}
	return nil
}

// seconds is a number of seconds as a duration; 0 for none.
func seconds(field string, n float64) (time.Duration, error) {
	if n < 0 || n > math.MaxInt32 {
		return 0, invalid(field, "expected a number of seconds")
	}
	return time.Duration(n * float64(time.Second)), nil
}
