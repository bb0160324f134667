package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/engine"
	"github.com/toolhost/toolhost/bench/internal/layout"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// workloads are those of bench: exports of type (i32) -> i32 that do arg rounds.
var workloads = []struct {
	name, export string // the name starts with that of the file
	arg          uint64
}{
	{"fib", "run", 30},
	{"sieve", "run", 3},
	{"sha256", "run", 60},
	{"matmul", "run", 6},
	{"quicksort", "run", 1},
	{"vm", "run", 1_000_000},
	{"strings", "run", 15},
	{"memory", "run", 8},
	{"nbody", "run", 200_000},
	{"zig", "run", 15},
	{"assemblyscript", "run", 25},
	{"go jsons", "jsons", 700},
	{"go sorts", "sorts", 10},
	{"go maps", "maps", 60},
	{"go words", "words", 60},
	{"go sieves", "sieves", 5},
	{"go trees", "trees", 30},
}

// times are the processor seconds of a workload in one process, plain and metered: of the
// fastest round, so that what else the machine does counts least.
type times map[string][2]float64

// measure runs the workloads, plain and metered in turns.
func (o options) measure() (times, error) {
	rng := rand.New(rand.NewPCG(o.seed, 0)) // the same layouts in all builds
	compiled := map[string][2]*engine.Program{}
	all := times{}
	for _, w := range workloads {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), w.name) {
			continue
		}
		file, _, _ := strings.Cut(w.name, " ")
		programs, known := compiled[file]
		if !known {
			var err error
			if programs, err = o.compile(file, rng); err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			compiled[file] = programs
		}

		t, err := o.workload(programs, w.export, w.arg, rng)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		all[w.name] = t
	}
	return all, nil
}

// compile compiles a module, with its functions in random order, plain and metered.
func (o options) compile(file string, rng *rand.Rand) (programs [2]*engine.Program, err error) {
	dir := "workloads"
	if file == "go" {
		dir = o.child
	}
	wasm, err := os.ReadFile(filepath.Join(dir, file+".wasm"))
	if err != nil {
		return programs, err
	}
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return programs, err
	}
	if err := layout.Shuffle(m, rng); err != nil {
		return programs, err
	}

	wasm = m.Encode()
	for i, name := range [...]string{plain: "wazero", metered: "metered"} {
		e := slices.IndexFunc(engine.All, func(e engine.Engine) bool { return e.Name == name })
		if programs[i], err = engine.All[e].Load(wasm, engine.Host{}); err != nil {
			return programs, err
		}
	}
	return programs, nil // until the process ends
}

func (o options) workload(programs [2]*engine.Program, export string, arg uint64, rng *rand.Rand) (fastest [2]float64, err error) {
	var instances [2]*engine.Instance
	for i, p := range programs {
		if instances[i], err = p.Start(); err != nil {
			return fastest, err
		}
		defer instances[i].Close()
	}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var results [2]uint64
	for round := range o.rounds + 1 { // one to warm up
		for _, i := range rng.Perm(len(instances)) {
			began := engine.ProcessorTime()
			results[i], err = instances[i].Call(export, arg)
			took := (engine.ProcessorTime() - began).Seconds()
			if err != nil {
				return fastest, err
			}
			if round == 1 || round > 1 && took < fastest[i] {
				fastest[i] = took
			}
		}
		if round > 0 && results[plain] != results[metered] {
			return fastest, fmt.Errorf("metered, it returns %d instead of %d", results[metered], results[plain])
		}
	}
	return fastest, nil
}
