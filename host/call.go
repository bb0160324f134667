package host

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/calltree"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/host/internal/sched"
	"github.com/toolhost/toolhost/host/internal/wait"
	"github.com/toolhost/toolhost/host/internal/wasi"
	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/internal/fuel"
)

// call is one running call. The guest runs on the goroutine of Host.Call, so nothing
// here needs a mutex.
type call struct {
	Call
	module  *Module
	client  string // fairness key
	started time.Time
	slots   waitQueue       // slots of the host
	calls   *sync.WaitGroup // the host's running calls; this one is done when it ends

	ctx    lifetime
	guest  sched.Guest
	meter  meter.Meter
	answer answer.Answer
	inner  calltree.Caller // its nested calls
	ops    guestcall.Call  // the call's data for its operations
	admission

	start     startup            // start-up of the instance
	instance  *instance.Instance // the instance that runs it; nil before and after
	waited    time.Duration      // time spent waiting for slots
	fuel      int64              // units used, set when it leaves its instance
	startFuel int64              // units used by start-up; 0 in a continued call
	startTime time.Duration      // duration of start-up
	peak      int64              // peak memory in bytes, set when it leaves its instance
	refused   error              // why its memory could not grow
	threw     bool               // an exception escaped from the module
	unwritten bool               // it tried to write to a read-only folder
	stderr    []byte             // a command's stderr, if it is logged
	failed    error              // the first exceeded limit or broken rule that a host function found
	wasi      wasi.Call          // the call's data for WASI
	extism    *extism.Call       // the call's data for Extism; nil for other plugins
	pending   wait.Pending       // operations in progress
	params    [2]uint64          // parameters of the guest's function, then its results
}

// Call runs a tool in a clean instance, without any trace of an earlier call, and returns
// its result. If all slots are taken, the call waits for one, and its time limit keeps
// running. Call returns only when the call has left its instance.
//
// The Result is valid in every case. The error is nil if the tool succeeded, returned a
// tool error, or requires a connection. Otherwise it is a [*CallError] that matches one of
// the reasons of this package or a context error.
func (h *Host) Call(ctx context.Context, m *Module, req Call) (abi.Result, error) {
	c, err := h.begin(ctx, m, &req)
	if err != nil {
		return abi.Result{Kind: abi.CanceledKind, Error: err.Error()}, &CallError{Plugin: req.Plugin, Tool: req.Tool, Err: err}
	}
	defer c.end()

	r, err := c.outcome(c.run())
	m.tally.count(func(n *Counts) {
		*n.Outcomes.of(r, err)++
		inner := c.inner.Total() // counted separately
		n.Fuel += max(0, r.Usage.Fuel-inner.Fuel)
		n.CPU += r.Usage.CPU - inner.CPU
	})
	return r, err
}

// begin starts a call. The caller must end it with end.
func (h *Host) begin(ctx context.Context, m *Module, req *Call) (*call, error) {
	if err := h.enter(req.Caller != nil); err != nil {
		return nil, err
	}
	c := &call{Call: *req, module: m, client: fair.ClientOf(req.Session), started: time.Now(), slots: h.slots, calls: &h.calls}
	c.Policy = c.Policy.withDefaults()
	c.start.call = c
	c.inner.Begin(c.Caller, &c.guest, &c.meter, c.started)
	if c.Caller != nil {
		c.Policy.Fuel = min(c.Policy.Fuel, c.Caller.Left())
	}
	c.Attempt = max(c.Attempt, 1)
	if len(c.Args) == 0 {
		c.Args = json.RawMessage("{}")
	}

	c.begin(ctx, h.ctx)
	h.cpus.Init(&c.guest, &c.ctx, sched.GuestOptions{
		Client: c.client, Background: c.Background, Stopping: c.Stopping,
	})
	c.meter = meter.Meter{Fuel: fuel.NewMeter(c.Policy.Fuel, c.Interrupted), Payer: m.account.Payer(h.ledger.Client(c.client))}
	c.answer.Limit, c.ops.Said.Total = c.Policy.Output, -1
	c.ops.Log, c.ops.Operations, c.ops.Egress = h.log, h.operations, h.egress
	c.beginOperations()
	c.observe()
	if c.Caller != nil {
		c.Caller.Enter(&c.inner)
	}
	return c, nil
}

