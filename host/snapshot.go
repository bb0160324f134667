package host

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wasi"
)

// view identifies what a module can see while it starts up: calls with the same
// view can share a snapshot. It is empty for a call that must not share one.
func (u *startup) view() string {
	c, p := u.call, &u.call.Policy
	if c.module.Isolation.Mode != Reset || c.ops.Describing || c.ImpureInit {
		return ""
	}

	b := strconv.AppendInt(nil, p.Memory, 10)
	b = strconv.AppendBool(strconv.AppendBool(b, p.Clock), p.Random)
	if c.module.Info.Shape == contract.Extism {
		b = strconv.AppendBool(b, c.extism.StartsItself())
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

// Imports records that the guest calls a function that it imports from module. The effect of
// such a function depends on the call.
func (u *startup) Imports(module string) {
	if u.running {
		u.impure = "it calls " + module + " while it starts up"
	}
}

// Touched records a call of a WASI function, which may affect the snapshot of the module.
func (u *startup) Touched(function string, stack []uint64) {
	reads := wasi.Reads(function, stack)
	u.tainted = u.tainted || !reads && !wasi.Traceless(function)
	if !u.running {
		return
	}

	switch {
	case !reads:
		u.impure = "it calls " + function + " while it starts up"
	case function == "clock_time_get" && u.call.Policy.Clock && !wasi.IsMonotonic(stack[0]):
		u.impure = "it reads the time while it starts up, which would be old for the next call"
	case function == "random_get" && u.call.Policy.Random && !u.call.module.renews:
		u.impure = "it reads random bytes while it starts up, and does not export " + abi.ExportRestored
	}
}
