package mcpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// said is a message of the server.
type said struct {
	ID     any
	Method string
	Params struct {
		Meta    map[string]any `json:"_meta"`
		Message string
	}
	Result map[string]any
	Error  map[string]any
}

func (c *client) said() (m said) {
	c.t.Helper()
	require.NoError(c.t, json.Unmarshal(c.receive(1), &m))
	return m
}

func (c *client) sendf(format string, args ...any) {
	c.t.Helper()
	c.send(fmt.Appendf(nil, format+"\n", args...))
}

const handshake = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`

// A user is asked in the way of each call's era, on one pipe, and the answer comes to the
// call that waits for it. Clients are not pinged during that time, whatever the embedding
// program has set.
func TestBothErasAsk(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"test_input_required_result_multi_round","arguments":{}%s}}`
	const modern = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
	bubble(t, func(t *testing.T) {
		extend := mcpapi.Extend{Options: func(o *mcp.ServerOptions) { o.KeepAlive = time.Second }}
		c := connectWith(t, open(t, askers()), mcpapi.Config{Extend: extend})
		asks := func(id int) (state string) {
			c.sendf(call, id, modern)
			m := c.said()
			require.EqualValues(t, id, m.ID)
			require.Equal(t, "input_required", m.Result["resultType"])
			return m.Result["requestState"].(string)
		}
		asks(1)
		c.sendf(handshake)
		require.Equal(t, "hello", c.said().ID)
		c.sendf(call, 2, "")
		asked := c.said()
		require.Equal(t, "elicitation/create", asked.Method)
		require.Contains(t, asked.Params.Message, "Step 1")
		state := asks(3)
		c.sendf(call, 4, modern+with("step1", `{"name":"Bo"}`, state))
		require.Contains(t, c.said().Result["inputRequests"], "step2")
		time.Sleep(time.Minute)
		for _, answer := range []string{`{"name":"Ana"}`, `{"color":"red"}`} {
			c.sendf(`{"jsonrpc":"2.0","id":%v,"result":{"action":"accept","content":%s}}`, asked.ID, answer)
			asked = c.said()
		}
		require.EqualValues(t, 2, asked.ID)
		require.Equal(t, "Ana likes red", asked.Result["content"].([]any)[0].(map[string]any)["text"])
	})
}

// On one pipe, a client that began with initialize is told of a change of the tools at
// once, and one that listens is told with the id of its subscription; a client that only
// makes requests is not told.
func TestBothErasHear(t *testing.T) {
	f := openFolder(t)
	c := connect(t, f.service)
	c.sendf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%s}}`, meta2026)
	require.EqualValues(t, 1, c.said().ID)
	hears := func(want ...any) {
		t.Helper()
		var heard []any
		for range want {
			m := c.said()
			require.Equal(t, "notifications/tools/list_changed", m.Method)
			heard = append(heard, m.Params.Meta[mcp.MetaKeySubscriptionID])
		}
		assert.ElementsMatch(t, want, heard)
	}
	change := func(description string) {
		f.put("plain", description, false)
		f.reload()
	}
	c.sendf(handshake)
	require.Equal(t, "hello", c.said().ID)
	change("Does it anew.")
	hears(nil)
	c.sendf(`{"jsonrpc":"2.0","id":"ear","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},%s}}`, meta2026)
	require.Equal(t, "notifications/subscriptions/acknowledged", c.said().Method)
	change("Does it again.")
	hears(nil, "ear")
	c.sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ear"}}`)
	c.sendf(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{%s}}`, meta2026)
	require.EqualValues(t, 2, c.said().ID)
	change("Does it at last.")
	hears(nil)
}

// However a pipe ends, the calls of both eras end with it.
func TestBothErasEnd(t *testing.T) {
	const spin = `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"spin","arguments":{},"_meta":{"progressToken":%[1]q%s}}}`
	for name, end := range map[string]func(*client) error{
		"by the client": func(c *client) error { return c.in.Close() },
		"by the server": func(c *client) error { c.cancel(nil); return nil },
		"by a client that does not read": func(c *client) error {
			_ = c.out.Close()
			c.sendf(`{"jsonrpc":"2.0","id":1,"method":"ping"}`) // time stands still while a guest spins: no heartbeat comes
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, openService(t, "spin"))
				c.sendf(handshake)
				require.Equal(t, "hello", c.said().ID)
				c.sendf(spin, "legacy", "")
				require.Equal(t, "notifications/progress", c.said().Method)
				c.sendf(spin, "modern", `,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`)
				require.Equal(t, "notifications/progress", c.said().Method)
				require.NoError(t, end(c))
				_, err := c.wait()
				if name == "by the server" {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

// A second initialize on a pipe is refused, and does not count as an error of the host.
func TestInitializeRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connectWith(t, open(t, askers()), mcpapi.Config{})
		c.sendf(handshake)
		require.Equal(t, "hello", c.said().ID)
		c.sendf(handshake)
		answer := string(c.receive(1))
		require.Contains(t, answer, `"code":-32600`)
		require.NotContains(t, answer, abi.InternalMessage)
	})
}
