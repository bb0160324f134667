package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// packages are the folders of the names the checklist gives packages.
var packages = map[string]string{
	"abi": "abi", "background": "pkg/background", "host": "host", "mcpapi": "server/mcpapi", "plugins": "plugins", "server": "server",
}

// TestChecklist holds that every test the checklist names exists.
func TestChecklist(t *testing.T) {
	doc, err := os.ReadFile("checklist.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllSubmatch(doc, -1)
	require.Equal(t, 240+20, len(rows), "all rows are there")
	named := regexp.MustCompile(`\b(\w+)\.((?:Test|Benchmark)[A-Z]\w*)`).FindAllSubmatch(doc, -1)
	require.NotEmpty(t, named)
	sources := map[string]string{}
	for _, n := range named {
		name, test := string(n[1]), string(n[2])
		if name == "package" { // the line that explains the notation
			continue
		}
		dir, ok := packages[name]
		require.True(t, ok, "%s.%s: no such package", name, test)
		if sources[dir] == "" {
			sources[dir] = testsOf(t, filepath.Join("..", filepath.FromSlash(dir)))
		}
		require.Contains(t, sources[dir], "func "+test+"(", "%s has no %s", dir, test)
	}
}

func testsOf(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	var b strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		b.Write(data)
	}
	return b.String()
}
