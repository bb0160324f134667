package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/plugins"
)

// A folder whose files do not end in .wasm has no plugin.
func TestHasModule(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "good.so"), nil, 0o600))
	require.False(t, hasModule(plugins.Dir(dir)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "good.wasm"), nil, 0o600))
	require.True(t, hasModule(plugins.Dir(dir)))
	require.True(t, hasModule(plugins.Dir(filepath.Join(dir, "missing"))), "its problem is another")
}

// Long grants do not push the description out of sight, also through a pipe. JSON has all
// of them.
func TestListIsNarrow(t *testing.T) {
	tools := []listedTool{{Name: "fetch", Description: "Fetches.", Grants: []string{strings.Repeat("http GET https://example.com/* ", 9)}}}
	grants := func() string { return listRows(tools)[1][4] }
	require.Regexp(t, "^http GET https://example.com/.*…$", grants())
	require.LessOrEqual(t, len([]rune(grants())), maxGrants)

	tools[0].Missing = []string{strings.Repeat("files /work (write) ", 9)}
	require.Regexp(t, "^MISSING: files /work .*…$", grants())
}
