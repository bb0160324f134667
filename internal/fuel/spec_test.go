package fuel

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestSpec runs the WebAssembly specification's test suite, as wazero carries
// it, three times side by side: plain, rewritten, and rewritten the simple way.
// Every module must be accepted or refused alike, every call must return the
// same values or trap the same way, and a call that returns must cost the same
// fuel however it was charged.
func TestSpec(t *testing.T) {
	fulltest.Only(t, "compiles several thousand modules three times")
	if raceDetector {
		t.Skip("each script is in one goroutine")
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	require.NoError(t, err)
	dir := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	spectest, err := os.ReadFile(filepath.Join(dir, "testdata", "spectest.wasm"))

	require.NoError(t, err)
	for _, suite := range []string{"v1", "v2", "tail-call", "extended-const"} {
		files, err := filepath.Glob(filepath.Join(dir, suite, "testdata", "*.json"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			t.Run(suite+"/"+strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
				t.Parallel()
				runSpec(t, file, spectest)
			})
		}
	}
}

type specCommand struct {
	Type       string     `json:"type"`
	Line       int        `json:"line"`
	Name       string     `json:"name"`
	Filename   string     `json:"filename"`
	As         string     `json:"as"`
	ModuleType string     `json:"module_type"`
	Action     specAction `json:"action"`
}

type specAction struct {
	Type   string      `json:"type"`
	Module string      `json:"module"`
	Field  string      `json:"field"`
	Args   []specValue `json:"args"`
}

type specValue struct {
	Type     string `json:"type"`
	LaneType string `json:"lane_type"`
	Value    any    `json:"value"`
}

func runSpec(t *testing.T, file string, spectest []byte) {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var script struct{ Commands []specCommand }
	require.NoError(t, json.Unmarshal(raw, &script))
	worlds := []*world{newWorld(t, nil, spectest), newWorld(t, rewriteFast, spectest), newWorld(t, rewriteSimple, spectest)}
	for i, c := range script.Commands {
		if c.ModuleType == "text" {
			continue
		}
		var wasm []byte
		if c.Filename != "" {
			wasm, err = os.ReadFile(filepath.Join(filepath.Dir(file), c.Filename))
			require.NoError(t, err)
		}
		if c.Type == "module" && i+1 < len(script.Commands) && script.Commands[i+1].Type == "register" {
			c.As = script.Commands[i+1].As
		}
		plain := worlds[0].do(c, wasm)
		if c.Type == "module" {
			require.Empty(t, plain.err, "line %d", c.Line)
		}
		if c.Type == "assert_return" {
			require.Empty(t, plain.err, "line %d", c.Line)
		}

		var used int64
		for k, w := range worlds[1:] {
			got := w.do(c, wasm)
			require.Equal(t, plain.err, got.err, "line %d", c.Line)
			require.Equal(t, plain.values, got.values, "line %d", c.Line)
			if k == 0 {
				used = got.used
			} else if plain.err == "" {
				require.Equal(t, got.used, used, "fuel, line %d: simple, fast", c.Line)
			}
		}
	}
}

func rewriteFast(wasm []byte) ([]byte, error)   { return rewriteFor(wasm, false) }
func rewriteSimple(wasm []byte) ([]byte, error) { return rewriteFor(wasm, true) }

func rewriteFor(wasm []byte, simple bool) ([]byte, error) {
	p, err := rewrite(simple, wasm)
	if err != nil {
		return nil, err
	}
	return p.Wasm, nil
}

// world is a runtime with the modules of one script.
type world struct {
	rt      wazero.Runtime
	change  func([]byte) ([]byte, error)
	named   map[string]api.Module
	last    api.Module
	all     []api.Module
	granted int64
}

// outcome is what a command did: the values it returned, or how it failed.
type outcome struct {
	err    string
	values []uint64
	used   int64
}

func newWorld(t *testing.T, change func([]byte) ([]byte, error), spectest []byte) *world {
	ctx := context.Background()
	w := &world{change: change, named: make(map[string]api.Module)}
	w.rt = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features))
	t.Cleanup(func() { w.rt.Close(ctx) })
	_, err := w.rt.NewHostModuleBuilder(ImportModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			more := max(0, -int64(stack[0])) + 100
			w.granted += more
			stack[0] += uint64(more)
		}), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(ImportName).Instantiate(ctx)
	require.NoError(t, err)
	_, err = w.rt.InstantiateWithConfig(ctx, spectest, wazero.NewModuleConfig())
	require.NoError(t, err)

	return w
}

