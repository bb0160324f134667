package lock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
)

// Described is a plugin as described by its manifest.
type Described struct {
	Manifest *abi.Manifest
	Needs    []string // needs, written as an operator would grant them
}

// Change is a difference in one part of a manifest.
type Change struct {
	What string // description of the part, such as: the description of the tool fetch
	Tool string // tool that the part belongs to; empty for the plugin itself
	// Lines is a unified diff of the old and the new text, with invisible characters made
	// visible.
	Lines string
}

// Changes compares the manifests of two versions of a plugin. The changes are listed in
// reading order. Without an old manifest, everything is new.
func Changes(before, now Described) (changes []Change) {
	add := func(what, tool, before, now string) {
		if before == now {
			return
		}
		if tool != "" {
			what += " of the tool " + tool
		}
		changes = append(changes, Change{what, tool, lines(before, now)})
	}

	var plugin abi.Manifest
	if before.Manifest != nil {
		plugin = *before.Manifest
	}
	add("the description", "", sentences(plugin.Description), sentences(now.Manifest.Description))
	add(needs, "", strings.Join(before.Needs, "\n"), strings.Join(now.Needs, "\n"))
	for _, name := range toolNames(&plugin, now.Manifest) {
		was, _ := plugin.Lookup(name)
		is, _ := now.Manifest.Lookup(name)
		old, parts := toolParts(was), toolParts(is)
		for i, part := range parts {
			add(part.name, name, old[i].text, part.text)
		}
	}
	add("the rest of the manifest", "", rest(plugin), rest(*now.Manifest))
	return changes
}

// needs is how [Change] refers to the needs of a plugin.
const needs = "what it needs"

// toolNames returns the names of the tools in two manifests: first those in the new one,
// in its order.
func toolNames(before, now *abi.Manifest) (names []string) {
	for _, m := range []*abi.Manifest{now, before} {
		for _, t := range m.Tools {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	return names
}

type part struct{ name, text string }

// toolParts returns the parts of a tool. Without a tool, all of them are empty.
func toolParts(t *abi.Tool) []part {
	if t == nil {
		t = &abi.Tool{}
	}
	run := abi.Tool{Argv: t.Argv, Command: t.Command, Function: t.Function, Input: t.Input, MCPTool: t.MCPTool, Limits: t.Limits}
	return []part{
		{"the title", t.Title},
		{"the description", sentences(t.Description)},
		{"the input schema", indented(t.InputSchema)},
		{"the output schema", indented(t.OutputSchema)},
		{"the hints", fields(t.Hints)},
		{"the approval", string(t.Approval)},
		{"the deferral", string(t.Deferrable)},
		{"the narration", fields(t.Narration)},
		{"the examples", fields(t.Examples)},
		{"the way to run and the limits", fields(run)},
	}
}

// rest returns everything that no other part of a manifest covers.
func rest(m abi.Manifest) string {
	m.ABI, m.Name, m.Version, m.Description, m.Tools, m.Needs = "", "", "", "", nil, abi.Needs{}
	return fields(m)
}

// sentences puts each sentence on a line of its own, so that an added sentence shows as
// one line.
func sentences(text string) string { return strings.ReplaceAll(text, ". ", ".\n") }

// fields returns a struct's fields that are set, as indented JSON.
func fields(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var set any
	switch value, _ := decode(data); value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if field == nil || field == "" {
				delete(value, name)
			}
		}
		if len(value) > 0 {
			set = value
		}
	case []any:
		if len(value) > 0 {
			set = value
		}
	}
	return encode(set)
}

// indented returns JSON with sorted keys and one value per line.
func indented(data json.RawMessage) string {
	value, err := decode(data)
	if err != nil {
		return string(data)
	}
	return encode(value)
}

func encode(value any) string {
	if value == nil {
		return ""
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// lines returns a unified diff without its header.
func lines(before, now string) string {
	visible := func(text string) []byte {
		if text == "" {
			return nil
		}
		return append(human.Visible([]byte(text)), '\n')
	}

	text := string(diff.Diff("", visible(before), "", visible(now)))
	if text == "" { // the characters differ but look the same
		return fmt.Sprintf("-%+q\n+%+q\n", before, now)
	}
	if before == "" || now == "" {
		_, text, _ = strings.Cut(text, "@@\n") // the whole text is new, or gone
		return text
	}
	_, text, _ = strings.Cut(text, "\n+++ ")
	_, text, _ = strings.Cut(text, "\n")
	return text
}
