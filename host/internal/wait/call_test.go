package wait_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/calltree"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/host/internal/sched"
	"github.com/toolhost/toolhost/host/internal/wait"
	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/internal/fuel"
)

// counter is a global of a guest.
type counter struct {
	api.MutableGlobal
	value uint64
}

func (c *counter) Get() uint64      { return c.value }
func (c *counter) Set(value uint64) { c.value = value }

// module is a module whose only global counts its fuel.
type module struct {
	api.Module
	fuel *counter
}

func (m module) ExportedGlobal(string) api.Global { return m.fuel }

// call is a running call without a host.
type call struct {
	wait.Pending
	ops       guestcall.Call
	in        *instance.Instance
	ledger    *instance.Ledger
	elapsed   int64
	bound     string
	contended bool
}

func (c *call) Instance() *instance.Instance { return c.in }
func (c *call) Elapsed() int64               { return c.elapsed }
func (c *call) SetElapsed(ns int64)          { c.elapsed = ns }
func (c *call) Bound() string                { return c.bound }
func (c *call) Contended() bool              { return c.contended }
func (c *call) Interrupted() error           { return context.Cause(c.ops.Context) }

func (c *call) Compute() error {
	if c.ops.Guest.Compute() {
		return nil
	}
	return c.Interrupted()
}

// newCall returns a call that computes, in an instance that has just started up.
func newCall(ctx context.Context, t *testing.T, owner wait.Owner, s guestcall.Services) *call {
	c := &call{ledger: instance.NewLedger(instance.Config{Memory: 1 << 20, HeapOnly: true})}
	t.Cleanup(c.ledger.Close)
	account := c.ledger.Account(0)
	image, err := account.NewImage([]byte("data"), 0, 1<<16)
	require.NoError(t, err)
	memory, err := account.Payer(nil).NewMemory(image, 1<<16, 1<<16)
	require.NoError(t, err)
	memory.Reallocate(0)
	c.in = &instance.Instance{Module: module{fuel: new(counter)}, Memory: memory, Env: new(instance.Env)}
	c.in.Env.Random.Seed([32]byte{})
	account.Add(c.in, 1)

	guest := new(sched.Guest)
	sched.New(func() int { return 1 }).Init(guest, ctx, sched.GuestOptions{})
	c.ops = guestcall.Call{
		Plugin: "plugin", Grant: &grant.Grant{Clock: true, Ask: true, Tools: []string{abi.EveryTool}}, Memory: 1 << 20, Fuel: 1 << 40,
		Services: s, Context: ctx, Log: slog.New(slog.DiscardHandler), Operations: guestcall.Operations(), Guest: guest,
		Meter: &meter.Meter{Fuel: fuel.NewMeter(1<<40, nil), Payer: account.Payer(nil), Counter: c.in.Counter, Memory: memory},
		Tree:  new(calltree.Caller), Answer: new(answer.Answer), Suspension: &c.Pending,
	}
	c.ops.Tree.Begin(nil, guest, c.ops.Meter, time.Now())
	c.Init(c, &c.ops, owner, strings.Repeat("00", 32))
	require.NoError(t, c.Compute())
	return c
}

// start starts an operation, as a guest does.
func (c *call) start(op, request string) int32 {
	if code := c.Admit([]byte(request)); code < 0 {
		return code
	}
	return c.Start([]byte(op), []byte(request))
}

func (c *call) tool(name string) int32 { return c.start("tool.call", `{"tool":"`+name+`"}`) }

// buffers returns how many bytes are paid for on behalf of pending operations.
func (c *call) buffers() int64 {
	f := c.ledger.Figures()
	return f.Held[instance.Buffers]
}

// owner is an owner of calls in the memory of a test.
type owner struct {
	terms  wait.Terms
	status func() wait.Status          // nil: live
	keep   func(wait.SavedState) error // nil: succeeds
	await  func(ctx context.Context) (abi.Result, error)

	kept  []wait.SavedState
	drops int
	fails error // of Drop
}

func (o *owner) Terms() wait.Terms { return o.terms }

func (o *owner) Status() wait.Status {
	if o.status == nil {
		return wait.Status{Live: true}
	}
	return o.status()
}

func (o *owner) Keep(s wait.SavedState) error {
	o.kept = append(o.kept, s)
	if o.keep == nil {
		return nil
	}
	return o.keep(s)
}

func (o *owner) Drop() error { o.drops++; return o.fails }

func (o *owner) Ask(context.Context, int32, abi.Questions) (abi.Answers, error) { panic("oh") }

func (o *owner) CrashPolicy(_ int32, t guestcall.ToolCall) guestcall.CrashPolicy {
	switch t.Tool {
	case "a_apart":
		return guestcall.Detached
	case "a_once":
		return guestcall.LostOnCrash
	}
	return guestcall.RepeatedOnCrash
}

func (o *owner) Await(ctx context.Context, _ int32, _ guestcall.ToolCall) (abi.Result, error) {
	return o.await(ctx)
}

// last returns the host's part of the state that was stored last.
func (o *owner) last(t *testing.T) []byte {
	point, err := checkpoint.Decode(o.kept[len(o.kept)-1].State, 1<<20)
	require.NoError(t, err)
	return point.Host
}

// bubble runs a test with a clock of its own.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
