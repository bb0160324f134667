package python_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest/python"
)

func zipped(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, data := range files {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write([]byte(data))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// FuzzWheel: a wheel of a stranger is packed or refused.
func FuzzWheel(f *testing.F) {
	f.Add(zipped(f, map[string]string{"a/__init__.py": "1", "../b.py": "2", "/c.py": "3", "d/": "", "..\x00e.py": "4"}))
	f.Fuzz(func(t *testing.T, wheel []byte) {
		script, err := python.Script(fstest.MapFS{"tool.py": {Data: []byte("1")}, "wheels/a-1-py3-none-any.whl": {Data: wheel}})
		if err != nil {
			return
		}
		if r, err := zip.NewReader(bytes.NewReader(script), int64(len(script))); err == nil {
			for _, f := range r.File {
				require.True(t, fs.ValidPath(f.Name), "%q", f.Name)
				require.NotContains(t, f.Name, "\x00")
			}
		}
	})
}
