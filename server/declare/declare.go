// Package declare writes TypeScript declarations of tools from their JSON Schemas, for
// models and scripts. It assumes that schemas and descriptions are hostile: whatever they
// say, a declaration has bounded size, takes bounded time, and is TypeScript that
// declares one method.
package declare

import "encoding/json"

// MaxBytes is the maximum size of a declaration, in bytes.
const MaxBytes = 8 << 10

// Tool is a tool to declare. A schema that is empty, or not JSON, allows
// everything.
type Tool struct {
	Name   string
	Input  json.RawMessage
	Output json.RawMessage
}

// Declaration returns the declaration of a tool as a method of an interface, such as
//
//	notes_search(args: { text: string; limit?: number }): Promise<string[]>
//
// without the tool's description. Comments contain the descriptions of properties, and
// constraints that types cannot express. A declaration that would exceed [MaxBytes]
// leaves out comments, then the inner parts of its types, then all of the types.
func Declaration(t Tool) string {
	input, output := parse(t.Input), parse(t.Output)
	for _, g := range []generator{{depth: maxDepth, comments: true}, {depth: maxDepth}, {depth: 2}} {
		if text := g.method(t.Name, input, output); len(text) <= MaxBytes {
			return text
		}
	}
	return methodName(t.Name) + "(args?: Record<string, unknown>): Promise<unknown>"
}

// method returns the declaration of a tool.
func (g *generator) method(toolName string, input, output value) string {
	g.nodes = maxNodes
	args := g.arguments(input)

	g.nodes = maxNodes // a large input leaves the output its share
	g.root = output
	result := unknown
	if output.kind != 0 {
		result = g.typeOf(output, 0)
	}
	return methodName(toolName) + "(" + args + "): Promise<" + result.text + ">"
}

// arguments returns the parameter of a tool. Arguments are always an object, and optional
// if none is required.
func (g *generator) arguments(input value) string {
	g.root = input
	t := g.typeOf(input, 0)
	switch t {
	case unknown:
		t = anyObject
	case empty:
		return ""
	}
	for _, required := range g.resolve(input).member("required").items {
		if required.kind == text {
			return "args: " + t.text
		}
	}
	return "args?: " + t.text
}

// methodName returns the name of a method.
func methodName(s string) string {
	if s == "new" { // would declare a constructor
		return quote(s)
	}
	return name(clip(s, maxName))
}
