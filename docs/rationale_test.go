package docs_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRationale holds that the tests that RATIONALE.md names exist.
func TestRationale(t *testing.T) {
	names := regexp.MustCompile(`\b[a-z]\w*\.(?:Test[A-Z]\w*|Run\b)`).FindAllString(read(t, "../RATIONALE.md"), -1)
	require.NotEmpty(t, names)

	sources := map[string]string{}
	for _, name := range names {
		if name != "package.TestName" { // the notation
			checkTest(t, sources, name)
		}
	}
}
