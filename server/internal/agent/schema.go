package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/server/internal/catalog"
)

// shownKeyword is a schema keyword that says what models see of a property of an agent
// tool. False hides the property; the members of an object are added to its schema.
// Validation ignores the keyword, so a schema can shrink for models, who pay for it in
// every call, and still accept the same for everyone else.
const shownKeyword = "x-shown"

// maxNames is the maximum number of tool names that the definition of one of the agent's
// tools lists.
const maxNames = 60

// joined encodes members as an object, without spaces.
func joined(all []schema.Member) json.RawMessage {
	var b bytes.Buffer
	_ = json.Compact(&b, schema.Join(all)) // it was parsed before
	return b.Bytes()
}

// shownSchema returns the part of an agent tool's schema that models see. The parameter
// hidden names further properties to leave out. The parameter tools holds the values of the
// property tool; if there are too many, they are not shown. They are in its description, not
// in an enum: clients check an enum themselves, and would refuse a misspelled name without
// suggesting the nearest one.
func shownSchema(raw json.RawMessage, tools []string, hidden ...string) json.RawMessage {
	root := schema.Members(raw)
	for i := range root {
		if root[i].Name != "properties" {
			continue
		}

		var shown []schema.Member
		for _, property := range schema.Members(root[i].Value) {
			parts, visible := shownProperty(property.Value)
			if !visible || slices.Contains(hidden, property.Name) {
				continue
			}
			if property.Name == "tool" && len(tools) > 0 && len(tools) <= maxNames {
				text, _ := json.Marshal("One of: " + strings.Join(tools, ", ") + ".")
				parts = append(parts, schema.Member{Name: "description", Value: text})
			}
			shown = append(shown, schema.Member{Name: property.Name, Value: joined(parts)})
		}
		root[i].Value = joined(shown)
	}
	return joined(root)
}

// shownProperty returns the members of a property's schema that models see, and whether
// they see it at all.
func shownProperty(raw json.RawMessage) (parts []schema.Member, visible bool) {
	for _, m := range schema.Members(raw) {
		switch {
		case m.Name != shownKeyword:
			parts = append(parts, m)
		case string(m.Value) == "false":
			return nil, false
		default:
			parts = append(parts, schema.Members(m.Value)...)
		}
	}
	return parts, true
}

// listed returns the arguments of an agent tool, with strings turned into arrays of one
// string where the schema declares an array. A string that is the JSON of an array stays.
func listed(raw json.RawMessage, args catalog.Args) catalog.Args {
	var declared struct {
		Properties map[string]struct {
			Type string `json:"type"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(raw, &declared) // it was compiled

	all, changed := schema.Members(args.Raw()), false
	for i, m := range all {
		var text string
		if declared.Properties[m.Name].Type != "array" || json.Unmarshal(m.Value, &text) != nil || m.Value[0] != '"' {
			continue
		}
		if text = strings.TrimSpace(text); text == "" || text[0] == '[' && json.Valid([]byte(text)) {
			continue
		}
		all[i].Value, _ = json.Marshal([]string{text})
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
