// Command extism runs public test plugins of Extism with Extism's Go SDK and with Toolhost,
// in turns, and compares the processor time of a call. It needs Linux.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

func main() {
	rounds := flag.Int("rounds", 300, "calls of each kind and size; of 1 MiB a tenth")
	flag.Parse()
	if err := run(context.Background(), *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "extism:", err)
		os.Exit(1)
	}
}

// measured are the plugins that do something with an input of any size.
var measured = []struct{ file, language, function string }{
	{"println", "TinyGo", "run_test"},
	{"replace", "TinyGo", "run_test"},
	{"count_vowels", "Rust", "count_vowels"},
	{"hello_haskell", "Haskell", "testing"},
}

func run(ctx context.Context, rounds int) error {
	runtime.LockOSThread() // of which it takes the time
	defer runtime.UnlockOSThread()

	h, err := host.New(ctx, host.Config{})
	if err != nil {
		return err
	}
	defer h.Close(ctx)

	fmt.Printf("%-14s %8s %28s %14s %14s %8s %8s %8s\n", "median", "input", "Toolhost, clean (quartiles)", "Extism, warm", "Extism, clean", "×warm", "×clean", "same")
	for _, m := range measured {
		p, err := load(ctx, h, m.file, m.function)
		if err != nil {
			return fmt.Errorf("%s: %w", m.file, err)
		}
		for _, size := range []int{16, 1 << 10, 1 << 20} {
			n := rounds
			if size == 1<<20 {
				n = max(rounds/10, 10)
			}
			if err := p.measure(ctx, m.file, m.language, size, n); err != nil {
				return fmt.Errorf("%s at %d bytes: %w", m.file, size, err)
			}
		}
		p.close(ctx)
	}
	return nil
}

// input is a text of that size, which test plugins count and replace in.
func input(size int) string {
	const text = "the quick brown fox jumps over THE lazy dog. "
	return strings.Repeat(text, size/len(text)+1)[:size]
}

// measure times calls of both, each compared with the other.
func (p *pair) measure(ctx context.Context, file, language string, size, rounds int) error {
	text := input(size)
	args, _ := json.Marshal(map[string]string{"text": text})
	var ours, warm, clean []time.Duration
	timed := func(into *[]time.Duration, call func() (answer, error)) (answer, error) {
		began := processorTime()
		a, err := call()
		*into = append(*into, processorTime()-began)
		return a, err
	}

	for i := range rounds {
		got, err := timed(&ours, func() (answer, error) { return p.toolhost(ctx, args) })
		if err != nil {
			return err
		}
		want, err := timed(&warm, func() (answer, error) { return p.warm(ctx, text) })
		if err != nil {
			return err
		}
		if err := same(got, want); err != nil {
			return err
		}
		if i%10 == 0 { // which takes long
			if want, err = timed(&clean, func() (answer, error) { return p.clean(ctx, text) }); err == nil {
				err = same(got, want)
			}
			if err != nil {
				return err
			}
		}
	}

	for _, times := range [][]time.Duration{ours, warm, clean} {
		slices.Sort(times)
	}
	at := func(times []time.Duration, percent int) time.Duration { return times[(len(times)-1)*percent/100] }
	mine, theirs, anew := at(ours, 50), at(warm, 50), at(clean, 50)
	fmt.Printf("%-14s %8s %28s %14v %14v %8.1f %8.1f %8s\n", file, bytesOf(size),
		fmt.Sprintf("%v (%v–%v)", rounded(mine), rounded(at(ours, 25)), rounded(at(ours, 75))), rounded(theirs), rounded(anew),
		float64(theirs)/float64(mine), float64(anew)/float64(mine), "yes")
	return nil
}

// processorTime is that of the thread, on which both make their calls: other programs do
// not count.
func processorTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // every Linux has it
	return time.Duration(t.Nano())
}

func rounded(d time.Duration) time.Duration { return d.Round(max(d/1000, 10*time.Nanosecond)) }

