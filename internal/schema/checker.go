package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Limits on one check. References can make the number of steps exponential in the size
// of the schema, and long strings and lists can make each step slow.
const (
	maxSteps    = 200_000         // pairs of a schema and a value
	maxCompared = 500_000_000     // values in the document times values in the schema's lists
	maxTime     = 5 * time.Second // limit on everything else
)

var errLong = errors.New("the document takes too long to check against the schema")

// checker is a compiled schema for one check at a time, because the library's
// callbacks cannot tell which check they belong to.
type checker struct {
	root    *jsonschema.Schema
	secrets bool                         // whether some value is marked as secret
	texts   bool                         // whether the schema constrains strings by their content
	based   bool                         // whether references may have another base than the root, use anchors, or stand outside of $ref
	listed  int                          // estimated cost of comparing a value with all enums and constants; 1 for a short string
	fills   map[*jsonschema.Schema]*fill // schemas that add defaults or lead to such schemas; nil if there are none
	// Limits on the current check.
	left  int // steps left
	until time.Time
}

// location is the schema's URL inside the compiler. Nothing is fetched from it.
const location = "toolhost:///schema.json"

func newChecker(raw json.RawMessage) (*checker, error) {
	doc, _, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}

	if problems := checkKeywords(doc, ""); len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrSchema, problems[0])
	}

	s := &checker{}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(refuseLoader{})
	c.UseRegexpEngine(s.pattern)
	c.AssertFormat()
	c.AssertVocabs()
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: location + "/keywords",
		Compile: func(_ *jsonschema.CompilerContext, schema map[string]any) (jsonschema.SchemaExt, error) {
			s.listed += weigh(schema["enum"]) + weigh(schema["const"])
			s.texts = s.texts || readsTexts(schema)
			s.based = s.based || hasAny(schema, "$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "discriminator")
			secret := marked(schema)
			s.secrets = s.secrets || secret
			return keywords{s, secret}, nil
		},
	})
	if err := c.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if s.root, err = c.Compile(location); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, s.reason(err))
	}
	if err := s.checkDefaults(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if !s.bounded(s.findFills) {
		return nil, fmt.Errorf("%w: its defaults are referred to in too many ways", ErrSchema)
	}
	return s, nil
}

// reason returns the first problem in an error of the library.
func (s *checker) reason(err error) string {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		err = invalid.Err
	}
	if validation, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		if ps := s.problems(validation); len(ps) > 0 {
			return ps[0].String()
		}
	}
	return strings.ReplaceAll(err.Error(), location, "")
}

// readsTexts reports whether a schema object constrains strings by their content.
func readsTexts(schema map[string]any) bool {
	return hasAny(schema, "const", "enum", "format", "maxLength", "minLength", "pattern", "uniqueItems", "contentEncoding", "contentMediaType", "contentSchema")
}

func hasAny(schema map[string]any, keywords ...string) bool {
	return slices.ContainsFunc(keywords, func(keyword string) bool {
		_, has := schema[keyword]
		return has
	})
}

// weigh estimates the time that it takes to compare something with a value. Numbers
// are expensive, because they are compared as fractions.
func weigh(v any) (weight int) {
	switch v := v.(type) {
	case nil:
		return 0
	case json.Number:
		if long(v) {
			return 1000
		}
		return 100
	case string:
		return 1 + len(v)/1024
	case []any:
		for _, item := range v {
			weight += weigh(item)
		}
	case map[string]any:
		for _, item := range v {
			weight += 10 + weigh(item)
		}
	}

	return 1 + weight
}

// check returns the problems in a document of the given size, or errLong.
func (s *checker) check(doc any, size int) (err error) {
	if s.listed > 0 && size > maxCompared/s.listed {
		return errLong
	}
	if !s.bounded(func() { err = s.root.Validate(doc) }) {
		return errLong
	}
	return err
}

// bounded calls do within the limits on one check, and reports whether it finished.
func (s *checker) bounded(do func()) (done bool) {
	s.left, s.until = maxSteps, time.Now().Add(maxTime)
	defer func() {
		if r := recover(); r != nil && r != errLong {
			panic(r)
		}
	}()
	do()
	return true
}

// keywords is the extension that this package adds to each schema object.
type keywords struct {
	checker *checker
	secret  bool // whether the object is marked as secret
}

// Validate is called once for each schema object applied to a value, unless the
// object's type or enum rejects the value at once. That case is paid for by the
// objects that refer to this one.
func (k keywords) Validate(*jsonschema.ValidatorContext, any) {
	k.checker.spend(1 + k.checker.listed/2000)
}

// spend uses up steps, and ends a check that exceeds its limits by a panic: there is
// no other way to leave the library early.
func (s *checker) spend(steps int) {
	before := s.left
	s.left -= steps
	if s.left < 0 || s.left/64 != before/64 && time.Now().After(s.until) {
		panic(errLong)
	}
}

// pattern is a regular expression in a schema.
type pattern struct {
	*regexp.Regexp
	checker *checker
	size    int // number of instructions, all of which may run for each byte
}

func (s *checker) pattern(text string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	return &pattern{re, s, len(program.Inst)}, nil
}

// MatchString implements jsonschema.Regexp. A step pays for enough instructions that
// ordinary patterns can be applied to megabytes of text.
func (p *pattern) MatchString(text string) bool {
	p.checker.spend(1 + len(text)*p.size/1024)
	return p.Regexp.MatchString(text)
}

type refuseLoader struct{}

func (refuseLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the schema refers to %s, and remote schemas are never fetched", url)
}
