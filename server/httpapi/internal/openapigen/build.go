package main

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolhost/toolhost/server/httpapi"
)

const (
	repository  = "https://github.com/toolhost/toolhost"
	manual      = repository + "/blob/main/docs/http.md"
	jsonMedia   = "application/json"
	problems    = "application/problem+json"
	eventStream = "text/event-stream"
)

// tags group the operations, by the first word of their path. What is not in
// them belongs to the last.
var tags = []tag{
	{"tools", "What can be called, and run."},
	{"calls", "Calls whose result is waited for."},
	{"runs", "Runs in the background, and their output."},
	{"notices", "What has ended and was not told yet."},
	{"schedules", "Runs at times to come."},
	{"events", "What happens, as it happens."},
	{"session", "All of a session at once."},
	{"server", "The server itself."},
}

// builder makes the document.
type builder struct {
	schemas   *schemas
	examples  *examples
	responses map[string]*response
}

func (b *builder) document(routes []httpapi.Route) (*document, error) {
	b.responses = map[string]*response{}
	doc := &document{
		OpenAPI: "3.1.1",
		Info: info{
			Title: "Toolhost", Version: "1",
			Description: "Tools of AI agents as sandboxed WebAssembly plugins: called, and run in the background. " +
				"Each request belongs to a session. Errors are problem details (RFC 9457); programs branch on their `code`. " +
				"HEAD goes wherever GET does. The manual is [docs/http.md](" + manual + ").",
			Contact: map[string]string{"name": "Toolhost", "url": repository},
			License: map[string]string{"name": "Apache 2.0", "identifier": "Apache-2.0"},
		},
		Servers:   []server{{"/", "The server this document was read from."}},
		Security:  []map[string][]string{{"bearer": {}}, {}},
		Tags:      tags,
		Paths:     map[string]map[string]*operation{},
		Elsewhere: elsewhere{"The manual", manual},
	}
	for i := range routes {
		r := &routes[i]
		op, err := b.operation(r)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
		}
		if doc.Paths[r.Path] == nil {
			doc.Paths[r.Path] = map[string]*operation{}
		}
		doc.Paths[r.Path][strings.ToLower(r.Method)] = op
	}
	doc.Components = components{
		SecuritySchemes: map[string]securityScheme{"bearer": {"http", "bearer",
			"The server's token, where the operator has set one, or an access token of the OAuth issuer it trusts. Not needed over the unix socket."}},
		Parameters: map[string]parameter{"Session": inParameter("header", httpapi.SessionParam(), false)},
		Responses:  b.responses,
		Schemas:    b.schemas.components,
	}
	return doc, nil
}

func (b *builder) operation(r *httpapi.Route) (*operation, error) {
	op := &operation{
		OperationID: operationID(r), Tags: []string{tagOf(r.Path)}, Summary: r.Summary,
		Description: strings.TrimSpace(r.Summary + ". " + r.Doc), Parameters: parameters(r), Responses: map[string]*response{},
	}
	if r.Open {
		op.Security = &[]map[string][]string{}
	}
	if err := b.body(op, r); err != nil {
		return nil, err
	}
	if err := b.answers(op, r); err != nil {
		return nil, err
	}
	return op, b.problems(op, r)
}

