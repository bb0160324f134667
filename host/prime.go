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

// startFuel bounds what is spent on taking a snapshot: some seconds.
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
// up there can see nothing but its view, and ends where it tries to do more. If
// the module can describe itself it does so once too: what a runtime does but
// once, such as growing its heap, is done then.
func (s *snapshot) take(ctx context.Context, plugin string, policy Policy) {
	m, p := s.module, s.module.account.pool
	policy.Fuel, policy.Output, policy.Timeout = s.budget, abi.MaxManifest, DefaultTimeout
	var err error
	for _, warmUp := range []bool{m.Info.Describe, false} {
		c := &call{Call: Call{Plugin: plugin, Policy: policy}, host: m.host, module: m, started: time.Now(), priming: true}
		c.live(ctx)
		err = c.prime(s, warmUp)
		c.ctx.end()
		if err == nil || !c.describing || errors.Is(err, errAgain) {
			break // else it cannot describe itself, which says nothing about starting up
		}
	}
	var impure *impureError
	again, why := errors.Is(err, errAgain), ""
	switch {
	case err == nil, again:
	case errors.As(err, &impure):
		why = impure.why
	case errors.Is(err, ErrFuel):
		if s.broke = true; s.budget == startFuel {
			why = fmt.Sprintf("it needs more than %d units of fuel to start up", s.budget)
		}
	default:
		why = "it does not start up"
	}
	if why != "" {
		m.mu.Lock()
		m.startup = why
		m.mu.Unlock()
	}
	p.mu.Lock()
	switch {
	case s.forgotten:
	case again:
		p.forget(s)
	default:
		s.recent = p.snapshots.PushBack(s)
	}
	close(s.taken)
	crowd := p.crowd(m)
	p.mu.Unlock()
	for _, old := range crowd {
		old.forget()
	}
	s.release()
}

// prime starts the module up and captures the state it is in then. Its error
// matches errAgain if another call may have more luck.
func (c *call) prime(s *snapshot, warmUp bool) (err error) {
	c.meter = fuel.NewMeter(c.Policy.Fuel, c.interrupted)
	in, err := c.instantiate(&c.ctx, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	defer in.discard()
	defer c.repay()
	defer func() {
		if in.mem.crowded || c.ctx.Err() != nil || errors.Is(err, ErrHostMemory) {
			err = errAgain
		}
	}()
	c.serve(in)
	if err = c.startUp(); err == nil {
		err = c.settle()
	}
	if err != nil {
		return err
	}
	used := c.meter.Used(int64(c.counter.Get()))
	if warmUp {
		if err := c.warmUp(); err != nil {
			return err
		}
	}
	if in.mem.crowded || c.ctx.Err() != nil {
		return errAgain
	}
	s.fuel = used
	return s.capture(in)
}

// warmUp lets a plugin describe itself. What it says is not heard.
func (c *call) warmUp() error {
	c.describing = true
	c.meter = fuel.NewMeter(describeFuel, c.interrupted)
	c.counter.Set(0)
	code, err := c.enter(c.instance.entry(abi.ExportDescribe))
	if err == nil {
		err = c.settle()
	}
	if err == nil && code != abi.InvokeOK {
		err = fmt.Errorf("%s answered %d", abi.ExportDescribe, code)
	}
	return err
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
	if c.priming && !c.describing {
		c.impure("it calls " + abi.Version + " while it starts up")
	}
}

// impure ends what would make a snapshot that calls must not share.
func (c *call) impure(why string) { panic(&ended{&impureError{why}}) }
