package main

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestReadme(t *testing.T) { readme.Check(t, &plugin) }

// host plays the tools that read pages and files.
func host() guesttest.Host {
	return guesttest.Host{Tools: map[string]func(json.RawMessage) (any, error){
		"web_fetch": func(args json.RawMessage) (any, error) {
			switch string(args) {
			case `{"url":"https://example.com/mail"}`:
				return guest.ToolAnswer{Kind: abi.ConnectionRequired, Error: "connect mail first", Connection: &guest.Connection{Provider: "mail"}}, nil
			case `{"url":"https://example.com/none"}`:
				return nil, errors.New("404 Not Found")
			}
			return map[string]string{"title": "Tea", "text": "Tea is old. Green tea comes from China! Coffee comes from Ethiopia."}, nil
		},
		"files_read": func(json.RawMessage) (any, error) { return "Notes\nThe tea in China is mostly green\n", nil },
	}}
}

func find(t *testing.T, h guesttest.Host, question string, sources ...string) (f findings) {
	t.Helper()
	o := h.Call(&plugin, "research", researchArgs{Question: question, Sources: sources})
	require.True(t, o.IsSuccess(), o.Error)
	require.NoError(t, json.Unmarshal(o.Value, &f))
	return f
}

func TestResearch(t *testing.T) {
	f := find(t, host(), "Where does green tea come from, China?", "https://example.com/tea", "notes.txt", "https://example.com/none")
	require.Equal(t, findings{
		Quotes: []quote{
			{Source: "https://example.com/tea", Text: "Green tea comes from China!", Words: []string{"china", "from", "green"}},
			{Source: "notes.txt", Text: "The tea in China is mostly green", Words: []string{"china", "green"}},
			{Source: "https://example.com/tea", Text: "Coffee comes from Ethiopia.", Words: []string{"from"}},
		},
		Failed: []failure{{"https://example.com/none", "404 Not Found"}},
	}, f)
}

// TestConnection: what a source needs to be connected is asked of the user.
func TestConnection(t *testing.T) {
	o := host().Call(&plugin, "research", researchArgs{Question: "Any mail?", Sources: []string{"https://example.com/mail"}})
	require.Equal(t, abi.ConnectionRequired, o.Kind)
	require.Equal(t, "mail", o.Connection.Provider)
}

// TestStop: what was found before a stop is returned.
func TestStop(t *testing.T) {
	h := host()
	h.StopAfter = 2
	f := find(t, h, "green tea", "notes.txt", "https://example.com/tea")
	require.Len(t, f.Quotes, 1)
}

// TestNotGranted: a plugin says which tool the operator has to grant.
func TestNotGranted(t *testing.T) {
	o := guesttest.Call(&plugin, "research", researchArgs{Question: "green tea", Sources: []string{"notes.txt"}})
	require.Equal(t, `tool.call: denied: the tool "files_read" is not granted to this plugin`, o.Error)
}
