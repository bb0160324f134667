package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ManifestError lists all problems of a manifest.
type ManifestError struct {
	Problems []Problem
	Tools    []string // names of the tools, in the order of the document; "" for tools whose names are unknown
}

func (e *ManifestError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		if name := e.tool(p.Pointer); name != "" {
			p.Pointer += fmt.Sprintf(" (tool %q)", name)
		}
		lines[i] = p.String()
	}
	return "bad manifest: " + strings.Join(lines, "; ")
}

// tool returns the name of the tool that a pointer leads into. It is empty if the name is
// unknown, or if the pointer leads to the name itself.
func (e *ManifestError) tool(pointer string) string {
	rest, found := strings.CutPrefix(pointer, "/tools/")
	index, field, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(index)
	if !found || err != nil || n < 0 || n >= len(e.Tools) || field == "name" {
		return ""
	}
	return e.Tools[n]
}

// toolNames reads the names of the tools of a manifest that may have other problems.
func toolNames(data []byte) (names []string) {
	var m struct{ Tools []struct{ Name string } }
	_ = json.Unmarshal(data, &m) // the valid part, if a field has a wrong type
	for _, t := range m.Tools {
		names = append(names, clip(t.Name))
	}
	return names
}

// Problem is one problem of a document.
type Problem struct {
	Pointer string `json:"pointer"` // JSON pointer (RFC 6901); "" is the whole document
	Message string `json:"message"` // what was expected, and what was found
}

func (p Problem) String() string {
	if p.Pointer == "" {
		return p.Message
	}
	return p.Pointer + ": " + p.Message
}

// maxProblems is the maximum number of problems in one report.
const maxProblems = 20

// maxDepth is the deepest nesting that a document may have.
const maxDepth = 64

// DecodeManifest reads and checks a manifest. It accepts only what the published schema
// ([ManifestSchema]) accepts. It reports wrong types, bad names, repeated fields, and unknown
// fields whose names do not begin with x-, each with a JSON pointer. DecodeManifest does not
// compile the tools' schemas. The error is a [*ManifestError].
func DecodeManifest(data []byte) (*Manifest, error) {
	if len(data) > MaxManifest {
		return nil, &ManifestError{Problems: []Problem{{"", fmt.Sprintf("the manifest has %d bytes, at most %d are allowed", len(data), MaxManifest)}}}
	}
	if missing := missingFeatures(data); len(missing) > 0 { // the rest may follow a newer contract
		return nil, &ManifestError{Problems: missing}
	}

	var m Manifest
	d := &decoder{extensions: true}
	problems := d.decode(data, &m)
	if len(problems) == 0 {
		problems = m.check()
	}
	if len(problems) > 0 {
		return nil, &ManifestError{problems[:min(len(problems), maxProblems)], toolNames(data)}
	}
	return &m, nil
}

// decodeStrict decodes one JSON document into a struct, following its json tags, and
// returns everything that does not fit.
func decodeStrict(data []byte, into any) []Problem { return new(decoder).decode(data, into) }

func (d *decoder) decode(data []byte, into any) []Problem {
	if !utf8.Valid(data) {
		return []Problem{{"", "expected UTF-8 text"}}
	}
	if err := d.syntax(data); err != nil {
		return []Problem{{"", err.Error()}}
	}

	if len(d.problems) == 0 {
		d.value("", data, reflect.ValueOf(into).Elem())
	}
	return d.problems
}

type decoder struct {
	problems   []Problem
	extensions bool // whether to skip fields that begin with x-
}

func (d *decoder) add(pointer, format string, args ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, Problem{clip(pointer), clip(fmt.Sprintf(format, args...))})
	}
}

// maxText is the longest text of a problem, in bytes: it may quote the document.
const maxText = 1024

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// syntax reports problems that encoding/json does not: deep nesting, repeated names
// and data after the document.
func (d *decoder) syntax(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := d.token(dec, nil); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			// Token counts up to the byte in question or past it, Unmarshal always past it.
			errors.As(json.Unmarshal(data, new(json.RawMessage)), &syntax)
			before := data[:min(int64(len(data)), syntax.Offset)]
			line, column := 1+bytes.Count(before, []byte("\n")), len(before)-(bytes.LastIndexByte(before, '\n')+1)
			return fmt.Errorf("expected JSON: %w (line %d, column %d)", err, line, column)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("expected JSON: it ends too early")
		}
		return err
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("expected one JSON document, found something after it")
	}

	return nil
}

