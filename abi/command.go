package abi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Limits on how a WASI command gets the arguments of a tool.
const (
	MaxWords    = 64       // words of a command line, and of each of its groups
	MaxWord     = 4 << 10  // bytes of the template of one word
	MaxVariable = 4 << 10  // bytes of an environment variable
	MaxExpanded = 16 << 20 // bytes of all expanded templates of one call
)

// ErrExpanded means that the expanded templates have more than [MaxExpanded] bytes.
var ErrExpanded = fmt.Errorf("the arguments expand to more than %d bytes, the limit for a command", MaxExpanded)

// Argv is the command line of a WASI command after its own name. In JSON it is true, for
// Flags, or a list of words. The zero Argv has no words.
type Argv struct {
	Flags bool // each argument as --name value, in the order of the names
	Words []Word
}

// A Word is a word of a command line. In JSON it may also be a group: a list of words that
// are left out together if one of them names an argument that is missing, null or false.
// In a template {name} stands for the argument of that name: a string as it is, any other
// value as JSON. {{ and }} stand for braces.
//
// A word that consists only of {name} is left out if the argument is missing or null. An
// array becomes one word per element. In a group the word is left out if the argument is
// true.
type Word struct {
	Templates []string
	Group     bool
}

// IsZero reports whether there is no command line.
func (a Argv) IsZero() bool { return !a.Flags && len(a.Words) == 0 }

// MarshalJSON returns the form that UnmarshalJSON reads.
func (a Argv) MarshalJSON() ([]byte, error) {
	if a.Flags || a.Words == nil {
		return json.Marshal(a.Flags)
	}
	return json.Marshal(a.Words)
}

// UnmarshalJSON reads true, false or a list of words.
func (a *Argv) UnmarshalJSON(data []byte) error {
	*a = Argv{}
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, &a.Words)
	}
	return json.Unmarshal(data, &a.Flags)
}

// MarshalJSON returns a string, or a list of strings.
func (w Word) MarshalJSON() ([]byte, error) {
	if w.Group || len(w.Templates) != 1 {
		return json.Marshal(append([]string{}, w.Templates...))
	}
	return json.Marshal(w.Templates[0])
}

// UnmarshalJSON reads a string, or a list of strings.
func (w *Word) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		*w = Word{Group: true}
		return json.Unmarshal(data, &w.Templates)
	}
	*w = Word{Templates: []string{""}}
	return json.Unmarshal(data, &w.Templates[0])
}

// Expand returns the command line for the arguments of a call, a JSON object. The error is
// ErrExpanded.
func (a Argv) Expand(args json.RawMessage) (line []string, err error) {
	values := valuesOf(args)
	if a.Flags {
		line = flags(values)
	}

	size := 0
	for _, w := range a.Words {
		if w.Group && slices.ContainsFunc(w.Templates, values.lacks) {
			continue
		}
		for _, template := range w.Templates {
			words, err := values.words(template, w.Group)
			if err != nil {
				return nil, err
			}
			for _, word := range words {
				size += len(word) + 1
			}
			if size > MaxExpanded {
				return nil, ErrExpanded
			}
			line = append(line, words...)
		}
	}

	for i := range line {
		line[i] = strings.ReplaceAll(line[i], "\x00", "") // a zero byte would end it
	}
	return line, nil
}

// ExpandTemplate inserts the arguments of a call, a JSON object, into a template.
// Missing and null arguments are left out. The error is ErrExpanded.
func ExpandTemplate(template string, args json.RawMessage) (string, error) {
	return valuesOf(args).expand(parseTemplate(template))
}

// values are the arguments of a call.
type values map[string]json.RawMessage

// flags returns arguments as --name value. A boolean is a flag that is present or absent.
func flags(v values) (line []string) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		switch v[name][0] {
		case 't':
			line = append(line, "--"+name)
		case 'f', 'n':
		default:
			line = append(line, "--"+name, v.text(name))
		}
	}
	return line
}

// lacks reports whether a template names an argument that is missing, null or false.
func (v values) lacks(template string) bool {
	return slices.ContainsFunc(parseTemplate(template), func(p part) bool {
		return p.name != "" && (v.missing(p.name) || string(v[p.name]) == "false")
	})
}

func (v values) missing(name string) bool {
	return len(v[name]) == 0 || string(v[name]) == "null"
}

