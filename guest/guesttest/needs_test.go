package guesttest

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest"
)

// A tool under test has what its needs say, also those of its own and the optional ones,
// and none of other tools.
func TestNeedsOfTools(t *testing.T) {
	type page struct {
		URL string `json:"url"`
	}
	get := guest.Handle(func(c *guest.Call, in page) (string, error) {
		need := guest.Needs{HTTP: []guest.HTTPNeed{{URL: in.URL}}}
		resp, err := http.Get(in.URL)
		if err != nil {
			return "", err
		}
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.True(t, c.Has(need))
		return resp.Status, nil
	})
	a, b := tool(get), tool(get)
	a.Name, b.Name = "a", "b"
	a.Needs.HTTP = []guest.HTTPNeed{{URL: "https://a.example/*"}}
	a.Needs.Optional = &guest.Needs{HTTP: []guest.HTTPNeed{{URL: "https://c.example/*"}}}
	p := plugin(a, b)
	p.Needs.HTTP = []guest.HTTPNeed{{URL: "https://all.example/*"}}

	for tool, urls := range map[string]map[string]bool{
		"a": {"https://all.example/x": true, "https://a.example/x": true, "https://c.example/x": true, "https://d.example/x": false},
		"b": {"https://all.example/x": true, "https://a.example/x": false, "https://c.example/x": false},
	} {
		for url, allowed := range urls {
			out := Host{HTTP: Play(Exchange{URL: url})}.Call(p, tool, page{url})
			require.Equal(t, allowed, out.IsSuccess(), "%s %s: %s", tool, url, out)
			require.False(t, Host{}.Call(p, tool, page{url}).IsSuccess())
		}
	}
}

// A tool works without what is optional.
func TestHas(t *testing.T) {
	asked := guest.Needs{
		KV: "write", Session: "read", Ask: true, Tools: []string{"other"}, Secrets: []string{"key"}, Clock: true,
		HTTP: []guest.HTTPNeed{{URL: "https://a.example/*"}}, Files: []guest.FileNeed{{Path: "/work", Mode: "write"}},
	}
	has := tool(guest.Handle(func(c *guest.Call, _ struct{}) (bool, error) { return c.Has(asked), nil }))
	has.Needs.Optional = &asked
	p := plugin(has)

	full := func() Host {
		return Host{
			KV: &Store{}, Session: &Store{ReadOnly: true}, Answers: map[string]guest.Answer{}, Secrets: map[string]bool{"key": false}, HTTP: Play(),
			Tools:        map[string]func(json.RawMessage) (any, error){"other": func(json.RawMessage) (any, error) { return nil, nil }},
			Capabilities: map[string]func(json.RawMessage) (any, error){"sleep": func(json.RawMessage) (any, error) { return nil, nil }},
			Folders:      map[string]string{"/work": t.TempDir()},
		}
	}
	require.Equal(t, "true", string(full().Call(p, "tool", struct{}{}).Value))
	require.Equal(t, "false", string(Call(p, "tool", struct{}{}).Value))
	for name, without := range map[string]func(h *Host){
		"kv": func(h *Host) { h.KV.ReadOnly = true }, "session": func(h *Host) { h.Session = nil }, "ask": func(h *Host) { h.Answers = nil },
		"tools": func(h *Host) { h.Tools = nil }, "secrets": func(h *Host) { h.Secrets = nil }, "clock": func(h *Host) { h.Capabilities = nil },
		"http": func(h *Host) { h.HTTP = nil }, "files": func(h *Host) { h.Folders = nil },
	} {
		h := full()
		without(&h)
		require.Equal(t, "false", string(h.Call(p, "tool", struct{}{}).Value), name)
	}

	p.Tools[0].Hints.Readonly = true
	require.Equal(t, "false", string(full().Call(p, "tool", struct{}{}).Value), "kv and the folder can only be read")
}

// TestCheckSeesFoldersOfTools: an example has the folders of its tool.
func TestCheckSeesFoldersOfTools(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("testdata/own", 0o700))
	require.NoError(t, os.WriteFile("testdata/own/n", []byte("1"), 0o600))
	reads := tool(guest.Handle(func(c *guest.Call, _ struct{}) (string, error) {
		data, err := os.ReadFile(filepath.Join(c.Folder("/own"), "n"))
		return string(data), err
	}), guest.Example{Args: struct{}{}, Result: "1"})
	reads.Needs.Optional = &guest.Needs{Files: []guest.FileNeed{{Path: "/own", Mode: "read"}}}
	Check(t, plugin(reads))
}
