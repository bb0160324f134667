package abi

import "unicode/utf8"

// Nearest returns the name closest to a misspelled one, or "" if none is close
// enough: at most one edit per three characters, where swapping two neighbors is
// one edit. Hosts use it for "did you mean" wherever people type names of this
// contract.
func Nearest(name string, known []string) string {
	if len(name) > 64 {
		return ""
	}
	best, bestDistance := "", 1+max(1, utf8.RuneCountInString(name)/3)
	for _, k := range known {
		if d := distance(name, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance returns the optimal string alignment distance of two names: the
// number of insertions, deletions, substitutions and swaps of neighbors.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}

			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}

	return row[len(b)]
}
