package httpapi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// A Param is a parameter of a path or a query, or a header. What a parameter of
// a query may be is checked before a handler sees it.
type Param struct {
	Name, Description string
	Type              string         // as JSON Schema names it: string, integer or boolean
	Pattern           *regexp.Regexp // of a string; nil is any
	Enum              []string       // the strings it may be; nil is any
	MaxLength         int            // of a string, in characters; 0 is no limit
	Min, Max          int            // of an integer, both included
	Default           any            // what it is if it is absent; nil is nothing
	Many              int            // how often it may be given; 0 is once

	expected string // what a value that does not fit is answered
}

var (
	runForm      = regexp.MustCompile(background.RunIDForm)
	scheduleForm = regexp.MustCompile(background.ScheduleIDForm)

	// durationForm is of durations that time.ParseDuration takes and that do not
	// overflow.
	durationForm = regexp.MustCompile(`^(0|([0-9]{1,5}(\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h)){1,4})$`)
	rangeForm    = regexp.MustCompile(`^bytes=([0-9]+-[0-9]*|-[0-9]+)$`)
	placeForm    = regexp.MustCompile(`^(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,17})$`) // an attempt, and where in its log
)

func text(name, description string) Param {
	return Param{Name: name, Description: description, Type: "string"}
}

func formed(name, description string, form *regexp.Regexp, expected string) Param {
	return Param{Name: name, Description: description, Type: "string", Pattern: form, expected: expected}
}

func duration(name, description string) Param {
	return formed(name, description, durationForm, "expected a duration such as 30s")
}

func oneOf(name, description string, values ...string) Param {
	return Param{Name: name, Description: description, Type: "string", Enum: values, expected: "expected " + strings.Join(values, " or ")}
}

func number(name, description string, least, most, otherwise int) Param {
	return Param{
		Name: name, Description: description, Type: "integer", Min: least, Max: most, Default: otherwise,
		expected: fmt.Sprintf("expected a number from %d to %d", least, most),
	}
}

func yesNo(name, description string) Param {
	return Param{Name: name, Description: description, Type: "boolean", Default: false, expected: "expected true or false"}
}

// pathParams are the parameters that paths have, by name.
var pathParams = map[string]Param{
	"tool":     text("tool", "the name of a tool"),
	"run":      formed("run", "the id of a run", runForm, ""),
	"schedule": formed("schedule", "the id of a schedule", scheduleForm, ""),
	"name":     oneOf("name", "the file", background.OutputLog, background.ResultJSON),
}

// SessionParam is the header that names the session of a request.
func SessionParam() Param {
	p := formed(SessionHeader, "the session the request is for; empty is as none", orEmpty(regexp.MustCompile(identity.AnySessionForm)), "")
	p.Default = wire.DefaultSession
	return p
}

// orEmpty is a form, or nothing.
func orEmpty(form *regexp.Regexp) *regexp.Regexp { return regexp.MustCompile("^$|" + form.String()) }

// check refuses what a parameter cannot be.
func (p *Param) check(values []string) error {
	if most := max(1, p.Many); len(values) > most {
		if most == 1 {
			return invalid(p.Name, "given more than once")
		}
		return invalid(p.Name, "given more than %d times", most)
	}
	for _, v := range values {
		if !p.fits(v) {
			return invalid(p.Name, "%s", p.expected)
		}
	}
	return nil
}

func (p *Param) fits(v string) bool {
	switch p.Type {
	case "integer":
		n, err := strconv.Atoi(v)
		return err == nil && n >= p.Min && n <= p.Max
	case "boolean":
		return v == "true" || v == "false"
	}
	return (p.Pattern == nil || p.Pattern.MatchString(v)) &&
		(p.Enum == nil || slices.Contains(p.Enum, v)) &&
		(p.MaxLength == 0 || utf8.RuneCountInString(v) <= p.MaxLength)
}

// get returns a parameter, or "".
func (r *request) get(name string) string { return r.URL.Query().Get(name) }

// duration returns a parameter such as 30s, or 0.
func (r *request) duration(name string) time.Duration {
	d, _ := time.ParseDuration(r.get(name)) // it was checked
	return d
}

// number returns a parameter that is a number, or its default.
func (r *request) number(name string) int {
	n, err := strconv.Atoi(r.get(name))
	if err == nil {
		return n // it was checked
	}
	for _, p := range r.route.Query {
		if p.Name == name {
			n, _ = p.Default.(int)
		}
	}
	return n
}

// yes returns a parameter that is true or false.
func (r *request) yes(name string) bool { return r.get(name) == "true" }
