package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

var (
	png   = abi.Block{Type: "image", MIMEType: "image/PNG; x=y", Data: []byte("png")}
	wild  = abi.Block{Type: "image", MIMEType: "image/../../x", Data: []byte("wild")}
	csv   = abi.Block{Type: "resource", MIMEType: "text/csv", URI: "file:///etc/passwd", Text: "a,b"}
	alink = abi.Block{Type: "resource_link", Name: "../x", URI: "https://example.com"}
	said  = abi.Block{Type: "text", Text: "said"}
)

// What is data is saved, or else the result. Names are made here, and nothing is
// overwritten.
func TestSave(t *testing.T) {
	for name, test := range map[string]struct {
		path    string
		value   string
		content []abi.Block
		files   map[string]string
		left    savedResult
	}{
		"nothing to save to": {"", `1`, []abi.Block{png}, nil, savedResult{value: json.RawMessage(`1`), content: []abi.Block{png}}},
		"an image":           {"a.png", `{"w":1}`, []abi.Block{said, png}, map[string]string{"a.png": "png"}, savedResult{json.RawMessage(`{"w":1}`), []abi.Block{said}, []string{"[image image/PNG; x=y, 3 B: a.png]"}}},
		"several": {"a.png", ``, []abi.Block{png, csv, wild, alink}, map[string]string{"a.png": "png", "a-2.csv": "a,b", "a-3.bin": "wild"},
			savedResult{nil, []abi.Block{alink}, []string{"[image image/PNG; x=y, 3 B: a.png]", "[resource text/csv, 3 B: a-2.csv]", "[image image/../../x, 4 B: a-3.bin]"}}},
		"a folder": {"new/", ``, []abi.Block{png, csv}, map[string]string{"new/1.png": "png", "new/2.csv": "a,b"},
			savedResult{nil, nil, []string{"[image image/PNG; x=y, 3 B: new/1.png]", "[resource text/csv, 3 B: new/2.csv]"}}},
		"a folder with files": {"old", ``, []abi.Block{png}, map[string]string{"old/1.png": "kept", "old/2.png": "png"}, savedResult{nil, nil, []string{"[image image/PNG; x=y, 3 B: old/2.png]"}}},
		"text":                {"a", `"text"`, nil, map[string]string{"a": "text\n"}, savedResult{}},
		"JSON in a folder":    {"new/", `[1]`, nil, map[string]string{"new/1.json": "[1]\n"}, savedResult{}},
		"text content":        {"a", ``, []abi.Block{said, alink}, map[string]string{"a": "said\n[../x https://example.com]\n"}, savedResult{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			require.NoError(t, os.Mkdir("old", 0o700))
			require.NoError(t, os.WriteFile("old/1.png", []byte("kept"), 0o600))
			s := saver{path: filepath.FromSlash(test.path)}
			require.NoError(t, s.check())

			left, err := s.save(json.RawMessage(test.value), test.content)
			require.NoError(t, err)

			require.Equal(t, len(test.left.value), len(left.value))
			require.Equal(t, test.left.content, left.content)
			require.Equal(t, test.left.lines, left.lines)
			found := map[string]string{}
			require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					data, _ := os.ReadFile(path)
					found[filepath.ToSlash(path)] = string(data)
				}
				return err
			}))
			if _, listed := test.files["old/1.png"]; !listed {
				delete(found, "old/1.png")
			}
			require.Equal(t, len(test.files), len(found), "%v", found)
			for name, data := range test.files {
				require.Equal(t, data, found[name], name)
			}
		})
	}
}

// A path that nothing can be saved to is refused before the tool runs.
func TestSaveCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("there", nil, 0o600))
	require.NoError(t, os.Symlink("nowhere", "link"))

	for path, want := range map[string]string{
		"there":     "--output: there exists, and is not overwritten",
		"link":      "--output: link exists, and is not overwritten",
		"missing/a": "--output: there is no folder missing",
		"there/":    "--output: mkdir there",
	} {
		require.ErrorContains(t, saver{path: path}.check(), want)
	}
	require.NoError(t, saver{path: "new"}.check())
}
