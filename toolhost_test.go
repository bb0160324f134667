package toolhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server"
)

func TestMain(m *testing.M) {
	toolhost.Main()
	os.Exit(m.Run())
}

// A whole loop. The model is a script here: it spawns a tool, waits, and reads what came of it.
func Example() {
	ctx := context.Background()
	th, err := toolhost.Open(ctx, toolhost.Config{Tools: []toolhost.Tool{greeter}}) // and Plugins, Data, Grants
	if err != nil {
		log.Fatal(err)
	}
	defer th.Close(ctx)
	s := th.Session("session-1")

	for more := true; more; {
		ended, shown, err := s.Ended(ctx)
		if err != nil {
			log.Fatal(err)
		}
		name, input := model(ended, s.Tools().Anthropic())
		if err := shown(ctx); err != nil {
			log.Fatal(err)
		}

		if name != "" {
			result, err := s.Call(ctx, name, input)
			if err != nil {
				log.Print(err) // for the operator
			}
			fmt.Println(name, result.Kind) // result.Text() is for the model
		} else if more, err = s.Wait(ctx); err != nil {
			log.Fatal(err)
		}
	}

	// Output:
	// 4 tools
	// spawn_background success
	// the model waits
	// the model reads that Ana was greeted
}

var turn int

// model stands for one.
func model(ended string, tools []json.RawMessage) (name string, input json.RawMessage) {
	switch turn++; turn {
	case 1:
		fmt.Println(len(tools), "tools")
		return "spawn_background", []byte(`{"tool":"greet","args":{"name":"Ana"}}`)
	case 2:
		fmt.Println("the model waits")
	default:
		if strings.Contains(ended, "Hello, Ana") {
			fmt.Println("the model reads that Ana was greeted")
		}
	}
	return "", nil
}

type person struct {
	Name string `json:"name" desc:"Whom to greet"`
}

var greeter = toolhost.Tool{
	Name: "greet", Description: "Greets somebody.", Hints: toolhost.Hints{SupportsBackground: true, Readonly: true},
	Handler: toolhost.Handle(func(ctx context.Context, _ *toolhost.ToolCall, in person) (string, error) {
		select {
		case <-time.After(time.Second):
			return "Hello, " + in.Name, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}),
}

// A folder of plugins and one for data are all that is needed.
func TestPlugins(t *testing.T) {
	folder, data := t.TempDir(), t.TempDir()
	plugin := plugintest.Plugin{Manifest: plugintest.Manifest("echo"), Invoke: plugintest.Do().Echo()}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "echo.wasm"), plugin.Wasm(), 0o600))
	cfg := toolhost.Config{Plugins: []string{folder, filepath.Join(folder, "missing")}, Data: data}
	th, err := toolhost.Open(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, th.Close(context.Background())) }()
	require.Len(t, th.Problems(), 1)
	_, err = toolhost.Open(t.Context(), cfg)
	require.ErrorIs(t, err, server.ErrLocked)

	s := th.Session("s")
	require.Equal(t, "echo", s.Tools()[0].Name)
	for _, shape := range [][]json.RawMessage{s.Tools().Anthropic(), s.Tools().OpenAI(), s.Tools().OpenAIResponses(), s.Tools().Gemini(), s.Tools().MCP()} {
		require.Len(t, shape, len(s.Tools()))
		require.Contains(t, string(shape[0]), `"echo"`)
	}

	r, err := s.Call(t.Context(), "echo", []byte(`{"x":1}`))
	require.NoError(t, err)
	require.Equal(t, `{"x":1}`, r.Text())
	r, err = s.Call(t.Context(), "nothing", nil)
	require.Error(t, err)
	require.Equal(t, r.Error, r.Text())
	require.FileExists(t, filepath.Join(data, "runs", "state.db"))
	require.DirExists(t, filepath.Join(data, "cache"))
}

