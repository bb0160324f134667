package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/toolhost/toolhost/server/httpapi"
)

// maxExample bounds an example, in bytes: longer ones are left out.
const maxExample = 2 << 10

// examples are bodies of the conversations in testdata.
type examples struct {
	requests map[string]json.RawMessage       // by method and path of the route
	answers  map[string]json.RawMessage       // by method, path and status
	problems map[httpapi.Code]json.RawMessage // the first of each code
}

func readExamples(dir string, routes []httpapi.Route) (*examples, error) {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.Method+" "+r.Path, func(http.ResponseWriter, *http.Request) {})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no conversations in %s: %v", dir, err)
	}
	x := &examples{map[string]json.RawMessage{}, map[string]json.RawMessage{}, map[httpapi.Code]json.RawMessage{}}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			return nil, err
		}
		var request []byte
		for _, section := range archive.Files {
			switch kind, _, _ := strings.Cut(section.Name, " "); kind {
			case "request", "socket":
				request = section.Data
			case "response":
				if err := x.take(mux, request, section.Data); err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
			}
		}
	}
	return x, nil
}

// take takes what a request and its answer show that was not shown before.
func (x *examples) take(mux *http.ServeMux, request, answer []byte) error {
	requestHead, requestBody, _ := bytes.Cut(request, []byte("\n\n"))
	head, body, _ := bytes.Cut(answer, []byte("\n\n"))
	words := strings.Fields(string(requestHead))
	status, _, _ := strings.Cut(strings.TrimPrefix(string(head), "HTTP/1.1 "), " ")
	if len(words) < 3 {
		return fmt.Errorf("not a request: %q", requestHead)
	}
	r, err := http.NewRequest(words[0], "http://localhost"+words[1], nil)
	if err != nil {
		return err
	}
	_, route := mux.Handler(r)
	if code, _ := strconv.Atoi(status); code >= 400 {
		var p httpapi.Problem
		if json.Unmarshal(body, &p) == nil && x.problems[p.Code] == nil {
			x.problems[p.Code] = example(body)
		}
		return nil
	}
	if route == "" || !bytes.Contains(head, []byte("Content-Type: application/json")) {
		return nil
	}
	if key := route + " " + status; x.answers[key] == nil {
		x.answers[key] = example(body)
	}
	if x.requests[route] == nil {
		x.requests[route] = example(requestBody)
	}
	return nil
}

// named are the names that conversations have for what differs each time.
var named = regexp.MustCompile(`\b(TASK|SCHEDULE)-(\d+)\b`)

// example makes JSON of a body, nil of one that cannot be shown.
func example(body []byte) json.RawMessage {
	body = named.ReplaceAllFunc(body, func(name []byte) []byte {
		m := named.FindSubmatch(name)
		n, _ := strconv.Atoi(string(m[2]))
		kind := map[string]string{"TASK": "bg_", "SCHEDULE": "sc_"}[string(m[1])]
		return []byte(kind + "mxfw4zdvnrqwy3dpmfwg63th" + string(rune('a'+n/26%26)) + string(rune('a'+n%26)))
	})
	body = bytes.ReplaceAll(body, []byte("DIGEST"), []byte("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"))
	body = bytes.ReplaceAll(body, []byte("NANOSECONDS"), []byte("1284000"))
	whole := !bytes.Contains(body, []byte(`"host": {}`)) // the conversation leaves figures out
	if !json.Valid(body) || len(body) > maxExample || !whole {
		return nil
	}
	return json.RawMessage(body)
}
