package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, newPlugin(folder.Folder(t.TempDir()))) }

// filled is the plugin with a folder of files.
func filled(t *testing.T) (*guest.Plugin, string) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": "one\ntwo three\n", "sub/b.go": "func Two() {\n\treturn 2\n}\n", ".git/c": "two", "binary": "\xfftwo",
		"large": strings.Repeat("two\n", folder.MaxText/4+1), "long": strings.Repeat("x", 5000) + "four" + strings.Repeat("y", 5000),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	return newPlugin(folder.Folder(dir)), dir
}

func TestSearch(t *testing.T) {
	p, _ := filled(t)
	for name, c := range map[string]struct {
		where     where
		want, err string
	}{
		"everywhere":     {where{Pattern: "two"}, `{"matches":[{"path":"a.txt","line":2,"text":"two three"}],"more":false,"skipped":2}`, ""},
		"without case":   {where{Pattern: `\btwo\b`, IgnoreCase: true, Glob: "*.*"}, `{"matches":[{"path":"a.txt","line":2,"text":"two three"},{"path":"sub/b.go","line":1,"text":"func Two() {"}],"more":false,"skipped":0}`, ""},
		"more":           {where{Pattern: "^", Glob: "*.txt"}, `{"matches":[{"path":"a.txt","line":1,"text":"one"},{"path":"a.txt","line":2,"text":"two three"}],"more":true,"skipped":0}`, ""},
		"several lines":  {where{Pattern: `(?s)\{.*\}`, Path: "sub"}, `{"matches":[{"path":"sub/b.go","line":1,"text":"func Two() {\n\treturn 2\n}"}],"more":false,"skipped":0}`, ""},
		"hidden":         {where{Pattern: "two", Path: ".", Glob: "c", Hidden: true}, `{"matches":[{"path":".git/c","line":1,"text":"two"}],"more":false,"skipped":0}`, ""},
		"a hidden one":   {where{Pattern: "two", Path: ".git"}, `{"matches":[{"path":".git/c","line":1,"text":"two"}],"more":false,"skipped":0}`, ""},
		"a path out":     {where{Pattern: "x", Path: "../x"}, "", "leads out of the folder"},
		"a link out":     {where{Pattern: "root", Path: "link"}, "", "leads out of the folder"},
		"a missing file": {where{Pattern: "x", Path: "b"}, "", "b: no such file"},
		"a glob":         {where{Pattern: "x", Glob: "["}, "", "invalid glob"},
		"too large":      {where{Pattern: "((a{100}){100}){100}"}, "", "error parsing regexp"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.where.Path == "" {
				c.where.Path = "."
			}
			out := guesttest.Call(p, "search", searchArgs{c.where, 2})
			if c.err != "" {
				require.Contains(t, out.Error, c.err)
				return
			}
			require.True(t, out.IsSuccess(), out)
			require.JSONEq(t, c.want, string(out.Value))
		})
	}

	out := guesttest.Call(p, "search", searchArgs{where{Pattern: "four", Path: "long"}, 2})
	var got searchResult
	require.NoError(t, json.Unmarshal(out.Value, &got))
	require.Len(t, got.Matches[0].Text, maxShown)
	require.Contains(t, got.Matches[0].Text, "xfoury")
}

func TestReplace(t *testing.T) {
	p, dir := filled(t)
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(data)
	}
	args := replaceArgs{where: where{Pattern: `(?P<word>t\w+)`, Path: ".", Glob: "*.txt"}, Replacement: "<${word}>", DryRun: true}
	want := `{"files":[{"path":"a.txt","count":2}],"changed":1,"count":2,"skipped":0}`
	require.JSONEq(t, want, string(guesttest.Call(p, "replace", args).Value))
	require.Equal(t, "one\ntwo three\n", read("a.txt"))
	args.DryRun = false
	require.JSONEq(t, want, string(guesttest.Call(p, "replace", args).Value))
	require.Equal(t, "one\n<two> <three>\n", read("a.txt"))

	args = replaceArgs{where: where{Pattern: "^.", Path: "sub"}, Replacement: "$1", Literal: true}
	require.True(t, guesttest.Call(p, "replace", args).IsSuccess())
	require.Equal(t, "$1unc Two() {\n$1return 2\n$1\n", read("sub/b.go"))

	args = replaceArgs{where: where{Pattern: "x", Path: "long"}, Replacement: strings.Repeat("y", 1000)}
	require.Contains(t, guesttest.Call(p, "replace", args).Error, "the result would have more than")
	require.Len(t, read("long"), 10_004)
}
