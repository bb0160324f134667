package wait_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/wait"
)

func TestEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCall(t.Context(), t, nil, guestcall.Services{})
		for i, ms := range []int{30, 10, 20} {
			require.EqualValues(t, i+1, c.start("sleep", fmt.Sprintf(`{"ms":%d}`, ms)))
		}
		require.Equal(t, abi.CallInvalid, c.start("sleep", `{}`), "a refused operation has no id")

		for _, want := range []int32{2, 3, 1} {
			require.True(t, c.Any())
			id, code, err := c.Next()
			require.NoError(t, err)
			require.Equal(t, []int32{want, 2}, []int32{id, code})
			require.Equal(t, "{}", string(c.ops.Response))
		}
		require.False(t, c.Any())
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCall(t.Context(), t, nil, guestcall.Services{})
		c.start("sleep", `{"ms":1000000}`)
		require.False(t, c.Cancel(2), "no such operation")
		require.True(t, c.Cancel(1))

		id, code, err := c.Next()
		require.NoError(t, err)
		require.Equal(t, []int32{1, abi.CallCanceled}, []int32{id, code})
		require.True(t, c.Cancel(1), "one that has ended is left as it is")
		require.False(t, c.Any())
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCall(t.Context(), t, nil, guestcall.Services{})
		require.Equal(t, abi.CallLimit, c.start("sleep", strings.Repeat(" ", abi.MaxStart+1)))
		for range abi.MaxPending {
			require.Positive(t, c.start("sleep", `{"ms":1}`))
		}
		require.Equal(t, abi.CallLimit, c.start("sleep", `{"ms":1}`))
		c.Close()
		require.False(t, c.Any())
	})
}

// TestCloseGivesBack: Close waits for everything that was started, and gives back all that
// was paid for it.
func TestCloseGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var causes []error // of operations that were abandoned
		hangs := func(ctx context.Context) (abi.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // as long as Close waits for it
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, context.Cause(ctx))
			return abi.Result{Kind: abi.CanceledKind}, ctx.Err()
		}
		c := newCall(t.Context(), t, &owner{await: hangs}, guestcall.Services{CallTool: func(ctx context.Context, tool guestcall.ToolCall) (abi.Result, error) {
			if tool.Tool == "a_slow" {
				return hangs(ctx)
			}
			return abi.Result{Kind: abi.Success, Value: []byte(`"` + strings.Repeat("x", 1<<12) + `"`)}, nil
		}})
		c.tool("a_slow")
		c.tool("a_apart")
		c.tool("a_quick")
		synctest.Wait()
		id, _, err := c.Next() // the detached call has begun now
		require.NoError(t, err)
		require.EqualValues(t, 3, id)
		response := c.buffers() // the call pays for it until it ends

		c.tool("a_quick") // the guest does not get its end
		c.tool("a_apart") // it does not begin
		synctest.Wait()
		require.Greater(t, c.buffers(), response+1<<12)
		c.Close()
		require.Equal(t, []error{wait.ErrWithdrawn, wait.ErrWithdrawn}, causes)
		require.False(t, c.Any())
		c.ops.Meter.Repay()
		require.Zero(t, c.buffers())
	})
}

// TestPanics: a panic of the caller's code ends the call, not the process, if it happens on
// a goroutine of the call. Close gives everything back after any panic.
func TestPanics(t *testing.T) {
	ask := `{"questions":{"name":{"message":"Who are you?","schema":{"type":"object"}}}}`
	for _, c := range []struct {
		name    string
		start   func(c *call)
		through bool // the panic is not recovered
	}{
		{"a tool", func(c *call) { c.tool("a_panic") }, false},
		{"Await", func(c *call) { c.tool("a_apart") }, false},
		{"Ask", func(c *call) { c.start("ask", ask) }, false},
		{"Keep", func(c *call) { c.tool("a_once") }, true},
	} {
		bubble(t, c.name, func(t *testing.T) {
			o := &owner{terms: wait.Terms{Asks: true}, await: func(context.Context) (abi.Result, error) { panic("oh") }}
			if c.through {
				o.keep = func(wait.SavedState) error { panic("oh") }
			}
			call := newCall(t.Context(), t, o, guestcall.Services{
				Ask:      func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, nil },
				CallTool: func(context.Context, guestcall.ToolCall) (abi.Result, error) { panic("oh") },
			})
			c.start(call)
			call.start("sleep", `{"ms":1000000}`)
			if c.through {
				require.PanicsWithValue(t, "oh", func() { _, _, _ = call.Next() })
			} else {
				_, _, err := call.Next()
				require.IsType(t, new(instance.Stop), err)
				require.EqualError(t, err, "a function of the caller panicked: oh")
			}
			call.Close()
			call.ops.Meter.Repay()
			require.Zero(t, call.buffers())
		})
	}
}

