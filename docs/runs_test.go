package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// packages are the folders of the names that the page gives packages.
var packages = map[string]string{
	"abi": "abi", "guest": "guest", "background": "pkg/background", "engine": "pkg/background/engine", "enginetest": "pkg/background/engine/enginetest", "output": "pkg/background/output", "schedule": "pkg/background/internal/schedule", "sqlite": "pkg/background/sqlite", "host": "host",
	"httpapi": "server/httpapi", "mcpapi": "server/mcpapi", "plugins": "plugins", "schema": "internal/schema", "server": "server", "toolhost": "cmd/toolhost",
	"echo": "examples/plugins/echo", "fail": "examples/plugins/fail", "files": "examples/plugins/files", "math": "examples/plugins/math",
}

// Patterns of the page: a row of a table, and a test with a subtest if it names
// one.
var (
	row   = regexp.MustCompile(`(?m)^\| ([A-Z][^|]*) \| (.+) \|$`)
	named = regexp.MustCompile(`\b(\w+)\.((?:Test|Benchmark|Fuzz)[A-Z]\w*|Run\b)(?:/([^\s;|,()` + "`" + `]+))?`)
)

// TestPromises holds that each promise names a test, and that every test the
// page names exists.
func TestPromises(t *testing.T) {
	data, err := os.ReadFile("runs.md")
	require.NoError(t, err)
	doc := string(data)

	rows := row.FindAllStringSubmatch(doc, -1)
	require.NotEmpty(t, rows)
	for _, r := range rows {
		require.Regexp(t, named, r[2], "%q names no test", r[1])
	}

	sources := map[string]string{}
	for _, n := range named.FindAllStringSubmatch(doc, -1) {
		name, test, sub := n[1], n[2], strings.TrimRight(n[3], ",.:")
		if name == "package" { // the line that explains the notation
			continue
		}
		dir, ok := packages[name]
		require.True(t, ok, "%s.%s: no such package", name, test)
		dir = filepath.Join("..", filepath.FromSlash(dir))
		if sources[dir] == "" {
			sources[dir] = testsOf(t, dir)
		}
		require.True(t, strings.Contains(sources[dir], "func "+test+"("), "%s has no %s", dir, test)
		switch {
		case sub == "":
		case test == "TestWire":
			require.FileExists(t, filepath.Join(dir, "testdata", sub+".txtar"))
		case test == "TestScripts":
			require.FileExists(t, filepath.Join(dir, "testdata", "script", sub+".txtar"))
		default:
			literal := strconv.Quote(strings.ReplaceAll(sub, "_", " "))
			require.True(t, strings.Contains(sources[dir], literal), "%s.%s has no subtest %s", name, test, literal)
		}
	}
}

// testsOf returns the source of a package's tests; enginetest has nothing else.
func testsOf(t *testing.T, dir string) string {
	pattern := "*_test.go"
	if filepath.Base(dir) == "enginetest" {
		pattern = "*.go"
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	var b strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		b.Write(data)
	}
	return b.String()
}
