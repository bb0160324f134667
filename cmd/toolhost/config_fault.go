package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
)

// fault is one thing that is wrong with a configuration.
type fault struct {
	key    string // as it is in the file; of what cannot be read, the file
	text   string
	source string // of the value: a file, a variable or a flag; empty if that is clear
}

func (f *fault) Error() string {
	text := f.text
	if f.key != "" {
		text = f.key + ": " + text
	}
	if f.source != "" {
		text += " (" + f.source + ")"
	}
	return text
}

// fault notes that a value is wrong. Of what is wrong with a key already, it
// notes no more: that may only be what follows.
func (c *loaded) fault(key, format string, args ...any) {
	if !c.faulty(key) {
		c.faults = append(c.faults, &fault{key, fmt.Sprintf(format, args...), c.source(key)})
	}
}

func (c *loaded) faulty(key string) bool {
	return slices.ContainsFunc(c.faults, func(f *fault) bool { return f.key == key })
}

// wrong is all that is wrong, a line each, sorted by key; nil if nothing is.
func (c *loaded) wrong() error {
	if len(c.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(c.faults, func(a, b *fault) int { return cmp.Compare(a.key, b.key) })
	errs := make([]error, len(c.faults))
	for i, f := range c.faults {
		errs[i] = f
	}
	return &usageError{err: errors.Join(errs...)}
}

// source is where the value of a key is from. What is inside a list or a grant is
// from where that is from.
func (c *loaded) source(key string) string {
	known, whole := leaves(), strings.ReplaceAll(key, ".", delim)
	for at := whole; at != ""; at = at[:max(0, strings.LastIndex(at, delim))] {
		if at != whole && known[at] == nil && !strings.HasPrefix(at, "grants") {
			continue
		}
		if from := c.from(at); from != "" {
			return from
		}
	}
	return "not set"
}

// from is the last layer that has a key, which has the parts of koanf; empty if
// none has.
func (c *loaded) from(key string) (name string) {
	for _, l := range c.layers {
		if !l.k.Exists(key) {
			continue
		}
		if name = l.name; l.of != nil {
			name = l.of(key)
		}
	}
	return name
}

// undecoded notes what does not have the type of its key.
func (c *loaded) undecoded(err error) {
	before := len(c.faults)
	var walk func(err error)
	walk = func(err error) {
		switch e := err.(type) {
		case *mapstructure.DecodeError:
			var inner *mapstructure.DecodeError
			if errors.As(e.Unwrap(), &inner) {
				walk(e.Unwrap())
				return
			}
			c.fault(strings.NewReplacer(delim, ".", "[", ".", "]", "").Replace(e.Name()), "%s", flat(e.Unwrap()))
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	if len(c.faults) == before {
		c.faults = append(c.faults, &fault{text: "configuration: " + flat(err)})
	}
}

// flat is an error in one line.
func flat(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
