package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/engine"
	"github.com/toolhost/toolhost/bench/internal/ratio"
)

// table is the table of ratios, in Markdown.
func table(used []program, engines []engine.Engine, all []timing) string {
	var b strings.Builder
	columns := slices.DeleteFunc(slices.Clone(engines), func(e engine.Engine) bool { return e.Name == e.Base })
	b.WriteString("| program | plain wazero |")
	for _, e := range columns {
		b.WriteString(" " + header[e.Name] + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(columns)) + "\n")

	columnOf := map[string]*column{}
	for _, p := range used {
		times := map[string][]float64{}
		for _, t := range all {
			if t.Program == p.name {
				times[t.Engine] = append(times[t.Engine], t.Seconds)
			}
		}
		fmt.Fprintf(&b, "| %s | %.0f ms |", p.title, 1e3*ratio.Mean(times["wazero"]))
		for _, e := range columns {
			ratios := logRatios(times[e.Name], times[e.Base])
			if columnOf[e.Name] == nil {
				columnOf[e.Name] = &column{}
			}
			b.WriteString(columnOf[e.Name].add(ratios))
			if e.Name == "wazero again" {
				fmt.Fprintf(&b, ", %.3f", ratio.Deviation(ratios))
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}

	b.WriteString("| **geometric mean** | |")
	for _, e := range columns {
		b.WriteString(columnOf[e.Name].mean() + " |")
	}
	b.WriteString("\n| worst | |")
	for _, e := range columns {
		fmt.Fprintf(&b, " %.3f |", math.Exp(slices.Max(columnOf[e.Name].means)))
	}
	return b.String() + "\n"
}

// column has the logarithms of ratios of an engine, and their standard errors: one for each program.
type column struct{ means, errors []float64 }

// add adds a program, by its ratios in all processes. It returns the cell.
func (c *column) add(ratios []float64) string {
	m, e := ratio.Mean(ratios), ratio.Error(ratios)
	c.means, c.errors = append(c.means, m), append(c.errors, e)
	return ratio.Cell(m, e)
}

// mean is the cell of the geometric mean.
func (c *column) mean() string {
	squares := 0.0
	for _, e := range c.errors {
		squares += e * e
	}
	return ratio.Cell(ratio.Mean(c.means), math.Sqrt(squares)/float64(len(c.errors)))
}

var header = map[string]string{
	"wazero again":   "other layout, spread",
	"metered":        "metered",
	"wasmtime fuel":  "wasmtime fuel*",
	"wasmtime epoch": "wasmtime epoch*",
}

// logRatios are the logarithms of the ratios within each process.
func logRatios(times, base []float64) []float64 {
	var all []float64
	for i := range times {
		all = append(all, math.Log(times[i]/base[i]))
	}
	return all
}

// growth is a table of what rewriting adds to the programs.
func growth(dir string, used []program) (string, error) {
	var b strings.Builder
	b.WriteString("| program | from | module | metered | code |\n|---|---|---|---|---|\n")
	for _, p := range used {
		wasm, err := os.ReadFile(filepath.Join(dir, p.name+".wasm"))
		if err != nil {
			return "", err
		}
		plain, err := laidOut(wasm, false, nil)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		metered, err := engine.Metered(plain)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		before, err := engine.CodeSize(plain)
		if err != nil {
			return "", err
		}
		after, err := engine.CodeSize(metered)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %+.1f %% | %+.1f %% |\n", p.title, p.from, len(plain), 100*(float64(len(metered))/float64(len(plain))-1), 100*(float64(after)/float64(before)-1))
	}
	return b.String(), nil
}

// load says what the figures belong to.
func (o options) load() string {
	average, _ := os.ReadFile("/proc/loadavg")
	of, _, _ := strings.Cut(string(average), " ")
	return fmt.Sprintf("%d processes of %d rounds, %d of them with wasmtime, on %d cores with a load of %s at the end. * to plain wasmtime 39.\n",
		o.processes, o.rounds, min(o.wasmtime, o.processes), runtime.NumCPU(), of)
}
