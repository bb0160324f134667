// Package known has lists of tests that are known to fail, with what each fails for, and
// compares them with what failed.
package known

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Failures are tests that are known to fail: why, by name.
type Failures map[string]string

// Parse reads a list: the names of tests, one a line, below lines that begin with # and
// say why they fail. An empty line ends a group.
func Parse(text string) (Failures, error) {
	all := Failures{}
	why := ""
	listed := false // a name of the group was read
	for i, line := range strings.Split(text, "\n") {
		comment, isComment := strings.CutPrefix(line, "#")
		switch {
		case line == "":
			why, listed = "", false
		case isComment && listed:
			return nil, fmt.Errorf("line %d: an explanation stands above its names: begin a new group after an empty line", i+1)
		case isComment:
			why = strings.TrimSpace(why + " " + strings.TrimSpace(comment))
		case why == "":
			return nil, fmt.Errorf("line %d: %s has no explanation", i+1, line)
		case all[line] != "":
			return nil, fmt.Errorf("line %d: %s is listed twice", i+1, line)
		default:
			all[line], listed = why, true
		}
	}
	return all, nil
}

// Compare returns the failures that are not known, and the known ones among the tests of ran
// that did not fail. Both are sorted.
func (f Failures) Compare(failed []string, ran func(name string) bool) (unknown, gone []string) {
	left := maps.Clone(f)
	for _, name := range failed {
		if _, ok := f[name]; !ok {
			unknown = append(unknown, name)
		}
		delete(left, name)
	}
	for name := range left {
		if ran(name) {
			gone = append(gone, name)
		}
	}
	slices.Sort(unknown)
	slices.Sort(gone)
	return unknown, gone
}

// Reasons counts the known failures by why they fail, and lists the reasons by their counts,
// the largest first.
func (f Failures) Reasons(failed []string) (reasons []string, count map[string]int) {
	count = map[string]int{}
	for _, name := range failed {
		if why, ok := f[name]; ok {
			count[why]++
		}
	}
	reasons = slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		if d := count[b] - count[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return reasons, count
}