// used is all fuel used so far.
func (w *world) used() int64 {
	used := w.granted
	for _, m := range w.all {
		if g := m.ExportedGlobal(CounterExport); g != nil {
			used -= int64(g.Get())
		}
	}
	return used
}

func (w *world) do(c specCommand, wasm []byte) outcome {
	before := w.used()
	o := w.run(c, wasm)
	o.used = w.used() - before
	return o
}

func (w *world) run(c specCommand, wasm []byte) outcome {
	ctx := context.Background()
	switch c.Type {
	case "register":
		return outcome{}
	case "module", "assert_uninstantiable", "assert_unlinkable", "assert_invalid", "assert_malformed":
		var err error
		if w.change != nil {
			wasm, err = w.change(wasm)
		}
		var mod api.Module
		if err == nil {
			mod, err = w.rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(c.As))
		}
		if err != nil {
			if c.Type == "assert_uninstantiable" {
				return outcome{err: firstLine(err)}
			}
			return outcome{err: "refused"}
		}
		w.all = append(w.all, mod)
		if c.Type == "module" {
			w.last = mod
		}
		if c.Name != "" {
			w.named[c.Name] = mod
		}
		return outcome{}
	}

	m := w.last
	if c.Action.Module != "" {
		m = w.named[c.Action.Module]
	}
	if c.Action.Type == "get" {
		return outcome{values: []uint64{m.ExportedGlobal(c.Action.Field).Get()}}
	}

	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.stack()...)
	}
	f := m.ExportedFunction(c.Action.Field)
	values, err := f.Call(ctx, args...)
	if err != nil {
		return outcome{err: firstLine(err)}
	}

	i := 0
	for _, t := range f.Definition().ResultTypes() {
		if t != api.ValueTypeI32 && t != api.ValueTypeI64 && t != api.ValueTypeF32 && t != api.ValueTypeF64 && t != api.ValueTypeExternref && t != 0x7b && values[i] != 0 {
			values[i] = 1 // a reference is an address
		}
		if i++; t == 0x7b {
			i++
		}
	}

	return outcome{values: values}
}

// functionIndex is what rewriting changes in messages.
var functionIndex = regexp.MustCompile(`function\[\d+\]`)

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return functionIndex.ReplaceAllString(s, "function")
}

// stack is the value as the stack holds it.
func (v specValue) stack() []uint64 {
	if v.Type != "v128" {
		s, _ := v.Value.(string)
		n := specNumber(s, v.Type)
		if v.Type == "externref" && s != "null" {
			n++ // zero is null
		}
		return []uint64{n}
	}

	lanes := v.Value.([]any)
	out := []uint64{0, 0}
	width := 128 / len(lanes)
	for i, l := range lanes {
		n := specNumber(l.(string), v.LaneType)
		if width < 64 {
			n &= 1<<width - 1
		}
		out[i*width/64] |= n << (i * width % 64)
	}

	return out
}

func specNumber(s, typ string) uint64 {
	switch {
	case s == "" || s == "null":
		return 0
	case strings.HasPrefix(s, "nan:") && strings.HasSuffix(typ, "32"):
		return 0x7fc00000
	case strings.HasPrefix(s, "nan:"):
		return 0x7ff8 << 48
	}

	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		m, _ := strconv.ParseInt(s, 10, 64)
		n = uint64(m)
	}
	if strings.HasSuffix(typ, "32") {
		n = uint64(uint32(n))
	}

	return n
}
