package abi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Phase is a stage of a call that has a status text.
type Phase string

// The phases.
const (
	PhaseStarted  Phase = "started"
	PhaseFinished Phase = "finished"
	PhaseFailed   Phase = "failed"
)

// Limits of a narration.
const (
	MaxTemplate = 200 // characters of a template
	MaxLocales  = 64  // templates of one phase
	maxArgument = 60  // characters of an argument in a sentence
	maxSentence = 300 // characters of a sentence
)

// Narration holds the status texts that a person sees for a call, as templates:
// {name} stands for the argument of that name.
type Narration struct {
	Started  Text `json:"started,omitzero"`  // text shown while the call runs
	Finished Text `json:"finished,omitzero"` // text shown after a success
	Failed   Text `json:"failed,omitzero"`   // text shown after a failure
}

// IsZero reports whether there are no templates.
func (n Narration) IsZero() bool {
	return n.Started.IsZero() && n.Finished.IsZero() && n.Failed.IsZero()
}

// Text is one template, or one for each locale. In JSON it is a string, or an object that maps
// BCP 47 locales to strings.
type Text struct {
	Default  string
	ByLocale map[string]string
}

// IsZero reports whether there is no template.
func (t Text) IsZero() bool { return t.Default == "" && len(t.ByLocale) == 0 }

// MarshalJSON returns the string or the object, as it was read.
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

// In returns the first template that exists among these: the one for the locale, the one for
// its language, the English one and the default. It returns "" if none exists.
func (t Text) In(locale string) string {
	language, _, _ := strings.Cut(locale, "-")
	for _, l := range []string{locale, language, "en"} {
		if template, ok := t.ByLocale[l]; ok {
			return template
		}
	}
	return t.Default
}

// Narrate returns the status text of a phase for the arguments of a call, or "" if the tool has
// no template for it. An ellipsis stands for a missing argument. The text is one line of at
// most 300 characters, and shows at most 60 characters of each argument. The caller must leave
// out secret arguments.
func (t *Tool) Narrate(phase Phase, locale string, args json.RawMessage) string {
	text := map[Phase]Text{PhaseStarted: t.Narration.Started, PhaseFinished: t.Narration.Finished, PhaseFailed: t.Narration.Failed}[phase]
	template := text.In(locale)
	if template == "" {
		return ""
	}

	var values map[string]json.RawMessage
	_ = json.Unmarshal(args, &values) // otherwise all values are missing
	var b strings.Builder
	for template != "" {
		literal, name, rest := nextPlaceholder(template)
		b.WriteString(literal)
		if name != "" {
			b.WriteString(shown(values[name]))
		}
		template = rest
	}
	return cut(b.String(), maxSentence)
}

// nextPlaceholder splits a template at its first placeholder. Without one, name is
// empty and literal is the whole template.
func nextPlaceholder(template string) (literal, name, rest string) {
	literal, after, found := strings.Cut(template, "{")
	name, rest, closed := strings.Cut(after, "}")
	if !found || !closed {
		return template, "", ""
	}
	return literal, name, rest
}

// shown returns an argument as a person reads it.
func shown(value json.RawMessage) string {
	text := string(value[:min(len(value), 4*utf8.UTFMax*maxArgument)])
	if len(value) > 0 && value[0] == '"' {
		_ = json.Unmarshal(value, &text)
	}

	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r), r == utf8.RuneError:
			return ' '
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
	if text = strings.Join(strings.Fields(text), " "); text == "" {
		return "…"
	}
	return cut(text, maxArgument)
}

// cut shortens a text to n characters.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// narration reports templates that cannot be rendered.
func (d *decoder) narration(at string, t *Tool) {
	for _, phase := range []struct {
		name string
		text Text
	}{{"started", t.Narration.Started}, {"finished", t.Narration.Finished}, {"failed", t.Narration.Failed}} {
		at := at + "/" + phase.name
		if n := len(phase.text.ByLocale); n > MaxLocales {
			d.add(at, "expected at most %d locales, found %d", MaxLocales, n)
			continue
		}

		d.template(at, t.InputSchema, phase.text.Default)
		for _, locale := range slices.Sorted(maps.Keys(phase.text.ByLocale)) {
			if len(locale) > 35 || !consists(strings.ToLower(locale), lower+digits+"-") || locale == "" {
				d.add(at, "expected locales such as de or de-CH, found %q", locale)
			}
			d.template(at+"/"+escape(locale), t.InputSchema, phase.text.ByLocale[locale])
		}
	}
}

func (d *decoder) template(at string, schema json.RawMessage, template string) {
	if n := utf8.RuneCountInString(template); n > MaxTemplate {
		d.add(at, "expected at most %d characters, found %d", MaxTemplate, n)
	}

	declared := propertiesOf(schema)
	for template != "" {
		literal, name, rest := nextPlaceholder(template)
		if strings.ContainsAny(literal, "{}") || strings.HasPrefix(template[len(literal):], "{}") {
			d.add(at, "expected {name} for each argument, found a brace that does not belong to one")
			return
		}
		if raw, ok := declared[name]; name != "" && !ok {
			d.add(at, "{%s} is not a property of input_schema", name)
		} else if ok && isSecret(raw) {
			d.add(at, "{%s} is secret, and sentences are shown to people", name)
		}
		template = rest
	}
}

// isSecret reports whether the schema of a property marks it as secret.
func isSecret(schema json.RawMessage) bool {
	var p struct {
		WriteOnly bool `json:"writeOnly"`
		Secret    bool `json:"x-secret"`
	}
	return json.Unmarshal(schema, &p) == nil && (p.WriteOnly || p.Secret)
}

// text reads a template, or an object of templates.
func (d *decoder) text(pointer string, data []byte) (t Text) {
	if err := json.Unmarshal(data, &t); err != nil || string(data) == "null" || data[0] == '{' && hasNull(data) {
		d.add(pointer, "expected a string or an object from locale to string, found %s", found(data))
		return Text{}
	}
	return t
}

func hasNull(data []byte) bool {
	var fields map[string]*string
	_ = json.Unmarshal(data, &fields)
	for _, v := range fields {
		if v == nil {
			return true
		}
	}
	return false
}
