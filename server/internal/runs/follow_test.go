package runs

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/wire"
)

// within runs a test in a bubble, with runs that take a time.
func within(t *testing.T, takes time.Duration, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, map[string]abi.Hints{"work": runnable})
		b.call = func(ctx context.Context, _ *Execution) (abi.Result, error) {
			select {
			case <-time.After(takes):
				return success(`"done"`), nil
			case <-ctx.Done():
				return abi.Result{Kind: abi.CanceledKind}, context.Cause(ctx)
			}
		}
		f(t, b)
	})
}

func TestFollow(t *testing.T) {
	within(t, 30*time.Second, func(t *testing.T, b *bench) {
		c, run := b.waiter(), b.spawn("work")
		r, err := b.Follower.Follow(t.Context(), c, run, c.Patience)
		require.NoError(t, err)
		require.JSONEq(t, `"done"`, string(r.Value))
		require.Equal(t, run.ID, c.Note.Run)
		require.True(t, c.Note.Followed, "the run has the usage")
		require.Empty(t, b.parked)
	})
}

func TestFollowLosesPatience(t *testing.T) {
	within(t, time.Hour, func(t *testing.T, b *bench) {
		c, run := b.waiter(), b.spawn("work")
		r, err := b.Follower.Follow(t.Context(), c, run, c.Patience)
		require.NoError(t, err)
		require.Contains(t, string(r.Value), "Still running after 60s. It continues in the background: wait for it.")
		require.Len(t, b.parked, 1)
		require.Equal(t, run.ID, b.parked[0].TaskID)
	})
}

// A caller that leaves takes its run along, unless it repeats the call with a key.
func TestFollowWithoutACaller(t *testing.T) {
	for name, test := range map[string]struct {
		keyed bool
		cause error
		want  engine.Status
	}{
		"canceled":       {false, context.Canceled, engine.StatusCanceled},
		"closing":        {false, ErrClosing, engine.StatusRunning},
		"keyed":          {true, context.Canceled, engine.StatusRunning},
		"keyed, stopped": {true, ErrCancel, engine.StatusCanceled},
		"keyed, asks":    {true, question.ErrAskAgain, engine.StatusCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, time.Hour, func(t *testing.T, b *bench) {
				ctx, cancel := context.WithCancelCause(t.Context())
				c, run := b.waiter(), b.spawn("work")
				c.Keyed = test.keyed
				time.AfterFunc(time.Second, func() { cancel(test.cause) })
				r, err := b.Follower.Follow(ctx, c, run, c.Patience)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, abi.CanceledKind, r.Kind)

				synctest.Wait()
				run, err = b.runs.Get(t.Context(), alice, run.ID)
				require.NoError(t, err)
				require.Equal(t, test.want, run.Status)
			})
		})
	}
}

// hold holds a call of work.
func (b *bench) hold(c HeldCall) (abi.Result, error) {
	b.t.Helper()
	tool, err := b.Catalog.Lookup("work")
	require.NoError(b.t, err)
	c.Waiter, c.Tool, c.Approval, c.Run = b.waiter(), tool, approval.Call{Session: alice, Tool: "work", Args: json.RawMessage(`{}`)}, b.request("work")
	if c.Make != nil { // its arguments are secret
		c.Run.Stored = json.RawMessage(`{}`)
	}
	return b.Follower.Hold(b.t.Context(), c)
}

// decide decides on the only held call, once it is held.
func (b *bench) decide(approve bool) {
	time.AfterFunc(time.Second, func() {
		held, err := b.Follower.Approvals.Waiting(b.t.Context(), alice)
		if err != nil || len(held) != 1 {
			b.t.Errorf("held calls: %v, %v", held, err)
			return
		}
		if _, err = b.Follower.Approvals.Decide(b.t.Context(), held[0].ID, "operator", wire.Decide{Approve: approve, Reason: "not today"}); err != nil {
			b.t.Error(err)
		}
	})
}

// An agent's call that nobody can decide on here is answered at once.
func TestHold(t *testing.T) {
	within(t, time.Second, func(t *testing.T, b *bench) {
		r, err := b.hold(HeldCall{})
		require.NoError(t, err)
		require.Contains(t, string(r.Value), "It waits until a person approves it")
		require.Len(t, b.parked, 1)

		b.decide(true)
		time.Sleep(time.Minute)
		run, err := b.runs.Get(t.Context(), alice, b.parked[0].TaskID)
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, run.Status)
	})
}

