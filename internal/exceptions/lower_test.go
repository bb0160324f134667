package exceptions

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// lower parses, lowers and encodes a binary.
func lower(wasm []byte) ([]byte, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	if err := Lower(m); err != nil {
		return nil, err
	}
	return m.Encode(), nil
}

// engines are the two of the runtime.
var engines = map[string]wazero.RuntimeConfig{
	"compiler":    wazero.NewRuntimeConfigCompiler(),
	"interpreter": wazero.NewRuntimeConfigInterpreter(),
}

// TestPrograms runs what testdata/build.sh has compiled, and compares what it writes with
// what it wrote in node.
func TestPrograms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.wasm")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		wasm, err := os.ReadFile(file)
		require.NoError(t, err)
		want, err := os.ReadFile(strings.TrimSuffix(file, ".wasm") + ".txt")
		require.NoError(t, err)
		wasm, err = lower(wasm)
		require.NoError(t, err)

		for name, config := range engines {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				ctx := context.Background()
				rt := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(wasmbin.Features))
				defer rt.Close(ctx)
				wasi_snapshot_preview1.MustInstantiate(ctx, rt)

				var out bytes.Buffer
				_, err := rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStdout(&out).WithStderr(&out).WithArgs("program"))
				if exit := (*sys.ExitError)(nil); err != nil {
					require.ErrorAs(t, err, &exit)
				}
				require.Equal(t, string(want), out.String())
			})
		}
	}
}

// outcome is what a program of the generator logged, and what it came to.
type outcome struct {
	Log   []int32 `json:"log"`
	End   string  `json:"end"` // "returned" or "failed"
	Value int32   `json:"value"`
}

// runGenerated runs a lowered program.
func runGenerated(t *testing.T, config wazero.RuntimeConfig, wasm []byte) outcome {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(wasmbin.Features))
	defer rt.Close(ctx)
	o := outcome{Log: []int32{}}
	_, err := rt.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func(v int32) { o.Log = append(o.Log, v) }).Export("log").Instantiate(ctx)
	require.NoError(t, err)
	mod, err := rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(""))
	require.NoError(t, err)

	values, err := mod.ExportedFunction("f").Call(ctx, 7)
	if err != nil {
		o.End = "failed"
		return o
	}
	o.End, o.Value = "returned", int32(values[0])
	return o
}

// runInNode runs programs as they are, in one process.
func runInNode(t *testing.T, programs [][]byte, flags ...string) []outcome {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	if err := exec.CommandContext(t.Context(), node, append(flags, "--version")...).Run(); err != nil {
		t.Skipf("needs a node with %s", flags)
	}
	const script = `
const read = (await import("node:fs")).readFileSync(0, "utf8");
console.log(JSON.stringify(JSON.parse(read).map(text => {
  const o = {log: [], end: "failed", value: 0};
  const module = new WebAssembly.Module(Buffer.from(text, "base64"));
  const f = new WebAssembly.Instance(module, {env: {log: v => o.log.push(v)}}).exports.f;
  try { o.value = f(7); o.end = "returned"; } catch {}
  return o;
})));`
	input, err := json.Marshal(programs)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), node, append(flags, "--input-type=module", "-e", script)...)
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())

	var outcomes []outcome
	require.NoError(t, json.Unmarshal(out, &outcomes))
	return outcomes
}

// TestAgainstNode compares generated programs, lowered and run by both engines, with the
// programs as they are, run by node.
func TestAgainstNode(t *testing.T) {
	fulltest.Only(t, "runs programs in Node")
	for name, form := range map[string]struct {
		legacy bool
		flags  []string
	}{
		"try":       {legacy: true},
		"try_table": {flags: []string{"--experimental-wasm-exnref"}},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var programs [][]byte
			for range 400 {
				programs = append(programs, generate(randomBytes(random), form.legacy))
			}

			ends := map[string]int{}
			logs := 0
			for i, want := range runInNode(t, programs, form.flags...) {
				wasm, err := lower(programs[i])
				require.NoError(t, err)
				ends[want.End]++
				logs += len(want.Log)
				for engine, config := range engines {
					require.Equal(t, want, runGenerated(t, config, wasm), "program %d, %s", i, engine)
				}
			}
			t.Log(ends, logs)
			require.Greater(t, ends["returned"], 50)
			require.Greater(t, ends["failed"], 50)
		})
	}
}

func randomBytes(random *rand.Rand) []byte {
	b := make([]byte, 400)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}
