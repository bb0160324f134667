// Plugin memo keeps notes in the session. What one tool writes, another tool can
// read, even one in another plugin, provided that it has the grant. The plugin needs
// the grant "session".
package main

import (
	"errors"

	"github.com/toolhost/toolhost/guest"
)

type writeArgs struct {
	Name string `json:"name" desc:"Name of the note" pattern:"^[a-z0-9-]{1,40}$"`
	Line string `json:"line" desc:"Line to add to the note" min:"1" max:"500"`
}

type readArgs struct {
	Name string `json:"name" desc:"Name of the note" pattern:"^[a-z0-9-]{1,40}$"`
}

type note struct {
	Lines []string `json:"lines"`
}

// keyOf keeps the notes separate from the values of other plugins.
func keyOf(name string) string { return "memo." + name }

// write adds a line to a note. If another call changes the note at the same time, it
// starts over, so that no line is lost.
func write(c *guest.Call, in writeArgs) (note, error) {
	for {
		n := note{Lines: []string{}}
		version, err := c.Session().Get(keyOf(in.Name), &n)
		if err != nil {
			return n, err
		}
		n.Lines = append(n.Lines, in.Line)
		if _, err = c.Session().SetIf(keyOf(in.Name), n, version); !errors.Is(err, guest.ErrConflict) {
			return n, err
		}
	}
}

func read(c *guest.Call, in readArgs) (note, error) {
	n := note{Lines: []string{}}
	_, err := c.Session().Get(keyOf(in.Name), &n)
	return n, err
}

var plugin = guest.Plugin{
	Name: "memo", Version: "1.0.0", Description: "Keeps notes as long as the session lasts.", License: "Apache-2.0",
	Needs: guest.Needs{Session: "write"},
	Tools: []guest.Tool{
		{
			Name: "write", Description: "Adds a line to a note of this session.", Handler: guest.Handle(write),
			Hints: guest.Hints{OpenWorld: new(false), Destructive: new(false)},
		},
		{
			Name: "read", Description: "Returns a note of this session.", Handler: guest.Handle(read),
			Hints: guest.Hints{Readonly: true, Idempotent: true, OpenWorld: new(false)},
		},
	},
}

func init() { guest.Serve(&plugin) }

func main() {}
