package httpapi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

// param is a parameter in the query or the path. It is checked before a handler runs.
type param struct {
	name     string
	valid    func(value string) bool
	expected string // what an invalid value should have been
	many     int    // how often it may be given; 0 means once
}

var (
	runForm = regexp.MustCompile(wire.RunIDForm)
	// durationForm matches durations that time.ParseDuration accepts without overflow.
	durationForm = regexp.MustCompile(`^(0|([0-9]{1,5}(\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h)){1,4})$`)
	textForm     = regexp.MustCompile(`^(?s:.{1,128})$`)
	queryForm    = regexp.MustCompile(`^(?s:.{0,400})$`)
	pluginForm   = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	valueKeyForm = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,128}$`)
	rangeForm    = regexp.MustCompile(`^([0-9]+-[0-9]*|-[0-9]+)$`)
	versionForm  = regexp.MustCompile(`^[1-9][0-9]{0,17}$`)
	placeForm    = regexp.MustCompile(`^(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,17})$`) // the number of an attempt, and an offset in its log
)

// expectedKey describes the keys that valueKeyForm matches.
const expectedKey = "expected 1 to 128 letters, digits and . _ : @ -"

// inPath lists the parameters that occur in paths.
var inPath = []param{
	{name: "run", valid: wire.IsRunID, expected: expectedRun},
	{name: "schedule", valid: wire.IsScheduleID, expected: "expected the id of a schedule, which begins with sc_"},
	formed("plugin", pluginForm, "expected the name of a plugin"),
	formed("secret", valueKeyForm, "expected the name of a secret"),
}

func formed(name string, form *regexp.Regexp, expected string) param {
	return param{name: name, valid: form.MatchString, expected: expected}
}

func duration(name string) param {
	return formed(name, durationForm, "expected a duration such as 30s")
}

func oneOf(name string, values ...string) param {
	return param{name: name, valid: func(v string) bool { return slices.Contains(values, v) }, expected: "expected " + strings.Join(values, " or ")}
}

func flag(name string) param { return oneOf(name, "true", "false") }

func number(name string, least, most int) param {
	return param{name: name, expected: fmt.Sprintf("expected a number from %d to %d", least, most), valid: func(v string) bool {
		n, err := strconv.Atoi(v)
		return err == nil && n >= least && n <= most
	}}
}

func (p *param) check(values []string) error {
	if most := max(1, p.many); len(values) > most {
		if most == 1 {
			return invalid(p.name, "given more than once")
		}
		return invalid(p.name, "given more than %d times", most)
	}

	for _, v := range values {
		if !p.valid(v) {
			return invalid(p.name, "%s", p.expected)
		}
	}
	return nil
}

// get returns a parameter, or an empty string if it is absent.
func (r *request) get(name string) string { return r.URL.Query().Get(name) }

// duration returns a parameter such as 30s as a duration, or 0 if it is absent.
func (r *request) duration(name string) time.Duration {
	d, _ := time.ParseDuration(r.get(name)) // checked before
	return d
}

// number returns a parameter as a number, or the value of otherwise if it is absent.
func (r *request) number(name string, otherwise int) int {
	if n, err := strconv.Atoi(r.get(name)); err == nil { // checked before
		return n
	}
	return otherwise
}
