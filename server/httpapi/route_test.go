package httpapi_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// Each endpoint has a conversation in testdata and a line in the manual, and
// what it takes and gives is known.
func TestRoutes(t *testing.T) {
	manual, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	tried := http.NewServeMux()
	seen := map[string]bool{}
	for _, r := range httpapi.Routes() {
		pattern := r.Method + " " + r.Path
		tried.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		require.Contains(t, string(manual), "`"+pattern+"`")
		require.NotEmpty(t, r.Summary, pattern)
		require.Equal(t, r.Method == "GET" || r.Method == "DELETE", r.Request == nil, pattern)
		for _, p := range append(r.Query, r.Headers...) {
			require.NotEmpty(t, p.Description, "%s: %s", pattern, p.Name)
			require.Contains(t, string(manual), "`"+p.Name+"`", pattern)
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

// Each code is explained where its type points to.
func TestCodesAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	for code, status := range httpapi.Statuses() {
		require.Contains(t, string(manual), "### "+string(code)+"\n", "status %d", status)
	}
}
