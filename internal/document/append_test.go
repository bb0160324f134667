package document

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An item is added where a person would add it, and nothing else changes.
func TestAppendYAML(t *testing.T) {
	const source = "oci://ghcr.io/acme/web:1.4"
	for name, c := range map[string]struct{ before, after string }{
		"nothing":           {"", "plugins:\n  - \"oci://ghcr.io/acme/web:1.4\"\n"},
		"comments":          {"# mine\n", "# mine\nplugins:\n  - \"oci://ghcr.io/acme/web:1.4\"\n"},
		"other keys":        {"watch: false\n\n# the end", "watch: false\n\n# the end\nplugins:\n  - \"oci://ghcr.io/acme/web:1.4\"\n"},
		"an empty key":      {"plugins: # none yet\nwatch: true\n", "plugins: # none yet\n  - \"oci://ghcr.io/acme/web:1.4\"\nwatch: true\n"},
		"a list":            {"plugins:\n    - a # first\n\n    - b\n\n# next\nwatch: true\n", "plugins:\n    - a # first\n\n    - b\n    - \"oci://ghcr.io/acme/web:1.4\"\n\n# next\nwatch: true\n"},
		"without indent":    {"plugins:\n- a", "plugins:\n- a\n- \"oci://ghcr.io/acme/web:1.4\"\n"},
		"quoted":            {"\"plugins\":\n  - 'a'\n", "\"plugins\":\n  - 'a'\n  - \"oci://ghcr.io/acme/web:1.4\"\n"},
		"below a key":       {"grants:\n  web:\n    clock: true\nplugins:\n  - a\n", "grants:\n  web:\n    clock: true\nplugins:\n  - a\n  - \"oci://ghcr.io/acme/web:1.4\"\n"},
		"flow":              {"plugins: [a, b]\n", ""},
		"flow throughout":   {"{plugins: [a]}\n", ""},
		"a text":            {"plugins: a\n", ""},
		"a long text":       {"plugins:\n  - a\n    b\n", ""},
		"a list at the top": {"- a\n", ""},
		"not YAML":          {"plugins: [", ""},
		"an alias":          {"x: &a [b]\nplugins: *a\n", ""},
		"its end":           {"watch: true\n...\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := AppendYAML([]byte(c.before), "plugins", source)
			if c.after == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.after, string(after))
		})
	}
}

// Whatever is changed is changed by one item.
func FuzzAppendYAML(f *testing.F) {
	f.Add([]byte("plugins:\n  - a\nwatch: true\n"))
	f.Add([]byte("# only a comment"))
	f.Fuzz(func(t *testing.T, before []byte) {
		after, err := AppendYAML(before, "plugins", "oci://r.test/web:1")
		if err == nil {
			require.NoError(t, checkAppended(before, after, "plugins", "oci://r.test/web:1"))
		}
	})
}