// token keeps its path as tokens: a JSON pointer for each level would take time
// and memory quadratic in the size of a hostile document.
func (d *decoder) token(dec *json.Decoder, path []string) error {
	if len(path) > maxDepth {
		return fmt.Errorf("expected at most %d levels of nesting", maxDepth)
	}

	t, err := dec.Token()
	if err != nil {
		return err
	}

	switch t {
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			t, err := dec.Token()
			if err != nil {
				return err
			}

			key := t.(string)
			at := append(path, key)
			if seen[key] {
				d.add(pointer(at), "the field is given twice")
			}

			seen[key] = true
			if err := d.token(dec, at); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if err := d.token(dec, append(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
	default:
		return nil
	}

	_, err = dec.Token() // the closing delimiter
	return err
}

var (
	rawType   = reflect.TypeFor[json.RawMessage]()
	needsType = reflect.TypeFor[Needs]()
	textType  = reflect.TypeFor[Text]()
	wordType  = reflect.TypeFor[Word]()
	outType   = reflect.TypeFor[Output]()
	toolType  = reflect.TypeFor[Tool]()
	textsType = reflect.TypeFor[map[string]string]()
)

func (d *decoder) value(pointer string, data []byte, v reflect.Value) {
	data = bytes.TrimSpace(data)
	switch {
	case v.Type() == rawType:
		v.SetBytes(bytes.Clone(data))
	case v.Type() == textType:
		v.Set(reflect.ValueOf(d.text(pointer, data)))
	case v.Type() == wordType && data[0] == '[':
		v.FieldByName("Group").SetBool(true)
		d.value(pointer, data, v.FieldByName("Templates"))
	case v.Type() == wordType:
		v.FieldByName("Templates").Set(reflect.ValueOf([]string{""}))
		d.value(pointer, data, v.FieldByName("Templates").Index(0))
	case v.Type() == outType:
		v.SetString(string(d.output(pointer, data)))
	case v.Type() == textsType:
		d.texts(pointer, data, v)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(pointer, data, v.Elem())
	case v.Kind() == reflect.Struct:
		d.object(pointer, data, v)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		d.array(pointer, data, v)
	case v.Kind() == reflect.Int64:
		d.integer(pointer, data, v)
	default:
		err := json.Unmarshal(data, v.Addr().Interface()) // accepts null for anything, and numbers for bytes
		if err != nil || string(data) == "null" || v.Kind() == reflect.Slice && data[0] != '"' {
			d.add(pointer, "expected %s, found %s%s", expected(v), found(data), instead(pointer, data))
		}
	}
}

func (d *decoder) object(pointer string, data []byte, v reflect.Value) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || fields == nil {
		d.add(pointer, "expected an object, found %s", found(data))
		return
	}

	var known []string
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		known = append(known, name)
		if raw, ok := fields[name]; ok {
			d.value(pointer+"/"+escape(name), raw, v.Field(i))
		} else if options == "" {
			d.add(pointer, "the field %q is missing", name)
		}

		delete(fields, name)
	}

	what := "unknown field, "
	none := what
	if v.Type() == needsType { // perhaps known to a newer host
		what, none = "unknown capability, ", "this version cannot grant it to any plugin, "
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if d.extensions && isExtension(name) {
			continue
		}
		problem := none + "expected one of " + strings.Join(known, ", ")
		near := Nearest(name, known)
		if v.Type() == toolType && isCommandField(name) {
			near = "command." + name
		}
		if near != "" {
			problem = fmt.Sprintf("%sdid you mean %q?", what, near)
		}
		d.add(pointer+"/"+escape(name), "%s", problem)
	}
}

// isCommandField reports whether a name is a field of [Command].
func isCommandField(name string) bool {
	t := reflect.TypeFor[Command]()
	for i := range t.NumField() {
		if field, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); field == name {
			return true
		}
	}
	return false
}

func (d *decoder) array(pointer string, data []byte, v reflect.Value) {
	var items []json.RawMessage
	if json.Unmarshal(data, &items) != nil || items == nil {
		d.add(pointer, "expected an array, found %s", found(data))
		return
	}

	if len(items) == 0 {
		return // as if it were left out
	}

	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		if len(d.problems) >= maxProblems {
			return
		}
		d.value(pointer+"/"+strconv.Itoa(i), item, v.Index(i))
	}
}

// texts reads an object of strings.
func (d *decoder) texts(pointer string, data []byte, v reflect.Value) {
	var items map[string]json.RawMessage
	if json.Unmarshal(data, &items) != nil || items == nil {
		d.add(pointer, "expected an object, found %s", found(data))
		return
	}
	all := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(items)) {
		var text string
		d.value(pointer+"/"+escape(name), items[name], reflect.ValueOf(&text).Elem())
		all[name] = text
	}
	v.Set(reflect.ValueOf(all))
}

// integer accepts every integer of JSON Schema, such as 1e6.
func (d *decoder) integer(pointer string, data []byte, v reflect.Value) {
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(data), 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 || found(data) != "a number" {
			d.add(pointer, "expected a whole number, found %s", found(data))
			return
		}
		n = int64(f)
	}
	v.SetInt(n)
}

// expected returns the JSON type for a Go type.
func expected(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "base64 in a string"
	default:
		return "a string"
	}
}

// instead suggests the right field for a value of the wrong type, or returns nothing.
func instead(pointer string, data []byte) string {
	if data[0] == '[' && strings.HasSuffix(pointer, "/argv") {
		return ": write the words of a command line in command.args"
	}
	return ""
}

// found returns the type of a JSON value by its first byte.
func found(data []byte) string {
	if len(data) == 0 {
		return "nothing"
	}
	switch data[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f', 'n':
		return string(data)
	}
	return "a number"
}

// pointer returns a path as a JSON pointer.
func pointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteString("/" + escape(token))
	}
	return b.String()
}

// escape escapes a key as a reference token of RFC 6901.
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