// A tool waits for the decision on its call, and for the end.
func TestHoldNested(t *testing.T) {
	within(t, time.Second, func(t *testing.T, b *bench) {
		b.decide(true)
		r, err := b.hold(HeldCall{Nested: true})
		require.NoError(t, err)
		require.JSONEq(t, `"done"`, string(r.Value))

		b.decide(false)
		_, err = b.hold(HeldCall{Nested: true})
		require.ErrorContains(t, err, "not today")
		_, refused := errors.AsType[*host.Refusal](err)
		require.True(t, refused, "the calling tool sees a refusal")
		require.Empty(t, b.parked)
	})
}

// The arguments of a call with secrets are not stored: the call is made once it is approved.
func TestHoldSecret(t *testing.T) {
	within(t, time.Second, func(t *testing.T, b *bench) {
		made := 0
		call := HeldCall{Make: func(context.Context) (abi.Result, error) { made++; return success(`"made"`), nil }}
		b.call = func(context.Context, *Execution) (abi.Result, error) {
			t.Error("a ticket is not executed")
			return abi.Result{}, nil
		}
		b.decide(false)
		_, err := b.hold(call)
		require.ErrorContains(t, err, "not today")
		require.Zero(t, made)

		b.decide(true)
		r, err := b.hold(call)
		require.NoError(t, err)
		require.JSONEq(t, `"made"`, string(r.Value))
		require.Equal(t, 1, made)
	})
}

// children are runs that calls to tools have become, in the order they are read.
type children struct {
	Runs
	reads   []func() (engine.Run, error)
	stopped []background.StopRequest
}

func (c *children) Check(context.Context, string, background.CheckRequest) (background.CheckResult, error) {
	run, err := c.reads[0]()
	c.reads = c.reads[1:]
	return background.CheckResult{Reports: []background.Report{{Run: run}}}, err
}

func (c *children) Payload(context.Context, string, string, engine.Part) (json.RawMessage, error) {
	return nil, engine.ErrNotFound
}

func (c *children) Stop(_ context.Context, _, _ string, req background.StopRequest) (engine.Run, error) {
	c.stopped = append(c.stopped, req)
	return engine.Run{}, nil
}

func TestAwaitChild(t *testing.T) {
	failed := func(kind engine.ErrorKind) engine.Run {
		return engine.Run{ID: "task_1", Status: engine.StatusFailed, End: engine.End{Error: &engine.RunError{Kind: kind, Message: "the host was killed"}}}
	}
	for name, test := range map[string]struct {
		run  engine.Run
		err  error
		code int32
		why  string
	}{
		"removed":     {err: engine.ErrNotFound, code: abi.CallLost, why: "its record was removed"},
		"unreadable":  {err: errors.New("bad page"), code: abi.CallLost, why: "its record cannot be read"},
		"orphaned":    {run: failed(engine.KindOrphaned), code: abi.CallLost, why: "the host was killed"},
		"interrupted": {run: failed(engine.KindInterrupted), code: abi.CallLost, why: "the host was killed"},
		"rejected":    {run: failed(engine.KindRejected), code: abi.CallDenied, why: "the host was killed"},
		"refused":     {run: engine.Run{Status: engine.StatusFailed, Held: approval.HeldFor, End: engine.End{Error: &engine.RunError{Message: "no"}}}, code: abi.CallDenied, why: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Follower{Runs: &children{reads: []func() (engine.Run, error){func() (engine.Run, error) { return test.run, test.err }}}}
			_, err := f.awaitChild(t.Context(), alice, "task_1")
			refused, ok := errors.AsType[*host.Refusal](err)
			require.True(t, ok, err)
			require.Equal(t, test.code, refused.Code)
			require.Contains(t, refused.Message, test.why)
		})
	}
}

// A child that cannot be read now continues, and does not count as failed.
func TestAwaitChildThatIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, nil)
		down := func() (engine.Run, error) { return engine.Run{}, engine.ErrUnavailable }
		active := func() (engine.Run, error) { return engine.Run{Status: engine.StatusRunning}, nil }
		done := func() (engine.Run, error) { return engine.Run{Status: engine.StatusSucceeded}, nil }
		b.Follower.Runs = &children{reads: []func() (engine.Run, error){down, down, active, done}}

		began := time.Now()
		r, err := b.Follower.awaitChild(t.Context(), alice, "task_1")
		require.NoError(t, err)
		require.Equal(t, abi.Success, r.Kind)
		require.Equal(t, 2*awaitAgain, time.Since(began))
		require.Contains(t, b.log.String(), "trying again")
	})
}
