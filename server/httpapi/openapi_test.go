package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// contract holds the parts of the OpenAPI document that an exchange is checked against.
type contract struct {
	Paths map[string]map[string]struct {
		Parameters  []documentedParam
		RequestBody *struct {
			Required bool
			Content  map[string]any
		}
		Responses map[string]documentedAnswer
	}
	Components struct {
		Parameters map[string]documentedParam
		Responses  map[string]documentedAnswer
	}

	compiler *jsonschema.Compiler
	routes   *http.ServeMux
	mu       sync.Mutex // guards compiler
}

type documentedParam struct {
	Ref  string `json:"$ref"`
	Name string
	In   string
}

type documentedAnswer struct {
	Ref     string `json:"$ref"`
	Headers map[string]struct{ Required bool }
	Content map[string]any
}

var theContract = sync.OnceValues(func() (*contract, error) {
	c := &contract{compiler: jsonschema.NewCompiler(), routes: http.NewServeMux()}
	if err := json.Unmarshal(httpapi.Document(), c); err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(httpapi.Document()))
	if err != nil {
		return nil, err
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	c.compiler.AssertContent()
	c.compiler.RegisterContentMediaType(&jsonschema.MediaType{ // what is checked is the list that is in it
		Name: "text/event-stream", Validate: func([]byte) error { return nil },
	})
	for path, operations := range c.Paths {
		for method := range operations {
			c.routes.HandleFunc(strings.ToUpper(method)+" "+path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return c, c.compiler.AddResource("openapi.json", doc)
})

// validate checks a JSON value against the schema at a place in the document.
func (c *contract) validate(t testing.TB, value any, place ...string) {
	t.Helper()
	for i, p := range place {
		place[i] = url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	pointer := "openapi.json#/" + strings.Join(place, "/")
	c.mu.Lock()
	schema, err := c.compiler.Compile(pointer)
	c.mu.Unlock()
	require.NoError(t, err)
	require.NoError(t, schema.Validate(value), pointer)
}

func (c *contract) validateJSON(t testing.TB, text []byte, place ...string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err, "%s", text)
	c.validate(t, value, place...)
}

// operation is where the document has what answers a request.
func (c *contract) operation(r *http.Request) (method, path string, ok bool) {
	_, pattern := c.routes.Handler(r)
	method, path, ok = strings.Cut(pattern, " ")
	return strings.ToLower(method), path, ok
}

// check requires that the document describes an exchange: the operation, the status, the
// headers, and the form of the bodies.
func (c *contract) check(t testing.TB, r *http.Request, sent []byte, resp *http.Response, body []byte) {
	t.Helper()
	method, path, ok := c.operation(r)
	if r.Method == http.MethodOptions && resp.StatusCode == http.StatusNoContent { // what a browser asks before it asks
		return
	}
	if !ok { // there is no such operation
		require.GreaterOrEqual(t, resp.StatusCode, 400, r.URL)
		c.validateJSON(t, body, "components", "schemas", "Problem")
		return
	}
	status := strconv.Itoa(resp.StatusCode)
	op := c.Paths[path][method]
	answer, ok := op.Responses[status]
	require.True(t, ok, "the document has no %s of %s %s", status, method, path)
	place := []string{"paths", path, method, "responses", status}
	if name, ok := strings.CutPrefix(answer.Ref, "#/components/responses/"); ok {
		answer, place = c.Components.Responses[name], []string{"components", "responses", name}
	}
	for name, h := range answer.Headers {
		if values := resp.Header.Values(name); len(values) > 0 {
			c.validateText(t, values[0], append(place, "headers", name, "schema")...)
		} else {
			require.False(t, h.Required, "%s %s %s has no %s", status, method, path, name)
		}
	}
	for name := range resp.Header {
		_, documented := answer.Headers[documentedName(answer, name)]
		require.True(t, resp.StatusCode >= 400 || documented || slices.Contains(everywhere, name) || slices.Contains(general, name),
			"%s %s %s has a header that is not documented: %s", status, method, path, name)
	}
	c.checkBody(t, resp, body, answer, place)
	if resp.StatusCode < 300 {
		c.checkRequest(t, r, sent, method, path)
	}
}

// general lists the headers whose meaning HTTP defines.
var general = []string{"Content-Type", "Accept-Ranges", "Vary", "X-Accel-Buffering"}

// documentedName is a header's name as the document writes it.
func documentedName(answer documentedAnswer, name string) string {
	for n := range answer.Headers {
		if strings.EqualFold(n, name) {
			return n
		}
	}
	return ""
}

// checkBody requires that the document lists the media type of a body, and that the body
// fits its schema.
func (c *contract) checkBody(t testing.TB, resp *http.Response, body []byte, answer documentedAnswer, place []string) {
	t.Helper()
	media := resp.Header.Get("Content-Type")
	if len(answer.Content) == 0 {
		require.Empty(t, body, place)
		return
	}
	require.Contains(t, answer.Content, media, place)
	place = append(slices.Clone(place), "content", media, "schema")
	switch {
	case resp.Request.Method == http.MethodHead:
		require.Empty(t, body)
	case strings.HasSuffix(media, "json"):
		c.validateJSON(t, body, place...)
	case media == "text/event-stream":
		c.validate(t, readEvents(string(body)), append(place, "contentSchema")...)
	}
}

// checkRequest requires that a request that was accepted is one that the document allows.
func (c *contract) checkRequest(t testing.TB, r *http.Request, sent []byte, method, path string) {
	t.Helper()
	op := c.Paths[path][method]
	switch {
	case op.RequestBody == nil:
		require.Empty(t, sent)
	case len(bytes.TrimSpace(sent)) == 0:
		require.False(t, op.RequestBody.Required, "%s %s needs a body", method, path)
	default:
		c.validateJSON(t, sent, "paths", path, method, "requestBody", "content", "application/json", "schema")
	}
	for name, values := range r.URL.Query() {
		i := slices.IndexFunc(op.Parameters, func(p documentedParam) bool { return p.In == "query" && p.Name == name })
		require.GreaterOrEqual(t, i, 0, "%s %s has no parameter %s", method, path, name)
		place := []string{"paths", path, method, "parameters", strconv.Itoa(i), "schema"}
		if name == "id" || name == "status" || name == "error" {
			list := make([]any, len(values))
			for i, v := range values {
				list[i] = v
			}
			c.validate(t, list, place...)
			continue
		}
		c.validateText(t, values[0], place...)
	}
}

// validateText checks a parameter or a header, which is a text that stands for
// what its schema says.
func (c *contract) validateText(t testing.TB, text string, place ...string) {
	t.Helper()
	var value any = text
	if n := json.Number(text); json.Unmarshal([]byte(text), &n) == nil && n != "" && text[0] != '"' {
		value = n
	} else if text == "true" || text == "false" {
		value = text == "true"
	}
	c.validate(t, value, place...)
}

// readEvents reads a stream of events as the document describes it.
func readEvents(stream string) []any {
	list := []any{}
	for block := range strings.SplitSeq(stream, "\n\n") {
		event := map[string]any{}
		for line := range strings.SplitSeq(block, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok && name != "" {
				event[name] = value
			}
		}
		if len(event) > 0 {
			list = append(list, event)
		}
	}
	return list
}

// Each operation of the document is shown at work by a conversation in
// testdata, with each of its answers that are no errors. TestWire holds that the
// conversations are as the document says.
func TestDocumentedOperationsAreShown(t *testing.T) {
	c, err := theContract()
	require.NoError(t, err)
	shown := map[string]bool{}
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
		var r *http.Request
		for _, section := range archive.Files {
			words := strings.Fields(string(section.Data))
			switch kind, _, _ := strings.Cut(section.Name, " "); kind {
			case "request", "socket":
				r, err = http.NewRequest(words[0], "http://localhost"+words[1], nil)
				require.NoError(t, err)
			case "response":
				if method, path, ok := c.operation(r); ok {
					shown[fmt.Sprintf("%s %s %s", method, path, words[1])] = true
				}
			}
		}
	}
	for path, operations := range c.Paths {
		for method, op := range operations {
			for status := range op.Responses {
				require.True(t, status >= "400" || op.Responses[status].Content["application/zip"] != nil || shown[fmt.Sprintf("%s %s %s", method, path, status)], "no conversation shows %s of %s %s", status, method, path)
			}
		}
	}
}

// The document is served, and is not sent again to a client that has it.
func TestDocumentIsServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		resp, body := f.do("GET", "/v1/openapi.json", "")
		require.Equal(t, string(httpapi.Document()), body)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		require.Equal(t, "private, no-cache", resp.Header.Get("Cache-Control"))
		tag := resp.Header.Get("ETag")
		require.NotEmpty(t, tag)
		resp, body = f.do("GET", "/v1/openapi.json", "", "If-None-Match", `"x", `+strings.TrimPrefix(tag, "W/"))
		require.Equal(t, http.StatusNotModified, resp.StatusCode)
		require.Empty(t, body)
		resp, _ = f.do("GET", "/v1/openapi.json", "", "If-None-Match", `W/"another"`)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		resp, body = f.do("GET", "/v1/openapi.json", "", "Range", "bytes=0-9")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, string(httpapi.Document()), body)
	})
}
