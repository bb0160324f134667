package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/engine"
	"github.com/toolhost/toolhost/bench/internal/layout"
	"github.com/toolhost/toolhost/internal/exceptions"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// timing is what a program took on an engine in one process.
type timing struct {
	Program, Engine string
	Seconds         float64 // of the processor, in the fastest round
}

// used are the engines to measure. Wazero's way to stop a guest is left out, because it is
// several times slower.
func (o options) used() []engine.Engine {
	var used []engine.Engine
	for _, e := range engine.All {
		asked := o.engines == "" || e.Name == "wazero" || slices.Contains(strings.Split(o.engines, ","), e.Name)
		if asked && e.Name != "close on done" && (o.wasmtime > 0 || e.Base != "wasmtime") {
			used = append(used, e)
		}
	}
	return used
}

// measure measures all programs in this process.
func (o options) measure(w io.Writer) error {
	used, err := o.programs()
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.seed, 0))
	all := []timing{}
	for _, i := range rng.Perm(len(used)) {
		times, err := o.program(used[i], rng)
		if err != nil {
			return fmt.Errorf("%s: %w", used[i].name, err)
		}
		all = append(all, times...)
	}
	return json.NewEncoder(w).Encode(all)
}

// program measures a program on all engines. All run the same layout, but for "wazero again",
// which has another.
func (o options) program(p program, rng *rand.Rand) ([]timing, error) {
	wasm, err := os.ReadFile(filepath.Join(o.dir, p.name+".wasm"))
	if err != nil {
		return nil, err
	}
	input, err := os.ReadFile(filepath.Join(o.dir, p.name+".input"))
	if err != nil {
		return nil, err
	}
	first, err := laidOut(wasm, o.shuffle, rng)
	if err != nil {
		return nil, err
	}

	engines := o.used()
	programs := make([]*engine.Program, len(engines))
	for i, e := range engines {
		code := first
		if e.Name == "wazero again" {
			if code, err = laidOut(wasm, o.shuffle, rng); err != nil {
				return nil, err
			}
		}
		if programs[i], err = e.Load(code, p.host(input)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		defer programs[i].Close()
	}
	return o.turns(p, engines, programs, input, rng)
}

// turns runs a program on all engines in random order, round after round, and compares the results.
func (o options) turns(p program, engines []engine.Engine, programs []*engine.Program, input []byte, rng *rand.Rand) ([]timing, error) {
	var want []byte
	times := make([]timing, len(engines))
	for round := range o.rounds {
		for _, i := range rng.Perm(len(engines)) {
			out, took, err := p.once(programs[i], input)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", engines[i].Name, err)
			}
			if want == nil {
				want = out
			}
			if !bytes.Equal(out, want) {
				return nil, fmt.Errorf("%s: the result is %.200q, and was %.200q before", engines[i].Name, out, want)
			}
			if round == 0 || took < times[i].Seconds {
				times[i] = timing{p.name, engines[i].Name, took}
			}
		}
	}
	return times, nil
}

// laidOut is a module with its exceptions rewritten, as for all engines, and its functions in random order.
func laidOut(wasm []byte, shuffle bool, rng *rand.Rand) ([]byte, error) {
	m, err := wasmbin.Parse(bytes.Clone(wasm))
	if err != nil {
		return nil, err
	}
	if err := exceptions.Lower(m); err != nil {
		return nil, err
	}
	m.Exports = slices.DeleteFunc(m.Exports, func(e wasmbin.Export) bool { return e.Name == exceptions.TagExport })
	if shuffle {
		if err := layout.Shuffle(m, rng); err != nil {
			return nil, err
		}
	}
	return m.Encode(), nil
}

// once runs the program in a new instance. It returns its result, and the processor time in
// seconds from when the instance is ready.
func (p program) once(compiled *engine.Program, input []byte) ([]byte, float64, error) {
	runtime.GC() // not during the run
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	in, err := compiled.Start()
	if err != nil {
		return nil, 0, err
	}
	defer in.Close()
	began := engine.ProcessorTime()
	out, err := p.run(in, input)
	took := engine.ProcessorTime() - began
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no result")
	}
	return bytes.Clone(out), took.Seconds(), err
}
