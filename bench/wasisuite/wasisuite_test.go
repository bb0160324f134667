package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/bench/internal/known"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

func TestMain(m *testing.M) {
	host.CompilerMain()
	os.Exit(m.Run())
}

// TestList: the list of failures can be read.
func TestList(t *testing.T) {
	list, err := known.Parse(failures)
	require.NoError(t, err)
	require.NotEmpty(t, list)
}

// TestRun runs a suite of programs that behave as their tests expect, or do not.
func TestRun(t *testing.T) {
	suite := t.TempDir()
	folder := filepath.Join(suite, "tests", "c", "testsuite", "wasm32-wasip1")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "root"), 0o700))
	do := plugintest.Do
	for name, c := range map[string]struct {
		program *plugintest.Program
		test    string
	}{
		"exits":            {do().Exit(33), `{"exit_code": 33}`},
		"exits otherwise":  {do().Exit(1), `{"exit_code": 33}`},
		"crashes":          {do().Say(abi.StreamStderr, "assertion failed").Trap(), ""},
		"prints":           {do().Say(abi.StreamResult, "hello").Exit(0), `{"stdout": "hello"}`},
		"prints otherwise": {do().Say(abi.StreamResult, "help").Exit(0), `{"stdout": "hello"}`},
		"prints anything":  {do().Say(abi.StreamResult, "help").Exit(0), ""},
		"creates":          {do().Create("x").Exit(0), `{"root": "root", "args": ["{", "-x"], "env": {"a": "b\nc"}}`},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".wasm"), plugintest.Plugin{Command: true, Invoke: c.program}.Wasm(), 0o600))
		if c.test != "" {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name+".json"), []byte(c.test), 0o600))
		}
	}

	tests, err := find(suite, "c")
	require.NoError(t, err)
	require.Len(t, tests, 7)
	failed, err := runAll(t.Context(), tests)
	require.NoError(t, err)
	require.Equal(t, "crashes, exits otherwise, prints otherwise", names(failed))
	require.Contains(t, failed["crashes"], "assertion failed")
	require.Equal(t, "exited with code 1", failed["exits otherwise"])
	require.Equal(t, `expected "hello" on stdout, got "help"`, failed["prints otherwise"])
	entries, err := os.ReadDir(filepath.Join(folder, "root"))
	require.NoError(t, err)
	require.Empty(t, entries, "each test has a copy of the folder")

	_, err = find(suite, "rust")
	require.ErrorContains(t, err, "has no compiled tests")
}
