package guesttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

// TestCallTool: a plugin's test plays the tools that it calls, and failures of every kind
// are errors that the plugin may return.
func TestCallTool(t *testing.T) {
	p := plugin(tool(guest.Handle(func(c *guest.Call, in struct {
		Name string `json:"name"`
	}) (n int, _ error) {
		err := c.CallTool(in.Name, args{4}, &n)
		return n, err
	})))
	halver := plugin(tool(guest.Handle(halve)))
	h := Host{Tools: map[string]func(json.RawMessage) (any, error){
		"halve": Host{}.ToolOf(halver, "tool"),
		"count": func(args json.RawMessage) (any, error) { return len(args), nil },
		"fails": func(json.RawMessage) (any, error) { return nil, errors.New("no luck") },
		"pay": func(json.RawMessage) (any, error) {
			return nil, &guest.HostError{Code: "lost", Message: "its host has died"}
		},
		"texts": func(json.RawMessage) (any, error) { return "two", nil },
		"spent": func(json.RawMessage) (any, error) {
			return guest.ToolAnswer{Kind: abi.LimitReached, Limit: abi.LimitFuel, Error: "out of fuel"}, nil
		},
		"mail": func(json.RawMessage) (any, error) {
			return guest.ToolAnswer{Kind: abi.ConnectionRequired, Error: "connect mail first", Connection: &guest.Connection{Provider: "mail"}}, nil
		},
	}}
	call := func(name string) Outcome { return h.Call(p, "tool", map[string]string{"name": name}) }

	require.Equal(t, "2", string(call("halve").Value))
	require.Equal(t, "7", string(call("count").Value))
	require.Equal(t, "fails: no luck", call("fails").Error)
	require.Equal(t, "tool.call: lost: its host has died", call("pay").Error)
	require.Equal(t, "the result of texts: json: cannot unmarshal string into Go value of type int", call("texts").Error)
	require.Equal(t, "spent: out of fuel", call("spent").Error)
	require.Equal(t, abi.Result{Kind: abi.ConnectionRequired, Error: "connect mail first", Connection: &guest.Connection{Provider: "mail"}}, call("mail").Result)
	require.Equal(t, `tool.call: denied: the tool "other" is not granted to this plugin`, call("other").Error)
}

// TestSearchTools: a plugin's test finds the tools that it plays, by their names.
func TestSearchTools(t *testing.T) {
	type search struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}
	p := plugin(tool(guest.Handle(func(c *guest.Call, in search) (names []string, _ error) {
		found, err := c.SearchTools(in.Query, in.Limit)
		for _, t := range found.Tools {
			names = append(names, t.Name)
		}
		return append(names, fmt.Sprint(found.More)), err
	})))
	play := func(json.RawMessage) (any, error) { return 1, nil }
	h := Host{Tools: map[string]func(json.RawMessage) (any, error){"mail_send": play, "mail_list": play, "files_read": play}}

	require.Equal(t, `["mail_list","mail_send","0"]`, string(h.Call(p, "tool", search{"mail", 0}).Value))
	require.Equal(t, `["files_read","2"]`, string(h.Call(p, "tool", search{"", 1}).Value))
	require.Equal(t, `["0"]`, string(h.Call(p, "tool", search{"zebra", 0}).Value))
	require.Contains(t, Host{}.Call(p, "tool", search{}).Error, "tool.search: denied: no tools are granted")
}

// TestToolAnswer: a plugin may look at all that a tool answers.
func TestToolAnswer(t *testing.T) {
	var request json.RawMessage
	h := Host{Capabilities: map[string]func(json.RawMessage) (any, error){"tool.call": func(r json.RawMessage) (any, error) {
		request = r
		return guest.ToolAnswer{Kind: abi.ToolError, Error: "torn", Content: []abi.Block{{Type: "text", Text: "page 1"}}}, nil
	}}}
	p := plugin(tool(guest.Handle(func(c *guest.Call, _ struct{}) (guest.ToolAnswer, error) {
		return c.ToolAnswer("scan", nil, 1500*time.Microsecond)
	})))
	got := h.Call(p, "tool", struct{}{})

	require.JSONEq(t, `{"kind":"tool_error","error":"torn","content":[{"type":"text","text":"page 1"}]}`, string(got.Value))
	require.JSONEq(t, `{"tool":"scan","args":{},"timeout_ms":2}`, string(request))
}
