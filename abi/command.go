package abi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Limits on how a WASI command gets the arguments of a tool.
const (
	MaxWords    = 64       // words of a command line, and of each of its groups
	MaxWord     = 4 << 10  // bytes of the template of one word
	MaxVariable = 4 << 10  // bytes of an environment variable
	MaxExitCode = 255      // of a success
	MaxExpanded = 16 << 20 // bytes of all expanded templates of one call
)

// ErrExpanded means that the expanded templates have more than [MaxExpanded] bytes.
var ErrExpanded = fmt.Errorf("the arguments expand to more than %d bytes, the limit for a command", MaxExpanded)

// Command is how a WASI command is called. The zero Command gets all arguments as JSON on
// stdin.
type Command struct {
	Args []Word `json:"args,omitempty"` // the command line after the command's own name
	// Stdin is a template like those of a [Word]. Nil means all arguments as JSON.
	Stdin *string `json:"stdin,omitempty"`
	// Env has environment variables. Those that the operator grants take precedence.
	Env map[string]string `json:"env,omitempty"`
	// Success has the exit codes whose stdout is a result. Any other is a tool error.
	// Empty means only 0.
	Success []int64 `json:"success,omitempty"`
	// Output says what stdout is. Empty means [OutputAuto].
	Output Output `json:"output,omitempty"`
}

// Succeeds reports whether an exit code means that stdout is a result.
func (c *Command) Succeeds(code int) bool {
	return code == 0 && len(c.Success) == 0 || slices.Contains(c.Success, int64(code))
}

// Output says what the stdout of a command is: one of the constants, or the media type of an
// image, which is {"image": TYPE} in JSON.
type Output string

// The outputs.
const (
	OutputAuto   Output = "auto"   // JSON if it parses, else text without its final line feeds
	OutputText   Output = "text"   // a string, to the byte
	OutputJSON   Output = "json"   // any JSON value
	OutputLines  Output = "lines"  // a list of strings, without their line feeds
	OutputBase64 Output = "base64" // any bytes, as base64 in a string
)

var outputs = []Output{OutputAuto, OutputText, OutputJSON, OutputLines, OutputBase64}

// image is an Output in JSON.
type image struct {
	Image string `json:"image"`
}

// Image returns the media type of an image. It is empty for any other output.
func (o Output) Image() string {
	if slices.Contains(webImages, string(o)) {
		return string(o)
	}
	return ""
}

// MarshalJSON returns a string, or an object for an image.
func (o Output) MarshalJSON() ([]byte, error) {
	if o.Image() != "" {
		return json.Marshal(image{string(o)})
	}
	return json.Marshal(string(o))
}

// UnmarshalJSON reads a string, or an object for an image.
func (o *Output) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var i image
		err := json.Unmarshal(data, &i)
		*o = Output(i.Image)
		return err
	}
	return json.Unmarshal(data, (*string)(o))
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

// Line returns the command line for the arguments of a call, a JSON object. The error is
// [ErrExpanded].
func (c *Command) Line(args json.RawMessage) (line []string, err error) {
	values := valuesOf(args)
	size := 0
	for _, w := range c.Args {
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
	return withoutZeros(line), nil
}

// Flags returns the arguments of a call, a JSON object, as --name value in the order of
// the names. A boolean is a flag that is present or absent.
func (c *Command) Flags(args json.RawMessage) (line []string, err error) {
	values := valuesOf(args)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch values[name][0] {
		case 't':
			line = append(line, "--"+name)
		case 'f', 'n':
		default:
			line = append(line, "--"+name, values.text(name))
		}
	}
	return withoutZeros(line), nil
}

// withoutZeros removes zero bytes, which would end a word.
func withoutZeros(line []string) []string {
	for i := range line {
		line[i] = strings.ReplaceAll(line[i], "\x00", "")
	}
	return line
}

// ExpandTemplate inserts the arguments of a call, a JSON object, into a template.
// Missing and null arguments are left out. The error is ErrExpanded.
func ExpandTemplate(template string, args json.RawMessage) (string, error) {
	return valuesOf(args).expand(parseTemplate(template))
}

// values are the arguments of a call.
type values map[string]json.RawMessage

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
	if t.Argv && len(t.Command.Args) > 0 {
		d.add(at+"/argv", "command.args is the command line: expected one of them")
	}
	d.args(at+"/command/args", t)
	if t.Command.Stdin != nil {
		d.placeholders(at+"/command/stdin", t.InputSchema, *t.Command.Stdin)
	}
	d.variables(at+"/command/env", t.Command.Env)
	d.count(at+"/command/success", "exit codes", len(t.Command.Success))
	for i, code := range t.Command.Success {
		if code < 0 || code > MaxExitCode {
			d.add(at+"/command/success/"+strconv.Itoa(i), "expected an exit code from 0 to %d, found %d", MaxExitCode, code)
		}
	}

	if t.MCPTool != "" && (t.Function != "" || t.Input != nil) {
		d.add(at+"/mcp_tool", "function and input say how the tool is called in another way: expected one of them")
	}
	if t.Input != nil {
		d.placeholders(at+"/input", t.InputSchema, *t.Input)
	}
}

// output reads and checks an Output.
func (d *decoder) output(at string, data []byte) Output {
	var o Output
	if data[0] != '{' {
		d.value(at, data, reflect.ValueOf((*string)(&o)).Elem())
		if data[0] == '"' && !slices.Contains(outputs, o) {
			d.add(at, "expected one of %q or {\"image\": TYPE}, found %q", outputs, o)
		}
		return o
	}

	var i image
	before := len(d.problems)
	d.object(at, data, reflect.ValueOf(&i).Elem())
	if len(d.problems) == before && !slices.Contains(webImages, i.Image) {
		d.add(at+"/image", "expected one of %q, found %q", webImages, i.Image)
	}
	return Output(i.Image)
}

// args checks the words of a command line.
func (d *decoder) args(at string, t *Tool) {
	d.count(at, "words", len(t.Command.Args))
	for i, w := range t.Command.Args {
		at := at + "/" + strconv.Itoa(i)
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
}

// variables checks environment variables.
func (d *decoder) variables(at string, env map[string]string) {
	d.count(at, "variables", len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		at := at + "/" + escape(name)
		if !isEnvName(name) {
			d.add(at, "expected the name of an environment variable, found %q", name)
		}
		if value := env[name]; len(value) > MaxVariable || strings.Contains(value, "\x00") {
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
