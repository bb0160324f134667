package abi

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Phase is a moment of a call that a person is told about.
type Phase string

// The phases.
const (
	PhaseStarted  Phase = "started"
	PhaseFinished Phase = "finished"
	PhaseFailed   Phase = "failed"
)

// Narration is what a person is told while a tool works, as templates over the
// arguments: {name} stands for the argument of that name, {{ and }} for braces.
type Narration struct {
	Started  Text `json:"started,omitzero"`
	Finished Text `json:"finished,omitzero"`
	Failed   Text `json:"failed,omitzero"`
}

// IsZero reports whether there is nothing to tell.
func (n Narration) IsZero() bool {
	return n.Started.IsZero() && n.Finished.IsZero() && n.Failed.IsZero()
}

// Text is one template, or one for each locale: in JSON a string, or an object
// from BCP 47 locale to string.
type Text struct {
	Default  string
	ByLocale map[string]string
}

// IsZero reports whether there is no text at all.
func (t Text) IsZero() bool { return t.Default == "" && len(t.ByLocale) == 0 }

// MarshalJSON writes the string or the object, as it was read.
func (t Text) MarshalJSON() ([]byte, error) {
	if t.ByLocale != nil {
		return json.Marshal(t.ByLocale)
	}
	return json.Marshal(t.Default)
}

// UnmarshalJSON reads a string or an object of strings.
func (t *Text) UnmarshalJSON(data []byte) error {
	*t = Text{}
	if len(data) > 0 && data[0] == '{' {
		return json.Unmarshal(data, &t.ByLocale)
	}
	return json.Unmarshal(data, &t.Default)
}

// In picks the template for a locale: its own, its language's, English, then
// the default; "" if there is none.
func (t Text) In(locale string) string {
	language, _, _ := strings.Cut(locale, "-")
	for _, l := range []string{locale, language, "en"} {
		if s, ok := t.ByLocale[l]; ok {
			return s
		}
	}
	return t.Default
}

// maxNarrated bounds one argument in a narration, in characters.
const maxNarrated = 60

// Narrate renders the template of a phase over the arguments of a call, or ""
// if the tool has none. Arguments that are missing are left out, long ones are
// cut, control characters become spaces so that an argument cannot draw on a
// terminal, and arguments the input schema marks writeOnly or x-secret are
// never shown.
func (t *Tool) Narrate(phase Phase, locale string, args json.RawMessage) string {
	var text Text
	switch phase {
	case PhaseStarted:
		text = t.Narration.Started
	case PhaseFinished:
		text = t.Narration.Finished
	case PhaseFailed:
		text = t.Narration.Failed
	}
	template := text.In(locale)
	if template == "" {
		return ""
	}
	var values map[string]json.RawMessage
	_ = json.Unmarshal(args, &values) // no values: every placeholder is empty
	var schema struct {
		Properties map[string]struct {
			WriteOnly bool `json:"writeOnly"`
			Secret    bool `json:"x-secret"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(t.InputSchema, &schema) // decoded strictly when the manifest was
	return expand(template, func(name string) string {
		if p := schema.Properties[name]; p.WriteOnly || p.Secret {
			return "…"
		}
		return plain(values[name])
	})
}

// expand replaces {name} by value(name). An unclosed brace stands for itself.
func expand(template string, value func(string) string) string {
	var b strings.Builder
	for template != "" {
		i := strings.IndexAny(template, "{}")
		if i < 0 {
			break
		}
		b.WriteString(template[:i])
		rest := template[i:]
		end := strings.IndexByte(rest, '}')
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			b.WriteByte(rest[0])
			template = rest[2:]
		case rest[0] == '{' && end > 0:
			b.WriteString(value(rest[1:end]))
			template = rest[end+1:]
		default:
			b.WriteByte(rest[0])
			template = rest[1:]
		}
	}
	b.WriteString(template)
	return b.String()
}

// plain is a JSON value as a person would read it, on one short line.
func plain(value json.RawMessage) string {
	s := string(value)
	if len(value) > 0 && value[0] == '"' {
		_ = json.Unmarshal(value, &s)
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > maxNarrated {
		return string(runes[:maxNarrated-1]) + "…"
	}
	return s
}
