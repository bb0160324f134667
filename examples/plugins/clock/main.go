// Plugin clock tells the time and waits. The clock must be granted: without it,
// time stands still in the sandbox.
package main

import (
	"fmt"
	"time"

	"github.com/toolhost/toolhost/guest"
)

type nowArgs struct {
	Offset string `json:"offset" desc:"Z for UTC, or the offset of a time zone from it" pattern:"^(Z|[+-][0-9]{2}:[0-9]{2})$" default:"Z" example:"+02:00"`
}

type nowResult struct {
	Time string `json:"time" desc:"RFC 3339" format:"date-time"`
	Unix int64  `json:"unix" desc:"Seconds since 1970"`
}

// now supports offsets, but no names of time zones: their rules would make the
// plugin half a megabyte larger.
func now(_ *guest.Call, in nowArgs) (nowResult, error) {
	zone, err := time.Parse("Z07:00", in.Offset)
	if err != nil {
		return nowResult{}, fmt.Errorf("expected an offset such as Z or +02:00, found %q", in.Offset)
	}
	t := time.Now()
	return nowResult{t.In(zone.Location()).Format(time.RFC3339), t.Unix()}, nil
}

type sleepArgs struct {
	Seconds float64 `json:"seconds" desc:"How long to wait" min:"0" max:"3600"`
}

type sleepResult struct {
	Slept float64 `json:"slept_seconds"`
}

// sleep blocks in the host, so it can be stopped at any time.
func sleep(c *guest.Call, in sleepArgs) (sleepResult, error) {
	if err := c.Sleep(time.Duration(in.Seconds * float64(time.Second))); err != nil {
		return sleepResult{}, err
	}
	return sleepResult{in.Seconds}, nil
}

var plugin = guest.Plugin{
	Name: "clock", Version: "1.0.0", Description: "Tells the time and waits.", License: "Apache-2.0",
	Needs: guest.Needs{Clock: true},
	Tools: []guest.Tool{{
		Name:        "now",
		Description: "Tells the date and time.",
		Handler:     guest.Handle(now),
		Hints:       guest.Hints{Readonly: true, OpenWorld: new(false)},
		Examples:    []guest.Example{{Name: "bad offset", Args: nowArgs{"+99:00"}, Error: "expected an offset"}},
	}, {
		Name:        "sleep",
		Description: "Waits for some seconds.",
		Handler:     guest.Handle(sleep),
		Hints: guest.Hints{
			SupportsBackground: true, Idempotent: true, Readonly: true, LongRunning: true, OpenWorld: new(false),
		},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
