package webui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A field is the input of one property.
type field struct {
	Name, Description string
	Kind              fieldKind
	Required          bool
	Input             string // the type of the HTML input of kindText
	Min, Max, Step    string // range and step of a number; may be empty
	Options           []option
	Value             string // as typed, or the default
	Example           string // the first example of the schema
	Checked           bool
	Problem           string  // problem with the value
	Fields            []field // fields of a kindGroup
	Path              string  // name in the posted form: a JSON Pointer without the first slash
	ID                string  // id of the element

	list    bool // the type is array
	object  bool // the type is object, and it has neither secrets nor a default
	byTrue  bool // the default is true, so false has to be sent
	choices []json.RawMessage
	first   string // value that an untouched form sends
}

type fieldKind string

const (
	kindText   fieldKind = "text"   // one line
	kindLong   fieldKind = "long"   // several lines of text
	kindNumber fieldKind = "number" // numbers, including integers
	kindCheck  fieldKind = "check"  // a boolean
	kindChoice fieldKind = "choice" // one of some values
	kindJSON   fieldKind = "json"   // anything else
	kindSecret fieldKind = "secret" // string that is never shown
	kindHidden fieldKind = "hidden" // JSON that is never shown
	kindGroup  fieldKind = "group"  // object, by fields
)

type option struct {
	Value, Text string
	Selected    bool
}

