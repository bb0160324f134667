package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

// during runs f as the only tool of a plugin and returns the outcome.
func during(h guesttest.Host, f func(c *guest.Call) error) guesttest.Outcome {
	p := pluginOf(func(c *guest.Call, _ struct{}) (guest.None, error) { return guest.None{}, f(c) })
	return h.Call(p, "t", struct{}{})
}

func TestErrors(t *testing.T) {
	connect := guest.ConnectionRequired(guest.Connection{Provider: "github", SetupURL: "https://example.com"})
	for name, c := range map[string]struct {
		err  error
		want abi.Result
	}{
		"own":        {guest.Errorf("no city %q", "x"), abi.Result{Kind: abi.ToolError, Error: `no city "x"`}},
		"other":      {errors.New("other"), abi.Result{Kind: abi.ToolError, Error: "other"}},
		"connection": {connect, abi.Result{Kind: abi.ConnectionRequired, Error: "connect github first", Connection: &abi.Connection{Provider: "github", SetupURL: "https://example.com"}}},
		"wrapped":    {fmt.Errorf("list: %w", connect), abi.Result{Kind: abi.ConnectionRequired, Error: "connect github first", Connection: &abi.Connection{Provider: "github", SetupURL: "https://example.com"}}},
		"silent":     {errors.New(""), abi.Result{Kind: abi.ToolError, Error: "the tool reported an error without a message"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, during(guesttest.Host{}, func(*guest.Call) error { return c.err }).Result)
		})
	}
}

func TestPanic(t *testing.T) {
	out := during(guesttest.Host{}, func(*guest.Call) error { panic(errors.New("broken")) })
	require.Equal(t, abi.Internal, out.Kind)
	require.Equal(t, "broken", out.Error)
	require.Len(t, out.Logs, 1)
	require.Equal(t, "error", out.Logs[0].Level)
	require.Contains(t, out.Logs[0].Message, "TestPanic", "the stack names the culprit")
}

// All that a tool tells the host also tells it to stop, and it may write its
// last words.
func TestStopping(t *testing.T) {
	out := during(guesttest.Host{StopAfter: 2}, func(c *guest.Call) error {
		require.NoError(t, c.Progress(1, 2, ""))
		require.NoError(t, c.Err())
		require.ErrorIs(t, c.Progress(2, 2, ""), guest.ErrCanceled)
		require.ErrorIs(t, c.Err(), guest.ErrCanceled)
		n, err := c.Output().Write([]byte("last words"))
		require.Equal(t, 10, n)
		require.ErrorIs(t, err, guest.ErrCanceled)
		require.ErrorIs(t, c.Content(guest.TextBlock("x")), guest.ErrCanceled)
		require.ErrorIs(t, c.Sleep(time.Second), guest.ErrCanceled)
		require.ErrorIs(t, c.Sleep(0), guest.ErrCanceled)

		return c.Err()
	})
	require.Equal(t, abi.Result{Kind: abi.ToolError, Error: "canceled", Content: []abi.Block{guest.TextBlock("x")}}, out.Result)
	require.Equal(t, "last words", out.Stdout)
}

func TestRefused(t *testing.T) {
	during(guesttest.Host{}, func(c *guest.Call) error {
		err := c.Content(guest.Block{Type: "video"})
		require.ErrorIs(t, err, guest.ErrRefused)
		require.EqualError(t, err, `refused by the host: invalid content block: unknown type "video", expected text, image, audio, resource or resource_link`)
		require.EqualError(t, c.Write(6, nil), "stream 6 refused by the host")
		require.EqualError(t, c.Progress(-1, 0, ""), "progress refused by the host")
		return nil
	})
}

func TestSleep(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "", 0: "", 1: `{"ms":1}`, time.Millisecond: `{"ms":1}`, time.Millisecond + 1: `{"ms":2}`, time.Minute: `{"ms":60000}`,
	} {
		asked := ""
		h := guesttest.Host{Capabilities: map[string]func(json.RawMessage) (any, error){
			"sleep": func(request json.RawMessage) (any, error) { asked = string(request); return nil, nil },
		}}
		during(h, func(c *guest.Call) error {
			require.NoError(t, c.Sleep(d))
			return nil
		})
		require.Equal(t, want, asked, d)
	}
}

