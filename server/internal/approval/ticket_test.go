package approval

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

const secretArgs = `{"n":1,"key":"hunter2"}`

// A ticket is that of one call: of its session, its tool, its public arguments and its
// caller, for an hour.
func TestTicketIsBound(t *testing.T) {
	call := Call{Session: alice, Args: json.RawMessage(secretArgs)}
	other := func(change func(c *Call)) Call { c := call; change(&c); return c }
	for name, test := range map[string]struct {
		call  Call
		tool  string
		after time.Duration
		want  bool
	}{
		"the same call":     {call, "drop", time.Hour, true},
		"another secret":    {other(func(c *Call) { c.Args = json.RawMessage(`{"n":1,"key":"other"}`) }), "drop", 0, true},
		"other arguments":   {other(func(c *Call) { c.Args = json.RawMessage(`{"n":2,"key":"hunter2"}`) }), "drop", 0, false},
		"no secret":         {other(func(c *Call) { c.Args = json.RawMessage(`{"n":1}`) }), "drop", 0, false},
		"another session":   {other(func(c *Call) { c.Session = bob }), "drop", 0, false},
		"by another tool":   {other(func(c *Call) { c.Caller = "research" }), "drop", 0, false},
		"another tool":      {call, "other", 0, false},
		"later than agents": {call, "drop", time.Hour + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t)
				run := b.hold(alice, secretArgs, "")
				require.True(t, IsTicket(run))
				time.Sleep(test.after)
				tool := &catalog.Tool{Tool: b.tool.Tool, Name: test.tool, Backend: b.tool.Backend}
				_, found := b.Ticket(t.Context(), run.ID, tool, test.call)
				require.Equal(t, test.want, found)
				b.closes()
				require.NoError(t, b.runs.Close(t.Context()))
			})
		})
	}

	b := open(t)
	run := b.hold(alice, `{"n":1}`, "")
	require.False(t, IsTicket(run))
	_, found := b.Ticket(t.Context(), run.ID, b.tool, Call{Session: alice, Args: json.RawMessage(`{"n":1}`)})
	require.False(t, found)
}

// An approved ticket counts for one call, however many redeem it.
func TestRedeem(t *testing.T) {
	b := open(t)
	run := b.hold(alice, secretArgs, "")
	require.NoError(t, b.decideOn(run, wire.Decide{Approve: true}))
	require.NoError(t, b.Await(t.Context(), run, User{}, 0))

	var won atomic.Int32
	var redeeming sync.WaitGroup
	for range 8 {
		redeeming.Go(func() {
			if b.Redeem(t.Context(), run) == nil {
				won.Add(1)
			}
		})
	}
	redeeming.Wait()
	require.EqualValues(t, 1, won.Load())
	require.Equal(t, "gone", b.state(run))
	require.ErrorIs(t, b.Await(t.Context(), run, User{}, 0), engine.ErrNotFound)
}

// How the wait for the decision on a ticket ends.
func TestAwait(t *testing.T) {
	later := func(do func(b *bench, run engine.Run)) func(*bench, engine.Run) {
		return func(b *bench, run engine.Run) {
			go func() {
				time.Sleep(time.Minute)
				do(b, run)
			}()
		}
	}
	decide := func(in wire.Decide) func(*bench, engine.Run) {
		return func(b *bench, run engine.Run) {
			if err := b.decideOn(run, in); err != nil {
				b.t.Error(err)
			}
		}
	}
	for name, test := range map[string]struct {
		happen func(b *bench, run engine.Run)
		user   User
		wait   time.Duration
		err    error
		text   string
	}{
		"approved before":         {decide(wire.Decide{Approve: true}), User{}, 0, nil, ""},
		"refused before":          {decide(wire.Decide{Reason: "not today"}), User{}, 0, reason.ErrApproval, "not today"},
		"approved meanwhile":      {later(decide(wire.Decide{Approve: true})), User{}, time.Hour, nil, ""},
		"approved, a nested call": {later(decide(wire.Decide{Approve: true})), User{}, -1, nil, ""},
		"refused meanwhile":       {later(decide(wire.Decide{})), User{}, time.Hour, reason.ErrApproval, "not approved"},
		"approved too late":       {later(decide(wire.Decide{Approve: true})), User{}, time.Second, reason.ErrApproval, "nobody has decided in 1s, and its arguments have a secret"},
		"by its user":             {nil, answers(abi.AnswerAccept, `{"decision":"once"}`), 0, nil, ""},
		"refused by its user":     {nil, answers(abi.AnswerDecline, ""), 0, reason.ErrApproval, "the user did not allow it"},
		"the service closes":      {later(func(b *bench, _ engine.Run) { b.closes() }), User{}, -1, reason.ErrShutdown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t)
				run := b.hold(alice, secretArgs, "")
				if test.happen != nil {
					test.happen(b, run)
				}
				err := b.Await(t.Context(), run, test.user, test.wait)
				require.ErrorIs(t, err, test.err)
				if test.text != "" {
					require.ErrorContains(t, err, test.text)
				}
				time.Sleep(time.Hour)
				b.closes()
				require.NoError(t, b.runs.Close(context.WithoutCancel(t.Context())))
				require.Empty(t, b.made, "a ticket never runs")
			})
		})
	}
}

// Nothing is kept for secret arguments alone: later ones cannot be compared with them.
func TestSecretArgumentsAreNotKept(t *testing.T) {
	b := open(t)
	run := b.hold(alice, secretArgs, "")
	require.ErrorContains(t, b.decideOn(run, wire.Decide{Approve: true, Keep: wire.KeepArguments}), "secret arguments")
	require.Equal(t, "held", b.state(run))
}

// A ticket ends with the process that has its arguments, and with the agent that does not
// come back.
func TestDropTickets(t *testing.T) {
	for name, test := range map[string]struct {
		caller string
		change func(b *bench)
		want   string
	}{
		"nothing happens":        {"", func(*bench) {}, "held"},
		"the agent comes back":   {"", func(*bench) { time.Sleep(question.MaxAskAgain) }, "held"},
		"the agent is gone":      {"", func(*bench) { time.Sleep(question.MaxAskAgain + time.Second) }, "canceled"},
		"a tool waits":           {"research", func(*bench) { time.Sleep(question.MaxAskAgain + time.Second) }, "held"},
		"the host is another":    {"", func(b *bench) { b.Process = "another" }, "held"},
		"the host has gone down": {"", func(b *bench) { b.Process, b.live = "another", map[string]bool{"another": true} }, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t)
				ticket, plain := b.hold(alice, secretArgs, test.caller), b.hold(alice, `{"n":1}`, test.caller)
				test.change(b)
				waiting, err := b.Waiting(t.Context(), "")
				require.NoError(t, err)
				require.NoError(t, b.dropTickets(t.Context(), waiting))
				require.Equal(t, test.want, b.state(ticket))
				require.Equal(t, "held", b.state(plain))
				b.closes()
				require.NoError(t, b.runs.Close(t.Context()))
			})
		})
	}
}