func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := opened(t, toolhost.Config{Server: func(c *server.Config) { c.MaxLimits.Timeout = 10 * time.Second }})
		s := th.Session("s")
		args := json.RawMessage(`{"name":"Ana"}`)
		_, err := s.Call(t.Context(), "greet", args, toolhost.WithLimits(toolhost.Limits{Timeout: time.Millisecond}))
		require.ErrorIs(t, err, context.DeadlineExceeded)

		for _, takes := range []time.Duration{time.Second, 0} {
			began := time.Now()
			r, err := s.Call(t.Context(), "greet", args, toolhost.WithKey("k"))
			require.NoError(t, err)
			require.Equal(t, `"Hello, Ana"`, r.Text())
			require.Equal(t, takes, time.Since(began))
		}
		runs, err := s.Runs(t.Context(), server.RunQuery{})
		require.NoError(t, err)
		require.Len(t, runs, 1, "one call")
	})
}

// Wait returns when a run has ended, when none will, and when its context ends.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := opened(t, toolhost.Config{})
		s := th.Session("s")
		more, err := s.Wait(t.Context())
		require.NoError(t, err)
		require.False(t, more, "nothing runs")

		spawn := func(silent bool) {
			_, err := s.Spawn(t.Context(), server.SpawnRequest{Tool: "greet", Args: []byte(`{"name":"Ana"}`), Silent: silent})
			require.NoError(t, err)
		}
		spawn(true)
		more, err = s.Wait(t.Context())
		require.NoError(t, err)
		require.False(t, more, "nobody is told of a silent one")

		spawn(false)
		began := time.Now()
		more, err = s.Wait(t.Context())
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, time.Second, time.Since(began))
		for range 2 { // it is shown once that has been confirmed
			text, _, err := s.Ended(t.Context())
			require.NoError(t, err)
			require.Contains(t, text, "Hello, Ana")
		}
		for _, name := range []string{"other", ""} {
			runs, err := th.Session(name).Runs(t.Context(), server.RunQuery{})
			require.NoError(t, err)
			require.Empty(t, runs, "%q", name)
		}
		other, _, err := th.Session("other").Ended(t.Context())
		require.NoError(t, err)
		require.Empty(t, other)
		_, shown, err := s.Ended(t.Context())
		require.NoError(t, err)
		require.NoError(t, shown(t.Context()))
		text, shown, err := s.Ended(t.Context())
		require.NoError(t, err)
		require.Empty(t, text)
		require.NoError(t, shown(t.Context()))

		spawn(false)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone already"))
		_, err = s.Wait(ctx)
		require.EqualError(t, err, "gone already")
		gone := errors.New("gone")
		ctx, cancel = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(gone) })
		_, err = s.Wait(ctx)
		require.ErrorIs(t, err, gone)
	})
}

// Wait ends with the service, whatever runs.
func TestWaitEndsWithService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th, err := toolhost.Open(t.Context(), toolhost.Config{Tools: []toolhost.Tool{{
			Name: "never", Description: "Does not end.", Hints: toolhost.Hints{SupportsBackground: true, Readonly: true},
			Handler: toolhost.Handle(func(ctx context.Context, _ *toolhost.ToolCall, _ struct{}) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}),
		}}})
		require.NoError(t, err)
		s := th.Session("s")
		_, err = s.Spawn(t.Context(), server.SpawnRequest{Tool: "never"})
		require.NoError(t, err)
		closed := make(chan struct{})
		time.AfterFunc(time.Minute, func() {
			defer close(closed)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = th.Close(ctx)
		})
		_, err = s.Wait(t.Context())
		require.ErrorIs(t, err, host.ErrClosed)
		_, err = s.Wait(t.Context())
		require.ErrorIs(t, err, host.ErrClosed)
		<-closed
	})
}

// Wait ends when the ends of runs cannot be stored any more.
func TestWaitWithoutStorage(t *testing.T) {
	data := t.TempDir()
	th := opened(t, toolhost.Config{Data: data})
	s := th.Session("s")
	_, err := s.Spawn(t.Context(), server.SpawnRequest{Tool: "greet", Args: []byte(`{"name":"Ana"}`)})
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(data, "runs", "state.db")))
	_, err = s.Wait(t.Context())
	require.Error(t, err)
	require.ErrorIs(t, err, th.StorageErr())
}

func opened(t *testing.T, cfg toolhost.Config) *toolhost.Service {
	cfg.Tools = append(cfg.Tools, greeter)
	th, err := toolhost.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, th.Close(context.Background())) })
	return th
}
