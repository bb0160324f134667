package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
)

// A template is the command line of a program, as written after `toolhost add FILE --`:
// words with placeholders such as {name}, {name:integer}, {name?}, {name:string...} and
// {name:stdin}.
type template struct {
	args   []abi.Word
	stdin  string // name of the argument that the program reads from stdin; if empty, it does not read stdin
	params []param
}

// A param is an argument of the tool.
type param struct {
	name     string
	kind     string // type in JSON Schema
	list     bool   // whether the argument is an array of that type
	optional bool
	about    string // description for models; may be empty
}

// String returns the placeholder for the argument in a manifest.
func (p param) String() string {
	if p.list {
		return "{" + p.name + "...}"
	}
	return "{" + p.name + "}"
}

// placeholder matches {NAME[:TYPE][...][?]}, and all other braces: {{ and }} stand for a
// single brace, and a single brace is a mistake.
var placeholder = regexp.MustCompile(`\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)(?::([a-z]+))?(\.\.\.)?(\?)?\}|[{}]`)

// stdinType is the type of an argument that a program reads from stdin.
const stdinType = "stdin"

// errNotUTF8 means that a text cannot be part of a manifest.
var errNotUTF8 = errors.New("expected UTF-8")

// parseWords reads the words of a template.
func parseWords(words []string) (t template, err error) {
	for _, word := range words {
		if !utf8.ValidString(word) {
			return t, fmt.Errorf("%q: %w", word, errNotUTF8)
		}
		parsed, found, err := t.word(word)
		if err != nil {
			return t, fmt.Errorf("%q: %w", word, err)
		}
		if parsed == "" && word != "" { // {name:stdin}
			continue
		}
		if err := t.add(parsed, found); err != nil {
			return t, fmt.Errorf("%q: %w", word, err)
		}
	}
	return t, nil
}

// word returns a word in the form used in manifests, which has no types, along with its
// placeholders.
func (t *template) word(word string) (parsed string, found []param, err error) {
	parsed = placeholder.ReplaceAllStringFunc(word, func(text string) string {
		match := placeholder.FindStringSubmatch(text)
		p := param{name: match[1], kind: match[2], list: match[3] != "", optional: match[4] != ""}
		switch {
		case err != nil || text == "{{" || text == "}}":
			return text
		case p.name == "":
			err = errors.New("expected {NAME}, {NAME:TYPE}, {NAME?} or {NAME...}: write {{ and }} for braces")
		case p.kind == stdinType && (text != word || p.list):
			err = fmt.Errorf("{%s:stdin} is what the program reads: expected a word of its own", p.name)
		case p.kind == stdinType:
			err = t.reads(p)
			return ""
		default:
			p, err = t.declare(p)
			found = append(found, p)
		}
		return p.String()
	})
	return parsed, found, err
}

// reads makes an argument the text that the program reads from stdin.
func (t *template) reads(p param) error {
	if t.stdin != "" {
		return fmt.Errorf("the program reads {%s:stdin} already", t.stdin)
	}
	p.kind = "string"
	_, err := t.declare(p)
	t.stdin = p.name
	return err
}

// declare adds an argument. If it has no type and was declared before, it is the same
// argument.
func (t *template) declare(p param) (param, error) {
	if i := slices.IndexFunc(t.params, func(q param) bool { return q.name == p.name }); i >= 0 {
		q := t.params[i]
		if p != q && (p != param{name: p.name}) {
			return q, fmt.Errorf("{%s} has another type before: write it once, and {%s} after that", p.name, p.name)
		}
		return q, nil
	}

	p.kind = cmp.Or(p.kind, "string")
	if known := []string{"string", "integer", "number", "boolean"}; !slices.Contains(known, p.kind) {
		return p, fmt.Errorf("%s is no type: expected %s or %s", p.kind, strings.Join(known, ", "), stdinType)
	}
	t.params = append(t.params, p)
	return p, nil
}

// add adds a word with its placeholders. A placeholder that is optional or a list is grouped
// with the option in front of it, such as -i in -i {indent?}, so that both are left out or
// repeated together.
func (t *template) add(word string, found []param) error {
	alone := len(found) == 1 && word == found[0].String()
	if !alone {
		for i, p := range found {
			if p.kind == "boolean" && !p.list {
				return fmt.Errorf("{%s} is a boolean: expected a word of its own", p.name)
			}
			if p.list && slices.ContainsFunc(found[:i], func(q param) bool { return q.list && q != p }) {
				return fmt.Errorf("%s is the second list: expected one in a word", p)
			}
		}
		group := slices.ContainsFunc(found, func(p param) bool { return p.optional })
		t.args = append(t.args, abi.Word{Templates: []string{word}, Group: group})
		return nil
	}

	p, last := found[0], len(t.args)-1
	option := last >= 0 && isOption(t.args[last])
	switch {
	case p.kind == "boolean" && (!option || p.list):
		return fmt.Errorf("{%s} is a boolean, which stands for the option before it, such as -v {%s:boolean}", p.name, p.name)
	case option && (p.optional || p.list || p.kind == "boolean"):
		t.args[last] = abi.Word{Templates: []string{t.args[last].Templates[0], word}, Group: true}
	default:
		t.args = append(t.args, abi.Word{Templates: []string{word}})
	}
	return nil
}

// isOption reports whether a word is an option without placeholders.
func isOption(w abi.Word) bool {
	return !w.Group && len(w.Templates) == 1 && strings.HasPrefix(w.Templates[0], "-") && w.Templates[0] != "-" && w.Templates[0] != "--" && !strings.ContainsAny(w.Templates[0], "{}")
}

// describe adds descriptions, each given as ARGUMENT=TEXT.
func (t *template) describe(arguments []string) error {
	for _, a := range arguments {
		name, text, ok := strings.Cut(a, "=")
		if !ok || text == "" || !utf8.ValidString(text) {
			return fmt.Errorf("%q: expected ARGUMENT=TEXT", a)
		}
		i := slices.IndexFunc(t.params, func(p param) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("%q: the command line has no {%s}", a, name)
		}
		t.params[i].about = text
	}
	return nil
}

// schema returns the input schema of the tool.
func (t *template) schema() json.RawMessage {
	var properties, required []string
	for _, p := range t.params {
		s := fmt.Sprintf(`"type":%q`, p.kind)
		if p.list {
			s = `"type":"array","items":{` + s + `}`
		}
		if p.about != "" {
			s += `,"description":` + jsonText(p.about)
		}
		properties = append(properties, fmt.Sprintf("%q:{%s}", p.name, s))
		if !p.optional && p.kind != "boolean" {
			required = append(required, fmt.Sprintf("%q", p.name))
		}
	}
	return json.RawMessage(`{"type":"object","properties":{` + strings.Join(properties, ",") + `},"required":[` + strings.Join(required, ",") + `],"additionalProperties":false}`)
}

// String returns the words for people.
func (t *template) String() string {
	var words []string
	for _, w := range t.args {
		text := strings.Join(w.Templates, " ")
		if w.Group {
			text = "[" + text + "]"
		}
		words = append(words, text)
	}
	if t.stdin != "" {
		words = append(words, "< {"+t.stdin+"}")
	}
	return strings.Join(words, " ")
}
