// Plugin math has several tools that share the types of their arguments and results, and one
// tool that returns an image.
package main

import (
	"errors"
	"math"

	"github.com/toolhost/toolhost/guest"
)

type args struct {
	A float64 `json:"a" desc:"Left number"`
	B float64 `json:"b" desc:"Right number"`
}

type result struct {
	Result float64 `json:"result"`
}

func divide(_ *guest.Call, in args) (result, error) {
	if in.B == 0 {
		return result{}, errors.New("division by zero")
	}
	return finite(in.A / in.B)
}

// finite returns a tool error for numbers that JSON cannot express.
func finite(f float64) (result, error) {
	if math.IsInf(f, 0) {
		return result{}, errors.New("the result is too large for a number")
	}
	return result{f}, nil
}

func tool(name, description string, compute func(*guest.Call, args) (result, error), examples ...guest.Example) guest.Tool {
	return guest.Tool{
		Name:        name,
		Description: description,
		Handler:     guest.Handle(compute),
		Hints:       guest.Hints{Idempotent: true, Readonly: true, OpenWorld: new(false)},
		Examples:    examples,
	}
}

var plugin = guest.Plugin{
	Name: "math", Version: "1.0.0", Description: "Computes with two numbers, and draws charts.", License: "Apache-2.0",
	Tools: []guest.Tool{
		tool("add", "Adds two numbers.",
			func(_ *guest.Call, in args) (result, error) { return finite(in.A + in.B) },
			guest.Example{Args: args{2, 3}, Result: result{5}},
			guest.Example{Args: args{math.MaxFloat64, math.MaxFloat64}, Error: "too large"}),
		tool("subtract", "Subtracts the right number from the left.",
			func(_ *guest.Call, in args) (result, error) { return finite(in.A - in.B) },
			guest.Example{Args: args{2, 3}, Result: result{-1}}),
		tool("multiply", "Multiplies two numbers.",
			func(_ *guest.Call, in args) (result, error) { return finite(in.A * in.B) },
			guest.Example{Args: args{2, 3}, Result: result{6}}),
		tool("divide", "Divides the left number by the right.", divide,
			guest.Example{Args: args{6, 4}, Result: result{1.5}},
			guest.Example{Args: args{1, 0}, Error: "division by zero"}),
		{
			Name: "chart", Description: "Draws a bar chart of numbers, as a PNG image.", Handler: guest.Handle(chart),
			Hints: guest.Hints{Idempotent: true, Readonly: true, OpenWorld: new(false)},
		},
	},
}

func init() { guest.Serve(&plugin) }

func main() {}