// operationID is a verb and a noun. A route without a name gets one made of its
// method and its path.
func operationID(r *httpapi.Route) string {
	if r.Name != "" {
		return r.Name
	}
	id := strings.ToLower(r.Method)
	for _, word := range strings.FieldsFunc(r.Path, func(c rune) bool { return !('a' <= c && c <= 'z' || '0' <= c && c <= '9') }) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

func tagOf(path string) string {
	word, _, _ := strings.Cut(strings.TrimPrefix(path, "/v1/"), "/")
	if slices.ContainsFunc(tags, func(t tag) bool { return t.Name == word }) {
		return word
	}
	return tags[len(tags)-1].Name
}

func parameters(r *httpapi.Route) (all []parameter) {
	for _, p := range r.InPath {
		all = append(all, inParameter("path", p, true))
	}
	for _, p := range r.Query {
		all = append(all, inParameter("query", p, false))
	}
	if !r.Common {
		all = append(all, parameter{Ref: "#/components/parameters/Session"})
	}
	for _, p := range r.Headers {
		all = append(all, inParameter("header", p, false))
	}
	return all
}

func inParameter(in string, p httpapi.Param, required bool) parameter {
	return parameter{Name: p.Name, In: in, Required: required, Description: p.Description, Schema: ofParam(p)}
}

// body describes what is sent. Where nothing of it is required, no body at all
// is an empty object.
func (b *builder) body(op *operation, r *httpapi.Route) error {
	if r.Request == nil {
		return nil
	}
	schema, err := b.schemas.of(r.Request, true)
	if err != nil {
		return err
	}
	required := len(b.schemas.components[b.schemas.named[r.Request]].Required) > 0
	op.RequestBody = &requestBody{Required: required, Content: map[string]*content{
		jsonMedia: {Schema: schema, Example: b.examples.requests[r.Method+" "+r.Path]},
	}}
	return nil
}

// answers describes the answers that are no errors.
func (b *builder) answers(op *operation, r *httpapi.Route) error {
	main := httpapi.Answer{Status: r.Status, When: http.StatusText(r.Status) + "."}
	for _, a := range append([]httpapi.Answer{main}, r.Also...) {
		status := strconv.Itoa(a.Status)
		answer := &response{Description: a.When, Headers: map[string]header{}}
		for _, p := range append(slices.Clone(r.Sends), a.Sends...) {
			// A stream of events has none of them.
			answer.Headers[p.Name] = header{Description: p.Description, Required: len(r.Events) == 0 || a.Status != http.StatusOK, Schema: ofParam(p)}
		}
		if a.Status != http.StatusNoContent && a.Status != http.StatusNotModified {
			var err error
			if answer.Content, err = b.content(r, a.Status); err != nil {
				return err
			}
		}
		op.Responses[status] = answer
	}
	return nil
}

// content describes the body of an answer.
func (b *builder) content(r *httpapi.Route, status int) (map[string]*content, error) {
	all := map[string]*content{}
	if r.Response != nil {
		schema, err := b.schemas.of(r.Response, false)
		all[jsonMedia] = &content{Schema: schema, Example: b.examples.answers[fmt.Sprintf("%s %s %d", r.Method, r.Path, status)]}
		return all, err
	}
	for _, media := range r.Media {
		switch {
		case media == eventStream && status != http.StatusOK: // a part of bytes
		case media == eventStream:
			schema, err := b.events(r)
			if err != nil {
				return nil, err
			}
			all[media] = &content{Schema: schema}
		case media == jsonMedia && status == http.StatusOK:
			all[media] = &content{Schema: &jsonschema.Schema{Description: "a JSON document"}}
		default:
			all[media] = &content{Schema: &jsonschema.Schema{Type: "string"}}
		}
	}
	return all, nil
}

// events describes a stream as JSON Schema can: a text that, read as events, is
// a list of these.
func (b *builder) events(r *httpapi.Route) (*jsonschema.Schema, error) {
	var kinds []*jsonschema.Schema
	for _, e := range r.Events {
		data, err := b.schemas.of(e.Data, false)
		if err != nil {
			return nil, err
		}
		name := &jsonschema.Schema{Type: "string", Description: "the `kind` of the data"}
		if e.Name != "" {
			name = &jsonschema.Schema{Const: jsonschema.Ptr(any(e.Name))}
		}
		kinds = append(kinds, &jsonschema.Schema{
			Type: "object", Required: []string{"event", "data"}, PropertyOrder: []string{"id", "event", "data"},
			Properties: map[string]*jsonschema.Schema{
				"id":    {Type: "string"},
				"event": name,
				"data":  {Type: "string", ContentMediaType: jsonMedia, ContentSchema: data},
			},
		})
	}
	one := &jsonschema.Schema{OneOf: kinds}
	switch len(kinds) {
	case 0:
		return nil, errors.New("a stream of events of no type")
	case 1:
		one = kinds[0]
	}
	return &jsonschema.Schema{
		Type: "string", Description: "Server-sent events. `contentSchema` describes them as the list that their fields make.",
		ContentMediaType: eventStream, ContentSchema: &jsonschema.Schema{Type: "array", Items: one},
	}, nil
}

// problems describes the answers that are errors. Codes that come with the same
// status are one response.
func (b *builder) problems(op *operation, r *httpapi.Route) error {
	byStatus := map[int][]httpapi.Code{}
	for _, code := range r.Codes() {
		status := code.Status()
		if status == 0 {
			return fmt.Errorf("there is no code %q", code)
		}
		byStatus[status] = append(byStatus[status], code)
	}
	for status, codes := range byStatus {
		slices.Sort(codes)
		codes = slices.Compact(codes)
		name := ""
		for _, c := range codes {
			if name != "" {
				name += "Or"
			}
			name += camel(string(c))
		}
		if b.responses[name] == nil {
			answer, err := b.problem(codes)
			if err != nil {
				return err
			}
			b.responses[name] = answer
		}
		op.Responses[strconv.Itoa(status)] = &response{Ref: "#/components/responses/" + name}
	}
	return nil
}

// camel makes a name of a code.
func camel(code string) (name string) {
	for word := range strings.SplitSeq(code, "_") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

func (b *builder) problem(codes []httpapi.Code) (*response, error) {
	schema, err := b.schemas.of(reflect.TypeFor[httpapi.Problem](), false)
	if err != nil {
		return nil, err
	}
	answer := &response{Headers: map[string]header{}, Content: map[string]*content{problems: {Schema: schema}}}
	for _, c := range codes {
		answer.Description += fmt.Sprintf("`%s`: %s. ", c, c.Title())
		for _, p := range c.Sends() {
			answer.Headers[p.Name] = header{Description: p.Description, Schema: ofParam(p)}
		}
		if answer.Content[problems].Example == nil {
			answer.Content[problems].Example = b.examples.problems[c]
		}
	}
	answer.Description = strings.TrimSpace(answer.Description)
	return answer, nil
}
