package abi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// command checks how a command, or an Extism function, gets the arguments of a tool.
func (d *decoder) command(at string, t *Tool) {
	declared := propertiesOf(t.InputSchema)
	if t.Argv && len(t.Command.Args) > 0 {
		d.add(at+"/argv", "command.args is the command line: expected one of them")
	}
	d.args(at+"/command/args", declared, t.Command.Args)
	if t.Command.Stdin != nil {
		d.unrepeated(at+"/command/stdin", declared, *t.Command.Stdin)
	}
	d.variables(at+"/command/env", t.Command.Env)
	d.dashes(at+"/command/allow_dash", declared, t.Command.AllowDash)
	d.exitCodes(at+"/command/success", t.Command.Success)

	if t.MCPTool != "" && (t.Function != "" || t.Input != nil) {
		d.add(at+"/mcp_tool", "function and input say how the tool is called in another way: expected one of them")
	}
	if t.Input != nil {
		d.unrepeated(at+"/input", declared, *t.Input)
	}
}

// dashes checks the arguments that may begin a word with "-".
func (d *decoder) dashes(at string, declared properties, names []string) {
	d.count(at, "arguments", len(names))
	for i, name := range names {
		if _, ok := declared[name]; !ok {
			d.add(at+"/"+strconv.Itoa(i), "%.80q is not a property of input_schema", name)
		}
	}
}

func (d *decoder) exitCodes(at string, codes []int64) {
	d.count(at, "exit codes", len(codes))
	for i, code := range codes {
		if code < 0 || code > MaxExitCode {
			d.add(at+"/"+strconv.Itoa(i), "expected an exit code from 0 to %d, found %d", MaxExitCode, code)
		}
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
func (d *decoder) args(at string, declared properties, words []Word) {
	d.count(at, "words", len(words))
	for i, w := range words {
		at := at + "/" + strconv.Itoa(i)
		d.count(at, "words", len(w.Templates))
		parsed := w.parse()
		d.repeated(at, parsed)
		for j, template := range w.Templates {
			at := at
			if w.Group {
				at += "/" + strconv.Itoa(j)
			}
			if len(template) > MaxWord {
				d.add(at, "expected at most %d bytes, found %d", MaxWord, len(template))
			}
			if strings.Contains(template, "\x00") {
				d.add(at, "has a zero byte, which would end the word")
			}
			d.placeholders(at, declared, parsed.templates[j])
		}
	}
}

// repeated checks that a word or a group is repeated for one argument only.
func (d *decoder) repeated(at string, w parsedWord) {
	for _, parts := range w.templates {
		for _, p := range parts {
			if p.each && p.name != w.each {
				d.add(at, "{%s...} and {%s...} both repeat it: expected one of them", w.each, p.name)
			}
		}
	}
}

// unrepeated checks a template that is not a word, so no argument can repeat it.
func (d *decoder) unrepeated(at string, declared properties, template string) {
	parts := parseTemplate(template)
	for _, p := range parts {
		if p.each {
			d.add(at, "{%s...} repeats a word of command.args: expected {%s}", p.name, p.name)
			break
		}
	}
	d.placeholders(at, declared, parts)
}

// directories checks the working directories of commands. C and Rust look for relative
// paths in the folder at /, so there cannot be another one.
func (d *decoder) directories(m *Manifest) {
	has := func(n Needs, dir string) bool {
		return slices.ContainsFunc(n.Files, func(f FileNeed) bool { return f.Path == dir })
	}
	root := has(m.AllNeeds().All(), "/")
	for i, t := range m.Tools {
		at := "/tools/" + strconv.Itoa(i) + "/command/dir"
		switch dir := t.Command.Dir; {
		case dir == "":
		case !has(m.Needs, dir) && !has(t.Needs, dir):
			d.add(at, "%.80q is not a folder that the tool needs: name it in needs.files", dir)
		case dir != "/" && root:
			d.add(at, "the plugin needs a folder at /, which is the working directory then: expected \"/\", found %.80q", dir)
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
func (d *decoder) placeholders(at string, declared properties, parts []part) {
	for _, p := range parts {
		if _, ok := declared[p.name]; p.name != "" && !ok {
			d.add(at, "{%s} is not a property of input_schema: write {{%s}} for the text", p.name, p.name)
		}
	}
}

// properties are the arguments that a schema declares.
type properties map[string]json.RawMessage

func propertiesOf(schema json.RawMessage) properties {
	var root struct {
		Properties properties `json:"properties"`
	}
	_ = json.Unmarshal(schema, &root) // its own problems are reported elsewhere
	return root.Properties
}
