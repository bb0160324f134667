// Package schema checks JSON documents against the JSON Schemas (draft 2020-12)
// that plugins declare for their tools. Schemas and documents are taken to be
// hostile: nothing is ever fetched, patterns run in linear time (Go's regexp),
// numbers are bounded, and a check that would take too long is refused.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/jsontext"
)

// ErrSchema is why a document is not taken as a schema.
var ErrSchema = errors.New("bad schema")

// maxProblems bounds the report of one check, and maxText each text in it, in
// bytes.
const (
	maxProblems = 10
	maxText     = 500
)

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	raw     json.RawMessage
	secrets bool          // some value it describes is secret
	made    atomic.Int32  // checkers
	idle    chan *checker // with room for one for each processor
}

// Compile compiles a schema. Its errors match [ErrSchema].
func Compile(raw json.RawMessage) (*Schema, error) {
	c, err := newChecker(raw)
	if err != nil {
		return nil, err
	}
	s := &Schema{raw: bytes.Clone(raw), secrets: c.secrets, idle: make(chan *checker, runtime.GOMAXPROCS(0))}
	s.made.Add(1)
	s.idle <- c
	return s, nil
}

// large is the size of a document, in bytes, from which on few are read at once:
// what is made of one takes up to forty times its size.
const large = 1 << 20

// reading has room for those.
var reading = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))

// turn waits until a document may be read. The reader calls done after it has
// forgotten what it made of it.
func turn(document json.RawMessage) (done func()) {
	if len(document) < large {
		return func() {}
	}
	reading <- struct{}{}
	return func() { <-reading }
}

// Check reports what does not fit, each with the JSON pointer of the value; nil
// if the document fits.
func (s *Schema) Check(document json.RawMessage) []abi.Problem {
	defer turn(document)()
	doc, size, err := decode(document)
	if err != nil {
		return []abi.Problem{{Message: err.Error()}}
	}
	c := s.checker()
	defer func() { s.idle <- c }()
	err = c.check(doc, size)
	var invalid *jsonschema.ValidationError
	switch {
	case errors.As(err, &invalid):
		return c.problems(invalid)
	case err != nil:
		return []abi.Problem{{Message: err.Error()}}
	}
	return nil
}

// checker returns a checker that nobody uses. The first of those that are needed
// at a time was made with the schema.
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

// decode reads a document with exact numbers, and refuses those that would take
// exact arithmetic more than a moment. It refuses a name that is twice in an
// object too: a plugin may read the one that is not checked here. Its size is how
// many values and names are in it.
func decode(raw json.RawMessage) (doc any, size int, err error) {
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(raw)); err != nil {
		return nil, 0, fmt.Errorf("expected JSON: %w", err)
	}
	size, names, err := measure(doc)
	if err == nil && names != jsontext.Names(raw) {
		err = fmt.Errorf("there are two members of the same name: %s", short(pointer(twice(raw))))
	}
	return doc, size, err
}

// twice returns where a member is whose object has another one of that name before
// it, in a document that was read.
func twice(raw json.RawMessage) []string {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var walk func(at []string) []string
	walk = func(at []string) []string {
		seen := map[string]bool{}
		begin, _ := dec.Token()
		_, nested := begin.(json.Delim)
		for i := 0; nested && dec.More(); i++ {
			inner := append(at, strconv.Itoa(i))
			if begin == json.Delim('{') {
				name, _ := dec.Token()
				inner[len(at)] = name.(string)
				if seen[inner[len(at)]] {
					return inner
				}
				seen[inner[len(at)]] = true
			}
			if found := walk(inner); found != nil {
				return found
			}
		}
		if nested {
			_, _ = dec.Token() // its end
		}
		return nil
	}
	return walk(nil)
}

// measure looks through a document, which nests no deeper than encoding/json
// allows.
func measure(doc any) (size, names int, err error) {
	size = 1
	add := func(v any) {
		if err == nil {
			var s, n int
			s, n, err = measure(v)
			size, names = size+s, names+n
		}
	}
	switch doc := doc.(type) {
	case json.Number:
		if !moderate(doc) {
			return 0, 0, fmt.Errorf("the number %.20s… is out of range", doc)
		}
		if long(doc) {
			return 10, 0, nil
		}
	case []any:
		for _, v := range doc {
			add(v)
		}
	case map[string]any:
		size, names = size+len(doc), len(doc)
		for _, v := range doc {
			add(v)
		}
	}
	return size, names, err
}

func moderate(n json.Number) bool {
	mantissa, exponent := n.String(), ""
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		mantissa, exponent = mantissa[:i], mantissa[i+1:]
	}
	if len(mantissa) > 400 {
		return false
	}
	if exponent == "" {
		return true
	}
	e, err := strconv.Atoi(exponent)
	return err == nil && -400 < e && e < 400
}

// long reports whether a number takes exact arithmetic several times as long as
// others do.
func long(n json.Number) bool { return len(n) > 30 || strings.ContainsAny(n.String(), "eE") }

var printer = message.NewPrinter(language.English)

// problems flattens an error to its leaves: what a person or a model can act
// on. A value that is secret is not quoted.
func (c *checker) problems(e *jsonschema.ValidationError) []abi.Problem {
	var found []abi.Problem
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(found) >= maxProblems {
			return
		}
		if len(e.Causes) == 0 {
			say := text
			if c.secretAt(e.InstanceLocation) {
				say = discreet
			}
			found = append(found, abi.Problem{Pointer: short(pointer(e.InstanceLocation)), Message: short(say(e.ErrorKind))})
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(e)
	slices.SortFunc(found, func(a, b abi.Problem) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// text says what was expected. The library's own words are kept where they are
// clear.
func text(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.AdditionalProperties:
		return "unknown field: " + strings.Join(k.Properties, ", ")
	case *kind.Required:
		return "missing: " + strings.Join(k.Missing, ", ")
	case *kind.Type:
		return fmt.Sprintf("expected %s, found %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Minimum:
		return fmt.Sprintf("expected at least %s, found %s", number(k.Want), number(k.Got))
	case *kind.Maximum:
		return fmt.Sprintf("expected at most %s, found %s", number(k.Want), number(k.Got))
	}
	return k.LocalizedString(printer)
}

// discreet is text without the value that does not fit.
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

// short cuts a text, which may quote all of a document.
func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

func number(r *big.Rat) string {
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func pointer(location []string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}
