package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// startFuel bounds what is spent on taking a snapshot: some seconds. A call that
// has less to spend does not have more spent for it.
const startFuel = 10_000_000_000

// view is what a module can see while it starts up, so that calls with the same
// view can share a snapshot. It is empty for a call that must not have one.
func (c *call) view() string {
	p := &c.Policy
	if c.module.Isolation.Mode != Reset || c.purpose == describing || c.ImpureInit {
		return ""
	}

	b := strconv.AppendInt(nil, p.Memory, 10)
	b = strconv.AppendBool(strconv.AppendBool(b, p.Clock), p.Random)
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		b = strconv.AppendQuote(strconv.AppendQuote(b, name), p.Env[name])
	}
	for _, m := range p.Files {
		b = strconv.AppendBool(strconv.AppendQuote(strconv.AppendQuote(append(b, '/'), m.Path), m.Dir), m.Write)
	}
	return string(b)
}

// snapshot returns the snapshot the call starts from, which the caller releases.
// It is nil if the call has to start up itself.
func (c *call) snapshot() (*instance.Snapshot, error) {
	view := c.view()
	if view == "" {
		return nil, nil
	}

	s := c.module.account.Snapshot(view, func() func(context.Context, *instance.Snapshot) error {
		policy := c.Policy
		policy.Env, policy.Files = maps.Clone(policy.Env), slices.Clone(policy.Files) // the caller's once its call ends
		policy.Fuel, policy.Timeout = min(policy.Fuel, startFuel), DefaultTimeout
		return c.module.primer(c.Plugin, policy)
	})

	select {
	case <-s.Taken:
	default:
		if err := c.await(s.Taken); err != nil {
			s.Release()
			return nil, &instance.Stop{Reason: err}
		}
	}
	if s.Image == nil {
		s.Release()
		return nil, nil
	}
	return s, nil
}

// primer returns a function that takes a snapshot, or finds out why there can be
// none. It starts the module up in an instance that serves no call and knows of
// none: what starts up there can see nothing but its view, and ends where it tries
// to do more.
func (m *Module) primer(plugin string, policy Policy) func(context.Context, *instance.Snapshot) error {
	return func(ctx context.Context, s *instance.Snapshot) error {
		c := m.host.newCall(ctx, m, &Call{Traits: Traits{Plugin: plugin}, Policy: policy}, priming)
		defer c.ctx.end()
		err := c.prime(s)
		if err != nil && !errors.Is(err, instance.ErrAgain) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.startup = noSnapshot(err)
		}
		return err
	}
}

// prime starts the module up and captures the state it is in then. Its error
// matches instance.ErrAgain if another call may have more luck.
func (c *call) prime(s *instance.Snapshot) error {
	if err := c.compute(); err != nil {
		return instance.ErrAgain
	}
	defer c.guest.Idle()
	in, err := c.instantiate(nil)
	if err != nil {
		return fmt.Errorf("%w: %w", instance.ErrAgain, err)
	}
	defer in.Discard()
	defer c.meter.repay()

	c.serve(in)
	if err = c.startUp(); err == nil {
		err = c.settle()
	}
	switch {
	case c.ctx.Err() != nil, errors.Is(err, ErrHostMemory), errors.Is(err, ErrFuel) && c.Policy.Fuel < startFuel:
		return instance.ErrAgain
	case err != nil:
		return err
	}

	return s.Capture(in, c.meter.fuel.Used(c.meter.left()))
}

// noSnapshot tells operators why there is none.
func noSnapshot(err error) string {
	var impure *impureError
	switch {
	case errors.As(err, &impure), errors.Is(err, instance.ErrTooLarge):
		return err.Error()
	case errors.Is(err, ErrFuel):
		return fmt.Sprintf("it needs more than %d units of fuel to start up", int64(startFuel))
	}
	return "it does not start up"
}

// impureError says why calls cannot share what a module makes as it starts up.
type impureError struct{ why string }

func (e *impureError) Error() string { return e.why }

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

// touched notes what a guest does that concerns its snapshot.
func (c *call) touched(function string) {
	reads := wasiReads[function]
	c.tainted = c.tainted || !reads && !wasiTraceless[function]
	if c.purpose != priming {
		return
	}

	switch {
	case !reads:
		c.impure("it calls " + function + " while it starts up")
	case function == "clock_time_get" && c.Policy.Clock:
		c.impure("it reads the time while it starts up, which would be old for the next call")
	case function == "random_get" && c.Policy.Random && !c.module.renews:
		c.impure("it reads random bytes while it starts up, and does not export " + abi.ExportRestored)
	}
}

// touchedContract notes that a guest used the contract, which knows one call from
// another.
func (c *call) touchedContract() {
	if c.purpose == priming {
		c.impure("it calls " + abi.Version + " while it starts up")
	}
}

// impure ends what would make a snapshot that calls must not share.
func (c *call) impure(why string) { panic(&instance.Stop{Reason: &impureError{why}}) }
