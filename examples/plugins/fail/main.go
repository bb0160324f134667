// Plugin fail fails in every way in which a plugin can fail.
package main

import (
	"errors"
	"os"
	"runtime"

	"github.com/toolhost/toolhost/guest"
)

type args struct {
	How     string `json:"how" desc:"The way to fail: an error for the model, a panic, a WebAssembly trap, or an exit of the program" enum:"tool_error,panic,trap,exit" default:"tool_error"`
	Message string `json:"message" desc:"Text of the error or the panic" default:"Tool execution failed"`
	Code    int    `json:"code" desc:"Exit code" min:"0" max:"255" default:"1"`
}

func fail(_ *guest.Call, in args) (guest.None, error) {
	switch in.How {
	case "panic":
		panic(in.Message)
	case "trap":
		runtime.Breakpoint() // the instruction unreachable
	case "exit":
		os.Exit(in.Code)
	}
	return guest.None{}, errors.New(in.Message)
}

var plugin = guest.Plugin{
	Name: "fail", Version: "1.0.0", Description: "Fails in each way a plugin can.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:        "fail",
		Description: "Fails. Call it to see how a failure is reported.",
		Handler:     guest.Handle(fail),
		Hints:       guest.Hints{SupportsBackground: true, Idempotent: true, Readonly: true, OpenWorld: new(false)},
		Examples: []guest.Example{
			{Name: "default text", Args: struct{}{}, Error: "Tool execution failed"},
			{Name: "own text", Args: args{How: "tool_error", Message: "no such city: Atlantis"}, Error: "no such city: Atlantis"},
		},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
