// Plugin echo returns what it is given. It is the smallest possible plugin.
package main

import "github.com/toolhost/toolhost/guest"

type args struct {
	Message string `json:"message" desc:"Text to give back"`
}

type result struct {
	Echoed string `json:"echoed"`
	Length int    `json:"length" desc:"Bytes in UTF-8"`
}

func echo(_ *guest.Call, in args) (result, error) {
	return result{in.Message, len(in.Message)}, nil
}

var plugin = guest.Plugin{
	Name: "echo", Version: "1.0.0", Description: "Gives back what it is told.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:        "echo",
		Description: "Gives back a message and its length.",
		Handler:     guest.Handle(echo),
		Hints:       guest.Hints{Idempotent: true, Readonly: true, OpenWorld: new(false)},
		Examples: []guest.Example{
			{Args: args{"Hello, world!"}, Result: result{"Hello, world!", 13}},
			{Args: args{"größer"}, Result: result{"größer", 8}},
		},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
