package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits on how a WASI command gets the arguments of a tool.
const (
	MaxWords    = 64       // words of a command line, and of each of its groups
	MaxWord     = 4 << 10  // bytes of the template of one word
	MaxVariable = 4 << 10  // bytes of an environment variable
	MaxExitCode = 255      // largest exit code that can mean success
	MaxExpanded = 16 << 20 // bytes of all expanded templates of one call, see [Command.Line]
)

// wordCost is what a word costs besides its text, in bytes: the host keeps a list of them.
const wordCost = 64

// ErrExpanded means that the expanded templates have more than [MaxExpanded] bytes in total.
var ErrExpanded = fmt.Errorf("the arguments expand to more than %d bytes, the limit for a command", MaxExpanded)

// Reasons why the value of an argument cannot be a word of a command line.
var (
	ErrOption = errors.New(`begins with "-": the program could read it as an option`)
	ErrZero   = errors.New("has a zero byte, which would end it")
	ErrName   = errors.New("cannot be the name of an option")
)

// ArgumentError reports an argument that cannot be passed on a command line.
type ArgumentError struct {
	Name string // name of the argument
	Err  error  // [ErrOption], [ErrZero] or [ErrName]
}

func (e *ArgumentError) Error() string { return fmt.Sprintf("the argument %.80q %v", e.Name, e.Err) }

// Unwrap returns the reason.
func (e *ArgumentError) Unwrap() error { return e.Err }

// Command describes how to call a WASI command. With the zero Command, the command gets all
// arguments as JSON on stdin.
type Command struct {
	Args []Word `json:"args,omitempty"` // the command line after the command's own name
	// Stdin is a template like those of a [Word]. Nil means all arguments as JSON.
	Stdin *string `json:"stdin,omitempty"`
	// Env holds environment variables. The operator's variables take precedence.
	Env map[string]string `json:"env,omitempty"`
	// Dir is the working directory: the path of a folder that the tool needs. Empty
	// leaves the choice to the program.
	Dir string `json:"dir,omitempty"`
	// AllowDash names the arguments whose values may begin a word with "-".
	AllowDash []string `json:"allow_dash,omitempty"`
	// Success lists the exit codes that mean success: stdout is then the result. Any
	// other code is a tool error. Empty means only 0.
	Success []int64 `json:"success,omitempty"`
	// Output is the format of stdout. Empty means [OutputAuto].
	Output Output `json:"output,omitempty"`
}

// Succeeds reports whether an exit code means that stdout is a result.
func (c *Command) Succeeds(code int) bool {
	return code == 0 && len(c.Success) == 0 || slices.Contains(c.Success, int64(code))
}

// Output is the format of a command's stdout: one of the constants, or the media type of an
// image. In JSON an image is {"image": TYPE}.
type Output string

