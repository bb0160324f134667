// Package schema checks JSON documents against the JSON Schemas (draft 2020-12) that
// plugins declare for their tools. It assumes that schemas and documents are hostile:
// it never fetches anything, patterns run in linear time (Go's regexp), the size of
// numbers is limited, and checks that would take too long are refused.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// ErrSchema means that a schema is invalid.
var ErrSchema = errors.New("bad schema")

// maxProblems limits the number of problems that a check reports, and maxText the
// length of each text in a problem, in bytes.
const (
	maxProblems = 10
	maxText     = 500
)

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	raw     json.RawMessage
	secrets bool                   // whether some value that it describes is secret
	texts   bool                   // whether it constrains strings by their content
	based   bool                   // whether references may have another base than the root, use anchors, or stand outside of $ref
	fills   bool                   // whether defaults are filled in
	shown   func() json.RawMessage // schema for models, made only once: see Shown
	made    atomic.Int32           // number of checkers made so far
	idle    chan *checker          // idle checkers; has room for one for each processor
}

// Compile compiles a schema. Its errors match [ErrSchema].
func Compile(raw json.RawMessage) (*Schema, error) {
	c, err := newChecker(raw)
	if err != nil {
		return nil, err
	}
	s := &Schema{raw: bytes.Clone(raw), secrets: c.secrets, texts: c.texts, based: c.based, idle: make(chan *checker, runtime.GOMAXPROCS(0))}
	s.shown = sync.OnceValue(s.normalize)
	s.made.Add(1)
	s.idle <- c
	return s, nil
}

// large is the size in bytes above which only a few documents are read at the same
// time: the tree of a document takes up to forty times the document's size.
const large = 1 << 20

// reading is a semaphore for large documents.
var reading = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))

// acquire waits until a document may be read. The caller must call release once it no
// longer uses the tree.
func acquire(document json.RawMessage) (release func()) {
	if len(document) < large {
		return func() {}
	}
	reading <- struct{}{}
	return func() { <-reading }
}

// Check returns the problems of a document that does not fit the schema, each with the
// JSON pointer of the value. It returns nil if the document fits.
func (s *Schema) Check(document json.RawMessage) []abi.Problem {
	if err := strictjson.Check(document); err != nil {
		return unreadable(err)
	}
	return s.check(document)
}

// CheckObject is like Check, but for an object whose syntax has already been checked.
func (s *Schema) CheckObject(o strictjson.Object) []abi.Problem {
	if o.Raw() == nil { // the zero value
		return s.Check(nil)
	}
	return s.check(o.Raw())
}

func (s *Schema) check(document json.RawMessage) []abi.Problem {
	document, err := s.Fill(document)
	if err != nil {
		return unreadable(err)
	}
	defer acquire(document)()
	doc, size, err := tree(document, s.texts)
	if err != nil {
		return unreadable(err)
	}

	c := s.checker()
	defer func() { s.idle <- c }()
	err = c.check(doc, size)

	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return c.problems(invalid)
	}
	return unreadable(err)
}

// unreadable returns the problem of a document that cannot be read or checked.
func unreadable(err error) []abi.Problem {
	var wrong *strictjson.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return []abi.Problem{{Pointer: short(wrong.Pointer), Message: short(wrong.Message)}}
	}
	return []abi.Problem{{Message: short(err.Error())}}
}

// checker returns an idle checker, or makes one if there are fewer checkers than
// processors.
func (s *Schema) checker() *checker {
	select {
	case c := <-s.idle:
		return c
	default:
	}

	if int(s.made.Add(1)) <= cap(s.idle) {
		if c, err := newChecker(s.raw); err == nil {
			return c
		}
	}
	s.made.Add(-1)
	return <-s.idle
}

var printer = message.NewPrinter(language.English)

// problems flattens an error to its leaves, on which a person or a model can act. It
// does not quote secret values.
func (c *checker) problems(e *jsonschema.ValidationError) []abi.Problem {
	var found []abi.Problem
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(found) >= maxProblems {
			return
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) > 0 {
			return
		}

		say := text
		if c.secretAt(e.InstanceLocation) {
			say = discreet
		}
		found = append(found, abi.Problem{Pointer: short(pointer(e.InstanceLocation)), Message: short(say(e.ErrorKind))})
	}

	walk(e)

	slices.SortFunc(found, func(a, b abi.Problem) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// text says what was expected, in the library's own words if they are clear.
func text(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.AdditionalProperties:
		return "unknown field: " + strings.Join(slices.Sorted(slices.Values(k.Properties)), ", ")
	case *kind.Required:
		return "missing: " + strings.Join(k.Missing, ", ")
	case *kind.Type:
		return fmt.Sprintf("expected %s, found %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Minimum:
		return fmt.Sprintf("expected at least %v, found %v", number(k.Want), number(k.Got))
	case *kind.Maximum:
		return fmt.Sprintf("expected at most %v, found %v", number(k.Want), number(k.Got))
	}
	return k.LocalizedString(printer)
}

// discreet is like text, but leaves out the value that does not fit.
func discreet(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Pattern:
		return fmt.Sprintf("does not match pattern '%s'", k.Want)
	case *kind.Format:
		return "is not valid " + k.Want
	case *kind.Type, *kind.Required, *kind.AdditionalProperties, *kind.MinLength, *kind.MaxLength:
		return text(k)
	}
	return "does not fit its schema"
}

// short shortens a text, which may quote an entire document.
func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

func number(r *big.Rat) float64 {
	f, _ := r.Float64()
	return f
}

func pointer(location []string) string {
	var p jsontext.Pointer
	for _, token := range location {
		p = p.AppendToken(token)
	}
	return string(p)
}
