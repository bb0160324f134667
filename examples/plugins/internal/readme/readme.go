// Package readme keeps the READMEs of the example plugins up to date.
package readme

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest"
)

var update = flag.Bool("update", false, "rewrite the manifest in README.md")

var manifest = regexp.MustCompile("(?s)```json\n.*?```\n")

// Check fails the test unless the README.md in the folder under test shows the
// plugin's manifest. With the flag -update, it rewrites the file.
func Check(t *testing.T, p *guest.Plugin) {
	t.Helper()
	m, err := p.Manifest()
	require.NoError(t, err)
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(m))
	want := "```json\n" + indent(bytes.TrimSpace(doc.Bytes())) + "\n```\n"
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	if *update {
		text = manifest.ReplaceAllLiteral(text, []byte(want))
		require.NoError(t, os.WriteFile("README.md", text, 0o666))
	}
	require.Equal(t, want, string(manifest.Find(text)), "the manifest has changed: run go test with -update")
}

// levels is the number of levels of a manifest that are spread over several
// lines: down to the fields of a tool.
const levels = 3

// indent spreads the outer levels of compact JSON over several lines.
func indent(doc []byte) string {
	var b strings.Builder
	depth, quoted, escaped := 0, false, false
	line := func() { b.WriteString("\n" + strings.Repeat("  ", depth)) }
	for i, c := range doc {
		if c == '"' && !escaped {
			quoted = !quoted
		}
		escaped = c == '\\' && !escaped
		if !quoted && (c == '}' || c == ']') {
			if depth--; depth < levels && doc[i-1] != '{' && doc[i-1] != '[' {
				line()
			}
		}
		b.WriteByte(c)
		switch {
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth <= levels && doc[i+1] != '}' && doc[i+1] != ']' {
				line()
			}
		case c == ',' && depth <= levels:
			line()
		case c == ':' || c == ',':
			b.WriteByte(' ')
		}
	}
	return b.String()
}
