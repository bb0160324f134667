package answer

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// An error text has what a program has said first and last, in whole lines.
func TestEnds(t *testing.T) {
	text := "error: no such table: ä\n"
	for i := range 2000 {
		text += fmt.Sprintf("usage line %d: é\n", i)
	}
	for _, size := range []int{1, 7, 1000, len(text)} {
		var kept tail
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			kept.Write(rest[:min(size, len(rest))])
		}
		got := string(kept.Bytes())
		require.True(t, strings.HasPrefix(got, "error: no such table: ä\nusage line 0: é\n"), got)
		require.True(t, strings.HasSuffix(got, "usage line 1998: é\nusage line 1999: é\n"), got)
		require.Regexp(t, `(?m)^…\nusage line \d+: é$`, got)
		require.LessOrEqual(t, len(got), maxTail)
		require.Equal(t, string(Ends([]byte(text))), got)

		var restored tail
		restored.Restore([]byte(got))
		require.Equal(t, got, string(restored.Bytes()))
	}
	require.Equal(t, "short", string(Ends([]byte("short"))))
}

// A text without lines is cut between characters.
func TestEndsOfOneLine(t *testing.T) {
	for shift := range 4 {
		got := Ends([]byte(strings.Repeat("x", shift) + strings.Repeat("😀", 2000)))
		require.True(t, utf8.Valid(got))
		require.LessOrEqual(t, len(got), maxTail)
		require.Greater(t, len(got), maxTail-16)
	}
	require.LessOrEqual(t, len(Ends([]byte(strings.Repeat("\x80", 9000)))), maxTail)
}
