package host

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// view identifies what a module can see while it starts up: calls with the same
// view can share a snapshot. It is empty for a call that must not share one.
func (u *startup) view() string {
	c, p := u.call, &u.call.Policy
	if c.module.Isolation.Mode != Reset || c.describing || c.ImpureInit {
		return ""
	}

	b := strconv.AppendInt(nil, p.Memory, 10)
	b = strconv.AppendBool(strconv.AppendBool(b, p.Clock), p.Random)
	if c.module.Info.Shape == contract.Extism {
		b = strconv.AppendBool(b, c.asExtism().StartsItself())
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		b = strconv.AppendQuote(strconv.AppendQuote(b, name), p.Env[name])
	}
	for _, m := range p.Files {
		b = strconv.AppendBool(strconv.AppendQuote(strconv.AppendQuote(append(b, '/'), m.Path), m.Dir), m.Mode == abi.FileWrite)
	}
	return string(b)
}

// capture saves the state of a module that has just started up as the snapshot of its
// view. The start-up must not have depended on the call.
func (u *startup) capture(view string) error {
	c := u.call
	if u.impure == "" {
		err := c.module.account.Capture(view, c.instance, c.meter.Used())
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

// wasiReads are the WASI functions that only read what view distinguishes, or
// what every call sees the same way. If a module uses any other function during
// start-up, its start-up belongs to one call.
var wasiReads = map[string]bool{
	"args_get": true, "args_sizes_get": true, "environ_get": true, "environ_sizes_get": true,
	"clock_res_get": true, "clock_time_get": true, "random_get": true, "sched_yield": true,
	"fd_prestat_get": true, "fd_prestat_dir_name": true, "fd_fdstat_get": true,
	"fd_fdstat_set_flags": true, // streams and folders have none
}

// wasiTraceless are the WASI functions that leave no trace in the instance if
// no folder is granted. Any other may.
var wasiTraceless = map[string]bool{
	"fd_write": true, "fd_read": true, "poll_oneoff": true, "fd_filestat_get": true, "proc_exit": true,
}

// wasiStreamReads only read if their descriptor is a standard stream, which is the
// same device in each call and has no position.
var wasiStreamReads = map[string]bool{"fd_filestat_get": true, "fd_seek": true, "fd_tell": true}

// maxStream is the descriptor of the last standard stream.
const maxStream = 2

// monotonic is the WASI clock that stands still while a module starts up.
const monotonic = 1

// imports records that the guest calls a function of a module that depends on the call.
func (u *startup) imports(module string) {
	if u.running {
		u.impure = "it calls " + module + " while it starts up"
	}
}

// touched records guest activity that affects its snapshot.
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
