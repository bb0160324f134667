package mcpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n"

// message holds the parts of a server's message that the tests look at.
type message struct {
	ID     json.RawMessage
	Params struct {
		ProgressToken json.RawMessage
		Progress      float64
		Total         float64
		Message       string
	}
	Result struct {
		Content []struct{ Text string }
		Tools   []struct{ Name string }
		IsError bool
	}
	Error *struct{ Message string }
}

func (c *client) next() message {
	c.t.Helper()
	var m message
	require.NoError(c.t, json.Unmarshal(c.receive(1), &m))
	return m
}

// call sends a call with its id as the progress token too.
func (c *client) call(id int, tool, args string) {
	c.t.Helper()
	c.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":%d}}}`+"\n", id, tool, args, id))
}

// startSpinning has a call of spin run, with id 1.
func startSpinning(t *testing.T, c *client) {
	t.Helper()
	c.sendEach([]byte(initialize))
	c.call(1, "spin", "{}")
	require.Equal(t, "spinning", c.next().Params.Message)
}

func TestRunEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(c *client)
		want error
	}{
		{"at the end of input", func(c *client) { c.in.Close() }, nil},
		{"when its context does", func(c *client) { c.cancel(errEnough) }, errEnough},
		{"when nobody reads", func(c *client) {
			c.out.Close()
			c.send([]byte(`{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n"))
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, openService(t, "spin"))
				startSpinning(t, c)
				test.end(c)
				rest, err := c.wait()
				require.ErrorIs(t, err, test.want)
				require.Empty(t, rest)
			})
		})
	}
}

var errEnough = errors.New("enough")

// A call that continues in the background returns a result, not an error, and does
// not violate the schema that was announced for its tool.
func TestParkedCall(t *testing.T) {
	cfg := serviceConfig("spin", "primes")
	cfg.ParkAfter = time.Millisecond
	c := connect(t, open(t, cfg))
	c.sendEach([]byte(initialize))
	c.send([]byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"spin","arguments":{}}}` + "\n"))
	m := c.next()
	require.False(t, m.Result.IsError)
	require.Len(t, m.Result.Content, 1)
	require.Contains(t, m.Result.Content[0].Text, `{"type":"background","task_id":"TASK-1","background_id":"TASK-1","tool":"spin"`)
	c.send([]byte(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"stop_background","arguments":{"task_id":"TASK-1","force":true}}}` + "\n"))
	c.receive(1) // stopping, if this machine is very slow
	c.send([]byte(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"check_background","arguments":{"task_id":"TASK-1","wait_seconds":540}}}` + "\n"))
	require.Contains(t, c.next().Result.Content[0].Text, `"status":"canceled"`)

	c.send([]byte(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"primes","arguments":{"limit":1000000000}}}` + "\n"))
	m = c.next()
	require.True(t, m.Result.IsError, "a result that does not fit the schema would be refused")
	require.Contains(t, m.Result.Content[0].Text, "primes is run TASK-2. Still running after ")
	c.call(6, "stop_background", `{"task_id":"TASK-2","force":true}`)
	c.receive(1)
}

// A tool with a schema of its result says that its call waits for approval.
func TestHeldCall(t *testing.T) {
	cfg := serviceConfig("primes")
	cfg.Approve, cfg.Approvals = nil, server.ApprovalPolicy{Ask: true, Tools: map[string]server.Decision{"primes": server.DecideAsk}}
	c := connect(t, open(t, cfg))
	c.sendEach([]byte(initialize))
	c.send([]byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"primes","arguments":{"limit":10}}}` + "\n"))
	m := c.next()
	require.True(t, m.Result.IsError, "a result that does not fit the schema would be refused")
	require.Contains(t, m.Result.Content[0].Text, "primes is run TASK-1. It waits until a person approves it (for an operator: toolhost approve TASK-1), and then runs in the background: ")
	c.call(3, "stop_background", `{"task_id":"TASK-1","force":true}`)
	c.receive(1)
}

