package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, newPlugin(store(t.TempDir()))) }

func TestREADME(t *testing.T) { readme.Check(t, newPlugin("/data")) }

// Each step sees what the steps before it have left in the folder.
func TestList(t *testing.T) {
	p := newPlugin(store(t.TempDir()))
	for _, step := range []struct {
		tool string
		args any
		want string
	}{
		{"list", struct{}{}, `{"todos":[]}`},
		{"add", addArgs{"buy milk"}, `{"id":1,"text":"buy milk","done":false}`},
		{"add", addArgs{"call Zoë"}, `{"id":2,"text":"call Zoë","done":false}`},
		{"done", doneArgs{1}, `{"id":1,"text":"buy milk","done":true}`},
		{"done", doneArgs{1}, `{"id":1,"text":"buy milk","done":true}`},
		{"clear", struct{}{}, `{"todos":[{"id":2,"text":"call Zoë","done":false}]}`},
		{"add", addArgs{"third"}, `{"id":3,"text":"third","done":false}`},
		{"clear", clearArgs{All: true}, `{"todos":[]}`},
		{"list", struct{}{}, `{"todos":[]}`},
	} {
		out := guesttest.Call(p, step.tool, step.args)
		require.True(t, out.IsSuccess(), out)
		require.JSONEq(t, step.want, string(out.Value), step.tool)
	}
}

// Removing open todos needs the user's consent, if the user can be asked.
func TestClearAsks(t *testing.T) {
	for answer, left := range map[string]int{
		`{"action":"accept","content":{"yes":true}}`:  0,
		`{"action":"accept","content":{"yes":false}}`: 1,
		`{"action":"decline"}`:                        1,
		`{"action":"cancel"}`:                         1,
	} {
		p := newPlugin(store(t.TempDir()))
		asked := ""
		h := guesttest.Host{Capabilities: map[string]func(json.RawMessage) (any, error){
			"ask": func(request json.RawMessage) (any, error) {
				asked = string(request)
				return json.RawMessage(`{"answers":{"sure":` + answer + `}}`), nil
			},
		}}
		require.True(t, h.Call(p, "add", addArgs{"buy milk"}).IsSuccess())
		require.True(t, h.Call(p, "clear", clearArgs{}).IsSuccess())
		require.Empty(t, asked, "only what is done goes")

		out := h.Call(p, "clear", clearArgs{All: true})
		require.Contains(t, asked, "Remove 1 open todos?")
		require.Equal(t, left == 0, out.IsSuccess(), out)
		require.Equal(t, left, strings.Count(string(h.Call(p, "list", struct{}{}).Value), "buy milk"))
	}
}

func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "todos.json"), []byte("{"), 0o600))
	out := guesttest.Call(newPlugin(store(dir)), "add", addArgs{"x"})
	require.Equal(t, abi.ToolError, out.Kind)
	require.Contains(t, out.Error, "todos.json is damaged")
}
