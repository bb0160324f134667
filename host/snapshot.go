package host

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// view is what a module can see while it starts up, so that calls with the same
// view can share a snapshot. It is empty for a call that must not have one.
func (u *startup) view() string {
	c, p := u.call, &u.call.Policy
	if c.module.Isolation.Mode != Reset || c.describing || c.ImpureInit {
		return ""
	}

	b := strconv.AppendInt(nil, p.Memory, 10)
	b = strconv.AppendBool(strconv.AppendBool(b, p.Clock), p.Random)
	if c.module.Info.Shape == Extism {
		b = strconv.AppendBool(b, c.asExtism().startsItself())
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		b = strconv.AppendQuote(strconv.AppendQuote(b, name), p.Env[name])
	}
	for _, m := range p.Files {
		b = strconv.AppendBool(strconv.AppendQuote(strconv.AppendQuote(append(b, '/'), m.Path), m.Dir), m.Write)
	}
	return string(b)
}

// capture makes the state a module has started up in the snapshot of its view. What it
// did while it started up must not depend on the call.
func (u *startup) capture(view string) error {
	c := u.call
	if u.impure == "" {
		err := c.module.account.Capture(view, c.instance, c.meter.fuel.Used(c.meter.left()))
		if !errors.Is(err, instance.ErrTooLarge) {
			return err
		}
		u.impure = err.Error()
	}

	c.module.mu.Lock()
	defer c.module.mu.Unlock()
	c.module.startup = u.impure
	return nil
}

// wasiReads are the functions of WASI that only read what view tells apart, or
// what each call sees in the same way. A module that does more while it starts up
// does it for a call.
var wasiReads = map[string]bool{
	"args_get": true, "args_sizes_get": true, "environ_get": true, "environ_sizes_get": true,
	"clock_res_get": true, "clock_time_get": true, "random_get": true, "sched_yield": true,
	"fd_prestat_get": true, "fd_prestat_dir_name": true, "fd_fdstat_get": true,
	"fd_fdstat_set_flags": true, // streams and folders have none
}

// wasiTraceless are those that leave nothing behind in the instance, where no
// folder is granted. Any other may.
var wasiTraceless = map[string]bool{
	"fd_write": true, "fd_read": true, "poll_oneoff": true, "fd_filestat_get": true, "proc_exit": true,
}

// wasiStreamReads only read where their descriptor is a standard stream, which is the
// same device in each call and has no position.
var wasiStreamReads = map[string]bool{"fd_filestat_get": true, "fd_seek": true, "fd_tell": true}

// maxStream is the descriptor of the last standard stream.
const maxStream = 2

// monotonic is the clock of WASI that stands while a module starts up.
const monotonic = 1

// touched notes what a guest does that concerns its snapshot.
func (u *startup) touched(function string, stack []uint64) {
	reads := wasiReads[function] || wasiStreamReads[function] && uint32(stack[0]) <= maxStream
	u.tainted = u.tainted || !reads && !wasiTraceless[function]
	if !u.running {
		return
	}

	switch {
	case !reads:
		u.impure = "it calls " + function + " while it starts up"
	case function == "clock_time_get" && u.call.Policy.Clock && uint32(stack[0]) != monotonic:
		u.impure = "it reads the time while it starts up, which would be old for the next call"
	case function == "random_get" && u.call.Policy.Random && !u.call.module.renews:
		u.impure = "it reads random bytes while it starts up, and does not export " + abi.ExportRestored
	}
}
