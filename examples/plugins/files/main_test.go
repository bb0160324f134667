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

func TestPlugin(t *testing.T) { guesttest.Check(t, newPlugin(workspace(t.TempDir()))) }

func TestREADME(t *testing.T) { readme.Check(t, newPlugin("/work")) }

// Each step sees what the steps before it have left in the folder.
func TestTools(t *testing.T) {
	p := newPlugin(workspace(t.TempDir()))
	for _, step := range []struct {
		tool      string
		args      any
		want, err string
	}{
		{"list", struct{}{}, `{"entries":[]}`, ""},
		{"write", writeArgs{"notes/a.txt", "one\ntwo\nthree\ntwo"}, `{"bytes":17}`, ""},
		{"read", readArgs{Path: "notes/a.txt"}, `"one\ntwo\nthree\ntwo"`, ""},
		{"read", readArgs{Path: "notes/a.txt", Limit: 2}, `"one\ntwo\n... (2 more lines)\n"`, ""},
		{"read", readArgs{Path: "notes/a.txt", Offset: 2, Limit: 9}, `"three\ntwo"`, ""},
		{"read", readArgs{Path: "notes/a.txt", Offset: 9}, `""`, ""},
		{"read", readArgs{Path: "notes"}, "", "notes: not a file"},
		{"read", readArgs{Path: "b.txt"}, "", "b.txt: no such file or directory"},
		{"edit", editArgs{"notes/a.txt", "two", "zwei"}, `{"line":2,"more":1}`, ""},
		{"edit", editArgs{"notes/a.txt", "vier", "four"}, "", "notes/a.txt: the old text is not in it"},
		{"read", readArgs{Path: "/notes/../notes/a.txt"}, "", "Path escapes workspace: /notes/../notes/a.txt"},
		{"grep", grepArgs{"^t", ".", 1}, `{"matches":[{"path":"notes/a.txt","line":3,"text":"three"}],"more":true}`, ""},
		{"grep", grepArgs{"zwei|two", "notes", 9}, `{"matches":[{"path":"notes/a.txt","line":2,"text":"zwei"},{"path":"notes/a.txt","line":4,"text":"two"}],"more":false}`, ""},
		{"grep", grepArgs{"(", ".", 9}, "", "missing closing )"},
		{"delete", pathArgs{"notes"}, "", "not empty"},
		{"delete", pathArgs{"./notes/a.txt"}, "", ""},
		{"delete", pathArgs{"notes"}, "", ""},
		{"delete", pathArgs{"."}, "", "the workspace itself cannot be deleted"},
		{"stat", pathArgs{"notes"}, "", "notes: no such file or directory"},
	} {
		out := guesttest.Call(p, step.tool, step.args)
		if step.err != "" {
			require.Equal(t, abi.ToolError, out.Kind, out)
			require.Contains(t, out.Error, step.err)
			continue
		}
		require.True(t, out.IsSuccess(), out)
		if step.want != "" {
			require.JSONEq(t, step.want, string(out.Value))
		}
	}
}

func TestEscapes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600))
	work := filepath.Join(dir, "work")
	require.NoError(t, os.MkdirAll(work, 0o700))
	require.NoError(t, os.Symlink("../secret", filepath.Join(work, "link")))
	p := newPlugin(workspace(work))
	for _, path := range []string{"../secret", "a/../../secret", "/etc/passwd", "link", work + "/../secret", work + "x/a"} {
		for tool, args := range map[string]any{
			"read": readArgs{Path: path}, "write": writeArgs{path, "y"}, "edit": editArgs{path, "x", "y"},
			"grep": grepArgs{"x", path, 9}, "list": folderArgs{path}, "stat": pathArgs{path},
		} {
			out := guesttest.Call(p, tool, args)
			require.Equal(t, abi.ToolError, out.Kind, "%s %s", tool, path)
			require.Equal(t, "Path escapes workspace: "+path, out.Error, "%s %s", tool, path)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, "secret"))
	require.NoError(t, err)
	require.Equal(t, "x", string(kept))
}

func TestWhatIsNoText(t *testing.T) {
	work := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(work, "binary"), []byte{0xff, 'x'}, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(work, "large"), make([]byte, maxFile+1), 0o600))
	p := newPlugin(workspace(work))
	require.Equal(t, "binary: not a text in UTF-8", guesttest.Call(p, "read", readArgs{Path: "binary"}).Error)
	require.Equal(t, "large: 1048577 bytes, at most 1048576 can be read", guesttest.Call(p, "read", readArgs{Path: "large"}).Error)
	require.JSONEq(t, `{"matches":[],"more":false}`, string(guesttest.Call(p, "grep", grepArgs{"x", ".", 9}).Value))
}
