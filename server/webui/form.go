package webui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

const (
	maxFields  = 64      // fields of a form; a schema with more is entered as JSON
	maxNested  = 3       // deepest objects that are entered by fields; deeper ones are entered as JSON
	maxOptions = 200     // options of a choice; with more, the value is entered as JSON
	maxValue   = 4 << 10 // bytes of a default that a field starts with
	argPrefix  = "arg."  // prefix of the names of argument fields
	argsField  = "json"  // name of the field for all arguments as JSON
)

// A form is made from the schema of an object, with a field for each property.
type form struct {
	Fields []field
	Secret bool   // the schema has secrets: nothing that may contain them is shown again
	JSON   string // the whole object, entered instead of the fields
	ID     string // id prefix of the elements: a page may have several forms
}

// newForm makes a form from a schema. Without fields, only JSON can be entered.
func newForm(id string, schema json.RawMessage) form {
	f := form{ID: id, Secret: secretMark.Match(schema)}
	m := formMaker{f.Secret, maxFields}
	f.Fields = m.fields(schema, "", id, 0)
	return f
}

// formMaker creates the fields of a form.
type formMaker struct {
	secrets bool // the schema has secrets
	left    int  // fields that may still be created
}

// fields returns a field for each property of an object; none if it has no properties or
// too many.
func (m *formMaker) fields(schema json.RawMessage, path, id string, depth int) (all []field) {
	var object struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if json.Unmarshal(schema, &object) != nil {
		return nil
	}
	members, ok := membersOf(object.Properties)
	if !ok || len(members) > m.left {
		return nil
	}

	m.left -= len(members)
	for i, one := range members {
		f := newField(one.name, one.value, m.secrets)
		f.Required = slices.Contains(object.Required, one.name)
		f.Path, f.ID = path+pointerName(one.name), fmt.Sprintf("%s-%d", id, i)
		if f.object && depth < maxNested {
			if f.Fields = m.fields(one.value, f.Path+"/", f.ID, depth+1); f.Fields != nil {
				f.Kind, f.Value = kindGroup, ""
			}
		}
		all = append(all, f)
	}
	return all
}

// pointerName returns a name as a reference token of a JSON Pointer (RFC 6901).
func pointerName(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// A member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object in order.
func membersOf(object json.RawMessage) (all []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil, false
		}
		all = append(all, member{name.(string), value})
	}
	return all, true
}

// fill stores the typed values in the form, and returns them as a JSON object. ok is false
// if a field has a problem. The object is checked against the schema where it is used.
func (f *form) fill(typed url.Values) (args json.RawMessage, ok bool) {
	args, _, ok = fillAll(f.Fields, typed)
	whole := strings.TrimSpace(typed.Get(argsField))
	if !f.Secret {
		f.JSON = whole
	}
	if whole != "" {
		return json.RawMessage(whole), true
	}
	return args, ok
}

// fillAll stores the typed values in fields, and returns them as an object. Touched
// reports whether something differs from an untouched form.
func fillAll(fields []field, typed url.Values) (object json.RawMessage, touched, ok bool) {
	ok = true
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range fields {
		f := &fields[i]
		value, changed, fine := f.fillFrom(typed)
		touched, ok = touched || changed, ok && fine
		if value == nil {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(f.Name) // a string: it cannot fail
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), touched, ok
}

// fillFrom stores the typed values in a field and those within it. The value is nil if
// there is none: an optional object that was not touched is left out, whatever its
// defaults.
func (f *field) fillFrom(typed url.Values) (value json.RawMessage, touched, ok bool) {
	if f.Kind != kindGroup {
		text := typed.Get(argPrefix + f.Path)
		value, f.Problem = f.fill(text)
		touched = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) != strings.TrimSpace(f.first)
		return value, touched && (f.Kind == kindCheck || typed.Has(argPrefix+f.Path)), f.Problem == ""
	}

	value, touched, ok = fillAll(f.Fields, typed)
	if !touched && !f.Required {
		return nil, false, true
	}
	return value, touched, ok
}