func bytesOf(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// pair is a plugin as both have it.
type pair struct {
	function string
	host     *host.Host
	module   *host.Module
	compiled *extism.CompiledPlugin
	plugin   *extism.Plugin // that is called again and again
}

// wasmOf is the file of a test plugin, which comes with Extism's Go SDK.
func wasmOf(name string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "wasm", name+".wasm"), err
}

func load(ctx context.Context, h *host.Host, name, function string) (*pair, error) {
	file, err := wasmOf(name)
	if err != nil {
		return nil, err
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	p := &pair{function: function, host: h}
	if p.module, err = h.Compile(ctx, wasm); err != nil {
		return nil, err
	}
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: wasm}}, Config: settings}
	if p.compiled, err = extism.NewCompiledPlugin(ctx, manifest, extism.PluginConfig{EnableWasi: true}, nil); err == nil {
		p.plugin, err = p.compiled.Instance(ctx, extism.PluginInstanceConfig{})
	}
	return p, err
}

func (p *pair) close(ctx context.Context) {
	_ = p.plugin.Close(ctx)
	_ = p.compiled.Close(ctx)
	_ = p.module.Close(ctx)
}

// settings are those of all plugins.
var settings = map[string]string{"thing": "a setting", "path": "/nowhere"}

// answer is what came of a call: its output, or the text of its error.
type answer struct {
	output []byte
	failed bool
	text   string
}

var whole = "{text}"

// toolhost makes a call of Toolhost, in a clean instance.
func (p *pair) toolhost(ctx context.Context, args []byte) (answer, error) {
	r, err := p.host.Call(ctx, p.module, host.Call{
		Tool: "tool", Args: args, Traits: host.Traits{Function: p.function, Input: &whole},
		Policy: host.Policy{Grant: host.Grant{Config: settings}},
	})
	return answer{r.Value, r.Kind == abi.ToolError, r.Error}, err
}

// warm makes a call of Extism in the instance of the calls before, without their variables.
func (p *pair) warm(ctx context.Context, text string) (answer, error) {
	clear(p.plugin.Var)
	return called(ctx, p.plugin, p.function, text)
}

// clean makes a call of Extism in an instance of its own.
func (p *pair) clean(ctx context.Context, text string) (answer, error) {
	plugin, err := p.compiled.Instance(ctx, extism.PluginInstanceConfig{})
	if err != nil {
		return answer{}, err
	}
	defer plugin.Close(ctx)
	return called(ctx, plugin, p.function, text)
}

func called(ctx context.Context, plugin *extism.Plugin, function, text string) (answer, error) {
	code, output, err := plugin.CallWithContext(ctx, function, []byte(text))
	if exit, exits := errors.AsType[*sys.ExitError](err); exits {
		return answer{failed: true, text: fmt.Sprintf("exited with code %d", exit.ExitCode())}, nil
	}
	if err != nil {
		return answer{failed: true, text: err.Error()}, nil
	}
	return answer{output, code != 0, string(output)}, nil
}

// same returns an error if Toolhost did not answer what Extism did: the same JSON, or the
// same text as a string in JSON.
func same(got, want answer) error {
	if got.failed || want.failed {
		if got.failed != want.failed || want.text != "" && got.text != strings.TrimSpace(want.text) {
			return fmt.Errorf("Toolhost: failed %v %q; Extism: failed %v %q", got.failed, got.text, want.failed, want.text)
		}
		return nil
	}

	var text string
	var compact bytes.Buffer
	switch {
	case json.Valid(want.output):
		_ = json.Compact(&compact, want.output)
		if bytes.Equal(got.output, compact.Bytes()) {
			return nil
		}
	case json.Unmarshal(got.output, &text) == nil && text == strings.ToValidUTF8(string(want.output), "\uFFFD"):
		return nil
	}
	return errors.New("they differ: " + string(got.output[:min(len(got.output), 100)]) + "; Extism: " + string(want.output[:min(len(want.output), 100)]))
}
