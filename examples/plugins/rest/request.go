package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxError limits how much of a response an error quotes, in characters.
const maxError = 1000

// request creates the request for an operation. It contains no secret: the host adds
// it.
func (o *operation) request(parameters map[string]json.RawMessage, content json.RawMessage) (*http.Request, error) {
	o.details()
	if err := o.check(parameters, content); err != nil {
		return nil, err
	}

	target, query, header := o.URL, url.Values{}, http.Header{"Accept": {"application/json"}}
	for _, p := range o.Parameters {
		values := texts(parameters[p.Name])
		if len(values) == 0 {
			continue
		}
		switch p.In {
		case "path":
			value := strings.Join(values, ",")
			if value == "" || value == "." || value == ".." {
				return nil, fmt.Errorf("the parameter %q of the path cannot be %q", p.Name, value)
			}
			target = strings.ReplaceAll(target, "{"+p.Name+"}", url.PathEscape(value))
		case "query":
			query[p.Name] = values
		case "header":
			header[http.CanonicalHeaderKey(p.Name)] = []string{strings.Join(values, ",")}
		}
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}

	r, err := http.NewRequest(o.Method, target, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	r.Header = header
	if content != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// check reports parameters that are missing, and parameters that the operation does
// not have. It leaves checking the values to the server.
func (o *operation) check(parameters map[string]json.RawMessage, content json.RawMessage) error {
	var names []string
	for _, p := range o.Parameters {
		names = append(names, p.Name)
		if p.Required && len(texts(parameters[p.Name])) == 0 {
			return fmt.Errorf("%s needs the parameter %q", o.Operation, p.Name)
		}
	}
	for name := range parameters {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s has no parameter %q, but: %s", o.Operation, name, strings.Join(names, ", "))
		}
	}

	switch {
	case content != nil && o.Body == nil:
		return fmt.Errorf("%s takes no body", o.Operation)
	case content == nil && o.Body != nil && o.Body.Required:
		return fmt.Errorf("%s needs a body", o.Operation)
	}
	return nil
}

// texts returns the values of a parameter as strings: a single value, the elements of
// a list, or none.
func texts(value json.RawMessage) (all []string) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		list = []json.RawMessage{value}
	}
	for _, v := range list {
		var text string
		switch {
		case len(v) == 0 || string(v) == "null":
		case json.Unmarshal(v, &text) == nil:
			all = append(all, text)
		default:
			all = append(all, string(v))
		}
	}
	return all
}

// answer is the part of a response that an agent sees.
type answer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body,omitempty" desc:"The answer, if it is JSON and complete"`
	Text   string          `json:"text,omitempty" desc:"The answer otherwise"`
	Cut    int             `json:"cut,omitempty" desc:"How many characters of the text are left out"`
}

// send sends a request. A response with an error becomes a tool error.
func (o *operation) send(r *http.Request, limit int) (answer, error) {
	resp, err := http.DefaultClient.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok { // the agent knows the rest
		err = wrapped.Err
	}
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}

	if resp.StatusCode >= 400 {
		text, _ := cut(data, maxError)
		return answer{}, fmt.Errorf("%s answers %s: %s", o.Operation, resp.Status, text)
	}
	out := answer{Status: resp.StatusCode}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json"); isJSON && json.Valid(data) && utf8.Valid(data) && len(data) <= limit {
		out.Body = data
		return out, nil
	}
	out.Text, out.Cut = cut(data, limit)
	return out, nil
}

// cut returns up to limit characters of a text, and how many characters follow.
func cut(data []byte, limit int) (string, int) {
	text := []rune(strings.ToValidUTF8(string(data), "\uFFFD"))
	if len(text) <= limit {
		return string(text), 0
	}
	return string(text[:limit]), len(text) - limit
}
