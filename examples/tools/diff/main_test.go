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

func TestApply(t *testing.T) {
	for name, c := range map[string]struct{ text, patch, want, err string }{
		"hunks only":             {"a\nb\n", "@@ -2 +2 @@\n-b\n+c\n", "a\nc\n", ""},
		"a wrong line":           {"a\nb\nc\n", "@@ -1,2 +1,1 @@\n-b\n c", "a\nc\n", ""},
		"the nearest place":      {"x\n1\nx\n2\nx\n", "@@ -3 +3 @@\n-x\n+y\n", "x\n1\ny\n2\nx\n", ""},
		"far behind the end":     {"x\n", "@@ -99999999 +1 @@\n-x\n+y\n", "y\n", ""},
		"an insertion":           {"a\nb\n", "@@ -1,0 +2 @@\n+x\n", "a\nx\nb\n", ""},
		"into nothing":           {"", "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+x\n", "x\n", ""},
		"no line feed":           {"a", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", "b", ""},
		"two hunks":              {"a\nb\nc\nd\n", "@@ -1 +1 @@\n-a\n+A\n@@ -4 +4 @@\n-d\n+D\n", "A\nb\nc\nD\n", ""},
		"in the wrong order":     {"a\nb\n", "@@ -2 +2 @@\n-b\n+B\n@@ -1 +1 @@\n-a\n+A\n", "", "hunk 2 does not fit"},
		"no such lines":          {"a\n", "@@ -1 +1 @@\n-b\n+c\n", "", "hunk 1 does not fit"},
		"wrong counts":           {"a\n", "@@ -1,7 +1 @@\n-a\n+c\n", "", "the patch is invalid"},
		"prose":                  {"a\n", "change a to b\n", "", "it has no hunk"},
		"two files":              {"a\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "", "for 2 files"},
		"a number out of bounds": {"a\n", "@@ -99999999999999999999 +1 @@\n-a\n+b\n", "", "the patch is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := apply(nil, applyArgs{c.text, c.patch})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, text)
		})
	}
}

func TestPatch(t *testing.T) {
	dir := t.TempDir()
	p := newPlugin(folder.Folder(dir))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(data)
	}
	write("a", "1\n2\n")
	write("b", "x\n")
	write("c", "old\n")

	out := guesttest.Call(p, "patch", patchArgs{`diff --git a/a b/a
--- a/a
+++ b/a
@@ -1,2 +1,2 @@
 1
-2
+zwei
diff --git a/sub/new b/sub/new
new file mode 100644
--- /dev/null
+++ b/sub/new
@@ -0,0 +1 @@
+new
diff --git a/b b/b
deleted file mode 100644
--- a/b
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/c b/d
rename from c
rename to d
`})
	require.True(t, out.IsSuccess(), out)
	require.JSONEq(t, `{"files":[{"path":"a","action":"changed"},{"path":"sub/new","action":"added"},{"path":"b","action":"removed"},{"path":"d","action":"renamed","from":"c"}]}`, string(out.Value))
	require.Equal(t, "1\nzwei\n", read("a"))
	require.Equal(t, "new\n", read("sub/new"))
	require.Equal(t, "old\n", read("d"))
	require.NoFileExists(t, filepath.Join(dir, "b"))
	require.NoFileExists(t, filepath.Join(dir, "c"))

	// A part that does not fit leaves all as it is.
	for patch, problem := range map[string]string{
		"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n--- a/d\n+++ b/d\n@@ -1 +1 @@\n-no\n+yes\n":    "d: hunk 1 does not fit",
		"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+eins\n":    "for a twice",
		"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n--- /dev/null\n+++ b/d\n@@ -0,0 +1 @@\n+new\n": "is there already",
		"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n--- a/e\n+++ b/e\n@@ -1 +1 @@\n-1\n+one\n":     "no such file",
	} {
		require.Contains(t, guesttest.Call(p, "patch", patchArgs{patch}).Error, problem)
		require.Equal(t, "1\nzwei\n", read("a"))
	}
}

func TestDiffFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("1\n"), 0o600))
	p := newPlugin(folder.Folder(dir))
	out := guesttest.Call(p, "diff", diffArgs{Context: 1, OldFile: "a", New: "2\n"})
	require.JSONEq(t, `{"diff":"--- a\n+++ new\n@@ -1 +1 @@\n-1\n+2\n","added":1,"removed":1}`, string(out.Value))
	require.Contains(t, guesttest.Call(p, "diff", diffArgs{Context: 1, Old: "x", OldFile: "a"}).Error, "give either")
	require.Contains(t, guesttest.Call(p, "diff", diffArgs{Context: 1, OldFile: "../a"}).Error, "leads out of the folder")
	require.Contains(t, guesttest.Call(p, "diff", diffArgs{Context: 1, New: strings.Repeat("x\n", maxDiff)}).Error, "more than 200,000 bytes")
}

// FuzzDiff: a diff turns one text into the other.
func FuzzDiff(f *testing.F) {
	f.Add("a\nb\n", "b\nc", 3)
	f.Add("", "x\n\n", 0)
	f.Add("a\r\nb", "a\nb", 1)
	f.Add("b\n", "b\nc", 1)
	f.Fuzz(func(t *testing.T, old, text string, context int) {
		out, err := tools{}.diff(nil, diffArgs{Old: old, New: text, Context: min(max(context, 1), 100)})
		require.NoError(t, err)
		if out.Diff == "" {
			require.Equal(t, old, text)
			return
		}
		if strings.ContainsAny(old+text, "\r") {
			t.Skip()
		}
		got, err := apply(nil, applyArgs{old, out.Diff})
		require.NoError(t, err, out.Diff)
		require.Equal(t, text, got, out.Diff)
	})
}

// FuzzApply: whatever a patch is, there is an answer.
func FuzzApply(f *testing.F) {
	f.Add("a\nb\n", "@@ -1 +1 @@\n-a\n+b\n")
	f.Add("", "diff --git a/x b/y\nrename from x\nrename to y\n")
	p := newPlugin(folder.Folder(f.TempDir()))
	f.Fuzz(func(t *testing.T, text, patch string) {
		for tool, args := range map[string]any{"apply": applyArgs{text, patch}, "patch": patchArgs{patch}} {
			out := guesttest.Call(p, tool, args)
			require.True(t, out.IsSuccess() || out.Error != "", out)
			require.True(t, json.Valid(out.Value) || len(out.Value) == 0)
		}
	})
}
