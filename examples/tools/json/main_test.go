package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, newPlugin(folder.Folder(t.TempDir()))) }

func TestQuery(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte(`{"a":[1,2]} {"a":[]}`), 0o600))
	p := newPlugin(folder.Folder(dir))
	for name, c := range map[string]struct {
		args      queryArgs
		want, err string
	}{
		"no input":         {queryArgs{Query: "1 + 1"}, `[2]`, ""},
		"false":            {queryArgs{Query: "., not", Input: json.RawMessage("false")}, `[false,true]`, ""},
		"a file":           {queryArgs{Query: ".a | length", File: "a.json"}, `[2,0]`, ""},
		"an absolute path": {queryArgs{Query: ".a[0]", File: dir + "/a.json"}, `[1,null]`, ""},
		"inputs":           {queryArgs{Query: "[., input]", Text: "1 2 3 4"}, `[[1,2],[3,4]]`, ""},
		"a large number":   {queryArgs{Query: ". + 1", Text: "100000000000000000000"}, `[100000000000000000001]`, ""},
		"a variable":       {queryArgs{Query: "$n + .", Text: "1", Variables: map[string]json.RawMessage{"n": json.RawMessage("2")}}, `[3]`, ""},
		"a regexp":         {queryArgs{Query: `sub("(?<x>[a-z]+)"; "\(.x)!")`, Text: `"ab1"`}, `["ab!1"]`, ""},
		"halt":             {queryArgs{Query: "1, halt, 2"}, `[1]`, ""},

		"an error":         {queryArgs{Query: `error("no")`}, "", "after 0 results: error: no"},
		"a wrong type":     {queryArgs{Query: ".a", Text: "[1]"}, "", "expected an object but got: array"},
		"unknown function": {queryArgs{Query: "foo"}, "", "function not defined: foo/0"},
		"two inputs":       {queryArgs{Query: ".", Text: "1", File: "a.json"}, "", "give one of"},
		"not JSON":         {queryArgs{Query: ".", Text: "1\n{a}"}, "", "line 2"},
		"a missing file":   {queryArgs{Query: ".", File: "b.json"}, "", "b.json: no such file"},
		"a path out":       {queryArgs{Query: ".", File: "../a.json"}, "", "../a.json leads out of the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			c.args.Limit = 10
			out := guesttest.Call(p, "query", c.args)
			if c.err != "" {
				require.Contains(t, out.Error, c.err)
				return
			}
			require.True(t, out.IsSuccess(), out)
			var got struct{ Results json.RawMessage }
			require.NoError(t, json.Unmarshal(out.Value, &got))
			require.JSONEq(t, c.want, string(got.Results))
		})
	}
}

func TestBounds(t *testing.T) {
	p := newPlugin(folder.Folder(t.TempDir()))
	out := guesttest.Call(p, "query", queryArgs{Query: "range(10)", Limit: 2})
	require.JSONEq(t, `{"results":[0,1],"truncated":true}`, string(out.Value))
	out = guesttest.Call(p, "query", queryArgs{Query: `range(1e9) | "0123456789" * 1000`, Limit: 1000})
	require.Less(t, len(out.Value), maxOutput+1000)
	require.Contains(t, string(out.Value), `"truncated":true`)
	out = guesttest.Call(p, "query", queryArgs{Query: strings.Repeat("(", 5000) + "1", Limit: 1})
	require.Contains(t, out.Error, "invalid")
}
