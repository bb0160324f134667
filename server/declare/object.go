package declare

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

func (g *generator) object(schema value, depth int) expr {
	members := schema.member("properties").members
	more := g.additional(schema, depth)
	if len(members) == 0 {
		return more
	}

	required := schema.member("required")
	var lines []string
	left := 0
	for _, m := range members {
		if len(lines) == maxProperties || len(m.name) > maxName || g.nodes <= 0 {
			left++
			continue
		}

		t, mark := g.typeOf(m.value, depth+1), "?: "
		if required.has(m.name) {
			mark = ": "
		}
		line := name(m.name) + mark + t.text
		if about := g.comment(m.value); about != "" {
			line = "/** " + about + " */\n" + line
		}
		lines = append(lines, line)
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("[key: string]: unknown // and %d more", left))
	}

	own := expr{text: braces(lines)}
	if left > 0 || more == empty || more == anyObject && !saysMore(schema) {
		return own
	}
	return intersection([]expr{own, more})
}

// saysMore reports whether a schema says something about properties that it does not
// name. If it does not, objects may have such properties, but few authors mean that.
func saysMore(schema value) bool {
	return schema.member("additionalProperties").kind != 0 || len(schema.member("patternProperties").members) > 0
}

var empty = expr{text: "Record<string, never>"}

// additional returns the type of properties that an object type does not name.
func (g *generator) additional(schema value, depth int) expr {
	rest := schema.member("additionalProperties")
	switch {
	case len(schema.member("patternProperties").members) > 0, rest.kind == 0:
		return anyObject
	case rest.kind == boolean && rest.raw == "false":
		return empty
	}
	return expr{text: "Record<string, " + g.typeOf(rest, depth+1).text + ">"}
}

// braces returns an object type with these members, on one line if it is short and has no
// comments.
func braces(members []string) string {
	if line := "{ " + strings.Join(members, "; ") + " }"; len(line) <= maxLine && !strings.ContainsAny(line, "\n/") {
		return line
	}

	var b strings.Builder
	b.WriteString("{\n")
	for _, m := range members {
		b.WriteString("  " + indented(m) + "\n")
	}
	b.WriteString("}")
	return b.String()
}

// indented indents all but the first line of a text by two spaces.
func indented(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }

// comment returns the facts about a property that its type does not express.
func (g *generator) comment(schema value) string {
	if !g.comments {
		return ""
	}

	about := prose(schema.member("description").text, maxComment)
	if about == "" {
		about = prose(schema.member("title").text, maxComment)
	}
	facts := strings.Join(facts(schema), ", ")
	switch {
	case facts == "", about == "" && facts == isInteger: // the name usually says it
		return about
	case about == "":
		return facts
	}
	return about + " (" + facts + ")"
}

const isInteger = "integer"

// factNames lists the keywords that appear in comments, with the words for them.
var factNames = [][2]string{
	{"minimum", "at least"}, {"exclusiveMinimum", "more than"}, {"maximum", "at most"}, {"exclusiveMaximum", "less than"}, {"multipleOf", "a multiple of"},
	{"minLength", "min length"}, {"maxLength", "max length"}, {"minItems", "min items"}, {"maxItems", "max items"},
	{"format", "format"}, {"pattern", "pattern"}, {"default", "default"},
}

// facts returns the constraints of a schema besides its type.
func facts(schema value) (all []string) {
	if schema.member("type").text == "integer" {
		all = append(all, isInteger)
	}
	if values := schema.member("enum").items; len(values) > maxEnum {
		all = append(all, fmt.Sprintf("one of %d values", len(values)))
	}
	for _, f := range factNames {
		v := schema.member(f[0])
		written := v.raw
		if v.kind == text {
			written = prose(v.text, maxPattern+1)
			if f[0] == "default" {
				written = quote(written)
			}
		}
		if v.kind == array || v.kind == object || written == "" || len(written) > maxPattern {
			continue
		}
		all = append(all, f[1]+" "+harmless(written))
	}
	return all
}

// prose returns a text as one line of a comment, cut to about as many bytes as most says.
// It cannot end the comment or hide anything: it has no control characters, and none that
// are invisible or change the direction of the text.
func prose(s string, most int) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case r == utf8.RuneError, !unicode.IsGraphic(r):
			continue
		case b.Len() >= most:
			return harmless(b.String()) + "…"
		}

		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return harmless(b.String())
}

// harmless returns a text that cannot end the comment it is in.
func harmless(s string) string { return strings.ReplaceAll(s, "*/", "* /") }

// name returns the name of a property.
func name(s string) string {
	for i, r := range s {
		if r != '_' && r != '$' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// quote returns a text as a literal, with invisible characters escaped.
func quote(s string) string {
	var encoded strings.Builder
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string: it cannot fail

	var b strings.Builder
	for _, r := range strings.TrimSuffix(encoded.String(), "\n") {
		switch {
		case unicode.IsGraphic(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// clip cuts a text to a number of bytes.
func clip(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "") }