// TestSuspends: a call that waits long gives up its instance, and continues in another one
// from the state that its owner has kept.
func TestSuspends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{terms: wait.Terms{After: 10 * time.Second}}
		c := newCall(t.Context(), t, o, guestcall.Services{})
		c.elapsed, c.in.Env.Now = 5, 7
		c.ops.Answer.Result, c.ops.Said.Status = []byte("half"), "waits"
		c.start("sleep", `{"ms":60000}`)
		began := time.Now()
		_, _, err := c.Next()
		require.ErrorIs(t, err, wait.ErrSuspended)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, began.Add(time.Minute), o.kept[0].Until.Local())
		used := c.ops.Meter.Used()
		c.Close()
		require.Zero(t, c.buffers())

		time.Sleep(20 * time.Second)
		after := newCall(t.Context(), t, o, guestcall.Services{})
		st, err := after.Decode(o.last(t))
		require.NoError(t, err)
		require.NoError(t, after.Restore(st))
		require.Equal(t, []int64{5 + int64(20*time.Second), 7}, []int64{after.elapsed, after.in.Env.Now})
		require.Equal(t, []string{"half", "waits"}, []string{string(after.ops.Answer.Result), after.ops.Said.Status})
		require.GreaterOrEqual(t, after.ops.Meter.Used(), used)
		require.Equal(t, used, after.ops.Meter.Earlier)

		o.terms.After = time.Hour
		again := newCall(t.Context(), t, o, guestcall.Services{})
		require.NoError(t, again.Restore(st))
		id, code, err := again.Next()
		require.NoError(t, err)
		require.Equal(t, []int32{1, 2}, []int32{id, code})
		require.Equal(t, time.Minute, time.Since(began), "the time that has passed counts")
		after.Close()
	})
}

// TestStays: what keeps a waiting call in its instance. Its state is still stored now and
// then, unless no call can continue from it.
func TestStays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *call, o *owner)
		stored bool
	}{
		"an owner that is not live":   {func(_ *call, o *owner) { o.status = func() wait.Status { return wait.Status{} } }, false},
		"an instance with open files": {func(c *call, _ *owner) { c.bound = "it may have open files" }, false},
		"a tool in the host":          {func(c *call, _ *owner) { c.tool("a_tool") }, true},
		"an operation that is canceled, and not over": {func(c *call, _ *owner) {
			c.tool("a_tool")
			c.Cancel(2)
		}, true},
	} {
		bubble(t, name, func(t *testing.T) {
			o := new(owner)
			call := newCall(t.Context(), t, o, guestcall.Services{CallTool: func(context.Context, guestcall.ToolCall) (abi.Result, error) {
				time.Sleep(time.Hour)
				return abi.Result{}, nil
			}})
			call.start("sleep", `{"ms":60000}`)
			c.change(call, o)
			id, _, err := call.Next()
			require.NoError(t, err)
			require.EqualValues(t, 1, id)
			require.Equal(t, c.stored, len(o.kept) > 0)
			for _, k := range o.kept {
				require.True(t, k.Hold)
			}
			call.Close()
		})
	}
}

// TestSuspendsAtOnce: a call gives up its instance early if others need what it holds.
func TestSuspendsAtOnce(t *testing.T) {
	for name, change := range map[string]func(c *call, o *owner){
		"others wait for a slot": func(c *call, _ *owner) { c.contended = true },
		"the owner says so": func(_ *call, o *owner) {
			o.status = func() wait.Status { return wait.Status{Live: true, UnderPressure: true} }
		},
		"the memory is short": func(c *call, _ *owner) {
			require.NoError(t, c.ops.Meter.Payer.Take(instance.Buffers, 900<<10))
		},
	} {
		bubble(t, name, func(t *testing.T) {
			o := &owner{terms: wait.Terms{After: time.Minute}}
			c := newCall(t.Context(), t, o, guestcall.Services{})
			change(c, o)
			c.start("sleep", `{"ms":3600000}`)
			began := time.Now()
			_, _, err := c.Next()
			require.ErrorIs(t, err, wait.ErrSuspended)
			require.Zero(t, time.Since(began))
		})
	}
}