func TestHostErrors(t *testing.T) {
	out := during(guesttest.Host{Capabilities: map[string]func(json.RawMessage) (any, error){"kv.get": nil}}, func(c *guest.Call) error {
		require.ErrorIs(t, c.Host("kv.get", struct{}{}, nil), guest.ErrDenied)
		err := c.Host("kv.got", struct{}{}, nil)
		require.ErrorIs(t, err, guest.ErrUnknown)
		require.NotErrorIs(t, err, guest.ErrDenied)
		require.Error(t, c.Host("kv.get", make(chan int), nil))
		return err
	})
	require.Equal(t, "kv.got: unknown: this host has no such capability", out.Error)
}

func TestCheckpoint(t *testing.T) {
	var kept []byte
	h := guesttest.Host{Checkpoint: &kept}
	during(h, func(c *guest.Call) error {
		data, err := c.LoadCheckpoint()
		require.NoError(t, err)
		require.Nil(t, data)
		require.NoError(t, c.SaveCheckpoint([]byte("half-way")))
		return nil
	})
	require.Equal(t, "half-way", string(kept))
	during(h, func(c *guest.Call) error {
		data, err := c.LoadCheckpoint()
		require.NoError(t, err)
		require.Equal(t, "half-way", string(data))
		require.ErrorIs(t, c.Host("checkpoint.drop", struct{}{}, nil), guest.ErrUnknown)
		return nil
	})
	asked := ""
	h.Capabilities = map[string]func(json.RawMessage) (any, error){
		"checkpoint.save": func(request json.RawMessage) (any, error) { asked = string(request); return nil, nil },
	}
	during(h, func(c *guest.Call) error { return c.SaveCheckpoint([]byte("half-way")) })
	require.JSONEq(t, `{"data":"aGFsZi13YXk="}`, asked)
}

// A call that is waited for has no checkpoints, and a tool need not know.
func TestCheckpointDenied(t *testing.T) {
	h := guesttest.Host{}
	during(h, func(c *guest.Call) error {
		require.NoError(t, c.SaveCheckpoint([]byte("half-way")))
		data, err := c.LoadCheckpoint()
		require.NoError(t, err)
		require.Nil(t, data)
		return nil
	})
	h.Capabilities = map[string]func(json.RawMessage) (any, error){
		"checkpoint.save": func(json.RawMessage) (any, error) { return nil, errors.New("no disk") },
	}
	during(h, func(c *guest.Call) error {
		require.EqualError(t, c.SaveCheckpoint([]byte("half-way")), "checkpoint.save: failed: no disk")
		return nil
	})
}

func TestLog(t *testing.T) {
	out := during(guesttest.Host{}, func(c *guest.Call) error {
		c.Log().Info("plain")
		c.Log().Info("pairs", "n", 1, "text", "a b", "empty", "", "err", errors.New(`say "x"`))
		c.Log().Info("odd", 7, "last")
		return nil
	})
	require.Equal(t, []guesttest.Log{
		{Level: "info", Message: "plain"},
		{Level: "info", Message: `pairs n=1 text="a b" empty="" err="say \"x\""`},
		{Level: "info", Message: "odd !BADKEY=7 !BADKEY=last"},
	}, out.Logs)
}

func TestFacts(t *testing.T) {
	facts := guest.Facts{CallID: "c-1", Session: "s", Attempt: 2, TimeoutMS: 1000, Fuel: 5, Config: map[string]string{"a": "b"}}
	out := during(guesttest.Host{Facts: facts, Script: []byte("x = 1")}, func(c *guest.Call) error {
		require.Equal(t, facts, c.Facts())
		require.Equal(t, "t", c.Tool())
		require.Equal(t, "b", c.Config("a"))
		require.Empty(t, c.Config("c"))
		require.Equal(t, "x = 1", string(c.Script()))
		return nil
	})
	require.True(t, out.IsSuccess())
}

