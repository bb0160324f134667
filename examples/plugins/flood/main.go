// Plugin flood writes output forever and never checks whether to stop, so only the output limit
// can end it.
package main

import (
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/guest"
)

type args struct {
	Width int `json:"width" desc:"Characters in a line" min:"1" max:"65536" default:"80"`
}

func flood(c *guest.Call, in args) (guest.None, error) {
	for i := 0; ; i++ {
		line := fmt.Sprintf("line %d ", i)
		_, _ = fmt.Fprintln(c.Output(), line+strings.Repeat(".", max(0, in.Width-len(line)))) // it does not listen
	}
}

var plugin = guest.Plugin{
	Name: "flood", Version: "1.0.0", Description: "Writes output without end.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:        "flood",
		Description: "Writes output without end. Call it to see the output limit.",
		Handler:     guest.Handle(flood),
		Hints:       guest.Hints{SupportsBackground: true, Readonly: true, LongRunning: true, OpenWorld: new(false)},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
