package plugins

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// TestVersions: a version that was kept is there after its file was replaced.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	files := map[string][]byte{"p.wasm": saying("p", "one", 1), "s.wasm": unsealed(), "s.toolhost.yaml": []byte(sidecarYAML)}
	r := open(t, files)
	digests := map[string]string{}
	for _, p := range r.Plugins() {
		digest, err := p.Digest()
		require.NoError(t, err)
		digests[p.Manifest.Name] = digest
		require.NoError(t, p.Keep(dir))
	}

	changed := map[string][]byte{"p.wasm": saying("p", "two", 2), "s.wasm": append(unsealed(), 0, 2, 1, 'x'), "s.toolhost.yaml": []byte(strings.ReplaceAll(sidecarYAML, "Made for a test.", "Changed."))}
	later := openWith(t, newHost(t), Config{Folders: []Folder{folder(changed)}, Grants: map[string]Grant{"p": {Clock: true}}})
	for name, digest := range digests {
		p, err := later.Version(t.Context(), dir, name, digest)
		require.NoError(t, err, name)
		require.Equal(t, later.set.Load().byName()[name].Grant, p.Grant, "what is granted now")
		have, err := p.Digest()
		require.NoError(t, err)
		require.Equal(t, digest, have)
		again, err := later.Version(t.Context(), dir, name, digest)
		require.NoError(t, err)
		require.Same(t, p, again)
	}
	p, _ := later.Version(t.Context(), dir, "p", digests["p"])
	answer, err := p.Tools[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
	require.JSONEq(t, `1`, string(answer.Value))
	side, _ := later.Version(t.Context(), dir, "side", digests["side"])
	require.Equal(t, "Made for a test.", side.Manifest.Description)

	later.Forget(t.Context(), digests["p"])
	_, err = p.Tools[0].Call(t.Context(), host.Call{})
	require.ErrorIs(t, err, ErrReplaced)
	anew, err := later.Version(t.Context(), dir, "p", digests["p"])
	require.NoError(t, err)
	require.NotSame(t, p, anew)

	for name, digest := range map[string]string{"q": digests["p"], "p": strings.Repeat("0", 64)} {
		_, err := later.Version(t.Context(), dir, name, digest)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	_, err = later.Version(t.Context(), dir, "p", digests["side"])
	require.ErrorContains(t, err, "is not what its name says")
	require.NoError(t, os.Rename(filepath.Join(dir, digests["side"]+".wasm"), filepath.Join(dir, digests["p"]+".wasm")))
	later.Forget(t.Context(), digests["p"])
	_, err = later.Version(t.Context(), dir, "p", digests["p"])
	require.Error(t, err)
}
