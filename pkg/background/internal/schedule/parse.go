// Package schedule parses cron expressions and computes when they fire.
package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Limits of a schedule.
const (
	MaxLength = 512 // bytes of an expression
	Years     = 10  // how many years ahead a schedule may fire; one that is due later never fires

	maxZone = 64 // bytes of a time zone's name
	example = `five fields, minute hour day-of-month month day-of-week, such as "*/15 9-17 * * mon-fri"`
)

// A field describes one of the five fields of an expression.
type field struct {
	name      string
	low, high int      // the values that a "*" stands for
	top       int      // the highest accepted value
	names     []string // names of the values, from low on
}

var fields = [...]field{
	{"minute", 0, 59, 59, nil},
	{"hour", 0, 23, 23, nil},
	{"day of month", 1, 31, 31, nil},
	{"month", 1, 12, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, 6, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// Parse parses an expression of five fields for the clock of a zone. Its work
// is bounded for any text.
func Parse(text string, zone *time.Location) (Spec, error) {
	if len(text) > MaxLength {
		return Spec{}, fmt.Errorf("longer than %d bytes", MaxLength)
	}
	texts := strings.Fields(text)
	if len(texts) != len(fields) {
		return Spec{}, fmt.Errorf("has %d fields; use %s", len(texts), example)
	}

	var bits [len(fields)]uint64
	for i, f := range fields {
		for part := range strings.SplitSeq(texts[i], ",") {
			set, err := f.parse(part)
			if err != nil {
				return Spec{}, err
			}
			bits[i] |= set
		}
	}

	return Spec{
		minutes: bits[0], hours: bits[1], days: bits[2], months: bits[3], weekdays: bits[4],
		either:   !strings.Contains(texts[2], "*") && !strings.Contains(texts[4], "*"),
		interval: strings.Contains(texts[1], "*"),
		zone:     zone,
	}, nil
}

// parse parses one part of a list: "*", a value or a range, and a step.
func (f field) parse(part string) (set uint64, err error) {
	span, stepText, stepped := strings.Cut(part, "/")
	fromText, toText, ranged := strings.Cut(span, "-")
	from, to, step := f.low, f.high, 1

	ok := true
	if span != "*" {
		from, ok = f.value(fromText)
		switch {
		case ranged && ok:
			to, ok = f.value(toText)
		case !stepped:
			to = from
		}
	}
	if stepped && ok {
		step, ok = number(stepText)
	}

	size := f.high - f.low + 1
	switch {
	case !ok:
		return 0, fmt.Errorf("invalid %s %q; use %s", f.name, shorten(part), example)
	case from < f.low:
		return 0, fmt.Errorf("%s: %d is below the minimum %d", f.name, from, f.low)
	case max(from, to) > f.top:
		return 0, fmt.Errorf("%s: %d is above the maximum %d", f.name, max(from, to), f.top)
	case step == 0 || step >= size && step > 1:
		return 0, fmt.Errorf("%s: the step %d is not between 1 and %d", f.name, step, size-1)
	}

	if to < from { // past the end, as in 22-2
		to += size
	}
	for v := from; v <= to; v += step {
		set |= 1 << (f.low + (v-f.low)%size)
	}
	return set, nil
}

// value parses a number, or the name of a value.
func (f field) value(text string) (int, bool) {
	text = strings.ToLower(text)
	for i, name := range f.names {
		if text == name {
			return f.low + i, true
		}
	}
	return number(text)
}

// number parses one or two digits.
func number(text string) (int, bool) {
	if len(text) > 2 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

var zoneName = regexp.MustCompile(`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`)

// Zone returns a time zone by its IANA name. "UTC" is known on every machine;
// other zones need the time zone database of the machine or the program (see
// package time/tzdata).
func Zone(name string) (*time.Location, error) {
	const hint = "use an IANA name, such as Europe/Berlin or UTC"
	switch {
	case len(name) > maxZone || !zoneName.MatchString(name), name == "Local", name == "localtime",
		strings.HasPrefix(name, "posix/"), strings.HasPrefix(name, "right/"): // they differ between machines
		return nil, fmt.Errorf("invalid time zone %q; %s", shorten(name), hint)
	}

	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %q; %s", name, hint)
	}
	return zone, nil
}

// shorten cuts text for an error.
func shorten(text string) string { return text[:min(len(text), maxZone)] }
