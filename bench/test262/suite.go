package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/host"
)

//go:embed tool.js
var tool string

// suite is a folder of test262, and the plugin that runs its scripts.
type suite struct {
	host    *host.Host
	plugin  *host.Module
	root    fs.FS
	harness map[string]string // by name
	fuel    int64             // of a call, in units
}

// global matches what a script declares for others besides variables and functions, which eval
// keeps to itself.
var global = regexp.MustCompile(`(?m)^(const|let) (\w+)`)

func newSuite(ctx context.Context, folder string) (*suite, error) {
	s := &suite{root: os.DirFS(folder), harness: map[string]string{}, fuel: 100_000_000_000}
	entries, err := fs.ReadDir(s.root, "harness")
	if err != nil {
		return nil, fmt.Errorf("not a folder of test262: %w", err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".js" {
			continue
		}
		data, err := fs.ReadFile(s.root, "harness/"+e.Name())
		if err != nil {
			return nil, err
		}
		s.harness[e.Name()] = global.ReplaceAllString(string(data), "var $2")
	}
	harness, err := json.Marshal(s.harness)
	if err != nil {
		return nil, err
	}

	if s.host, err = host.New(ctx, host.Config{}); err != nil {
		return nil, err
	}
	s.plugin, err = s.host.Compile(ctx, js.Plugin(fmt.Appendf(nil, "const harness = %s;\n%s", harness, tool)))
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *suite) close() { _ = s.host.Close(context.Background()) } // nothing runs

// leaveOut are folders whose tests are counted and not run: 469 tables of Unicode's data, made
// by a program, which take a quarter of an hour.
var leaveOut = []string{"built-ins/RegExp/property-escapes/generated/"}

// tests lists the tests below a folder of test, without the files that are parts of others.
func (s *suite) tests(folder string) (names []string, err error) {
	err = fs.WalkDir(s.root, path.Join("test", folder), func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path.Ext(name) == ".js" && !strings.HasSuffix(name, "_FIXTURE.js") {
			names = append(names, strings.TrimPrefix(name, "test/"))
		}
		return err
	})
	return names, err
}

// outcome is what became of tests, each of which may run twice: in strict mode and not.
type outcome struct {
	run, passed, skipped int
	failed               map[string]string // why, by the name of the test

	fuel int64
	took time.Duration // of a processor
}

func (o *outcome) add(p outcome) {
	o.run += p.run
	o.passed += p.passed
	o.skipped += p.skipped
	o.fuel += p.fuel
	o.took += p.took
	for name, why := range p.failed {
		o.failed[name] = why
	}
}

// run runs a test in each of its modes. It has failed if one of them has.
func (s *suite) run(ctx context.Context, name string) (o outcome, err error) {
	if slices.ContainsFunc(leaveOut, func(folder string) bool { return strings.HasPrefix(name, folder) }) {
		return outcome{skipped: 1}, nil
	}
	data, err := fs.ReadFile(s.root, "test/"+name)
	if err != nil {
		return o, err
	}
	source := string(data)
	m, err := parseMetadata(source)
	if err != nil {
		return o, err
	}

	o = outcome{run: 1, failed: map[string]string{}}
	is := func(flag string) bool { return slices.Contains(m.Flags, flag) }
	var modes, failed []string
	switch {
	case is("module"):
		modes = []string{"module"}
	case is("raw"), is("noStrict"):
		modes = []string{"sloppy"}
	case is("onlyStrict"):
		modes = []string{"strict"}
	default:
		modes = []string{"sloppy", "strict"}
	}
	for _, mode := range modes {
		r, err := s.call(ctx, m, source, mode)
		if err != nil {
			return o, err
		}
		o.fuel += r.Usage.Fuel - r.Usage.StartupFuel // without the harness, which each call begins with
		o.took += r.Usage.CPU
		if why := m.judge(r); why != "" {
			failed = append(failed, mode+": "+why)
		}
	}
	if len(failed) == 0 {
		o.passed = 1
	} else {
		o.failed[name] = strings.Join(failed, "\n")
	}
	return o, nil
}

// call runs a test in a mode.
func (s *suite) call(ctx context.Context, m metadata, source, mode string) (abi.Result, error) {
	plugin := s.plugin
	switch mode {
	case "strict":
		source = "\"use strict\";\n" + source
	case "module":
		var err error
		if plugin, err = s.host.Compile(ctx, s.module(m, source)); err != nil {
			return abi.Result{}, err
		}
		defer func() { _ = plugin.Close(ctx) }()
		source = ""
	}
	includes := append([]string{}, m.Includes...)
	if slices.Contains(m.Flags, "async") {
		includes = append(includes, "doneprintHandle.js")
	}
	args, err := json.Marshal(map[string]any{"source": source, "includes": includes, "async": slices.Contains(m.Flags, "async")})
	if err != nil {
		return abi.Result{}, err
	}

	// Its error is that of the test, and in the result.
	result, _ := s.host.Call(ctx, plugin, host.Call{
		Tool: "run", Args: args, Traits: host.Traits{Plugin: "test262"},
		Policy: host.Policy{Fuel: s.fuel, Memory: 512 << 20},
	})
	return result, ctx.Err()
}

// module is the plugin of a test that is a module. The harness is evaluated in front of it,
// and a tool that waits for the test's end is behind it.
func (s *suite) module(m metadata, source string) []byte {
	var before strings.Builder
	for _, file := range append([]string{"assert.js", "sta.js", "doneprintHandle.js"}, m.Includes...) {
		text, _ := json.Marshal(s.harness[file]) // a string always has JSON
		fmt.Fprintf(&before, "(0, eval)(%s);", text)
	}
	const printing = `globalThis.print = (line) => { globalThis.printed = String(line).replace(/^Test262:Async(TestComplete|TestFailure:)/, ""); };`
	const after = `
export const plugin = { name: 'test262', description: 'Runs a test of test262.' };
export const run = globalThis.toolhost.tool({ description: 'Says how it ended.' }, ({ async }) => {
  const failure = async ? globalThis.printed ?? 'never ends' : '';
  if (failure) throw new globalThis.toolhost.ToolError(failure);
});`
	return js.Plugin([]byte(printing + before.String() + source + after))
}

// judge says why a result is not what a test expects. It is empty if it is.
func (m metadata) judge(r abi.Result) string {
	kind, _, _ := strings.Cut(r.Error, ":")
	switch {
	case r.Kind == abi.Internal || r.Limit != "":
		return "ends the program: " + r.Error
	case m.Negative == nil:
		return r.Error
	case r.IsSuccess():
		return "expected " + m.Negative.Type
	case kind != m.Negative.Type:
		return fmt.Sprintf("expected %s, got %s", m.Negative.Type, r.Error)
	}
	return ""
}
