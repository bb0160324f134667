// Command cpython runs CPython's own tests in the sandbox: as a plugin on the runtime of
// package python, metered, each module of tests in a call of its own. It fails if the tests
// that fail are not those of failures.txt.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/bench/internal/known"
	"github.com/toolhost/toolhost/guest/python"
	"github.com/toolhost/toolhost/host"
)

// modules are the modules of tests that are run unless the command line has some.
var modules = strings.Fields(`
	test_base64 test_binascii test_bisect test_calendar test_cmath test_collections test_colorsys
	test_complex test_configparser test_contextlib test_copy test_csv test_dataclasses test_datetime test_decimal
	test_defaultdict test_deque test_dict test_difflib test_enum test_float test_fnmatch test_fractions test_functools
	test_generators test_graphlib test_hashlib test_heapq test_html test_htmlparser test_ipaddress test_itertools
	test_json test_list test_math test_operator test_ordered_dict test_pprint test_quopri test_random test_range
	test_re test_reprlib test_set test_shlex test_statistics test_string test_struct test_textwrap test_tomllib
	test_tuple test_typing test_urlparse test_uuid test_xml_etree test_zlib`)

//go:embed tool.py
var tool []byte

//go:embed failures.txt
var failures string

func main() {
	lib := flag.String("lib", "", "`folder` Lib of the sources of CPython 3.13.5")
	flag.Parse()
	if *lib == "" {
		fmt.Fprintln(os.Stderr, "cpython: -lib is missing: see README.md for how to get the sources")
		os.Exit(2)
	}

	names := flag.Args()
	if len(names) == 0 {
		names = modules
	}
	if err := run(context.Background(), *lib, names); err != nil {
		fmt.Fprintln(os.Stderr, "cpython:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, lib string, names []string) error {
	s, err := newSuite(ctx, lib)
	if err != nil {
		return err
	}
	defer s.close()

	return s.check(ctx, os.Stdout, names, failures)
}

// outcome is what became of a module of tests.
type outcome struct {
	Run     int               `json:"run"`
	Passed  int               `json:"passed"`
	Skipped map[string]int    `json:"skipped"` // how many, by why
	Failed  map[string]string `json:"failed"`  // why, by the name of the test

	fuel   int64
	memory int64 // bytes
	took   time.Duration
}

var errDiffers = errors.New("the failures are not those that are known")

// check runs modules of tests, prints what became of them, and compares the failures with
// the list of those that are known.
func (s *suite) check(ctx context.Context, out io.Writer, names []string, list string) error {
	expected, err := known.Parse(list)
	if err != nil {
		return fmt.Errorf("failures.txt: %w", err)
	}

	var failed []string
	total := outcome{Failed: map[string]string{}, Skipped: map[string]int{}}
	for _, name := range names {
		o, err := s.run(ctx, name, expected)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		o.print(out, name)
		total.add(o)
		failed = slices.AppendSeq(failed, maps.Keys(o.Failed))
	}
	total.print(out, "all")

	for _, why := range slices.Sorted(maps.Keys(total.Skipped)) {
		fmt.Fprintf(out, "%6d skipped: %s\n", total.Skipped[why], why)
	}
	reasons, count := expected.Reasons(failed)
	for _, why := range reasons {
		fmt.Fprintf(out, "%6d fail: %s\n", count[why], why)
	}
	unknown, gone := expected.Compare(failed, func(name string) bool { return slices.Contains(names, moduleOf(name)) })
	for _, name := range unknown {
		fmt.Fprintf(out, "not known to fail: %s\n\t%s\n", name, total.Failed[name])
	}
	for _, name := range gone {
		fmt.Fprintf(out, "known to fail, and does not: %s\n", name)
	}
	if len(unknown)+len(gone) > 0 {
		return errDiffers
	}
	return nil
}

func (o *outcome) add(p outcome) {
	o.Run += p.Run
	o.Passed += p.Passed
	o.fuel += p.fuel
	o.memory = max(o.memory, p.memory)
	o.took += p.took
	maps.Copy(o.Failed, p.Failed)
	for why, n := range p.Skipped {
		o.Skipped[why] += n
	}
}

func (o outcome) skipped() (n int) {
	for _, some := range o.Skipped {
		n += some
	}
	return n
}

func (o outcome) print(out io.Writer, name string) {
	fmt.Fprintf(out, "%-18s %6d run %6d passed %4d failed %4d skipped %10.0f M units %5d MiB %8s\n",
		name, o.Run, o.Passed, len(o.Failed), o.skipped(), float64(o.fuel)/1e6, o.memory>>20, o.took.Round(10*time.Millisecond))
}

// moduleOf is the module of a test: those of set-up are named "setUpClass (test.test_x.Class)".
func moduleOf(test string) string {
	_, test, _ = strings.Cut(test, "test.")
	name, _, _ := strings.Cut(test, ".")
	return strings.TrimSuffix(name, ")")
}

// suite is the plugin that runs tests.
type suite struct {
	host   *host.Host
	plugin *host.Module
	lib    string
	work   string // folder of its own, which it removes
}

func newSuite(ctx context.Context, lib string) (*suite, error) {
	lib, err := filepath.Abs(lib)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(lib, "test", "support")); err != nil {
		return nil, fmt.Errorf("not the folder Lib of CPython: %w", err)
	}
	wasm, err := python.Plugin(fstest.MapFS{"tool.py": {Data: tool}})
	if err != nil {
		return nil, err
	}

	s := &suite{lib: lib}
	if s.work, err = os.MkdirTemp("", "cpython"); err != nil {
		return nil, err
	}
	if s.host, err = host.New(ctx, host.Config{}); err == nil {
		s.plugin, err = s.host.Compile(ctx, wasm)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *suite) close() {
	if s.host != nil {
		_ = s.host.Close(context.Background()) // nothing runs
	}
	_ = os.RemoveAll(s.work)
}

// run runs a module of tests. It grants a folder for temporary files and the library to read,
// and neither clock nor randomness, so that a run is the same each time. Tests that end the
// program are left out: known failures whose explanation begins with "ends the program".
func (s *suite) run(ctx context.Context, name string, expected known.Failures) (o outcome, err error) {
	tmp, err := os.MkdirTemp(s.work, name)
	if err != nil {
		return o, err
	}
	left := []string{}
	for test, why := range expected {
		if strings.HasPrefix(why, "ends the program") && moduleOf(test) == name {
			left = append(left, test)
		}
	}
	slices.Sort(left)
	args, err := json.Marshal(map[string]any{"module": name, "leave": left})
	if err != nil {
		return o, err
	}

	result, err := s.host.Call(ctx, s.plugin, host.Call{
		Tool: "run", Args: args, Traits: host.Traits{Plugin: "cpython-tests"},
		Policy: host.Policy{
			Fuel: 10_000_000_000_000, Memory: 1 << 30, Output: 64 << 20, Timeout: 30 * time.Minute,
			Grant: host.Grant{
				Files: []host.Mount{{Dir: s.lib, Path: "/lib"}, {Dir: tmp, Path: "/tmp", Mode: abi.FileWrite}},
				Env:   map[string]string{"TMPDIR": "/tmp"},
			},
		},
	})
	if err == nil && !result.IsSuccess() {
		err = errors.New(result.Error)
	}
	if err != nil {
		return o, err
	}

	err = json.Unmarshal(result.Value, &o)
	for _, test := range left {
		o.Failed[test] = "not run"
	}
	o.fuel, o.memory, o.took = result.Usage.Fuel, result.Usage.MemoryPeak, result.Usage.CPU
	return o, err
}