// beginOperations gives the operations what they need from the call.
func (c *call) beginOperations() {
	o := &c.ops
	o.Plugin, o.Tool, o.ID, o.Session, o.Client, o.Readonly = c.Plugin, c.Tool, c.ID, c.Session, c.client, c.Readonly
	o.Grant, o.Memory, o.Fuel = &c.Policy.Grant, c.Policy.Memory, c.Policy.Fuel
	o.Services = guestcall.Services{
		May: c.May, Checkpoint: c.Checkpoint, Receive: c.Receive, Values: c.Values, KV: c.KV, Secrets: c.Secrets, Ask: c.Ask,
		CallTool: c.CallTool, SearchTools: c.SearchTools,
	}
	o.Observers = guestcall.Observers{OnProgress: c.Progress, OnUngranted: c.Ungranted, OnHTTP: c.Observers.HTTP}
	o.Context, o.Stopping = &c.ctx, c.Stopping
	o.Guest, o.Meter, o.Tree, o.Answer, o.Suspension = &c.guest, &c.meter, &c.inner, &c.answer, &c.pending
	c.pending.Init(waiter{c}, o, c.Suspend, c.module.Info.Digest)
}

// begin starts the lifetime of the call, which ends with ctx or with its host, and gives
// the functions that its guest imports what they need from it.
func (c *call) begin(ctx, host context.Context) {
	info := c.module.Info
	c.wasi = wasi.Call{Ops: &c.ops, Pending: &c.pending, Start: &c.start, Host: c, Shape: info.Shape, Program: wasi.Program{Command: c.Command, Argv: c.Argv, Args: c.Args}}
	if info.Shape == contract.Extism {
		c.extism = &extism.Call{
			Tool:  extism.Tool{Function: c.Function, Input: c.Input, MCPTool: c.MCPTool, Args: c.Args, HostFunctions: c.HostFunctions},
			Start: &c.start, Guest: extismGuest{c}, Info: info, Ops: &c.ops, Meter: &c.meter, Answer: &c.answer, Config: c.Policy.Config,
		}
	}
	c.ctx.begin(ctx, host, c.started, c.Policy.Timeout)
	c.ctx.call, c.ctx.wasi, c.ctx.extism = c, &c.wasi, c.extism
}

// end releases what the call holds.
func (c *call) end() {
	c.ops.ReportUngranted()
	if c.Caller != nil {
		c.Caller.Leave(&c.inner, c.usage())
	}
	c.meter.Repay()
	c.meter.Payer.Leave()
	c.ctx.end()
	c.calls.Done()
}

// Interrupted returns why the call must end now, or nil. It is called before each
// slice of fuel and by each host function.
func (c *call) Interrupted() error {
	if c.failed != nil {
		return c.failed
	}
	if err, cause := c.ctx.over(); err != nil && !c.pending.Leaving() {
		return because(err, cause)
	}
	if c.pending.Any() { // nested calls may be running
		c.inner.Allow(c.Policy.Fuel-c.meter.Used(), int64(c.meter.Memory.Peak))
		if c.inner.Overdrawn() {
			return errOverdrawn
		}
	} else if c.Caller.Overdrawn() {
		return errOverdrawn
	}
	return c.meter.PayStack(c.instance)
}

// errOverdrawn ends concurrent calls that used up the fuel together: none of them did so
// alone.
var errOverdrawn = fmt.Errorf("%w of the call and the tools that it calls", ErrFuel)

// Compute waits until the guest may compute. If the call ends first, the error says
// why.
func (c *call) Compute() error {
	if c.guest.Compute() {
		return nil
	}
	return c.Interrupted()
}

// context returns the value of abi.FieldContext.
func (c *call) context() []byte {
	context, _ := json.Marshal(abi.Context{ // strings and numbers: it cannot fail
		CallID: c.ID, Session: c.Session, Attempt: c.Attempt, Locale: c.Locale, Config: c.Policy.Config,
		TimeoutMS: c.Policy.Timeout.Milliseconds(), Fuel: c.Policy.Fuel,
	})
	return context
}

// observe lets the caller follow the usage of a call and its nested calls, if Call.Used
// is set.
func (c *call) observe() {
	if c.Used != nil || c.Caller != nil { // a nested call shares its caller's fuel
		c.meter.Live = new(meter.Live)
	}
	if c.Used != nil {
		c.Used(c.inner.UsedSoFar)
	}
}
