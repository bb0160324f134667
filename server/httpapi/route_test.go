package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// Each endpoint has a conversation in testdata and a line in the manual, and the types of
// its bodies are known.
func TestRoutes(t *testing.T) {
	manual, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	tried := http.NewServeMux()
	seen := map[string]bool{}
	for _, r := range httpapi.Routes() {
		pattern := r.Method + " " + r.Path
		tried.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		require.Contains(t, string(manual), "`"+pattern+"`")
		require.True(t, r.Method == "POST" || r.Method == "PUT" || r.Request == nil, pattern)
		for _, name := range r.Query {
			require.Contains(t, string(manual), "`"+name+"`", pattern)
		}
	}
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
		for _, section := range archive.Files {
			if !strings.HasPrefix(section.Name, "request") {
				continue
			}
			line, _, _ := strings.Cut(string(section.Data), "\n")
			words := strings.Fields(line)
			require.Len(t, words, 3, "%s: %s", file, line)
			req, err := http.NewRequest(words[0], "http://localhost"+words[1], nil)
			require.NoError(t, err)
			_, pattern := tried.Handler(req)
			seen[pattern] = true
		}
	}
	for _, r := range httpapi.Routes() {
		require.True(t, seen[r.Method+" "+r.Path], "no conversation in testdata has %s %s", r.Method, r.Path)
	}
}

// The types an endpoint is said to take and give are those on the wire: every
// field of every answer in testdata is one of its type, and so is the body of
// every request that is not refused.
func TestTypesAreThoseOnTheWire(t *testing.T) {
	routes := http.NewServeMux()
	types := map[string]httpapi.Route{}
	for _, r := range httpapi.Routes() {
		pattern := r.Method + " " + r.Path
		routes.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		types[pattern] = r
	}
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
		var request []byte
		for _, section := range archive.Files {
			if section.Name != "response" {
				request = section.Data
				continue
			}
			line, _, _ := strings.Cut(string(request), "\n")
			words := strings.Fields(line)
			req, err := http.NewRequest(words[0], "http://localhost"+words[1], nil)
			require.NoError(t, err)
			_, pattern := routes.Handler(req)
			route, ok := types[pattern]
			if !ok || !strings.HasPrefix(string(section.Data), "HTTP/1.1 20") {
				continue
			}
			_, answer, _ := bytes.Cut(section.Data, []byte("\n\n"))
			_, body, _ := bytes.Cut(request, []byte("\n\n"))
			for _, unit := range []string{"NANOSECONDS", "SECONDS", "BYTES"} {
				answer = bytes.ReplaceAll(answer, []byte(unit), []byte("0"))
			}
			for _, c := range []struct {
				typ  reflect.Type
				text []byte
			}{{route.Request, body}, {route.Response, answer}} {
				if c.typ == nil || len(bytes.TrimSpace(c.text)) == 0 {
					continue
				}
				dec := json.NewDecoder(bytes.NewReader(c.text))
				dec.DisallowUnknownFields()
				require.NoError(t, dec.Decode(reflect.New(c.typ).Interface()), "%s: %s", file, pattern)
				seen[pattern+" "+c.typ.String()] = true
			}
		}
	}
	for pattern, r := range types {
		for _, typ := range []reflect.Type{r.Request, r.Response} {
			require.True(t, typ == nil || seen[pattern+" "+typ.String()], "no conversation in testdata shows %v of %s", typ, pattern)
		}
	}
}

// Each code is explained where its type points to.
func TestCodesAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	for code, status := range httpapi.Statuses() {
		require.Contains(t, string(manual), "### "+string(code)+"\n", "status %d", status)
	}
}
