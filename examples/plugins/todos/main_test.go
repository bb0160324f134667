package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest"
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
		{"list", struct{}{}, `{"todos":[{"id":2,"text":"call Zoë","done":false}]}`},
	} {
		out := guesttest.Call(p, step.tool, step.args)
		require.True(t, out.IsSuccess(), out)
		require.JSONEq(t, step.want, string(out.Value), step.tool)
	}
}

// Removing open todos needs the user's consent.
func TestClearAsks(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]guest.Answer
		left    int
	}{
		"yes":      {map[string]guest.Answer{"sure": guesttest.Accept(`{"yes":true}`)}, 0},
		"no":       {map[string]guest.Answer{"sure": guesttest.Accept(`{"yes":false}`)}, 1},
		"declined": {map[string]guest.Answer{"sure": {Action: abi.AnswerDecline}}, 1},
		"nobody":   {nil, 1},
	} {
		p := newPlugin(store(t.TempDir()))
		h := guesttest.Host{Answers: c.answers}
		require.True(t, h.Call(p, "add", addArgs{"buy milk"}).IsSuccess())
		out := h.Call(p, "clear", clearArgs{})
		require.True(t, out.IsSuccess())
		require.Empty(t, out.Questions, "only what is done goes")

		out = h.Call(p, "clear", clearArgs{All: true})
		if c.answers != nil {
			require.Equal(t, "Remove 1 open todos?", out.Questions[0].Message, name)
		}
		require.Equal(t, c.left == 0, out.IsSuccess(), out)
		require.Equal(t, c.left, strings.Count(string(h.Call(p, "list", struct{}{}).Value), "buy milk"))
	}
}

func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "todos.json"), []byte("{"), 0o600))
	out := guesttest.Call(newPlugin(store(dir)), "add", addArgs{"x"})
	require.Equal(t, abi.ToolError, out.Kind)
	require.Contains(t, out.Error, "todos.json is damaged")
}