// The outputs.
const (
	OutputAuto   Output = "auto"   // JSON if stdout is valid JSON, else text without its final line feeds
	OutputText   Output = "text"   // a string with exactly the bytes of stdout
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

// A Word is a word of a command line. In JSON it may also be a group: a list of words that are
// left out together if one of them names an argument that is missing, null, false or an empty
// array. In a template, {name} stands for the argument of that name: strings are inserted as
// they are, integers such as 2.0 without their decimal point, and all other values as JSON.
// {{ and }} stand for braces.
//
// A word that consists only of {name} is left out if the argument is missing or null. An
// array becomes one word per element. In a group the word is left out if the argument is
// true.
//
// {name...} repeats the whole word, or the group, for each element of an array, and stands
// for that element. Any other value counts as one element. Missing, null and false
// arguments are left out. A word or a group may repeat at most one argument.
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
// [ErrExpanded] or an [*ArgumentError]: a value must not begin a word with "-", unless the
// word "--" stands before it or AllowDash names the argument. A "--" right after an option
// without a value does not count, because the option would take it as its value. Toward
// [MaxExpanded], each word counts 64 bytes more than its text. An array adds its size as
// JSON, and each repetition adds 64 bytes and the size of its templates.
func (c *Command) Line(args json.RawMessage) ([]string, error) {
	l := line{values: valuesOf(args), dashes: c.AllowDash}
	for _, one := range c.Args {
		w := one.parse()
		add := l.addWord
		if w.each != "" {
			add = l.addEach
		}
		if err := add(w); err != nil {
			return nil, err
		}
	}
	return l.words, nil
}

// Flags returns the arguments of a call, a JSON object, as --name value in the order of the
// names, or as --name=value if the value begins with "-". A boolean is a flag that is present
// or absent. The errors are the same as those of [Command.Line].
func (c *Command) Flags(args json.RawMessage) ([]string, error) {
	l := line{values: valuesOf(args), dashes: c.AllowDash}
	for _, name := range slices.Sorted(maps.Keys(l.values)) {
		value := l.values[name]
		if value[0] == 'f' || value[0] == 'n' {
			continue
		}
		if !isArgument(name) {
			return nil, &ArgumentError{name, ErrName}
		}
		if err := l.flag(name, value); err != nil {
			return nil, err
		}
	}
	return l.words, nil
}

// flag adds an argument as a flag.
func (l *line) flag(name string, value json.RawMessage) error {
	if value[0] == 't' {
		return l.word("--" + name)
	}
	text := textOf(value)
	if strings.HasPrefix(text, "-") && !slices.Contains(l.dashes, name) {
		text = "--" + name + "=" + text // it cannot become an option of its own
	} else if err := l.word("--" + name); err != nil {
		return err
	}
	if err := l.check(name, text, false); err != nil {
		return err
	}
	return l.word(text)
}

// line is a command line that is being built.
type line struct {
	values   values
	dashes   []string // arguments whose values may begin a word with "-"
	words    []string
	element  string // argument that stands for one of its elements: see addEach
	operands bool   // whether the word "--" has been added
	open     bool   // whether the last word is an option whose value was left out
	size     int
}

// addEach adds a word or a group for each element of the argument that it repeats.
func (l *line) addEach(w parsedWord) error {
	value := l.values[w.each]
	elements := []json.RawMessage{value}
	if len(value) > 0 && value[0] == '[' {
		if err := l.grow(len(value)); err != nil {
			return err
		}
		elements = nil
		_ = json.Unmarshal(value, &elements)
	}

	l.element = w.each
	defer func() { l.values[w.each], l.element = value, "" }()
	before := len(l.words)
	for _, e := range elements {
		if err := l.grow(wordCost + w.size); err != nil {
			return err
		}
		l.values[w.each] = e
		if l.values.lackOne(w) {
			continue
		}
		if err := l.addTemplates(w); err != nil {
			return err
		}
	}
	if len(l.words) == before {
		l.leaveOut(w)
	}
	return nil
}

// addWord adds a word or a group.
func (l *line) addWord(w parsedWord) error {
	if w.group && l.values.lackOne(w) {
		l.leaveOut(w)
		return nil
	}
	return l.addTemplates(w)
}

func (l *line) addTemplates(w parsedWord) error {
	for _, parts := range w.templates {
		if err := l.add(parts, w.group); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut records that a word or a group is left out. If it begins with a value, the option
// before it may have lost that value.
func (l *line) leaveOut(w parsedWord) {
	if len(w.templates) > 0 && isValue(w.templates[0]) {
		l.leaveOutValue()
	}
}

func (l *line) leaveOutValue() {
	l.open = l.open || len(l.words) > 0 && strings.HasPrefix(l.words[len(l.words)-1], "-")
}

// add expands a template.
func (l *line) add(parts []part, group bool) error {
	if !isValue(parts) {
		return l.mixed(parts)
	}

	name := parts[0].name
	value := l.values[name]
	switch {
	case group && string(value) == "true":
		return nil
	case l.values.missing(name), isEmpty(value):
		l.leaveOutValue()
		return nil
	case value[0] != '[' || name == l.element:
		return l.value(name, value)
	}

	if err := l.grow(len(value)); err != nil {
		return err
	}
	var elements []json.RawMessage
	_ = json.Unmarshal(value, &elements)
	for _, e := range elements {
		if err := l.value(name, e); err != nil {
			return err
		}
	}
	return nil
}

// value adds a word that is a value.
func (l *line) value(name string, value json.RawMessage) error {
	text := textOf(value)
	if err := l.check(name, text, true); err != nil {
		return err
	}
	return l.word(text)
}

// mixed adds a word that contains literal text.
func (l *line) mixed(parts []part) error {
	var b strings.Builder
	var text string
	for _, p := range parts {
		text = p.literal
		if p.name != "" && !l.values.missing(p.name) {
			text = l.values.text(p.name)
			if err := l.check(p.name, text, b.Len() == 0); err != nil {
				return err
			}
		}
		if b.WriteString(text); b.Len() > MaxExpanded {
			return ErrExpanded
		}
	}

	word := b.String()
	l.operands = l.operands || len(parts) == 1 && word == "--" && !l.open
	if err := l.word(word); err != nil {
		return err
	}
	l.open = text == "" && strings.HasPrefix(word, "-") && !strings.HasSuffix(word, "=")
	return nil
}

// check checks the text of a value. begins tells whether the value begins a word.
func (l *line) check(name, text string, begins bool) error {
	switch {
	case strings.Contains(text, "\x00"):
		return &ArgumentError{name, ErrZero}
	case begins && !l.operands && strings.HasPrefix(text, "-") && !slices.Contains(l.dashes, name):
		return &ArgumentError{name, ErrOption}
	}
	return nil
}

func (l *line) word(text string) error {
	if err := l.grow(len(text) + wordCost); err != nil {
		return err
	}
	l.words, l.open = append(l.words, text), false
	return nil
}

// grow counts n more bytes toward MaxExpanded.
func (l *line) grow(n int) error {
	if l.size += n; l.size > MaxExpanded {
		return ErrExpanded
	}
	return nil
}

// ExpandTemplate inserts the arguments of a call, a JSON object, into a template. Missing and
// null arguments are left out. The error is [ErrExpanded].
func ExpandTemplate(template string, args json.RawMessage) (string, error) {
	return valuesOf(args).expand(parseTemplate(template))
}

// values holds the arguments of a call by name.
type values map[string]json.RawMessage

// lackOne reports whether a word names an argument that is missing, null, false or an empty
// array.
func (v values) lackOne(w parsedWord) bool {
	return slices.ContainsFunc(w.templates, func(parts []part) bool {
		return slices.ContainsFunc(parts, func(p part) bool {
			return p.name != "" && (v.missing(p.name) || string(v[p.name]) == "false" || isEmpty(v[p.name]))
		})
	})
}

func (v values) missing(name string) bool {
	return len(v[name]) == 0 || string(v[name]) == "null"
}

// isEmpty reports whether a value is an array without elements.
func isEmpty(value json.RawMessage) bool {
	inside, isArray := strings.CutPrefix(string(value[:min(len(value), 1<<10)]), "[")
	return isArray && strings.HasPrefix(strings.TrimLeft(inside, " \t\r\n"), "]")
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

// textOf returns a string as it is, and any other value as JSON. A number such as 2.0 or
// 2e0 is an integer in JSON Schema, but not for programs: it becomes 2.
func textOf(value json.RawMessage) string {
	if len(value) == 0 || value[0] != '"' {
		const exact = 1 << 53 // larger numbers have digits that a float64 lacks
		if n, err := strconv.ParseFloat(string(value), 64); err == nil && bytes.ContainsAny(value, ".eE") && n == math.Trunc(n) && math.Abs(n) < exact {
			return strconv.FormatInt(int64(n), 10)
		}
		return string(value)
	}
	text, plain := plainText(value)
	if !plain {
		_ = json.Unmarshal(value, &text)
	}
	return text
}

// part is a part of a template: text, or the name of an argument.
type part struct {
	literal, name string
	each          bool // {name...}
}

// isValue reports whether a template is one argument and nothing else.
func isValue(parts []part) bool { return len(parts) == 1 && parts[0].name != "" }

// parsedWord is a Word whose templates are split.
type parsedWord struct {
	templates [][]part
	group     bool
	each      string // first argument that repeats the word for each of its elements; empty if none does
	size      int    // bytes of the templates
}

func (w Word) parse() parsedWord {
	p := parsedWord{group: w.Group}
	for _, template := range w.Templates {
		parts := parseTemplate(template)
		p.templates = append(p.templates, parts)
		p.size += len(template)
		if i := slices.IndexFunc(parts, func(p part) bool { return p.each }); i >= 0 && p.each == "" {
			p.each = parts[i].name
		}
	}
	return p
}

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
		one := part{name: name}
		if of, each := strings.CutSuffix(name, "..."); each && of != "" {
			one = part{name: of, each: true}
		}
		parts, text, template = append(parts, one), "", rest
	}
	if text != "" || parts == nil {
		parts = append(parts, part{literal: text})
	}
	return parts
}
