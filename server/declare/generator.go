package declare

import (
	"slices"
	"strconv"
	"strings"
)

// Bounds of a declaration.
const (
	maxNodes      = 256 // schemas visited for the input, and for the output
	maxDepth      = 8   // types nested in types
	maxUnion      = 16  // members of a union or an intersection
	maxEnum       = 32  // literals of an enum
	maxProperties = 64  // properties of an object
	maxLiteral    = 80  // bytes of a literal
	maxName       = 80  // bytes of the name of a property
	maxComment    = 240 // bytes of the description of a property
	maxPattern    = 60  // bytes of a pattern in a comment
	maxLine       = 80  // most bytes of an object type that is written on one line
)

// How tightly the outermost operator of a type binds.
const (
	atom = iota
	intersected
	united
)

// expr is a TypeScript type.
type expr struct {
	text    string
	binding int
}

var (
	unknown   = expr{text: "unknown"}
	never     = expr{text: "never"}
	anyObject = expr{text: "Record<string, unknown>"}
)

// within returns the type as an operand of an operator that binds as tightly as binding.
func (e expr) within(binding int) string {
	if e.binding > binding {
		return "(" + e.text + ")"
	}
	return e.text
}

// generator writes the types of one tool.
type generator struct {
	root     value // the schema that references point into
	depth    int
	nodes    int // schemas that may still be visited
	comments bool
	open     []string // references that are being followed
}

// typeOf returns the type that a schema describes, or a wider one.
func (g *generator) typeOf(schema value, depth int) expr {
	g.nodes--
	switch {
	case schema.kind == boolean && schema.raw == "false":
		return never
	case schema.kind != object || g.nodes < 0 || depth > g.depth:
		return unknown
	}

	all := []expr{g.plain(schema, depth)}
	if ref := schema.member("$ref").text; ref != "" && !slices.Contains(g.open, ref) { // a recursive type is unknown
		g.open = append(g.open, ref)
		all = append(all, g.typeOf(g.resolve(schema), depth+1))
		g.open = g.open[:len(g.open)-1]
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if schemas := schema.member(keyword).items; schemas != nil {
			all = append(all, g.union(schemas, depth))
		}
	}
	if schemas := schema.member("allOf").items; len(schemas) <= maxUnion {
		for _, s := range schemas {
			all = append(all, g.typeOf(s, depth+1))
		}
	}
	return intersection(all)
}

// union returns the type of values that fit any of the schemas.
func (g *generator) union(schemas []value, depth int) expr {
	if len(schemas) > maxUnion {
		return unknown
	}
	var all []expr
	for _, s := range schemas {
		all = append(all, g.typeOf(s, depth+1))
	}
	return union(all)
}

// plain returns the type that a schema itself describes, without the schemas that it combines.
func (g *generator) plain(schema value, depth int) expr {
	if c := schema.member("const"); c.kind != 0 {
		return literals([]value{c})
	}
	if values := schema.member("enum"); values.kind == array {
		return literals(values.items)
	}

	names := typeNames(schema)
	if names == nil {
		names = impliedType(schema)
	}
	var all []expr
	for _, name := range names {
		all = append(all, g.named(name, schema, depth))
	}
	if all == nil {
		return unknown
	}
	return union(all)
}

// typeNames returns the types that a schema names.
func typeNames(schema value) (names []string) {
	t := schema.member("type")
	for _, item := range append([]value{t}, t.items...) {
		if item.kind == text {
			names = append(names, item.text)
		}
	}
	return names
}

// impliedType returns the type that the author of a schema means if the schema names
// none, but has keywords of objects or arrays.
func impliedType(schema value) []string {
	switch {
	case schema.member("properties").kind == object:
		return []string{"object"}
	case schema.member("items").kind == object, schema.member("prefixItems").kind == array:
		return []string{"array"}
	}
	return nil
}

