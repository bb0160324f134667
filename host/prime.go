package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fuel"
)

// startFuel bounds what is spent on taking a snapshot: some seconds. A call that
// has less to spend does not have more spent for it.
const startFuel = 10_000_000_000

// view is what a module can see while it starts up, so that calls with the same
// view can share a snapshot. It is empty for a call that must not have one.
func (c *call) view() string {
	p := &c.Policy
	if c.module.Isolation.Mode != Reset || c.describing || c.ImpureInit {
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

// impureError says why calls cannot share what a module makes as it starts up.
type impureError struct{ why string }

func (e *impureError) Error() string { return e.why }

// errAgain: no snapshot could be taken for a reason that passes.
var errAgain = errors.New("no snapshot can be taken now")

// take takes the snapshot, or finds out why there can be none. It starts the
// module up in an instance that serves no call and knows of none: what starts
// up there can see nothing but its view, and ends where it tries to do more.
func (s *snapshot) take(ctx context.Context, plugin string, policy Policy) {
	m, p := s.module, s.module.account.pool
	err := errAgain
	select {
	case m.priming <- struct{}{}:
		defer func() { <-m.priming }()
		c := &call{Call: Call{Plugin: plugin, Policy: policy}, host: m.host, module: m, started: time.Now(), priming: true}
		c.live(ctx)
		err = c.prime(s)
		c.ctx.end()
	case <-ctx.Done():
	}
	again := errors.Is(err, errAgain)
	if err != nil && !again {
		m.mu.Lock()
		m.startup = noSnapshot(err)
		m.mu.Unlock()
	}
	p.mu.Lock()
	s.taking = false
	switch {
	case s.forgotten:
	case again:
		p.forget(s)
	default:
		s.recent = p.snapshots.PushBack(s)
	}
	s.users++ // until it is released below
	crowd := p.crowd(m)
	p.mu.Unlock()
	for _, old := range crowd {
		old.forget()
	}
	close(s.taken)
	s.release()
}

// noSnapshot tells operators why there is none.
func noSnapshot(err error) string {
	var impure *impureError
	switch {
	case errors.As(err, &impure):
		return impure.why
	case errors.Is(err, ErrFuel):
		return fmt.Sprintf("it needs more than %d units of fuel to start up", int64(startFuel))
	}
	return "it does not start up"
}

// prime starts the module up and captures the state it is in then. Its error
// matches errAgain if another call may have more luck.
func (c *call) prime(s *snapshot) (err error) {
	if err := c.compute(); err != nil {
		return errAgain
	}
	defer c.guest.Idle()
	c.meter = fuel.NewMeter(c.Policy.Fuel, c.interrupted)
	in, err := c.instantiate(&c.ctx, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	defer in.discard()
	defer c.repay()
	c.serve(in)
	if err = c.startUp(); err == nil {
		err = c.settle()
	}
	switch {
	case c.ctx.Err() != nil, errors.Is(err, ErrHostMemory), errors.Is(err, ErrFuel) && c.Policy.Fuel < startFuel:
		return errAgain
	case err != nil:
		return err
	}
	s.fuel = c.meter.Used(int64(c.counter.Get()))
	return s.capture(in)
}

// wasiReads are the functions of WASI that only read what view tells apart, or
// what each call sees in the same way. A module that does more while it starts
// up does it for a call.
var wasiReads = map[string]bool{
	"args_get": true, "args_sizes_get": true, "environ_get": true, "environ_sizes_get": true,
	"clock_res_get": true, "clock_time_get": true, "random_get": true, "sched_yield": true,
	"fd_prestat_get": true, "fd_prestat_dir_name": true, "fd_fdstat_get": true,
	"fd_fdstat_set_flags": true, // none of the streams and folders there are has any
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
	if !c.priming {
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

// touchedContract notes that a guest used the contract, which knows one call
// from another.
func (c *call) touchedContract() {
	if c.priming {
		c.impure("it calls " + abi.Version + " while it starts up")
	}
}

// impure ends what would make a snapshot that calls must not share.
func (c *call) impure(why string) { panic(&ended{&impureError{why}}) }