// A call may be used by all goroutines of a tool, and each gets the response
// of its own host call.
func TestGoroutines(t *testing.T) {
	h := guesttest.Host{Capabilities: map[string]func(json.RawMessage) (any, error){
		"same": func(request json.RawMessage) (any, error) { return request, nil },
	}}
	out := during(h, func(c *guest.Call) error {
		results := make(chan error)
		for i := range 20 {
			go func() {
				var got int
				err := c.Host("same", i, &got)
				if err == nil && got != i {
					err = fmt.Errorf("expected %d, found %d", i, got)
				}
				_ = c.Progress(float64(i), 20, "")
				fmt.Fprintln(c.Output(), i)
				results <- err
			}()
		}

		var all error
		for range 20 {
			all = errors.Join(all, <-results)
		}
		return all
	})
	require.True(t, out.IsSuccess(), out)
	require.Len(t, out.Progress, 20)
}

// TestGoroutinesWait: operations of several goroutines are pending at a time.
func TestGoroutinesWait(t *testing.T) {
	const goroutines = 5
	var begun sync.WaitGroup
	begun.Add(goroutines)
	h := guesttest.Host{Tools: map[string]func(json.RawMessage) (any, error){
		"other": func(args json.RawMessage) (any, error) {
			begun.Done()
			begun.Wait()
			return args, nil
		},
	}}
	out := during(h, func(c *guest.Call) error {
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				var got struct{ N int }
				assert.NoError(t, c.CallTool("other", map[string]int{"n": i}, &got))
				assert.Equal(t, i, got.N)
			})
		}
		all.Wait()
		return nil
	})
	require.True(t, out.IsSuccess(), out)
}

// canceling is a host whose operations end when they are canceled.
type canceling struct{ deaf }

func (canceling) Await(done <-chan struct{}, _ string, _ []byte) (int32, []byte) {
	<-done
	return abi.CallCanceled, []byte(`{"code":"canceled","message":"the operation was canceled"}`)
}

// TestHostContext: an operation ends with its context, which is no stop of the call.
func TestHostContext(t *testing.T) {
	var ended, before, stopped error
	p := pluginOf(func(c *guest.Call, _ struct{}) (guest.None, error) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(0, cancel)
		ended = c.HostContext(ctx, "sleep", struct{}{}, nil)
		before = c.HostContext(ctx, "report", struct{}{}, nil)
		stopped = c.Err()
		return guest.None{}, nil
	})
	p.Invoke(named{canceling{}})
	require.Equal(t, context.Canceled, ended)
	require.Equal(t, context.Canceled, before)
	require.NoError(t, stopped)
}

// named calls the first tool of a plugin.
type named struct{ canceling }

func (named) Read(f abi.Field, into []byte) int32 {
	switch f {
	case abi.FieldTool:
		return int32(copy(into, "t"))
	case abi.FieldArgs:
		return int32(copy(into, "{}"))
	}
	return abi.Absent
}

// deaf is a host that breaks the contract in each way a host could.
type deaf struct{ code int32 }

func (deaf) Read(abi.Field, []byte) int32              { return abi.Absent }
func (d deaf) Write(abi.Stream, []byte) int32          { return d.code }
func (d deaf) Progress(float64, float64, string) int32 { return d.code }
func (d deaf) Call(string, []byte) int32               { return d.code }

func TestOddHosts(t *testing.T) {
	p := pluginOf(func(c *guest.Call, _ struct{}) (guest.None, error) { return guest.None{}, nil })
	require.Equal(t, abi.InvokePanic, p.Invoke(deaf{}), "no tool name")
	require.Equal(t, abi.InvokeOK, p.Describe(deaf{-99}), "a manifest that is refused is the host's business")
	p.Tools[0].Handler = guest.Handler{}
	require.Equal(t, abi.InvokeToolError, p.Describe(deaf{}))
}
