package download

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArchives(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "a.tgz"))
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "package/p.wasm", Size: 4}))
	_, err = w.Write([]byte("wasm"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())

	f, err = os.Create(filepath.Join(dir, "a.whl"))
	require.NoError(t, err)
	a := zip.NewWriter(f)
	file, err := a.Create("package/p.wasm")
	require.NoError(t, err)
	_, err = file.Write([]byte("wasm"))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, f.Close())

	p, other := File{Name: "package/p.wasm"}, File{Name: "p.wasm"}
	for pattern, read := range map[string]func(File) func(string) ([]byte, error){
		"*.tgz": func(f File) func(string) ([]byte, error) { return f.fromTar },
		"*.whl": func(f File) func(string) ([]byte, error) { return f.fromZip },
	} {
		data, err := only(dir, pattern, read(p))
		require.NoError(t, err)
		require.Equal(t, "wasm", string(data))
		_, err = only(dir, pattern, read(other))
		require.Error(t, err)
	}
	_, err = only(dir, "*.none", p.fromTar)
	require.ErrorContains(t, err, "found 0")
}
