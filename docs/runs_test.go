package docs_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// packages are the folders of the packages that promises.txt and RATIONALE.md name.
var packages = map[string]string{
	"background": "pkg/background", "engine": "pkg/background/engine", "enginetest": "pkg/background/engine/enginetest", "output": "pkg/background/output", "schedule": "pkg/background/internal/schedule", "sqlite": "pkg/background/sqlite",
	"abi": "abi", "host": "host", "httpapi": "server/httpapi", "mcpapi": "server/mcpapi", "plugins": "plugins", "server": "server", "toolhost": "cmd/toolhost",
}

var (
	promise = regexp.MustCompile(`^- \*\*(.+?)\.\*\* .`)                                      // an item of the page, with its name
	named   = regexp.MustCompile(`^(\w+)\.((?:Test|Benchmark|Fuzz)[A-Z]\w*|Run)(?:/(\S+))?$`) // a test, perhaps with a subtest
)

// TestPromises holds that testdata/promises.txt has the promises of runs.md, which are the
// items of its lists, in the same order, each with tests that exist.
func TestPromises(t *testing.T) {
	var made []string
	for line := range strings.Lines(read(t, "runs.md")) {
		if strings.HasPrefix(line, "- ") {
			m := promise.FindStringSubmatch(line)
			require.NotNil(t, m, "a promise without a name: %s", line)
			made = append(made, m[1])
		}
	}
	require.NotEmpty(t, made)

	held, tests := readPromises(t)
	require.Equal(t, made, held, "promises of runs.md, and those of promises.txt")
	require.Len(t, tests, len(made), "two promises have the same name")

	sources := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		require.NotEmpty(t, tests[name], "%q has no test", name)
		for _, test := range tests[name] {
			checkTest(t, sources, test)
		}
	}
}

// readPromises returns the names of the promises of promises.txt in their order, and the
// tests of each.
func readPromises(t *testing.T) (names []string, tests map[string][]string) {
	tests = map[string][]string{}
	for line := range strings.Lines(read(t, "testdata/promises.txt")) {
		line = strings.TrimSuffix(line, "\n")
		test, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || line[0] == '#':
		case !indented:
			names = append(names, line)
			tests[line] = nil
		default:
			require.NotEmpty(t, names, "%s belongs to no promise", test)
			last := names[len(names)-1]
			tests[last] = append(tests[last], test)
		}
	}
	return names, tests
}

// checkTest fails unless a test exists. Sources are those of packages that were read before.
func checkTest(t *testing.T, sources map[string]string, name string) {
	m := named.FindStringSubmatch(name)
	require.NotNil(t, m, "%q is not a test", name)
	test, sub := m[2], m[3]
	dir, ok := packages[m[1]]
	require.True(t, ok, "%s: no such package", name)
	dir = filepath.Join("..", filepath.FromSlash(dir))

	if sources[dir] == "" {
		sources[dir] = testsOf(t, dir)
	}
	require.True(t, strings.Contains(sources[dir], "func "+test+"("), "%s does not exist", name)

	switch {
	case sub == "":
	case test == "TestWire":
		require.FileExists(t, filepath.Join(dir, "testdata", sub+".txtar"))
	case test == "TestScripts":
		require.FileExists(t, filepath.Join(dir, "testdata", "script", sub+".txtar"))
	default:
		literal := strconv.Quote(strings.ReplaceAll(sub, "_", " "))
		require.True(t, strings.Contains(sources[dir], literal), "%s: no such subtest", name)
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
		b.WriteString(read(t, f))
	}
	return b.String()
}
