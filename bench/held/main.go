// Command held measures what metering costs on real programs that it was not tuned on, each with
// layouts of its code that differ at random. It needs Linux.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/docs"
)

// options are those of a run.
type options struct {
	processes, rounds, wasmtime int
	only, engines               string
	shuffle                     bool

	dir  string // of the programs; set in the processes that measure
	seed uint64
}

func main() {
	var o options
	flag.IntVar(&o.processes, "processes", 8, "processes, each with a layout of its own")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds of each program on each engine in a process")
	flag.IntVar(&o.wasmtime, "wasmtime", 3, "how many of the processes also measure wasmtime, which takes long to compile")
	flag.StringVar(&o.only, "only", "", "comma-separated programs; all if empty")
	flag.StringVar(&o.engines, "engines", "", "comma-separated engines; all if empty. wazero is always one")
	flag.BoolVar(&o.shuffle, "shuffle", true, "lay out the code at random; otherwise as it was compiled")
	page := flag.String("docs", "", "`page` whose tables to replace")
	flag.StringVar(&o.dir, "dir", "", "for its own processes: where the programs are")
	flag.Uint64Var(&o.seed, "seed", 0, "for its own processes: of the layouts")
	flag.Parse()

	run := o.run
	if o.dir != "" {
		run = func(context.Context, string) error { return o.measure(os.Stdout) }
	}
	if err := run(context.Background(), *page); err != nil {
		fmt.Fprintln(os.Stderr, "held:", err)
		os.Exit(1)
	}
}

// run fetches the programs, measures them in several processes, one after the other, and prints the tables.
func (o options) run(ctx context.Context, page string) error {
	dir, err := os.MkdirTemp("", "held")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	used, err := o.programs()
	if err != nil {
		return err
	}
	for _, p := range used {
		if err := p.prepare(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	sizes, err := growth(dir, used)
	if err != nil {
		return err
	}

	var all []timing
	for i := range o.processes {
		fmt.Fprintf(os.Stderr, "process %d of %d\n", i+1, o.processes)
		times, err := o.process(ctx, dir, max(0, o.wasmtime-i))
		if err != nil {
			return err
		}
		all = append(all, times...)
	}
	text := "\n" + table(used, o.used(), all) + "\n" + o.load() + "\n" + sizes + "\n"
	if page != "" {
		return docs.Replace(page, "held", text)
	}
	fmt.Print(text)
	return nil
}

// programs are those that were asked for.
func (o options) programs() ([]program, error) {
	if o.only == "" {
		return programs, nil
	}
	var used []program
	for _, name := range strings.Split(o.only, ",") {
		i := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown program %q", name)
		}
		used = append(used, programs[i])
	}
	return used, nil
}

// process measures the programs in a process of its own, on wasmtime too if wasmtime is above zero.
func (o options) process(ctx context.Context, dir string, wasmtime int) ([]timing, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-dir", dir, "-seed", fmt.Sprint(rand.Uint64()), "-rounds", fmt.Sprint(o.rounds), "-wasmtime", fmt.Sprint(wasmtime),
		"-only", o.only, "-engines", o.engines, fmt.Sprintf("-shuffle=%t", o.shuffle))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	var times []timing
	return times, json.Unmarshal(out, &times)
}

// prepare fetches a program and its input into a folder.
func (p program) prepare(ctx context.Context, dir string) error {
	wasm, input, err := p.fetch(ctx, filepath.Join(dir, p.name))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, p.name+".wasm"), wasm, 0o600),
		os.WriteFile(filepath.Join(dir, p.name+".input"), input, 0o600),
	)
}
