package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	jsonschema "github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/server"
)

// asker answers a tool's questions: from the flag --answer, or else on the terminal.
type asker struct {
	ui    *ui
	tool  string
	bar   *bar
	inner bool // whether questions may come from tools that the tool calls; these say so
	given flagAnswers
	typed func() <-chan inputLine // lines that the user types; nil if nobody is there to type

	asking sync.Mutex // held while asking: a script may ask several questions at the same time
}

// question asks a user questions, and returns the answers.
type question = func(context.Context, abi.Questions) (abi.Answers, error)

// flagAnswers holds the answers from the flag --answer, by the keys of their questions. Each
// answers one question from the tool that the command names.
type flagAnswers map[string][]abi.Answer

// take returns the next answer to a question with this key.
func (a flagAnswers) take(key string) (answer abi.Answer, ok bool) {
	if len(a[key]) == 0 {
		return abi.Answer{}, false
	}
	answer, a[key] = a[key][0], a[key][1:]
	return answer, true
}

// inputLine is a line typed by the user, or the end of the input.
type inputLine struct {
	line string
	err  error
}

// parseAnswers parses the values of the flag --answer.
func parseAnswers(flags []string) (flagAnswers, error) {
	given := flagAnswers{}
	for _, f := range flags {
		key, text, ok := strings.Cut(f, "=")
		answer := abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage(text)}
		switch {
		case key != "" && (text == abi.AnswerDecline || text == abi.AnswerCancel):
			answer = abi.Answer{Action: text}
		case !ok, key == "", !json.Valid(answer.Content), !strings.HasPrefix(strings.TrimSpace(text), "{"):
			return nil, &usageError{
				errors.New("--answer: expected KEY=CONTENT, where CONTENT is a JSON object, decline or cancel"), // it may be secret
				`quote it for your shell: --answer 'sure={"yes":true}'`,
			}
		}
		given[key] = append(given[key], answer)
	}
	return given, nil
}

