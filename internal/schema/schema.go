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
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/toolhost/toolhost/abi"
)

// ErrSchema is why a document is not taken as a schema.
var ErrSchema = errors.New("bad schema")

// maxSteps bounds how many (schema, value) pairs one check visits: references
// can make their number exponential in the size of the schema.
const maxSteps = 200_000

// maxProblems bounds the report of one check.
const maxProblems = 10

// Schema is a compiled schema. It is safe for concurrent use; checks of one
// schema take turns.
type Schema struct {
	mu      sync.Mutex
	steps   *steps
	root    *jsonschema.Schema
	secrets bool // some value it describes is secret
}

// Compile compiles a schema. Its errors match [ErrSchema].
func Compile(raw json.RawMessage) (*Schema, error) {
	doc, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	s := &Schema{steps: &steps{}}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(refuseLoader{})
	c.AssertFormat()
	c.AssertVocabs()
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: location + "/keywords",
		Compile: func(_ *jsonschema.CompilerContext, schema map[string]any) (jsonschema.SchemaExt, error) {
			secret := marked(schema)
			s.secrets = s.secrets || secret
			return keywords{s.steps, secret}, nil
		},
	})
	if err := c.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if s.root, err = c.Compile(location); err != nil {
		var invalid *jsonschema.SchemaValidationError
		var validation *jsonschema.ValidationError
		if errors.As(err, &invalid) && errors.As(invalid.Err, &validation) {
			if ps := s.problems(validation); len(ps) > 0 {
				return nil, fmt.Errorf("%w: %s", ErrSchema, ps[0])
			}
		}
		return nil, fmt.Errorf("%w: %s", ErrSchema, strings.ReplaceAll(err.Error(), location, ""))
	}
	return s, nil
}

// location names a schema inside the compiler. Nothing is fetched from it.
const location = "toolhost:///schema.json"

// Check reports what does not fit, each with the JSON pointer of the value; nil
// if the document fits.
func (s *Schema) Check(document json.RawMessage) (found []abi.Problem) {
	doc, err := decode(document)
	if err != nil {
		return []abi.Problem{{Message: err.Error()}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps.left = maxSteps
	defer func() {
		if r := recover(); r == errSteps {
			found = []abi.Problem{{Message: errSteps.Error()}}
		} else if r != nil {
			panic(r)
		}
	}()
	err = s.root.Validate(doc)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return s.problems(invalid)
	}
	return nil
}

// steps is how many schemas a check may still apply.
type steps struct{ left int }

var errSteps = errors.New("the document takes too long to check against the schema")

// keywords is what this package adds to each schema object.
type keywords struct {
	steps  *steps
	secret bool // the object is marked as such
}

// Validate is called once for each schema object that is applied to a value.
// The library has no other way to end a check early than a panic through it.
func (k keywords) Validate(*jsonschema.ValidatorContext, any) {
	if k.steps.left--; k.steps.left < 0 {
		panic(errSteps)
	}
}

type refuseLoader struct{}

func (refuseLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the schema refers to %s, and remote schemas are never fetched", url)
}

// decode reads a document with exact numbers, and refuses those that would take
// exact arithmetic more than a moment.
func decode(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		t, err := dec.Token()
		if err != nil {
			break // the end, or what UnmarshalJSON reports below
		}
		if n, ok := t.(json.Number); ok && !moderate(n) {
			return nil, fmt.Errorf("the number %.20s… is out of range", n)
		}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("expected JSON: %w", err)
	}
	return doc, nil
}

func moderate(n json.Number) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(n.String()), "e")
	if len(mantissa) > 400 {
		return false
	}
	e, err := strconv.Atoi(exponent)
	return exponent == "" || (err == nil && -400 < e && e < 400)
}

var printer = message.NewPrinter(language.English)

// problems flattens an error to its leaves: what a person or a model can act
// on. A value that is secret is not quoted.
func (s *Schema) problems(e *jsonschema.ValidationError) []abi.Problem {
	var found []abi.Problem
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(found) >= maxProblems {
			return
		}
		if len(e.Causes) == 0 {
			say := text
			if s.secretAt(e.InstanceLocation) {
				say = discreet
			}
			found = append(found, abi.Problem{Pointer: pointer(e.InstanceLocation), Message: say(e.ErrorKind)})
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
