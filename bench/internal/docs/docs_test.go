package docs

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplace(t *testing.T) {
	file := t.TempDir() + "/page.md"
	require.NoError(t, os.WriteFile(file, []byte("# x\n<!-- bench/a -->\nold\n<!-- bench/a ends -->\nend\n"), 0o600))
	require.NoError(t, Replace(file, "a", "new\n"))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "# x\n<!-- bench/a -->\nnew\n<!-- bench/a ends -->\nend\n", string(data))

	require.ErrorContains(t, Replace(file, "b", "new\n"), "expected")
	require.ErrorIs(t, Replace(file+"x", "a", ""), os.ErrNotExist)
}
