package abi

import "unicode/utf8"

// Nearest returns the name closest to a misspelled one, or "" if none is close
// enough to be meant: at most one edit in three characters, by Levenshtein's
// distance. Hosts use it for "did you mean" wherever the names of this
// contract are typed.
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

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