// TestRevived: a call is suspended once its owner allows it, at whatever moment that is.
func TestRevived(t *testing.T) {
	for asked := range 6 { // so often before it does
		bubble(t, fmt.Sprint(asked), func(t *testing.T) {
			var mu sync.Mutex
			revived, live, left := make(chan struct{}), false, asked
			revive := func() {
				mu.Lock()
				defer mu.Unlock()
				if !live {
					live = true
					close(revived)
				}
			}
			o := &owner{status: func() wait.Status {
				mu.Lock()
				status := wait.Status{Live: live, Revived: revived}
				left--
				last := left == 0
				mu.Unlock()
				if last {
					revive()
				}
				return status
			}}
			time.AfterFunc(time.Second, revive)
			c := newCall(t.Context(), t, o, guestcall.Services{})
			c.start("sleep", `{"ms":3600000}`)
			began := time.Now()
			_, _, err := c.Next()
			require.ErrorIs(t, err, wait.ErrSuspended)
			require.LessOrEqual(t, time.Since(began), time.Second)
		})
	}
}

// TestAtMostOnce: what the terms mean for the stored state.
func TestAtMostOnce(t *testing.T) {
	for name, c := range map[string]struct {
		owner              *owner
		act, forget, saved int // how often the state is removed
	}{
		"no owner":     {nil, 0, 0, 0},
		"at most once": {&owner{terms: wait.Terms{Restartable: true}}, 1, 1, 0},
		"repeated":     {&owner{terms: wait.Terms{Repeats: true, Restartable: true}}, 0, 1, 1},
	} {
		bubble(t, name, func(t *testing.T) {
			for _, do := range []struct {
				want int
				call func(c *call)
			}{
				{c.act, func(c *call) { c.Act() }},
				{c.forget, func(c *call) { c.Forget() }},
				{c.saved, func(c *call) { require.NoError(t, c.Saved()) }},
			} {
				call := continued(t, c.owner)
				for range 2 { // what is removed is not removed again
					do.call(call)
				}
				if c.owner != nil {
					require.Equal(t, do.want, c.owner.drops)
					c.owner.drops = 0
				}
				call.Close()
			}
		})
	}
}

// continued returns a call that has continued from a state.
func continued(t *testing.T, o *owner) *call {
	var all wait.Owner
	if o != nil {
		all = o
	}
	from := new(owner)
	c := newCall(t.Context(), t, from, guestcall.Services{})
	c.start("sleep", `{"ms":1}`)
	_, _, err := c.Next()
	require.ErrorIs(t, err, wait.ErrSuspended)

	after := newCall(t.Context(), t, all, guestcall.Services{})
	st, err := after.Decode(from.last(t))
	require.NoError(t, err)
	require.NoError(t, after.Restore(st))
	return after
}

// TestDropFails: an operation that no state records does not begin while there is a state.
func TestDropFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{fails: errors.New("the disk is full")}
		c := continued(t, o)
		_, err := instance.Catch(func() int32 { c.Act(); return 0 })
		require.EqualError(t, err, "removing the state of the call: the disk is full")
		c.Close()

		o.terms.Restartable = true
		c = newCall(t.Context(), t, o, guestcall.Services{})
		c.bound = "it may have open files"
		require.EqualError(t, c.Arrive(), "removing the state of the call: the disk is full")
	})
}

// TestNameOfAState: a state continues only the call that it is of.
func TestNameOfAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{status: func() wait.Status { return wait.Status{Live: true, Name: "run-1"} }}
		c := newCall(t.Context(), t, o, guestcall.Services{})
		c.start("sleep", `{"ms":1}`)
		_, _, err := c.Next()
		require.ErrorIs(t, err, wait.ErrSuspended)
		_, err = c.Decode(o.last(t))
		require.NoError(t, err)

		o.status = nil
		_, err = c.Decode(o.last(t))
		require.ErrorIs(t, err, wait.ErrState)
		require.ErrorContains(t, err, "its state is that of another call")
	})
}
