package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/telemetry"
)

// Terms are a caller's requests in addition to the arguments and the deadline. The record
// of the run stores them, for later attempts of a parked call.
type Terms struct {
	catalog.Limits
	Locale string `json:"locale,omitempty"`
	// Binding is what the run is bound to, if it was held.
	approval.Binding
	// Asks means that the run may ask its user, see [Session.Questions].
	Asks bool `json:"asks,omitempty"`
	// Trace is the span that spawned the run, see [telemetry.Link].
	Trace string `json:"trace,omitempty"`
}

// Traced encodes the terms, with the span of the context as Trace.
func (t Terms) Traced(ctx context.Context) json.RawMessage {
	t.Trace = telemetry.Link(ctx)
	switch t {
	case Terms{}:
		return nil
	case Terms{Asks: true}:
		return onlyAsks
	}
	return t.encode()
}

// onlyAsks are the terms of most calls over HTTP, where anybody may answer later.
var onlyAsks = Terms{Asks: true}.encode()

func (t Terms) encode() json.RawMessage {
	data, _ := json.Marshal(t) // numbers and strings
	if string(data) == "{}" {
		return nil
	}
	return data
}

// termsOf decodes the terms of a run.
func termsOf(run engine.Run) (t Terms, err error) {
	if run.Terms != nil {
		if err := json.Unmarshal(run.Terms, &t); err != nil {
			return t, fmt.Errorf("reading the terms of %s: %w", run.ID, err)
		}
	}
	return t, nil
}

// bind adds to terms the binding of their run.
func bind(raw json.RawMessage, to approval.Binding) (json.RawMessage, error) {
	t, err := termsOf(engine.Run{Terms: raw})
	t.Binding = to
	return t.encode(), err
}

// maxTitle is the maximum length of the title of a run, in characters.
const maxTitle = 120

// Title returns the title for runs of a tool: the title of the tool, cut to maxTitle.
func Title(tool *catalog.Tool) string {
	title := []rune(strings.TrimSpace(tool.Tool.Title))
	return strings.TrimSpace(string(title[:min(len(title), maxTitle)]))
}

// MaxLocale is the maximum length of the locale of a call or a run, in bytes.
const MaxLocale = 64

// localeText matches the characters of BCP 47.
var localeText = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)

// CheckLocale returns an error for an invalid locale. An empty one is valid.
func CheckLocale(locale string) error {
	switch {
	case locale == "":
		return nil
	case len(locale) > MaxLocale:
		return &background.FieldError{Field: "locale", Problem: fmt.Sprintf("longer than %d bytes", MaxLocale)}
	case !localeText.MatchString(locale):
		return &background.FieldError{Field: "locale", Problem: "expected a language of BCP 47, such as de or de-CH"}
	}
	return nil
}
