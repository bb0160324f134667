package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// shownKeyword is a schema keyword that says what models see of a property of an agent
// tool. False hides the property; the members of an object are added to its schema.
// Validation ignores the keyword, so a schema can shrink for models, who pay for it in
// every call, and still accept the same for everyone else.
const shownKeyword = "x-shown"

// maxEnum is the most tool names that the schema of spawn_background lists.
const maxEnum = 60

// A member is a name of a JSON object and its value.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of an object in their order.
func members(object json.RawMessage) (all []member) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	for dec.More() {
		var m member
		name, _ := dec.Token()
		m.name, _ = name.(string)
		if dec.Decode(&m.value) != nil {
			return nil
		}
		all = append(all, m)
	}
	return all
}

// joined encodes members as an object, without spaces.
func joined(all []member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := shape.JSON(m.name)
		b.Write(name)
		b.WriteByte(':')
		_ = json.Compact(&b, m.value) // it was parsed before
	}
	b.WriteByte('}')
	return b.Bytes()
}

// shownSchema returns what models see of an agent tool's schema. Hidden are further
// properties to leave out. Tools are the values for the property tool, left out if they
// are too many.
func shownSchema(schema json.RawMessage, tools []string, hidden ...string) json.RawMessage {
	root := members(schema)
	for i := range root {
		if root[i].name != "properties" {
			continue
		}

		var shown []member
		for _, property := range members(root[i].value) {
			parts, visible := shownProperty(property.value)
			if !visible || slices.Contains(hidden, property.name) {
				continue
			}
			if property.name == "tool" && len(tools) > 0 && len(tools) <= maxEnum {
				names, _ := json.Marshal(tools)
				parts = append(parts, member{"enum", names})
			}
			shown = append(shown, member{property.name, joined(parts)})
		}
		root[i].value = joined(shown)
	}
	return joined(root)
}

// shownProperty returns the members of a property's schema that models see, and whether
// they see it at all.
func shownProperty(schema json.RawMessage) (parts []member, visible bool) {
	for _, m := range members(schema) {
		switch {
		case m.name != shownKeyword:
			parts = append(parts, m)
		case string(m.value) == "false":
			return nil, false
		default:
			parts = append(parts, members(m.value)...)
		}
	}
	return parts, true
}

// listed returns the arguments of an agent tool with an array of one string in place of a
// string that is no array itself, where an array is declared.
func listed(schema json.RawMessage, args catalog.Args) catalog.Args {
	var declared struct {
		Properties map[string]struct {
			Type string `json:"type"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(schema, &declared) // it was compiled

	all, changed := members(args.Raw()), false
	for i, m := range all {
		var text string
		if declared.Properties[m.name].Type != "array" || json.Unmarshal(m.value, &text) != nil || m.value[0] != '"' {
			continue
		}
		if text = strings.TrimSpace(text); text == "" || text[0] == '[' && json.Valid([]byte(text)) {
			continue
		}
		all[i].value, _ = json.Marshal([]string{text})
		changed = true
	}
	if !changed {
		return args
	}

	parsed, err := catalog.ParseArgs("", catalog.Args{}, joined(all))
	if err != nil {
		return args
	}
	return parsed
}