// A property holds the parts of a property's schema that determine its field.
type property struct {
	Type        json.RawMessage   `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
	Examples    []json.RawMessage `json:"examples"`
	Format      string            `json:"format"`
	Pattern     string            `json:"pattern"`
	MaxLength   *float64          `json:"maxLength"`
	Minimum     json.Number       `json:"minimum"`
	Maximum     json.Number       `json:"maximum"`
}

// secretMark matches the keywords that mark a value as secret, anywhere in a schema.
var secretMark = regexp.MustCompile(`"(writeOnly|x-secret)"\s*:\s*true`)

// newField returns the field of a property. If the form has secrets, a reference may lead
// to one, so the field is hidden.
func newField(name string, schema json.RawMessage, secrets bool) field {
	var p property
	f := field{Name: name, Kind: kindJSON}
	hidden := secrets && (secretMark.Match(schema) || bytes.Contains(schema, []byte(`"$ref"`)))
	if json.Unmarshal(schema, &p) != nil {
		if hidden {
			f.Kind = kindHidden
		}
		return f
	}

	f.Description = p.Description
	if f.Description == "" {
		f.Description = p.Title
	}
	kind := p.kind()
	switch {
	case hidden && kind == "string":
		f.Kind = kindSecret
	case hidden:
		f.Kind = kindHidden
	case len(p.Enum) > 0 && len(p.Enum) <= maxOptions:
		f.Kind, f.choices = kindChoice, p.Enum
	case kind == "string":
		f.Kind, f.Input = p.text()
	case kind == "boolean":
		f.Kind = kindCheck
	case kind == "number", kind == "integer":
		f.Kind, f.Min, f.Max, f.Step = kindNumber, p.Minimum.String(), p.Maximum.String(), "any"
		if kind == "integer" {
			f.Step = "1"
		}
	case kind == "array":
		f.list = true
	case kind == "object":
		f.object = p.Default == nil
	}

	if len(p.Examples) > 0 && !hidden {
		f.Example = cut(jsonText(p.Examples[0]), maxExample)
	}
	f.begin(p.Default)
	return f
}

// maxExample is how many bytes of an example a field shows.
const maxExample = 200

// jsonText returns a string as it is, and any other value as JSON.
func jsonText(value json.RawMessage) string {
	text := string(value)
	_ = json.Unmarshal(value, &text) // otherwise it is not a string
	return text
}

// kind returns the type of a property, apart from null.
func (p property) kind() string {
	var one string
	if json.Unmarshal(p.Type, &one) == nil {
		return one
	}
	var several []string
	_ = json.Unmarshal(p.Type, &several) // it may be absent
	several = slices.DeleteFunc(several, func(t string) bool { return t == "null" })
	if len(several) == 1 {
		return several[0]
	}
	return ""
}

// text returns the kind of field in which a text is entered.
func (p property) text() (fieldKind, string) {
	switch p.Format {
	case "date", "email":
		return kindText, p.Format
	case "uri":
		return kindText, "url"
	}
	if p.Format != "" || p.Pattern != "" || p.MaxLength != nil && *p.MaxLength <= 200 {
		return kindText, "text"
	}
	return kindLong, ""
}

// begin sets the initial value of a field.
func (f *field) begin(value json.RawMessage) {
	if f.Kind == kindSecret || f.Kind == kindHidden || len(value) > maxValue {
		value = nil
	}

	var text string
	switch f.Kind {
	case kindChoice:
		f.choose(slices.IndexFunc(f.choices, func(c json.RawMessage) bool { return value != nil && bytes.Equal(compact(c), compact(value)) }))
	case kindCheck:
		f.byTrue = string(value) == "true"
		f.Checked = f.byTrue
	case kindText, kindLong:
		if json.Unmarshal(value, &text) == nil {
			f.Value = text
		}
	default:
		f.Value = string(value)
	}
	f.first = f.sent()
}

// sent returns what the form sends for the field in its current state.
func (f *field) sent() string {
	switch {
	case f.Kind == kindCheck && f.Checked:
		return "true"
	case f.Kind == kindCheck:
		return ""
	case f.Kind == kindChoice:
		for _, o := range f.Options {
			if o.Selected {
				return o.Value
			}
		}
		return ""
	}
	return f.Value
}

// choose sets the options of a choice.
func (f *field) choose(selected int) {
	f.Options = []option{{Text: "–"}}
	for i, c := range f.choices {
		f.Options = append(f.Options, option{fmt.Sprint(i), cut(jsonText(c), 100), i == selected})
	}
}

func compact(data json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return data
	}
	return b.Bytes()
}

// typedNumber parses a number as browsers send it.
func typedNumber(typed string) (json.RawMessage, bool) {
	sign, digits := "", typed
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	if strings.HasPrefix(digits, ".") { // invalid in JSON
		digits = "0" + digits
	}
	value := json.RawMessage(sign + digits)
	return value, digits != "" && digits[0] >= '0' && digits[0] <= '9' && json.Valid(value)
}

// fill stores the typed text in a field, and returns its value; nil for none.
func (f *field) fill(typed string) (value json.RawMessage, problem string) {
	typed = strings.ReplaceAll(typed, "\r\n", "\n")
	if f.Kind != kindSecret && f.Kind != kindHidden {
		f.Value, f.Checked = typed, typed != ""
	}
	if f.Kind == kindChoice {
		i := slices.IndexFunc(f.Options, func(o option) bool { return o.Value == typed })
		f.choose(i - 1)
		if i > 0 {
			return f.choices[i-1], ""
		}
		return nil, ""
	}

	switch trimmed := strings.TrimSpace(typed); {
	case f.Kind == kindCheck && typed != "":
		return json.RawMessage("true"), ""
	case f.Kind == kindCheck && (f.Required || f.byTrue):
		return json.RawMessage("false"), ""
	case typed == "" && (!f.Required || f.Kind != kindText && f.Kind != kindLong && f.Kind != kindSecret):
		return nil, "" // the check of the schema names what is missing
	case f.Kind == kindText, f.Kind == kindLong, f.Kind == kindSecret:
		text, _ := json.Marshal(typed) // a string: it cannot fail
		return text, ""
	case f.Kind == kindNumber:
		value, ok := typedNumber(trimmed)
		if !ok {
			return nil, "Expected a number"
		}
		return value, ""
	case !json.Valid([]byte(trimmed)):
		return nil, "Expected JSON, such as " + f.sample()
	default:
		return json.RawMessage(trimmed), ""
	}
}

// sample returns an example of a value's form.
func (f *field) sample() string {
	if f.list {
		return `["a", "b"]`
	}
	return `{"name": "value"}`
}
