// Plugin with one tool of the conformance suite whose schema is written by hand,
// in the manifest next to this file.
package main

import (
	"encoding/json"

	"github.com/toolhost/toolhost/guest"
)

func echo(_ *guest.Call, in map[string]any) (json.RawMessage, error) { return json.Marshal(in) }

var plugin = guest.Plugin{Name: "header", Version: "1.0.0", Tools: []guest.Tool{{Name: "header", Handler: guest.Handle(echo)}}}

func init() { guest.Serve(&plugin) }

func main() {}
