package docs_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRationale holds that the tests that RATIONALE.md names exist.
func TestRationale(t *testing.T) {
	page, err := os.ReadFile("../RATIONALE.md")
	require.NoError(t, err)
	names := regexp.MustCompile(`\b[a-z]\w*\.(?:Test[A-Z]\w*|Run\b)`).FindAllString(string(page), -1)
	require.NotEmpty(t, names)

	sources := map[string]string{}
	for _, name := range names {
		if name != "package.TestName" { // the notation
			checkTest(t, sources, name)
		}
	}
}
