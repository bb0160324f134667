package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLanguageFigures holds that languages.md has the figures of figures.md, which a benchmark
// writes.
func TestLanguageFigures(t *testing.T) {
	_, measured, ok := strings.Cut(read(t, "figures.md"), "<!-- bench/languages -->\n")
	require.True(t, ok)
	measured, _, ok = strings.Cut(measured, "<!-- bench/languages ends -->\n")
	require.True(t, ok)

	rows := regexp.MustCompile(`(?m)^\| \[(\w+)\]\(\w+\.md\) \|(.*)\|$`).FindAllStringSubmatch(read(t, "languages.md"), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		var of []string // the rows of the language
		for line := range strings.Lines(measured) {
			if strings.HasPrefix(line, "| "+row[1]+" |") {
				of = append(of, line)
			}
		}
		for cell := range strings.SplitSeq(row[2], "|") {
			require.Regexp(t, `\| `+regexp.QuoteMeta(strings.TrimSpace(cell))+`( \(| \|)`, strings.Join(of, ""), row[1])
		}
	}
}