// unused returns the keys of answers for which there was no question.
func (a flagAnswers) unused() (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if len(a[key]) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// question returns the function that answers a tool's questions, or nil if nobody can answer.
// See [ui.asker].
func (u *ui) question(tool string, inner bool, given flagAnswers, b *bar) question {
	if a := u.asker(tool, inner, given, b); len(given) > 0 || a.typed != nil {
		return a.ask
	}
	return nil
}

// asker returns an asker for a tool's questions. With inner, some of them may come from tools
// that it calls, and cannot be told apart. The asker denies questions that nobody can answer.
func (u *ui) asker(tool string, inner bool, given flagAnswers, b *bar) *asker {
	a := &asker{ui: u, tool: oneLine(tool), inner: inner, given: given, bar: b}
	if inner {
		a.tool += " or a tool that it calls"
	}
	if u.asks() {
		a.typed = sync.OnceValue(func() <-chan inputLine { return typedLines(u.in) })
	}
	return a
}

// typedLines returns the lines typed on a terminal. A pending read ends with the process.
func typedLines(r io.Reader) <-chan inputLine {
	lines := make(chan inputLine)
	go func() {
		for from := bufio.NewReader(r); ; {
			line, err := from.ReadString('\n')
			lines <- inputLine{strings.TrimSpace(line), err}
		}
	}()
	return lines
}

// ask answers all questions, those on the terminal one after the other. Answers from flags are
// only for the command's own tool: questions from a tool that it calls do not get them.
func (a *asker) ask(ctx context.Context, q abi.Questions) (abi.Answers, error) {
	a.asking.Lock()
	defer a.asking.Unlock()
	tool, given, called := a.tool, a.given, server.CalledTool(ctx)
	if called != "" {
		tool, given = oneLine(called), nil
	}

	out := abi.Answers{Answers: map[string]abi.Answer{}}
	for _, key := range slices.Sorted(maps.Keys(q.Questions)) {
		answer, ok := given.take(key)
		switch {
		case ok:
			if a.inner {
				a.bar.notef("%s asks: %s (answered by --answer)", tool, oneLine(q.Questions[key].Message))
			}
			if err := server.CheckAnswer(key, q.Questions[key], answer); err != nil {
				a.bar.notef("toolhost: --answer: %v", err)
			}
		case a.typed == nil && called != "":
			return out, fmt.Errorf("%w: %s cannot ask here: --answer is only for questions of %s", host.ErrDenied, tool, a.tool)
		case a.typed == nil:
			return out, fmt.Errorf("%w: nobody can be asked here: answer with --answer '%s=…', once for each such question", host.ErrDenied, key)
		default:
			var err error
			if answer, err = a.fill(ctx, tool, key, q.Questions[key]); err != nil {
				return out, err
			}
		}
		out.Answers[key] = answer
	}
	return out, nil
}

// fill asks one question until the answer is valid.
func (a *asker) fill(ctx context.Context, tool, key string, q abi.Question) (abi.Answer, error) {
	fields, err := formFields(q.Schema)
	if err != nil {
		return abi.Answer{}, fmt.Errorf("%w: %s: %w", abi.ErrQuestions, key, err)
	}
	a.bar.pause(true)
	defer a.bar.pause(false)
	for ctx.Err() == nil {
		for line := range strings.Lines(q.Message) {
			a.ui.notef("%s asks: %s", tool, strings.TrimSuffix(line, "\n"))
		}
		answer, err := a.form(ctx, fields)
		if errors.Is(err, io.EOF) {
			a.ui.notef("")
			return abi.Answer{Action: abi.AnswerDecline}, nil
		}
		if err != nil {
			return abi.Answer{}, err
		}

		err = server.CheckAnswer(key, q, answer)
		switch {
		case err == nil || !errors.Is(err, abi.ErrAnswer):
			return answer, err
		case len(fields) == 0:
			return abi.Answer{}, fmt.Errorf("%w: %s: no answer fits a form without fields", abi.ErrQuestions, key)
		}
		a.ui.notef("toolhost: %v", err)
	}
	return abi.Answer{}, ctx.Err()
}

// form reads the answer to a form. If the form has no fields, the user agrees or declines.
func (a *asker) form(ctx context.Context, fields []formField) (abi.Answer, error) {
	if len(fields) > 0 {
		a.ui.notef("(an empty line leaves a field out, the end of the input, usually Ctrl-D, declines)")
		content, err := a.content(ctx, fields)
		return abi.Answer{Action: abi.AnswerAccept, Content: content}, err
	}

	fmt.Fprint(a.ui.err, "  agree (yes or no): ")
	line, err := a.line(ctx)
	switch strings.ToLower(line) {
	case "y", "yes":
		return abi.Answer{Action: abi.AnswerAccept, Content: json.RawMessage("{}")}, err
	}
	return abi.Answer{Action: abi.AnswerDecline}, err
}

// content reads the fields of a form.
func (a *asker) content(ctx context.Context, fields []formField) (json.RawMessage, error) {
	content := map[string]json.RawMessage{}
	for _, f := range fields {
		fmt.Fprintf(a.ui.err, "  %s: ", f.label())
		line, err := a.line(ctx)
		if err != nil {
			return nil, err
		}
		if line != "" {
			content[f.name] = f.value(line)
		}
	}
	return json.Marshal(content)
}

// line returns the next line that the user types, unless ctx is done first.
func (a *asker) line(ctx context.Context) (string, error) {
	select {
	case t := <-a.typed():
		return t.line, t.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// formField is a property in a question's schema.
type formField struct {
	name     string
	required bool
	Type     string `json:"type"`
	Title    string `json:"title"`
	Enum     []any  `json:"enum"`
}

var errForm = errors.New("its form cannot be shown on a terminal")

// formFields returns the properties in a question's schema, in the schema's order.
func formFields(schema json.RawMessage) ([]formField, error) {
	var form struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if json.Unmarshal(schema, &form) != nil || form.Properties != nil && form.Properties[0] != '{' {
		return nil, errForm
	}

	var fields []formField
	for _, p := range jsonschema.Members(form.Properties) {
		f := formField{name: p.Name}
		if json.Unmarshal(p.Value, &f) != nil {
			return nil, errForm
		}
		fields = append(fields, f)
	}
	for _, name := range form.Required {
		i := slices.IndexFunc(fields, func(f formField) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("it requires %s, which is not one of its fields", name)
		}
		fields[i].required = true
	}
	return fields, nil
}

// label returns the text that the user sees in front of the field.
func (f formField) label() string {
	kind := cmp.Or(map[string]string{"boolean": "yes or no", "integer": "whole number", "array": "comma-separated"}[f.Type], f.Type)
	if len(f.Enum) > 0 {
		values := make([]string, len(f.Enum))
		for i, v := range f.Enum {
			values[i] = fmt.Sprint(v)
		}
		kind = strings.Join(values, ", ")
	}
	if !f.required {
		kind += ", optional"
	}
	return oneLine(fmt.Sprintf("%s (%s)", cmp.Or(f.Title, f.name), kind))
}

// value converts a typed line to JSON. If the line is not of the field's type, it becomes a
// string, which the check of the answer then refuses.
func (f formField) value(line string) json.RawMessage {
	var value any = line
	switch f.Type {
	case "boolean":
		switch strings.ToLower(line) {
		case "y", "yes", "true":
			value = true
		case "n", "no", "false":
			value = false
		}
	case "number", "integer":
		if _, err := strconv.ParseFloat(line, 64); err == nil && json.Valid([]byte(line)) {
			value = json.RawMessage(line)
		}
	case "array":
		items := strings.Split(line, ",")
		for i := range items {
			items[i] = strings.TrimSpace(items[i])
		}
		value = items
	}

	data, _ := json.Marshal(value) // texts, and JSON
	return data
}
