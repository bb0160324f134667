package schema

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
)

// maxShownDepth is how many levels of nested schemas are brought into the form for
// models. A schema with more levels is shown as it is.
const maxShownDepth = 64

// Shown returns the schema in the form that all model APIs and clients accept: each
// object has properties, each array has items, and references to $defs are replaced by
// the schemas that they refer to. It accepts the same documents. Some references stay,
// along with their $defs: those that lead back to themselves, those next to a keyword
// that is not an annotation, those that would make the schema larger than
// [abi.MaxSchema], and all of them if something else depends on their position. A
// schema that is nested too deeply or takes too long is returned unchanged. Without a
// schema, Shown returns nil.
func (s *Schema) Shown() json.RawMessage {
	if s == nil {
		return nil
	}
	return s.shown()
}

func (s *Schema) normalize() json.RawMessage {
	n := &normalizer{defs: map[string]json.RawMessage{}, kept: map[string]bool{}, left: abi.MaxSchema - len(s.raw), work: maxShownWork, all: s.based,
		items: !bytes.Contains(s.raw, []byte("unevaluatedItems"))}
	var root, groups []Member
	for _, m := range Members(bytes.TrimSpace(s.raw)) {
		if m.Name != "$defs" && m.Name != "definitions" {
			root = append(root, m)
			continue
		}
		groups = append(groups, m)
		for _, def := range Members(m.Value) {
			if ref := "#/" + m.Name + "/" + token(def.Name); !strings.Contains(ref, "%") { // as a part of a URL, it means another
				n.defs[ref] = def.Value
			}
		}
	}

	shown := append(n.members(root, nil), n.keptOf(groups)...)
	if n.deep {
		return s.raw
	}
	return Join(shown)
}

// normalizer brings a schema into the form for models.
type normalizer struct {
	defs  map[string]json.RawMessage // definitions by reference, such as #/$defs/point
	kept  map[string]bool            // references that are not replaced
	all   bool                       // whether all references stay, because one leads elsewhere or has another base
	left  int                        // bytes by which replacing references may still enlarge the schema
	work  int                        // bytes that may still be read
	items bool                       // whether arrays without items get an items keyword
	depth int
	deep  bool // whether the schema is deeper than maxShownDepth, or takes too long
}

// maxShownWork limits the number of bytes that are read to normalize one schema.
const maxShownWork = 32 * abi.MaxSchema

// read is like Members, but stops once no work is left.
func (n *normalizer) read(object json.RawMessage) []Member {
	if n.work -= len(object); n.work < 0 {
		n.deep = true
		return nil
	}
	return Members(object)
}

// keptOf returns the groups of $defs, reduced to the schemas that references still lead
// to. Those schemas may refer to others in turn.
func (n *normalizer) keptOf(groups []Member) (kept []Member) {
	for before := -1; before < len(n.kept); {
		before, kept = len(n.kept), nil
		for _, group := range groups {
			var defs []Member
			for _, def := range n.read(group.Value) {
				if ref := "#/" + group.Name + "/" + token(def.Name); n.kept[ref] || n.all {
					defs = append(defs, Member{def.Name, n.schema(def.Value, []string{ref})})
				}
			}
			if defs != nil {
				kept = append(kept, Member{group.Name, Join(defs)})
			}
		}
	}
	return kept
}

// schema normalizes a schema. path holds the references that led to it.
func (n *normalizer) schema(raw json.RawMessage, path []string) json.RawMessage {
	n.depth++
	defer func() { n.depth-- }()
	if n.deep = n.deep || n.depth > maxShownDepth; n.deep || raw[0] != '{' {
		return raw
	}
	return Join(n.members(n.read(raw), path))
}

func (n *normalizer) members(all []Member, path []string) []Member {
	all, path = n.resolve(all, path)
	for i, m := range all {
		all[i].Value = n.keyword(m, path)
	}

	types := string(valueOf(all, "type"))
	if strings.Contains(types, `"object"`) && valueOf(all, "properties") == nil {
		all = append(all, Member{"properties", json.RawMessage("{}")})
	}
	if strings.Contains(types, `"array"`) && valueOf(all, "items") == nil && n.items {
		all = append(all, Member{"items", json.RawMessage("{}")})
	}
	return all
}

// resolve replaces a reference by the schema that it refers to, and returns the path to
// that schema.
func (n *normalizer) resolve(all []Member, path []string) ([]Member, []string) {
	for {
		var ref string
		if json.Unmarshal(valueOf(all, "$ref"), &ref) != nil {
			return all, path
		}
		target, known := n.defs[ref]
		own := slices.DeleteFunc(slices.Clone(all), func(m Member) bool { return m.Name == "$ref" })
		n.all = n.all || !known && ref != "#"
		if n.all || ref == "#" || target[0] != '{' || !annotate(own) || len(target) > n.left || slices.Contains(path, ref) {
			n.kept[ref] = true
			return all, path
		}

		n.left -= len(target)
		there := slices.DeleteFunc(n.read(target), func(m Member) bool { return valueOf(own, m.Name) != nil })
		all, path = append(own, there...), append(slices.Clip(path), ref)
	}
}

// annotate reports whether the members of a schema are only annotations, which have no
// influence on which values fit.
func annotate(all []Member) bool {
	annotations := []string{"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
	return !slices.ContainsFunc(all, func(m Member) bool {
		return !slices.Contains(annotations, m.Name) && !strings.HasPrefix(m.Name, "x-")
	})
}

// keyword normalizes the schemas inside the value of a keyword.
func (n *normalizer) keyword(m Member, path []string) json.RawMessage {
	switch vocabulary[m.Name] {
	case oneSchema:
		return n.schema(m.Value, path)
	case schemasByName:
		all := n.read(m.Value)
		for i, of := range all {
			all[i].Value = n.schema(of.Value, path)
		}
		return Join(all)
	case schemaList:
		all := itemsOf(m.Value)
		for i, of := range all {
			all[i] = n.schema(of, path)
		}
		return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]"))
	}
	return m.Value
}
