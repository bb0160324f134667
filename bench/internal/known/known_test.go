package known

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const list = `# No threads
# here.
a
b

# No time.
c
`

func TestParse(t *testing.T) {
	f, err := Parse(list)
	require.NoError(t, err)
	require.Equal(t, Failures{"a": "No threads here.", "b": "No threads here.", "c": "No time."}, f)

	for text, want := range map[string]string{
		"a\n":              "line 1: a has no explanation",
		"# x\na\n\nb\n":    "line 4: b has no explanation",
		"# x\na\na\n":      "line 3: a is listed twice",
		"# x\na\n# y\nb":   "line 3: an explanation stands above its names",
		"# x\na\n\n#\nb\n": "line 5: b has no explanation",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want)
	}
}

func TestCompare(t *testing.T) {
	f, err := Parse(list)
	require.NoError(t, err)
	unknown, gone := f.Compare([]string{"z", "a", "y"}, func(name string) bool { return name != "c" })
	require.Equal(t, []string{"y", "z"}, unknown)
	require.Equal(t, []string{"b"}, gone)

	reasons, count := f.Reasons([]string{"c", "a", "b", "z"})
	require.Equal(t, []string{"No threads here.", "No time."}, reasons)
	require.Equal(t, map[string]int{"No threads here.": 2, "No time.": 1}, count)
}
