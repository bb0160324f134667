// Plugin spin loops forever and never calls the host, so only the fuel limit, the deadline or a
// stop can end it.
package main

import "github.com/toolhost/toolhost/guest"

type args struct {
	Start uint64 `json:"start,omitempty" desc:"Where to start from; it never gets anywhere"`
}

func spin(c *guest.Call, in args) (uint64, error) {
	if err := c.Progress(0, -1, "spinning"); err != nil {
		return 0, err
	}
	n := in.Start
	for ; n|1 != 0; n++ { // always true
	}
	return n, nil
}

var plugin = guest.Plugin{
	Name: "spin", Version: "1.0.0", Description: "Loops for ever.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:        "spin",
		Description: "Loops for ever. Call it to see a tool stopped.",
		Handler:     guest.Handle(spin),
		Hints:       guest.Hints{SupportsBackground: true, Readonly: true, LongRunning: true, OpenWorld: new(false)},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