// words expands a template of a command line.
func (v values) words(template string, group bool) ([]string, error) {
	parts := parseTemplate(template)
	if len(parts) != 1 || parts[0].name == "" {
		word, err := v.expand(parts)
		return []string{word}, err
	}

	name := parts[0].name
	switch {
	case v.missing(name), group && string(v[name]) == "true":
		return nil, nil
	case v[name][0] != '[':
		return []string{v.text(name)}, nil
	}
	var elements []json.RawMessage
	_ = json.Unmarshal(v[name], &elements)
	list := make([]string, len(elements))
	for i, e := range elements {
		list[i] = textOf(e)
	}
	return list, nil
}

func (v values) expand(parts []part) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.literal)
		if p.name != "" && !v.missing(p.name) {
			b.WriteString(v.text(p.name))
		}
		if b.Len() > MaxExpanded {
			return "", ErrExpanded
		}
	}
	return b.String(), nil
}

func (v values) text(name string) string { return textOf(v[name]) }

// textOf returns a string as it is, and any other value as JSON.
func textOf(value json.RawMessage) string {
	if len(value) == 0 || value[0] != '"' {
		return string(value)
	}
	text, plain := plainText(value)
	if !plain {
		_ = json.Unmarshal(value, &text)
	}
	return text
}

// part is a part of a template: text, or the name of an argument.
type part struct{ literal, name string }

// parseTemplate splits a template. A brace without a name is text.
func parseTemplate(template string) (parts []part) {
	text := ""
	for template != "" {
		at := strings.IndexAny(template, "{}")
		if at < 0 {
			at = len(template)
		}
		text, template = text+template[:at], template[at:]
		if template == "" {
			break
		}

		if len(template) > 1 && template[1] == template[0] {
			text, template = text+template[:1], template[2:]
			continue
		}
		name, rest, closed := strings.Cut(template[1:], "}")
		if template[0] == '}' || !closed || name == "" || strings.Contains(name, "{") {
			text, template = text+template[:1], template[1:]
			continue
		}

		if text != "" {
			parts = append(parts, part{literal: text})
		}
		parts, text, template = append(parts, part{name: name}), "", rest
	}
	if text != "" || parts == nil {
		parts = append(parts, part{literal: text})
	}
	return parts
}

// command checks how a command, or an Extism function, gets the arguments of a tool.
func (d *decoder) command(at string, t *Tool) {
	d.count(at+"/argv", "words", len(t.Argv.Words))
	for i, w := range t.Argv.Words {
		at := at + "/argv/" + strconv.Itoa(i)
		d.count(at, "words", len(w.Templates))
		for j, template := range w.Templates {
			at := at
			if w.Group {
				at += "/" + strconv.Itoa(j)
			}
			if len(template) > MaxWord {
				d.add(at, "expected at most %d bytes, found %d", MaxWord, len(template))
			}
			d.placeholders(at, t.InputSchema, template)
		}
	}
	if t.Stdin != nil {
		d.placeholders(at+"/stdin", t.InputSchema, *t.Stdin)
	}

	if t.MCPTool != "" && (t.Function != "" || t.Input != nil) {
		d.add(at+"/mcp_tool", "function and input say how the tool is called in another way: expected one of them")
	}
	if t.Input != nil {
		d.placeholders(at+"/input", t.InputSchema, *t.Input)
	}

	d.count(at+"/env", "variables", len(t.Env))
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		at := at + "/env/" + escape(name)
		if !isEnvName(name) {
			d.add(at, "expected the name of an environment variable, found %q", name)
		}
		if value := t.Env[name]; len(value) > MaxVariable || strings.Contains(value, "\x00") {
			d.add(at, "expected at most %d bytes without zeros", MaxVariable)
		}
	}
}

func (d *decoder) count(at, what string, n int) {
	if n > MaxWords {
		d.add(at, "expected at most %d %s, found %d", MaxWords, what, n)
	}
}

// placeholders reports names in a template that are not arguments.
func (d *decoder) placeholders(at string, schema json.RawMessage, template string) {
	var declared struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(schema, &declared) // its own problems are reported elsewhere
	for _, p := range parseTemplate(template) {
		if _, ok := declared.Properties[p.name]; p.name != "" && !ok {
			d.add(at, "{%s} is not a property of input_schema: write {{%s}} for the text", p.name, p.name)
		}
	}
}
