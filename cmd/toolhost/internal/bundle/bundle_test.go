package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// project writes files into a new folder, and returns the path of the first.
func project(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(dir, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(files[i+1]), 0o600))
	}
	return filepath.Join(dir, files[0])
}

// TestModule: types go, packages and JSON come in, and what nobody uses stays out.
func TestModule(t *testing.T) {
	module, err := Module(project(t,
		"tool.ts", `import { tool } from "toolhost";
import { used } from "package";
import data from "./data.json";
interface Unused { a: string }
export const a = tool({ description: data.text }, (x: Unused): number => used(x));
`,
		"node_modules/package/package.json", `{"name":"package","module":"lib/index.js","sideEffects":false}`,
		"node_modules/package/lib/index.js", "/*! a license */\nexport const used = (x) => 'grüezi';\nexport const other = 'left out';\n",
		"data.json", `{"text":"from JSON"}`,
	))
	require.NoError(t, err)
	text := string(module)
	for _, want := range []string{"globalThis.toolhost", "grüezi", "from JSON", "a license", "export {", "\n//# lines={"} {
		require.Contains(t, text, want)
	}
	for _, not := range []string{"left out", "interface", "import "} {
		require.NotContains(t, text, not)
	}
}

// TestLibraries: a module has what it imports of Toolhost and of Node, and no more.
func TestLibraries(t *testing.T) {
	for _, name := range []string{"node:fs/promises", "fs/promises"} {
		module, err := Module(project(t, "tool.ts", `import { readdir } from "`+name+`"; export const a = readdir;`))
		require.NoError(t, err)
		require.Contains(t, string(module), "ENOENT")
		require.NotContains(t, string(module), "import ")
	}
	module, err := Module(project(t, "tool.ts", `import { tool } from "toolhost"; export const a = tool;`))
	require.NoError(t, err)
	require.NotContains(t, string(module), "ENOENT")
}

// TestLines: the lines of a module are those of its sources.
func TestLines(t *testing.T) {
	l, err := originOf([]byte(`{"sources":["a.ts","b.ts"],"mappings":";AAAA,EAAE;ACCA,CAFA"}`))
	require.NoError(t, err)
	require.Equal(t, &lines{[]string{"a.ts", "b.ts"}, []*[2]int{nil, {0, 1}, {1, 2}}}, l)
	for _, mappings := range []string{"!", "g", "gggggggggggg", "é"} {
		_, err := originOf(fmt.Appendf(nil, `{"mappings":%q}`, mappings))
		require.ErrorIs(t, err, errMap, mappings)
	}
}

// TestMistakes: what cannot be bundled is told with its place, and with what to do.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"syntax":          {"export const a = ;", "tool.ts:1:18: Unexpected \";\"\n    export const a = ;"},
		"missing package": {"import x from 'no-such-package'; export { x }", "npm install"},
		"missing file":    {"import x from './missing'; export { x }", `Could not resolve "./missing"`},
		"of Node":         {"import fs from 'node:fs'; export { fs }", "node:fs is a module of Node, which tools do not have"},
		"missing export":  {"import { tol } from 'toolhost'; export const a = tol", `No matching export in "toolhost:toolhost" for import "tol"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Module(project(t, "tool.ts", c.source))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.ErrorContains(t, err, c.want)
		})
	}

	_, err := Module(filepath.Join(t.TempDir(), "tool.ts"))
	require.Error(t, err)
}

func FuzzOriginOf(f *testing.F) {
	f.Add(`{"sources":["a.ts"],"mappings":";AAAA,EAAE"}`)
	f.Fuzz(func(t *testing.T, text string) { _, _ = originOf([]byte(text)) })
}
