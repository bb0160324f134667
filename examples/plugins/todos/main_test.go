package main

import (
	"os"
	"path/filepath"
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

func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "todos.json"), []byte("{"), 0o600))
	out := guesttest.Call(newPlugin(store(dir)), "add", addArgs{"x"})
	require.Equal(t, abi.ToolError, out.Kind)
	require.Contains(t, out.Error, "todos.json is damaged")
}
