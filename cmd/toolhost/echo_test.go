package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// What a command has written is its result if it is the same text, of any size and in
// any pieces.
func TestEcho(t *testing.T) {
	large := strings.Repeat("ä line of a long result \n\n", 200_000)
	for name, test := range map[string]struct {
		pieces []wire.Output
		result string
		is     bool
	}{
		"nothing":               {nil, "", true},
		"nothing written":       {nil, "a", false},
		"spaces only":           {[]wire.Output{{Text: " \n"}, {Text: "\n"}}, "", true},
		"spaces around and in":  {[]wire.Output{{Text: "\n "}, {Text: "a"}, {Text: " \n"}, {Text: "\nb"}, {Text: "\n"}}, "a \n\nb", true},
		"other spaces in":       {[]wire.Output{{Text: "a"}, {Text: " "}, {Text: "b"}}, "a  b", false},
		"large":                 {[]wire.Output{{Text: large[:1000]}, {Text: large[1000:]}}, large, true},
		"large, one byte off":   {[]wire.Output{{Text: large}}, large + ".", false},
		"a part omitted":        {[]wire.Output{{Text: "a"}, {Text: "c", Omitted: 1}}, "b", false},
		"not UTF-8":             {[]wire.Output{{Base64: []byte{0xff}}, {Text: "a"}}, "a", false},
		"of an earlier attempt": {[]wire.Output{{Text: "b", Omitted: 1}, {Attempt: 2, Text: "a"}}, "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			var said echo
			for _, piece := range test.pieces {
				said.take(piece, func(wire.Output) {})
			}
			rest, is := said.rest(test.result)
			require.Equal(t, test.is, is)
			if is {
				require.Empty(t, rest)
			}
		})
	}
}

// Of a result whose output the server has not kept whole, the rest is shown after what
// was shown already. Any other output is shown with its gap.
func TestEchoOfPart(t *testing.T) {
	for name, test := range map[string]struct {
		result, rest string
		is           bool
		shown        string // before the result
	}{
		"the result":     {" ab cdefgh\n", " cdefgh", true, "ab "},
		"another result": {"axcdefgh", "", false, "ab gh"},
		"a shorter one":  {"a", "", false, "ab gh"},
	} {
		t.Run(name, func(t *testing.T) {
			var said echo
			shown := ""
			show := func(piece wire.Output) { shown += piece.Text }
			for _, piece := range []wire.Output{{Text: "ab "}, {Text: "g", Omitted: 4}, {Text: "h"}} {
				said.take(piece, show)
			}
			require.Equal(t, "ab ", shown)
			rest, is := said.rest(test.result)
			require.Equal(t, test.is, is)
			if is {
				require.Equal(t, test.rest, rest)
			} else {
				said.showLate(show)
			}
			require.Equal(t, test.shown, shown)
		})
	}
}
