package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits on the descriptions.
const (
	maxFiles     = 16
	maxFile      = 1 << 20 // bytes in a description
	maxDepth     = 4       // references that lead from one to the next
	maxNodes     = 3000    // values in an operation, not counting references
	maxOperation = 2000    // operations in all descriptions
)

// methods lists the methods of operations, in the order in which operations are listed.
var methods = []string{"get", "head", "post", "put", "patch", "delete", "options"}

// operation is one operation of an API.
type operation struct {
	Operation   string      `json:"operation" desc:"Its name"`
	Method      string      `json:"method"`
	URL         string      `json:"url"`
	Summary     string      `json:"summary,omitempty"`
	Description string      `json:"description,omitempty"`
	Parameters  []parameter `json:"parameters,omitempty"`
	Body        *body       `json:"body,omitempty" desc:"Of the request, as JSON"`

	doc  *document
	path map[string]any // path item that contains the operation, as in the description
	raw  map[string]any
}

type parameter struct {
	Name        string          `json:"name"`
	In          string          `json:"in" desc:"path, query or header"`
	Required    bool            `json:"required,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

type body struct {
	Required bool            `json:"required,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`
}

// readsOnly reports whether the operation changes nothing, judging by its method.
func (o *operation) readsOnly() bool { return o.Method == "GET" || o.Method == "HEAD" }

// document is a description in the format of OpenAPI 3.
type document struct {
	file   string
	server string // URL that paths are appended to
	root   map[string]any
}

// readAPIs reads the descriptions in a folder, and returns all of their operations,
// sorted by name.
func readAPIs(dir string) ([]operation, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the descriptions of APIs: %w", err)
	}
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".json", ".yaml", ".yml"}, path.Ext(e.Name())) {
			files = append(files, e.Name())
		}
	}
	switch {
	case len(files) == 0:
		return nil, errors.New("no API is described: the operator puts OpenAPI documents, *.yaml or *.json, into the folder")
	case len(files) > maxFiles:
		return nil, fmt.Errorf("%d APIs are described, and at most %d are read", len(files), maxFiles)
	}

	var all []operation
	for _, file := range files {
		d, err := readDocument(dir, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		prefix := ""
		if len(files) > 1 {
			prefix = strings.TrimSuffix(file, path.Ext(file)) + "."
		}
		all = append(all, d.operations(prefix)...)
	}
	if len(all) > maxOperation {
		return nil, fmt.Errorf("%d operations are described, and at most %d are read", len(all), maxOperation)
	}
	slices.SortFunc(all, func(a, b operation) int { return cmp.Compare(a.Operation, b.Operation) })
	return all, nil
}

func readDocument(dir, file string) (*document, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(file)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("larger than %d bytes: keep the operations that are needed", maxFile)
	}
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(root.FS(), file)
	if err != nil {
		return nil, err
	}

	d := &document{file: file}
	if err := yaml.Unmarshal(data, &d.root); err != nil { // which JSON is, too
		return nil, err
	}
	d.root, _ = plain(d.root).(map[string]any)
	if version, _ := d.root["openapi"].(string); !strings.HasPrefix(version, "3.") {
		return nil, errors.New("not an OpenAPI document of version 3")
	}
	d.server, err = d.base()
	return d, err
}

// plain returns a value whose field names are all possible in JSON.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = plain(e)
		}
	case map[any]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[fmt.Sprint(k)] = plain(e)
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = plain(e)
		}
	}
	return v
}

// base returns the URL of the first server, with its variables set to their defaults.
func (d *document) base() (string, error) {
	var servers []struct {
		URL       string `json:"url"`
		Variables map[string]struct {
			Default string `json:"default"`
		} `json:"variables"`
	}
	convert(d.root["servers"], &servers)
	if len(servers) == 0 || !strings.Contains(servers[0].URL, "://") {
		return "", errors.New("servers: the first one needs a whole URL, such as https://api.example.com/v1")
	}

	url := servers[0].URL
	for name, v := range servers[0].Variables {
		url = strings.ReplaceAll(url, "{"+name+"}", v.Default)
	}
	return strings.TrimSuffix(url, "/"), nil
}

// operations returns the operations in a document. An operation without an operationId
// is named after its method and path.
func (d *document) operations(prefix string) (all []operation) {
	paths, _ := d.root["paths"].(map[string]any)
	named := map[string]bool{}
	for at, v := range paths {
		item, _ := v.(map[string]any)
		for _, method := range methods {
			raw, ok := item[method].(map[string]any)
			if !ok {
				continue
			}
			o := operation{Method: strings.ToUpper(method), URL: d.server + at, doc: d, path: item, raw: raw}
			id, _ := raw["operationId"].(string)
			if id == "" || named[id] {
				id = o.Method + " " + at
			}
			named[id] = true
			o.Operation = prefix + id
			o.Summary, _ = raw["summary"].(string)
			all = append(all, o)
		}
	}
	return all
}

// details fills in what a caller needs to know about the operation.
func (o *operation) details() {
	o.Description, _ = o.raw["description"].(string)
	left := maxNodes
	own, _ := o.doc.inline(o.raw["parameters"], &left, 0).([]any)
	shared, _ := o.doc.inline(o.path["parameters"], &left, 0).([]any)
	o.Parameters = nil
	for _, v := range append(own, shared...) { // the operation's own come first and count
		var p parameter
		convert(v, &p)
		same := func(q parameter) bool { return q.Name == p.Name && q.In == p.In }
		if p.Name != "" && p.In != "cookie" && !slices.ContainsFunc(o.Parameters, same) {
			o.Parameters = append(o.Parameters, p)
		}
	}

	var request struct {
		Required bool `json:"required"`
		Content  map[string]struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"content"`
	}
	convert(o.doc.inline(o.raw["requestBody"], &left, 0), &request)
	if content, ok := request.Content["application/json"]; ok {
		o.Body = &body{request.Required, content.Schema}
	}
}

// inline replaces references by what they refer to, within the limits.
func (d *document) inline(v any, left *int, depth int) any {
	*left--
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			if depth == maxDepth || *left < 0 {
				return map[string]any{"description": "see " + ref}
			}
			return d.inline(d.find(ref), left, depth+1)
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			if *left >= 0 {
				out[k] = d.inline(e, left, depth)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			if *left >= 0 {
				out = append(out, d.inline(e, left, depth))
			}
		}
		return out
	}
	return v
}

// find returns what a reference within the document refers to, or nil.
func (d *document) find(ref string) any {
	at, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	var v any = d.root
	for name := range strings.SplitSeq(at, "/") {
		m, _ := v.(map[string]any)
		v = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	return v
}

// convert converts a value to the type that into points to. It leaves out what does not
// fit.
func convert(v, into any) {
	data, err := json.Marshal(v)
	if err == nil {
		_ = json.Unmarshal(data, into)
	}
}
