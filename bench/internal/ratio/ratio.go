// Package ratio has the statistics of ratios between times, which are compared by their logarithms.
package ratio

import (
	"fmt"
	"math"
)

// Mean is the mean.
func Mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// Deviation is the standard deviation.
func Deviation(v []float64) float64 {
	m, sum := Mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / float64(max(1, len(v)-1)))
}

// Error is the standard error of the mean.
func Error(v []float64) float64 { return Deviation(v) / math.Sqrt(float64(len(v))) }

// Cell is a cell of a table: a ratio and its standard error, from their logarithms.
func Cell(m, e float64) string { return fmt.Sprintf(" %.3f ± %.3f", math.Exp(m), math.Exp(m)*e) }