// named returns the type for one of the type names of a schema.
func (g *generator) named(name string, schema value, depth int) expr {
	switch name {
	case "string", "number", "boolean", "null":
		return expr{text: name}
	case "integer":
		return expr{text: "number"}
	case "array":
		return g.array(schema, depth)
	case "object":
		return g.object(schema, depth)
	}
	return unknown
}

func (g *generator) array(schema value, depth int) expr {
	rest := unknown
	if items := schema.member("items"); items.kind != 0 {
		rest = g.typeOf(items, depth+1)
	}

	first := schema.member("prefixItems").items
	if len(first) == 0 || len(first) > maxUnion {
		if len(first) > 0 {
			rest = unknown
		}
		return expr{text: rest.within(atom) + "[]"}
	}

	least, _ := strconv.Atoi(schema.member("minItems").raw)
	var items []string
	for i, s := range first {
		item := g.typeOf(s, depth+1)
		if i < least {
			items = append(items, item.text)
		} else {
			items = append(items, item.within(atom)+"?")
		}
	}
	if rest != never {
		items = append(items, "..."+rest.within(atom)+"[]")
	}
	return expr{text: "[" + strings.Join(items, ", ") + "]"}
}

// resolve returns the schema that a reference leads to; for an unknown one, a schema that
// allows everything. Without a reference it returns the schema itself.
func (g *generator) resolve(schema value) value {
	ref := schema.member("$ref")
	if ref.kind != text {
		return schema
	}
	pointer, local := strings.CutPrefix(ref.text, "#")
	if !local || pointer != "" && pointer[0] != '/' {
		return value{}
	}

	found := g.root
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if found.kind != array {
			found = found.member(step)
			continue
		}
		i, err := strconv.Atoi(step)
		if err != nil || i < 0 || i >= len(found.items) {
			return value{}
		}
		found = found.items[i]
	}
	return found
}

// literals returns the union of values, or of their types if there are too many or one
// has no literal.
func literals(values []value) expr {
	var all []expr
	for _, v := range values[:min(len(values), maxEnum+1)] {
		all = append(all, literal(v))
	}
	if len(all) > maxEnum || slices.Contains(all, unknown) {
		all = nil
		for _, v := range values {
			all = append(all, widened(v))
		}
	}
	return union(all)
}

// literal returns the type of one value; unknown if it is too long or not a scalar.
func literal(v value) expr {
	written := v.raw
	switch v.kind {
	case null:
		written = "null"
	case text:
		written = quote(v.text)
	case array, object:
		return unknown
	}
	if len(written) > maxLiteral {
		return unknown
	}
	return expr{text: written}
}

// widened returns the type of all values of the same kind.
func widened(v value) expr {
	switch v.kind {
	case null:
		return expr{text: "null"}
	case boolean:
		return expr{text: "boolean"}
	case number:
		return expr{text: "number"}
	case text:
		return expr{text: "string"}
	case array:
		return expr{text: "unknown[]"}
	}
	return anyObject
}

// union returns the union of types.
func union(all []expr) expr {
	parts := combined(all, never)
	switch {
	case slices.Contains(parts, unknown):
		return unknown
	case len(parts) == 0:
		return never
	case len(parts) == 1:
		return parts[0]
	}
	return expr{join(parts, " | ", united), united}
}

// intersection returns the intersection of types.
func intersection(all []expr) expr {
	parts := combined(all, unknown)
	switch {
	case slices.Contains(parts, never):
		return never
	case len(parts) == 0:
		return unknown
	case len(parts) == 1:
		return parts[0]
	}
	return expr{join(parts, " & ", intersected), intersected}
}

// combined returns the distinct types, without the neutral one.
func combined(all []expr, neutral expr) (parts []expr) {
	for _, e := range all {
		if e != neutral && !slices.Contains(parts, e) {
			parts = append(parts, e)
		}
	}
	return parts
}

func join(parts []expr, operator string, binding int) string {
	texts := make([]string, len(parts))
	for i, e := range parts {
		texts[i] = e.within(binding)
	}
	return strings.Join(texts, operator)
}