// callOf is a request of a client that begins with it.
func callOf(tool string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"name":"` + tool + `","arguments":{}}}` + "\n"
}

// A client that closes its end gets the responses that it waits for, and none that comes
// after it has asked for the end of the process.
func TestEndOfInput(t *testing.T) {
	for name, test := range map[string]struct {
		tool      string
		signaled  time.Duration // 0: never
		ended     time.Duration
		err       string
		responses int
	}{
		"a call ends":       {"sleeper", 0, 10 * time.Second, "", 1},
		"it takes too long": {"forever", 0, 30 * time.Second, "MCP session: canceled what was still running 30s after the input had ended", 0},
		"a signal":          {"forever", 2 * time.Second, 2 * time.Second, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, zooConfig(server.Config{}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.signaled > 0 {
					time.AfterFunc(test.signaled, cancel)
				}
				began := time.Now()
				var out bytes.Buffer
				err := mcpapi.Run(ctx, s, mcpapi.Config{In: strings.NewReader(callOf(test.tool)), Out: &out})
				if test.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, test.err)
				}
				require.Equal(t, test.ended, time.Since(began))
				require.Equal(t, test.responses, strings.Count(out.String(), "\n"), out.String())
			})
		})
	}
}

// A response that cannot be written is an error, whether the client has closed its end or
// not.
func TestOutputFails(t *testing.T) {
	for name, in := range map[string]func() io.Reader{
		"closed input": func() io.Reader { return strings.NewReader(callOf("echo")) },
		"open input": func() io.Reader {
			in, client := io.Pipe()
			go func() { _, _ = io.WriteString(client, callOf("echo")) }()
			return in
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, zooConfig(server.Config{}))
				err := mcpapi.Run(t.Context(), s, mcpapi.Config{In: in(), Out: fullDisk{}})
				require.ErrorIs(t, err, syscall.ENOSPC)
			})
		})
	}
}

// fullDisk is a stream to which every write fails.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A client that repeats a call in a session of its own, after the first one was stopped
// without a response, learns that at once.
func TestRepeatAfterAStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var letters atomic.Int32
		s := open(t, sender(&letters))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		for _, ctx := range []context.Context{ctx, t.Context()} {
			began := time.Now()
			var out bytes.Buffer
			require.NoError(t, mcpapi.Run(ctx, s, mcpapi.Config{Session: "ana", In: strings.NewReader(callOf("send")), Out: &out}))
			require.Less(t, time.Since(began), time.Minute)
			t.Log(time.Since(began), out.String())
		}
	})
}

// A client that neither reads nor leaves cannot hold the process.
func TestRunGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, clientOut := io.Pipe()
		clientIn, out := io.Pipe()
		ended := make(chan error, 1)
		s := openService(t)
		go func() { ended <- mcpapi.Run(ctx, s, mcpapi.Config{In: in, Out: out}.WithoutDrain()) }()
		_, err := clientOut.Write([]byte(initialize))
		require.NoError(t, err)
		synctest.Wait() // the answer is being written
		cancel()
		require.ErrorIs(t, <-ended, mcpapi.ErrStuck)
		require.NoError(t, clientIn.Close()) // what was left behind ends with the streams
	})
}

// A call in which nothing happens is kept alive, and its silence afterwards is
// real.
func TestHeartbeatsOverTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		cfg := serviceConfig("probe")
		cfg.Approve = func(ctx context.Context, a server.Approval) error {
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		c := connect(t, open(t, cfg))
		c.sendEach([]byte(initialize))
		c.call(1, "probe_ask", `{"text":"thank you"}`)
		last := -1.0
		for i := range 10 {
			m := c.next()
			require.Equal(t, fmt.Sprintf("running for %s", time.Duration(i+1)*10*time.Second), m.Params.Message)
			require.Equal(t, "1", string(m.Params.ProgressToken))
			require.Greater(t, m.Params.Progress, last)
			last = m.Params.Progress
		}
		answer <- nil
		require.Equal(t, "thank you", c.next().Result.Content[0].Text)
		time.Sleep(time.Hour)

		c.call(2, "probe_ask", `{"text":"never"}`)
		answer <- errors.New("the user is asleep")
		m := c.next()
		require.True(t, m.Result.IsError)
		require.Contains(t, m.Result.Content[0].Text, "the user is asleep")

		c.call(3, "probe_ask", `{"text":"never"}`)
		c.send([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}` + "\n"))
		time.Sleep(time.Hour)
		require.NoError(t, c.in.Close())
		rest, err := c.wait()
		require.NoError(t, err)
		require.Empty(t, rest)
	})
}

// Many calls at once are answered right and none waits for another, though
// some of them never end.
func TestCallsRunConcurrently(t *testing.T) {
	s := openService(t, "wordcount", "primes", "spin", "probe")
	c := connect(t, s)
	c.sendEach([]byte(initialize))
	const n = 60
	spinning, want := 0, map[string]string{}
	for id := 1; id <= n; id++ {
		switch id % 4 {
		case 0:
			c.call(id, "wordcount", fmt.Sprintf(`{"text":%q}`, strings.Repeat("a ", id)))
			want[fmt.Sprint(id)] = fmt.Sprintf(`{"lines":1,"words":%d,"characters":%d,"bytes":%d}`, id, 2*id, 2*id)
		case 1:
			c.call(id, "primes", `{"limit":100}`)
			want[fmt.Sprint(id)] = `{"limit":100,"count":25,"largest":97}`
		case 2:
			c.call(id, "probe_refuse", fmt.Sprintf(`{"text":"not %d"}`, id))
			want[fmt.Sprint(id)] = fmt.Sprintf("not %d", id)
		case 3:
			if spinning < 2 {
				spinning++
				c.call(id, "spin", "{}")
			}
		}
	}
	for len(want) > 0 {
		m := c.next()
		if m.ID == nil {
			continue // progress
		}
		require.Equal(t, want[string(m.ID)], m.Result.Content[0].Text)
		delete(want, string(m.ID))
	}
	require.NoError(t, c.in.Close())
	_, err := c.wait()
	require.NoError(t, err)
}

