package contract_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// wasi has the functions that plugins of plugintest import.
var wasi = contract.Imports{abi.ImportWASI: {
	"proc_exit": "(i32) -> ()",
	"path_open": "(i32, i32, i32, i32, i32, i64, i64, i32, i32) -> i32",
}}

func TestInspect(t *testing.T) {
	for name, c := range map[string]struct {
		plugin  plugintest.Plugin
		defined contract.Imports
		shape   contract.Shape
		err     string
	}{
		"a reactor":             {plugintest.Plugin{Describe: plugintest.Do()}, wasi, contract.Reactor, ""},
		"a command":             {plugintest.Plugin{Command: true}, wasi, contract.Command, ""},
		"an undefined function": {plugintest.Plugin{}, contract.Imports{abi.ImportWASI: {"proc_exit": "(i32) -> ()"}}, "", `import "wasi_snapshot_preview1.path_open": this host has no such function in wasi_snapshot_preview1`},
		"a function of another type": {plugintest.Plugin{}, contract.Imports{abi.ImportWASI: {"proc_exit": "() -> ()"}}, "",
			`import "wasi_snapshot_preview1.proc_exit": expected the type () -> (), found (i32) -> ()`},
		"a misspelled function": {plugintest.Plugin{Import: "wirte"}, wasi, "", `import "toolhost_v1.wirte": toolhost_v1 has no such function, did you mean "write"?`},
	} {
		t.Run(name, func(t *testing.T) {
			wasm := c.plugin.Wasm()
			info, err := contract.Inspect(wasm, c.defined)
			scanned, scanErr := contract.Scan(bytes.NewReader(wasm), int64(len(wasm)), c.defined)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				require.EqualError(t, scanErr, c.err)
				require.ErrorIs(t, err, contract.ErrABI)
				return
			}

			require.NoError(t, err)
			require.NoError(t, scanErr)
			require.Equal(t, c.shape, info.Shape)
			require.Equal(t, contract.Digest(wasm), info.Digest)
			require.Empty(t, scanned.Digest)
			require.Equal(t, c.plugin.Describe != nil, info.Describe)
		})
	}
}

func TestExtismWithoutManifest(t *testing.T) {
	require.ErrorIs(t, (&contract.Info{Shape: contract.Extism}).NoManifest(), contract.ErrNoManifest)
	require.EqualError(t, (&contract.Info{Shape: contract.Reactor}).CheckTools(&abi.Manifest{Tools: []abi.Tool{{Name: "a", Function: "b"}}}),
		(&abi.ManifestError{Tools: []string{"a"}, Problems: []abi.Problem{{Pointer: "/tools/0/function", Message: "only a plugin of Extism has it: this one does not import from extism:host/env"}}}).Error())
}
