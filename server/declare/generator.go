package declare

import (
	"slices"
	"strconv"
	"strings"
)

// Bounds of a declaration.
const (
	maxNodes      = 256 // schemas that are looked at for the input, and for the output
	maxDepth      = 8   // of types in types
	maxUnion      = 16  // members of a union or an intersection
	maxEnum       = 32  // literals of an enum
	maxProperties = 64  // of an object
	maxLiteral    = 80  // bytes of a literal
	maxName       = 80  // bytes of the name of a property
	maxComment    = 240 // bytes of a description of a property
	maxPattern    = 60  // bytes of a pattern in a comment
	maxLine       = 80  // bytes of an object that is written in one line
)

// How tightly the outermost operator of a type binds.
const (
	atom = iota
	intersected
	united
)

// expr is a type.
type expr struct {
	text    string
	binding int
}

var (
	unknown   = expr{text: "unknown"}
	never     = expr{text: "never"}
	anyObject = expr{text: "Record<string, unknown>"}
)

// within is the type as an operand of what binds as tightly as binding.
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
	nodes    int // that may still be looked at
	comments bool
	open     []string // references that are being followed
}

// typeOf is the type of what a schema allows, or a wider one.
func (g *generator) typeOf(schema value, depth int) expr {
	g.nodes--
	switch {
	case schema.kind == boolean && schema.raw == "false":
		return never
	case schema.kind != object || g.nodes < 0 || depth > g.depth:
		return unknown
	}

	all := []expr{g.plain(schema, depth)}
	if ref := schema.member("$ref").text; ref != "" && !slices.Contains(g.open, ref) { // a type in itself is unknown
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

// union is the type of what one of the schemas allows.
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

// plain is the type of what a schema says itself, without those that it combines.
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

// typeNames are the types that a schema names.
func typeNames(schema value) (names []string) {
	t := schema.member("type")
	for _, item := range append([]value{t}, t.items...) {
		if item.kind == text {
			names = append(names, item.text)
		}
	}
	return names
}

// impliedType is the type of a schema that names none, but says what an object or an
// array has: authors mean it.
func impliedType(schema value) []string {
	switch {
	case schema.member("properties").kind == object:
		return []string{"object"}
	case schema.member("items").kind == object, schema.member("prefixItems").kind == array:
		return []string{"array"}
	}
	return nil
}

// named is the type of one of the types that a schema names.
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

// resolve is the schema that a reference leads to; unknown ones lead to one that
// allows everything. A schema without a reference is itself.
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

// literals is the union of values, or of their types if they are too many or one has no
// literal.
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

// literal is the type of one value; unknown if it is too long or not a scalar.
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

// widened is the type of all values of a kind.
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

// union is the type of what one of several types allows.
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

// intersection is the type of what each of several types allows.
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

// combined are different types without one that changes nothing.
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