// The progress of a real tool: always more, never too often, and none after
// the answer. How much of it a call of less than a second tells is the machine's.
func TestProgressOfATool(t *testing.T) {
	c := connect(t, openService(t, "primes"))
	c.sendEach([]byte(initialize))
	start := time.Now()
	c.call(1, "primes", `{"limit":20000000}`)
	last, notices := -1.0, 0
	progress := func(m message, total float64) {
		require.Greater(t, m.Params.Progress, last)
		require.Contains(t, []float64{0, total}, m.Params.Total, "unknown at first")
		require.Regexp(t, "primes|sieving", m.Params.Message)
		last = m.Params.Progress
		notices++
	}
	for {
		m := c.next()
		if m.ID != nil {
			require.Equal(t, `{"limit":20000000,"count":1270607,"largest":19999999}`, m.Result.Content[0].Text)
			break
		}
		progress(m, 20000001)
	}
	require.LessOrEqual(t, notices, int(time.Since(start)/(250*time.Millisecond))+2, "one more for the end")

	c.call(2, "primes", `{"limit":1000000000}`)
	last = -1
	for range 2 {
		progress(c.next(), 1000000001)
	}
	require.NoError(t, c.in.Close())
	_, err := c.wait()
	require.NoError(t, err)
}

// Two sessions on one service do not see each other's runs.
func TestSessionsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openService(t, "primes")
		one, two := connect(t, s), connectWith(t, s, mcpapi.Config{Session: "two"})
		one.sendEach([]byte(initialize))
		two.sendEach([]byte(initialize))
		one.call(1, "spawn_background", `{"tool":"primes","args":{"limit":10}}`)
		require.Contains(t, one.next().Result.Content[0].Text, "TASK-1")
		one.call(2, "check_background", `{"task_id":"TASK-1"}`)
		require.Contains(t, one.next().Result.Content[0].Text, `"status":"succeeded"`)
		two.tasks = one.tasks
		two.call(2, "check_background", `{"task_id":"TASK-1"}`)
		m := two.next()
		require.True(t, m.Result.IsError)
		require.Contains(t, m.Result.Content[0].Text, "no such background task in this session")
	})
}

// A tool whose schema MCP does not allow is left out, and the others are there.
func TestToolsMCPDoesNotAllow(t *testing.T) {
	folder := t.TempDir()
	wasm, err := os.ReadFile(filepath.Join(built, "probe", "probe.wasm"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "probe.wasm"), wasm, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "probe.toolhost.json"), []byte(`{
		"abi": "toolhost_v1", "name": "probe", "version": "1.0.0", "description": "Two tools.", "tools": [
			{"name": "say", "description": "Fine.", "input_schema": {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}},
			{"name": "both", "description": "Not fine.", "input_schema": {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "no name"}}}}
		]}`), 0o600))
	synctest.Test(t, func(t *testing.T) {
		cfg := serviceConfig()
		cfg.Folders = []plugins.Folder{plugins.Dir(folder)}
		var log bytes.Buffer
		c := connectWith(t, open(t, cfg), mcpapi.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		c.sendEach([]byte(initialize))
		c.send([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"))
		tools := c.next().Result.Tools
		require.Len(t, tools, 1)
		require.Equal(t, "probe_say", tools[0].Name)
		c.call(2, "probe_say", `{"text":"hello"}`)
		require.Equal(t, "hello", c.next().Result.Content[0].Text)
		c.call(3, "probe_both", `{"text":"hello"}`)
		require.Equal(t, `unknown tool "probe_both"`, c.next().Error.Message)
		require.NoError(t, c.in.Close())
		_, err := c.wait()
		require.NoError(t, err)
		require.Contains(t, log.String(), "x-mcp-header value")
	})
}

// The operator learns what broke; the model sees only that something did.
func TestInternalDetailsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		cfg := serviceConfig("probe")
		cfg.Logger = logger
		c := connectWith(t, open(t, cfg), mcpapi.Config{Logger: logger})
		c.sendEach([]byte(initialize))
		c.call(1, "probe_crash", "{}")
		m := c.next()
		require.True(t, m.Result.IsError)
		require.Len(t, m.Result.Content, 1)
		require.Equal(t, "An internal error occurred while executing the tool", m.Result.Content[0].Text)
		require.NoError(t, c.in.Close())
		_, err := c.wait()
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(log.String(), "error=\"the plugin crashed"), "%s", log.String())
		require.NotContains(t, log.String(), "the call had no result")
		require.Contains(t, log.String(), "session=default")
		require.Contains(t, log.String(), "a secret detail")
	})
}
