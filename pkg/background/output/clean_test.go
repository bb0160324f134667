package output

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClean(t *testing.T) {
	for name, c := range map[string]struct{ raw, want string }{
		"plain":                  {"a\tb\nß 😀\n", "a\tb\nß 😀\n"},
		"colors":                 {"\x1b[1;31mred\x1b[0m", "red"},
		"title ended by BEL":     {"\x1b]0;title\abody", "body"},
		"link ended by ST":       {"\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"},
		"charset":                {"\x1b(Btext", "text"},
		"save cursor":            {"\x1b7a\x1b8b", "ab"},
		"cut sequence":           {"text\x1b[3", "text"},
		"lone escape":            {"a\x1b", "a"},
		"escape, then text":      {"a\x1b\nb", "a\nb"},
		"malformed sequence":     {"\x1b[1\nb", "\nb"},
		"title without an end":   {"\x1b]0;title\nb", "0;title\nb"},
		"progress":               {"10%\r20%\r30%\nok", "30%\nok"},
		"CRLF":                   {"a\r\nb\r\n", "a\nb\n"},
		"CR at the end":          {"10%\r", "10%"},
		"stderr tag stays":       {"[stderr] 10%\r20%\n", "[stderr] 20%\n"},
		"erase line":             {"\r\x1b[2K10%\r\x1b[2K20%", "20%"},
		"controls":               {"a\x00\b\x7fb\u0085c", "abc"},
		"bytes that are no text": {"a\xff\xc3b", "a\uFFFD\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, Clean([]byte(c.raw))) })
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte("10%\r\x1b[31m20%\n\x1b]0;t\a\xff"), 3)
	f.Fuzz(func(t *testing.T, raw []byte, chars int) {
		text := Clean(raw)
		require.True(t, utf8.ValidString(text))
		require.False(t, strings.ContainsAny(text, "\x1b\r\x00\a\b"))
		require.Equal(t, text, Clean([]byte(text)), "what is clean stays as it is")
		chars = 1 + max(0, chars)%50
		used := take(raw, chars, false)
		require.LessOrEqual(t, utf8.RuneCountInString(Clean(raw[:used])), chars)
		require.True(t, used > 0 || len(raw) == 0, "a cursor always gets on")
		require.LessOrEqual(t, take(raw, chars, true), used)
		start := lastLines(raw, chars, false)
		require.LessOrEqual(t, utf8.RuneCount(raw[start:]), chars)
	})
}

func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"1:0", "0:5", "", ":", "1:-1", "01:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err != nil {
			return
		}
		require.Equal(t, s, c.String())
		require.True(t, c.Attempt >= 0 && c.Offset >= 0)
	})
}

func TestClip(t *testing.T) {
	require.Equal(t, "äöü", Clip("äöü", 3))
	require.Equal(t, "äö…", Clip("äöüx", 3))
	require.Equal(t, "…", Clip("ab", 1))
	require.Equal(t, "", Clip("", 3))
}

// An escape sequence that is cut off belongs to the next piece.
func TestPartial(t *testing.T) {
	for piece, want := range map[string]int{
		"":                                  0,
		"abc":                               0,
		"a€"[:3]:                            2,
		"abc\x1b":                           1,
		"abc\x1b[3":                         3,
		"abc\x1b[31m":                       0,
		"abc\x1b[31m\x1b]0;owned":           9,
		"abc\x1b]0;owned\x1b":               10,
		"abc\x1b]0;owned\x07":               0,
		"\x1b]" + strings.Repeat("x", 5000): 0,
	} {
		require.Equal(t, want, Partial([]byte(piece)), "%q", piece)
	}
}

// At most the last three bytes of a piece are an incomplete character. Bytes that
// cannot begin a character are complete: no further bytes could make them one.
func TestPartialRune(t *testing.T) {
	for piece, want := range map[string]int{
		"":                  0,
		"abc":               0,
		"a€":                0,
		"a€"[:3]:            2,
		"a€"[:2]:            1,
		"\U0001f600"[:3]:    3,
		"\xac":              0,
		"a\xe2\x82\xac\xac": 0,
		"\xff":              0,
	} {
		require.Equal(t, want, PartialRune([]byte(piece)), "%q", piece)
	}
}
