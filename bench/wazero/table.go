package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/toolhost/toolhost/bench/internal/ratio"
)

// comparison has one process of each build.
type comparison [len(names)]times

const (
	plain = iota
	metered
)

// table shows the ratios: means over the processes, with standard errors.
func table(all []comparison) string {
	columns := []struct {
		title      string
		of, to     int // builds
		how, toHow int
	}{
		{"metered / plain, released", released, released, metered, plain},
		{"metered / plain, patched", patched, patched, metered, plain},
		{"patched / released, metered", patched, released, metered, metered},
		{"patched / released, plain", patched, released, plain, plain},
	}

	var b strings.Builder
	b.WriteString("| workload |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	totals := make([][]float64, len(columns)) // of each process, summed over the workloads
	for i := range totals {
		totals[i] = make([]float64, len(all))
	}

	n := 0.0
	for _, w := range workloads {
		if _, measured := all[0][released][w.name]; !measured {
			continue
		}
		n++
		fmt.Fprintf(&b, "| %s |", w.name)
		for i, c := range columns {
			logs := make([]float64, len(all))
			for p, process := range all {
				logs[p] = math.Log(process[c.of][w.name][c.how] / process[c.to][w.name][c.toHow])
				totals[i][p] += logs[p]
			}
			b.WriteString(cell(logs))
		}
		b.WriteString("\n")
	}

	b.WriteString("| **geometric mean** |")
	for _, sums := range totals {
		for p := range sums {
			sums[p] /= n
		}
		b.WriteString(cell(sums))
	}
	return b.String() + "\n"
}

// cell is the mean of ratios by their logarithms, and its standard error.
func cell(logs []float64) string {
	return ratio.Cell(ratio.Mean(logs), ratio.Error(logs)) + " |"
}
