// Command bench compares this project's metering with plain wazero and with
// what other engines offer, side by side on the same modules.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/bench/internal/engine"
)

// workload is an export of a module of type (i32) -> i32 that does arg rounds.
type workload struct {
	name, lang, file, export string
	arg                      uint64
}

var workloads = []workload{
	{"fib", "C", "fib", "run", 30},
	{"sieve", "C", "sieve", "run", 3},
	{"sha256", "C", "sha256", "run", 60},
	{"matmul", "C", "matmul", "run", 6},
	{"quicksort", "C", "quicksort", "run", 1},
	{"vm", "C", "vm", "run", 1_000_000},
	{"strings", "C", "strings", "run", 15},
	{"memory", "C", "memory", "run", 8},
	{"nbody", "C", "nbody", "run", 200_000},
	{"zig life", "Zig", "zig", "run", 15},
	{"as objects", "AssemblyScript", "assemblyscript", "run", 25},
	{"go json", "Go", "go", "jsons", 700},
	{"go sort", "Go", "go", "sorts", 10},
	{"go map", "Go", "go", "maps", 60},
	{"go regexp", "Go", "go", "words", 60},
	{"go sieve", "Go", "go", "sieves", 5},
	{"go trees", "Go", "go", "trees", 30},
}

func main() {
	rounds := flag.Int("rounds", 15, "rounds of each workload on each engine")
	only := flag.String("only", "", "comma-separated workloads; all if empty")
	with := flag.String("engines", "", "comma-separated engines; all if empty")
	stops := flag.Int("stops", 200, "stops of each endless guest; 0 leaves that part out")
	flag.Parse()
	load := &loader{}
	err := run(load, *rounds, list(*only), list(*with))
	if err == nil && *stops > 0 {
		err = errors.Join(rewriting(load), checks(load), latencies(load, *stops))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func run(load *loader, rounds int, only, with []string) error {
	var used []engine.Engine
	for _, e := range engine.All {
		if with == nil || slices.Contains(with, e.Name) {
			used = append(used, e)
		}
	}
	fmt.Printf("%-12s", "workload")
	for _, e := range used {
		fmt.Printf(" %23s", e.Name)
	}
	fmt.Println()
	logs := make([]float64, len(used))
	worst := make([]float64, len(used))
	mins := make([]float64, len(used)) // of the ratios of the fastest rounds
	n := 0
	for _, w := range workloads {
		if only != nil && !slices.Contains(only, w.name) {
			continue
		}
		times, err := measure(load, w, used, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		n++
		fmt.Printf("%-12s", w.name)
		for i, e := range used {
			base := slices.IndexFunc(used, func(b engine.Engine) bool { return b.Name == e.Base })
			if base == i || base < 0 {
				fmt.Printf(" %20.1f ms", 1e3*median(times[i]))
				continue
			}
			ratios := make([]float64, rounds)
			for r := range ratios {
				ratios[r] = times[i][r] / times[base][r]
			}
			m := median(ratios)
			logs[i] += math.Log(m)
			worst[i] = max(worst[i], m)
			least := slices.Min(times[i]) / slices.Min(times[base])
			mins[i] += math.Log(least)
			fmt.Printf(" %5.3f %5.3f (%4.2f-%4.2f)", least, m, quantile(ratios, .25), quantile(ratios, .75))
		}
		fmt.Println()
	}
	fmt.Printf("%-12s", "geomean")
	for i := range used {
		if worst[i] == 0 {
			fmt.Printf(" %23s", "")
			continue
		}
		fmt.Printf(" %5.3f %5.3f (worst %4.2f)", math.Exp(mins[i]/float64(n)), math.Exp(logs[i]/float64(n)), worst[i])
	}
	fmt.Println()
	return nil
}

// measure runs a workload on all engines in turn, round after round, and
// returns the seconds of each round of each engine.
func measure(load *loader, w workload, used []engine.Engine, rounds int) ([][]float64, error) {
	wasm, err := load.read(w.file)
	if err != nil {
		return nil, err
	}
	instances := make([]*engine.Instance, len(used))
	times := make([][]float64, len(used))
	var want uint64
	for i, e := range used {
		p, err := e.Load(wasm, engine.Host{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		defer p.Close()
		if instances[i], err = p.Start(); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		got, err := instances[i].Call(w.export, w.arg) // warm up
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		if i == 0 {
			want = got
		} else if got != want {
			return nil, fmt.Errorf("%s: result %d, not %d", e.Name, got, want)
		}
	}
	for range rounds {
		for _, i := range rand.Perm(len(used)) {
			start := time.Now()
			if _, err := instances[i].Call(w.export, w.arg); err != nil {
				return nil, fmt.Errorf("%s: %w", used[i].Name, err)
			}
			times[i] = append(times[i], time.Since(start).Seconds())
		}
	}
	return times, nil
}

func median(v []float64) float64 { return quantile(v, .5) }

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+.5)]
}
